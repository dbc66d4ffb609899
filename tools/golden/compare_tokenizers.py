# SPDX-License-Identifier: Apache-2.0
"""Compares Reprise's tokenizer with the models' published ones, on random difficult texts.

    tools/lab.sh tokenizers [SECONDS [SEED]]

Byte-level BPE: for each pre-tokenizer, Hugging Face's tokenizers with the steps of vocabularies.py, over one vocabulary
that was trained without any cut, so that a cut at another place gives other tokens. SentencePiece: the library itself,
over vocabularies with each of its settings. Reprise runs as build/token_ids, on file descriptors 3 (answers) and 4
(requests).

A text with different tokens is shortened as far as possible and printed; its vocabulary is skipped from then on. Add
the text to FINDS of vocabularies.py, and regenerate the vectors.
"""
import collections
import json
import os
import random
import sys
import tempfile
import time

import gguf
import sentencepiece
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

import difficult_text
import vocabularies

CONTROL = ["<|im_start|>", "<|im_end|>", "</s>", "[INST]"]
USER_DEFINED = ["<tool>", "<table>", "    "]
IGNORE_MERGES = {"llama-bpe", "tekken"}

# Other names in GGUF files, and the pre-tokenizer with the same steps.
SAME = {"llama4": "gpt-4o", "olmo": "mpt", "phi-2": "gpt-2", "stablelm2": "qwen2", "refact": "starcoder", "smollm": "starcoder"}

SENTENCEPIECE = {
    "spm-llama": ("llama", dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False)),
    "spm-gemma": ("llama", dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False, split_digits=True,
                                user_defined_symbols=["▁" * n for n in range(2, 32)] + ["\n\n", "<table>", "<tool>"])),
    "spm-nfkc": ("llama", dict(model_type="bpe", normalization_rule_name="nmt_nfkc")),
    "spm-whole": ("llama", dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, split_by_whitespace=False,
                                split_by_unicode_script=False, split_by_number=False)),
    "unigram-t5": ("t5", dict(model_type="unigram", normalization_rule_name="nmt_nfkc")),
    "unigram-folded": ("t5", dict(model_type="unigram", normalization_rule_name="nfkc_cf", byte_fallback=True)),
    "unigram-kept": ("t5", dict(model_type="unigram", byte_fallback=True, remove_extra_whitespaces=False)),
    "unigram-whole": ("t5", dict(model_type="unigram", remove_extra_whitespaces=False, add_dummy_prefix=False, split_by_whitespace=False,
                                 split_by_unicode_script=False, split_by_number=False)),
}


# ---- Reprise ----

class Reprise:
    def __init__(self):
        self.answers, self.requests, self.n = os.fdopen(3, "rb"), os.fdopen(4, "wb"), 0

    def ask(self, request):
        self.requests.write(request)
        self.requests.flush()
        answer = self.answers.readline()
        if not answer:
            sys.exit("compare_tokenizers: token_ids ended")
        return answer

    def open(self, path):
        self.ask(b"open %s\n" % os.path.relpath(path).encode())
        self.n += 1
        return self.n - 1

    def encode(self, vocabulary, text, special):
        text = text.encode()
        return list(map(int, self.ask(b"encode %d %d %d\n%s" % (vocabulary, special, len(text), text)).split()))


# ---- the others ----

def train_bpe(corpus):
    """The vocabulary and the merges of a byte-level BPE over whole texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=4000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def save_bpe(path, name, vocabulary, merges):
    w = gguf.GGUFWriter(path, "gpt2")
    n = len(vocabulary)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(name)
    w.add_token_list(sorted(vocabulary, key=vocabulary.get) + CONTROL + USER_DEFINED)
    w.add_token_types([1] * n + [3] * len(CONTROL) + [4] * len(USER_DEFINED))
    w.add_token_merges([" ".join(m) for m in merges])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def published(name, vocabulary, merges):
    steps, nfc = vocabularies.PRE[SAME.get(name, name)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name in IGNORE_MERGES))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    whole = [] if any(isinstance(s, pre_tokenizers.ByteLevel) for s in steps) else [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + whole)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in USER_DEFINED])
    return tokenizer


class Bpe:
    def __init__(self, reprise, folder, name, vocabulary, merges):
        path = os.path.join(folder, name + ".gguf")
        save_bpe(path, name, vocabulary, merges)
        self.name, self.reprise, self.index = name, reprise, reprise.open(path)
        self.reference = published(name, vocabulary, merges)

    def compare(self, text, special):
        """Both lists of tokens."""
        self.reference.encode_special_tokens = not special
        theirs = self.reference.encode(text, add_special_tokens=False).ids
        return self.reprise.encode(self.index, text, special), theirs

    def compares(self, text):
        return vocabularies.comparable(self.name, text)


class SentencePiece:
    def __init__(self, reprise, folder, name, corpus):
        path = os.path.join(folder, name + ".gguf")
        model, options = SENTENCEPIECE[name]
        proto = vocabularies.train(corpus, vocab_size=4000, character_coverage=1.0, **options)
        vocabularies.save(path, proto, model, model)
        self.name, self.reprise, self.index = name, reprise, reprise.open(path)
        self.reference = sentencepiece.SentencePieceProcessor(model_proto=proto)

    def compare(self, text, special):
        return self.reprise.encode(self.index, text, False), self.reference.encode(text)

    def compares(self, text):
        return self.name != "spm-gemma" or not vocabularies.holds_written_run(text)


def unnamed(corpus):
    """The texts without the names of special tokens: none may be learnt as a word."""
    for text in corpus:
        for name in CONTROL + USER_DEFINED:
            text = text.replace(name, "")
        yield text


def known_sentences(corpus):
    """Training text for SentencePiece: no NUL, no long text, and only frequent characters; the others stay unknown."""
    counts = collections.Counter("".join(corpus))
    known = {c for c, _ in counts.most_common(1500)} - {"\0"}
    for text in corpus:
        sentence = "".join(c for c in text if c in known)
        if 0 < len(sentence.encode()) < 4000:
            yield sentence


def open_all(reprise, folder, r):
    corpus = [difficult_text.text(r) for _ in range(20000)] + vocabularies.CORPUS
    vocabulary, merges = train_bpe(unnamed(corpus))
    for name in [*vocabularies.PRE, *SAME]:
        yield Bpe(reprise, folder, name, vocabulary, merges)
    sentences = list(known_sentences(corpus))
    for name in SENTENCEPIECE:
        yield SentencePiece(reprise, folder, name, sentences)


# ---- comparison ----

def differs(v, text, special):
    ours, theirs = v.compare(text, special) if v.compares(text) else (0, 0)
    return ours != theirs


def shrink(v, text, special):
    """The shortest text that is reached by removing characters."""
    n = len(text)
    while n >= 1:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + n:]
            if differs(v, shorter, special):
                text = shorter
            else:
                at += n
        n //= 2
    return text


def report(v, text, special):
    short = shrink(v, text, special)
    ours, theirs = v.compare(short, special)
    print(f"tokenizers: {v.name}: '{vocabularies.escape(short)}'{' with special tokens' if special else ''} gives {ours}, expected {theirs}", flush=True)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    r = random.Random(seed)
    print(f"tokenizers: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(dir="build") as folder:
        all_of_them = left = list(open_all(Reprise(), folder, r))
    texts, compared, characters, end = 0, 0, 0, time.monotonic() + seconds
    while time.monotonic() < end and left:
        text, special = difficult_text.text(r), r.random() < 0.3
        for v in list(left):
            if differs(v, text, special):
                report(v, text, special)
                left = [x for x in left if x is not v]
            compared += v.compares(text)
        texts += 1
        characters += len(text)
    print(f"tokenizers: {len(all_of_them)} vocabularies, {texts} texts of {characters} characters, {compared} comparisons, "
          f"{len(all_of_them) - len(left)} vocabularies that differ")
    return len(left) < len(all_of_them)


if __name__ == "__main__":
    sys.exit(main())
