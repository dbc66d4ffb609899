#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates tests/golden/vocab, in the lab (tools/lab.sh run tools/golden/vocabularies.py).

  pre_tokenizers.txt   how Hugging Face's tokenizers splits difficult texts, by the published pre-tokenizers
  unigram.gguf, .txt   a small unigram vocabulary with normalisation rules, and SentencePiece's tokens of texts
  bpe.gguf, .txt       the same for a vocabulary like Gemma's: spaces kept, runs of spaces as tokens, byte fallback
  merged.gguf, .txt    the same for BPE with normalisation rules, merged spaces and no byte tokens
  ranked.gguf, .txt    a vocabulary like Gemma 4's, by Hugging Face's tokenizers: merges of characters by rank

A line of .txt is a case; "|" separates words or ids. \\n, \\r, \\t, \\\\, \\p (for |) and \\u{...} are escapes.
"""
import json
import os
import struct
import sys
import tempfile

import gguf
import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "vocab")

TEXTS = [
    "Hello, world! It's 3.14 o'clock; we'LL see, I'VE said: DON'T.",
    "numbers 1 12 123 1234 12345 1234567 and a1b22c333 x²y³ ١٢٣ ४५६ Ⅻ ½",
    "  leading,   three   inside\tand\ttabs\t\t, trailing   ",
    "one\ntwo\n\nthree\r\nfour\r\n\r\n  five\n \n x\n",
    "naïve café Ελλάδα Привет, мир! Ünïcödé ßẞ ĲsselmeerǅX",
    "日本語の文章です。中文，標點！한국어 띄어쓰기 　全角　スペース",
    "🦙 🏳️‍🌈👩‍👩‍👧 ✋🏽❤️ emoji😀😃text #️⃣",
    "e\u0301a\u0308 क्षि नमस्ते ภาษาไทย עִבְרִית العَرَبِيَّة",
    "f(x) = {a[0]: \"b\", 'c': <d/>} // -> $5.00 += `code` ~ ^|_^ \\n @me #tag 50%",
    "snake_case camelCase PascalCase HTTPServer XMLHttpRequest IDs A B aB iPhone",
    "a\u00a0b\u2003c\u3000d\u0085e\u2028f\u180eg\u200bh\ufeffi",
    "...!!!??? ---- ____ ==== :-) ;) <3 -> … « » “quoted” ‘single’",
    "I'm you're he'd we'll they'ves 'sup 'tis rock'n'roll O'NEILL'S ’s",
    "https://example.org/path?query=1&b=2#frag user@mail.com /usr/lib/x86_64/",
    " \n", "\n ", " ", "\t", "\r\n", "a", "'", "  a", " \u3000 x", "x  ", "1", " 1", " 1234", "。", "a。b、c，d", "।۔،", "\u0600\u0301", "(((", "a/b//\n/c",
]

# Findings of compare_tokenizers.py, shortened as far as possible.
FINDS = ["ᅧ", "the ᅧᅧ cat", "▁", "the ▁▁ ", "111111", "99%" + "1" * 21, "8" + "\u3000" * 6, "=" * 26, "1" * 27 + "=" * 13 + "1" * 14, "日" * 100]

CJK = "[一-龥ࠀ-一가-\ud7ff]+".encode("utf-16", "surrogatepass").decode("utf-16", "replace")
CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = "(?i:" + CONTRACTIONS + r")|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UNFOLDED = r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|"
QWEN35 = "(?i:" + CONTRACTIONS + r")|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI_K2 = (r"[\p{Han}]+" + 2 * (r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s(?i:" + CONTRACTIONS
           + ")?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+") % ("*", "+", "+", "*")
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7d"
    "ᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ\u1fd0-\u1fd3\u1fd6-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-\u212dℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇ"
    "Ꞌ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+")
DEEPSEEK_V3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
               "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def digits(individual=True):
    return pre_tokenizers.Digits(individual_digits=individual)


# By the first of the names in src/model/tokenizer/tokenizer_pre.c: the steps of the published tokenizer.json (its last one, ByteLevel without a
# pattern, cuts nothing and is left out), and whether it composes the text first. In brackets: where it was published.
PRE = {
    "gpt-2": ([byte_level()], False),  # openai-community/gpt2; microsoft/phi-2
    "mpt": ([byte_level()], True),  # EleutherAI/gpt-neox-20b, of which mosaicml/mpt-7b and allenai/OLMo take theirs
    "llama-bpe": ([split(CL100K % r"\p{N}{1,3}")], False),  # meta-llama/Meta-Llama-3-8B
    "dbrx": ([split(CL100K % r"\p{N}{1,3}")], False),  # databricks/dbrx-base, allenai/dolma2-tokenizer
    "qwen2": ([split(CL100K % r"\p{N}")], True),  # Qwen/Qwen2-7B; stabilityai/stablelm-2-1_6b (Arcade100k)
    "grok-2": ([split(CL100K % r"\p{N}")], False),
    "qwen35": ([split(QWEN35)], True),  # Qwen/Qwen3.5
    "gpt-4o": ([split(CASED % (("(?i:" + CONTRACTIONS + ")?",) * 2 + (r"\p{N}{1,3}",)))], False),  # o200k; meta-llama/Llama-4-Scout
    "kimi-k2": ([split(KIMI_K2)], False),  # moonshotai/Kimi-K2-Instruct, Kimi-Linear-48B-A3B-Instruct (tiktoken)
    "tekken": ([split(CASED % ("", "", r"\p{N}"))], False),  # mistralai/Mistral-Nemo-Base-2407
    "starcoder": ([digits(), byte_level()], False),  # bigcode/starcoder2-7b; smallcloudai/Refact-1_6B; HuggingFaceTB/SmolLM2
    "command-r": ([digits(), byte_level()], True),  # CohereForAI/c4ai-command-r-v01
    "falcon": ([pre_tokenizers.Punctuation("contiguous"), byte_level(), digits(False), split("[0-9][0-9][0-9]")], False),  # tiiuae/falcon-7b
    "bloom": ([split(BLOOM)], False),  # bigscience/bloom
    "viking": ([split(BLOOM), digits()], False),  # LumiOpen/Viking-7B
    "deepseek-llm": ([split("[\r\n]"), split(DEEPSEEK_LETTERS), split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"), split("\\s+$"), split(CJK), digits()],
                     False),  # deepseek-ai/deepseek-llm-7b-base
    "deepseek-coder": ([split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split(CJK), digits()], False),  # deepseek-coder-6.7b
    "deepseek-v3": ([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK_V3)], False),  # deepseek-ai/DeepSeek-V3
    # as llama.cpp 0.7.0 has them: ByteDance-Seed/Seed-OSS-36B-Instruct; inclusionAI/Ling-mini-2.0
    "seed-coder": ([split(UNFOLDED + r"\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+")], False),
    "bailingmoe": ([split(UNFOLDED + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")], False),
    # likewise: LGAI-EXAONE/K-EXAONE-236B-A23B; arcee-ai/Trinity-Mini
    "exaone-moe": ([split("(?i:" + CONTRACTIONS + r")|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
                          r"|\s*[\r\n]|\s+(?!\S)|\s+")], False),
    "afmoe": ([split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"), split("[一-鿿㐀-䶿\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff"
                                                                   "가-\ud7afᄀ-ᇿ]+"), split(DEEPSEEK_V3)], False),
    # of no publication: what llama.cpp takes for files that name none
    "default": ([split(r"[\p{P}\$\+<=>\^\~\|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]")], False),
}

# Falcon's digits are looked for among the stand-ins of bytes, where these bytes look like ¹²³¼½¾. No merge of its vocabulary crosses
# such a cut, so Reprise does not make it: texts with these bytes are not compared.
FALCON_BYTES = set(b"\xb2\xb3\xb9\xbc\xbd\xbe")


def escape(text):
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "|": "\\p"}
    return "".join(named.get(c, c if c.isprintable() else "\\u{%x}" % ord(c)) for c in text)


def cut(name, text):
    steps, nfc = PRE[name]
    if nfc:
        text = normalizers.NFC().normalize_str(text)
    pieces = pre_tokenizers.Sequence(steps).pre_tokenize_str(text)
    return [text[begin:end] for _, (begin, end) in pieces]


def comparable(name, text):
    return name != "falcon" or not FALCON_BYTES & set(text.encode())


def write(name, lines):
    with open(os.path.join(OUT, name), "w", encoding="utf-8", newline="") as f:
        f.write("".join(line + "\n" for line in lines))


def make_pre_tokenizers():
    write("pre_tokenizers.txt", [f"{name}\t{escape(text)}\t" + "|".join(map(escape, cut(name, text)))
                                 for name in PRE for text in TEXTS + FINDS if comparable(name, text)])


# ---- SentencePiece ----

CORPUS = [t for t in TEXTS if t.strip()] + [
    "the quick brown fox jumps over the lazy dog", "the rain in spain stays mainly in the plain", "she sells sea shells by the sea shore",
    "once upon a time there was a little girl who lived in a village near the forest", "the cat and the hat and the bat",
    "to be or not to be that is the question", "all that glitters is not gold", "a stitch in time saves nine",
    "1 11 111 11111 = == ==== ======= 11 111 == ====",
] * 4

# From, to: sequences of characters. A small piece of NFKC, and a rule that removes, one that makes spaces, one longer than its beginning.
RULES = [("Ａ", "A"), ("Ｂ", "B"), ("ａ", "a"), ("ﬁ", "fi"), ("ﬀ", "ff"), ("½", "1/2"), ("²", "2"), ("\u00a0", " "), ("\u3000", " "), ("\t", " "),
         ("\n", " "), ("\r", " "), ("\u200b", ""), ("e\u0301", "é"), ("a\u0308", "ä"), ("e\u0301\u0301", "ë"), ("…", "..."), ("™", " TM ")]


def train(corpus, **options):
    with tempfile.TemporaryDirectory() as d:
        rules = os.path.join(d, "rules.tsv")
        with open(rules, "w", encoding="utf-8") as f:
            for a, b in RULES:
                f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        if options.pop("rules", False):
            options["normalization_rule_tsv"] = rules
        else:
            options.setdefault("normalization_rule_name", "identity")
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_prefix=os.path.join(d, "m"), num_threads=1,
                                                 hard_vocab_limit=False, minloglevel=2, **options)
        with open(os.path.join(d, "m.model"), "rb") as f:
            return f.read()


def holds_written_run(text):
    """If runs of spaces are tokens, SentencePiece treats U+2581 in a text as a space of a run; Reprise accepts only spaces."""
    return any(run in text for run in ("▁▁", "▁ ", " ▁"))


def fields(message):
    """Field numbers and values of a protocol buffer's message."""
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    at = 0
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        n = {1: 8, 2: None, 5: 4}[key & 7]
        n = varint() if n is None else n
        yield key >> 3, message[at:at + n]
        at += n


def save(path, proto, model, architecture):
    pieces = [dict(fields(v)) for k, v in fields(proto) if k == 1]  # 1: text, 2: score, 3: type
    normalizer = dict(fields(next(v for k, v in fields(proto) if k == 3)))  # 2: table, 3: dummy space, 4: merges spaces
    p = sentencepiece.SentencePieceProcessor(model_proto=proto)
    types = [piece.get(3, 1) for piece in pieces]
    texts = [piece[1].decode() for piece in pieces]
    w = gguf.GGUFWriter(path, architecture)
    w.add_tokenizer_model(model)
    w.add_tokenizer_pre("default")
    # as llama.cpp's converter: spaces of user-defined pieces are written plainly
    w.add_token_list([t.replace("▁", " ") if k == 4 else t for t, k in zip(texts, types)])
    w.add_token_scores([struct.unpack("<f", piece.get(2, bytes(4)))[0] for piece in pieces])
    w.add_token_types(types)
    w.add_bos_token_id(p.bos_id())
    w.add_eos_token_id(p.eos_id())
    w.add_unk_token_id(p.unk_id())
    w.add_add_space_prefix(bool(normalizer.get(3, 1)))
    w.add_remove_extra_whitespaces(bool(normalizer.get(4, 1)))
    if normalizer.get(2):
        w.add_precompiled_charsmap(normalizer[2])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def make_sentencepiece(name, proto, model, architecture):
    save(os.path.join(OUT, name + ".gguf"), proto, model, architecture)
    p = sentencepiece.SentencePieceProcessor(model_proto=proto)
    more = ["ＡＢａ ﬁsh oﬀ ½ x² e\u0301a\u0308e\u0301\u0301 a…b TM™x", "  the   cat  ", "   ", "the\u3000\u00a0 cat\u200b", "unknown: жук 龍龍龍 a龍b", "▁the▁cat"]
    texts = [t for t in TEXTS + FINDS + more if name != "bpe" or not holds_written_run(t)]
    write(name + ".txt", [f"{escape(t)}\t" + "|".join(map(str, p.encode(t))) for t in texts])


def make_ranked(name):
    """Gemma 4's kind: spaces as U+2581, merges of characters by rank, byte tokens, line ends apart from other text."""
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(CORPUS + ["one\n\n\ntwo\n\nthree", "a\n\n\nb"] * 4,
                          trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False, limit_alphabet=160))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = gguf.GGUFWriter(os.path.join(OUT, name + ".gguf"), "gemma4")
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([3, 3, 3, 2] + [6] * 256 + [1] * (len(tokens) - 260))
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    for set_id, id in ((writer.add_pad_token_id, 0), (writer.add_eos_token_id, 1), (writer.add_bos_token_id, 2), (writer.add_unk_token_id, 3)):
        set_id(id)
    writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    more = ["unknown: жук 龍龍龍 a龍b", "\n", "\n\n\n\n\n", "a\n\n b \n", "   ", "the▁cat"]
    write(name + ".txt", [f"{escape(x)}\t" + "|".join(map(str, t.encode(x).ids)) for x in TEXTS + FINDS + more])


def main():
    os.makedirs(OUT, exist_ok=True)
    make_ranked("ranked")
    make_pre_tokenizers()
    make_sentencepiece("unigram", train(CORPUS, model_type="unigram", vocab_size=300, rules=True), "t5", "t5")
    spaces = ["▁" * n for n in range(2, 9)]
    make_sentencepiece("bpe", train(CORPUS, model_type="bpe", vocab_size=700, byte_fallback=True, add_dummy_prefix=False,
                                    remove_extra_whitespaces=False, character_coverage=0.98,
                                    user_defined_symbols=spaces + ["\n\n", "<table>"]), "llama", "gemma")
    make_sentencepiece("merged", train(CORPUS, model_type="bpe", vocab_size=400, rules=True), "llama", "llama")


if __name__ == "__main__":
    sys.exit(main())
