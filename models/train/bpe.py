# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE: learns a small vocabulary from the corpus, and encodes with it as the `gpt-2` pre-tokenizer does on ASCII.

`python3 bpe.py` writes vocab.json. Digits are never merged with one another, so that a number is copied digit by digit.
"""
import collections
import json
import os
import random
import re

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vocab.json")


def byte_letters():
    """GPT-2's printable letter for each byte."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + n)
            n += 1
    return letters


LETTERS = byte_letters()


def letters_of(word):
    return tuple(LETTERS[b] for b in word.encode())


def learn(counts, size):
    """counts: word -> how often. Returns the merges, most frequent pair first; ties by the pair's own order."""
    words = [(list(letters_of(w)), n) for w, n in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (letters, n) in enumerate(words):
        for p in zip(letters, letters[1:]):
            pairs[p] += n
            where[p].add(i)
    merges = []
    digit = re.compile(r"\d")
    while len(merges) + 256 + len(SPECIAL) < size:
        best = max((p for p in pairs if not digit.search(p[0]) and (p[0] == "Ġ" or not digit.search(p[1]))), key=lambda p: (pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        for i in list(where[best]):
            letters, n = words[i]
            for p in zip(letters, letters[1:]):
                pairs[p] -= n
                where[p].discard(i)
            merged, k = [], 0
            while k < len(letters):
                if k + 1 < len(letters) and (letters[k], letters[k + 1]) == best:
                    merged.append(letters[k] + letters[k + 1])
                    k += 2
                else:
                    merged.append(letters[k])
                    k += 1
            words[i] = (merged, n)
            for p in zip(merged, merged[1:]):
                pairs[p] += n
                where[p].add(i)
        del pairs[best]
    return merges


class Tokenizer:
    def __init__(self, path=FILE):
        merges = [tuple(m.split(" ")) for m in json.load(open(path))["merges"]]
        self.merges = merges
        self.tokens = SPECIAL + [LETTERS[b] for b in range(256)] + [a + b for a, b in merges]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.ranks = {m: i for i, m in enumerate(merges)}
        self.cache = {}
        self.bytes_of = {letter: b for b, letter in LETTERS.items()}

    def word(self, word):
        if word not in self.cache:
            letters = list(letters_of(word))
            while len(letters) > 1:
                rank, i = min((self.ranks.get(p, 1 << 30), i) for i, p in enumerate(zip(letters, letters[1:])))
                if rank == 1 << 30:
                    break
                letters[i:i + 2] = [letters[i] + letters[i + 1]]
            self.cache[word] = [self.ids[t] for t in letters]
        return self.cache[word]

    def encode(self, text):
        return [t for w in WORDS.findall(text) for t in self.word(w)]

    def decode(self, ids):
        return bytes(self.bytes_of[c] for i in ids for c in (self.tokens[i] if i >= len(SPECIAL) else "")).decode("utf-8", "replace")


def main(size=2048, contexts=40000, seed=1):
    import corpus
    rng, counts = random.Random(seed), collections.Counter()
    for _ in range(contexts):
        task = rng.choice(list(corpus.TASKS))
        c = corpus.make(rng, task, rng.randint(1, 4))
        for text in [c.system, c.preamble] + [" " + p for p in c.parts] + [" " + q for q, _ in c.questions]:
            counts.update(WORDS.findall(text))
        for _, answer in c.questions:
            counts.update(WORDS.findall(" " + answer))
    counts.update({w: 1000 for w in [" " + c for c in "0123456789"] + ["system", "user", "assistant", "\n"]})
    merges = learn(counts, size)
    json.dump({"merges": [" ".join(m) for m in merges]}, open(FILE, "w"), ensure_ascii=False, indent=0)
    print(f"{len(counts)} words, {len(merges)} merges")


if __name__ == "__main__":
    main()
