#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that always answers with the same words: for clients that send long prompts and need an answer that ends.

    scripted_model.py SOURCE OUT [WORD...]

It has the tokenizer of SOURCE (models/reprise-mini.gguf), one layer without effect, and an output matrix in which each token of the answer follows
the one before it: a bigram model. The last token of the generation prompt begins the answer, the end token ends it. Its context is long.
"""
import random
import struct
import sys

from gguf_reader import STRING, ALIGNMENT, Reader

WIDTH, FF, CONTEXT = 64, 32, 131072
SCALE = 0.5  # of logits: 32 for the next token of the answer, about 0 for all others
REPLACED = ("general.file_type", "general.name", "llama.")
BEGIN = "\u010a"  # a line end: the last token of chatml's generation prompt


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key_u32(name, value):
    return text(name) + struct.pack("<II", 4, value)


def keys_of(reader, n_keys):
    """The tokenizer's keys as bytes, the vocabulary and the end token."""
    kept, vocabulary, end = [], [], None
    for _ in range(n_keys):
        start = reader.at
        name, kind = reader.text(), reader.number("I")
        value = reader.at
        reader.skip_value(kind)
        if name == "tokenizer.ggml.tokens":
            vocabulary = Reader(reader.data, value).array_of_texts()
        if name == "tokenizer.ggml.eos_token_id":
            end, = struct.unpack_from("<I", reader.data, value)
        if not name.startswith(REPLACED):
            kept.append(reader.data[start:reader.at])
    return kept, vocabulary, end


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def tensors_of(n_vocab, pairs):
    """Name, dimensions and values of each tensor. pairs: tokens (before, after)."""
    draw = random.Random(1)
    rows = [[draw.choice((-1.0, 1.0)) for _ in range(WIDTH)] for _ in range(n_vocab)]
    out = [[0.0] * WIDTH for _ in range(n_vocab)]
    for before, after in pairs:
        out[after] = [sum(both) for both in zip(out[after], (SCALE * v for v in rows[before]))]
    nothing, ones = [0.0] * (WIDTH * WIDTH), [1.0] * WIDTH
    found = [("token_embd.weight", (WIDTH, n_vocab), sum(rows, [])), ("output.weight", (WIDTH, n_vocab), sum(out, [])),
             ("output_norm.weight", (WIDTH,), ones), ("blk.0.attn_norm.weight", (WIDTH,), ones), ("blk.0.ffn_norm.weight", (WIDTH,), ones)]
    found += [(f"blk.0.attn_{name}.weight", (WIDTH, WIDTH), nothing) for name in ("q", "k", "v", "output")]
    found += [(f"blk.0.ffn_{name}.weight", (WIDTH, FF), nothing[:WIDTH * FF]) for name in ("gate", "up")]
    return found + [("blk.0.ffn_down.weight", (FF, WIDTH), nothing[:WIDTH * FF])]


def write(source, target, words, pairs=()):
    """words: tokens of the answer, as the vocabulary writes them. pairs: more tokens that follow one another, where a grammar allows them."""
    with open(source, "rb") as f:
        data = f.read()
    _, n_keys = struct.unpack_from("<QQ", data, 8)
    kept, vocabulary, end = keys_of(Reader(data), n_keys)
    chain = [vocabulary.index(word) for word in (BEGIN, *words)] + [end]
    if len(set(chain)) != len(chain):
        raise ValueError("each token of the answer may occur once")
    follow = [*zip(chain, chain[1:]), *((vocabulary.index(a), vocabulary.index(b)) for a, b in pairs)]
    kept += [text("general.name") + struct.pack("<I", STRING) + text("scripted"), key_u32("general.file_type", 0)]
    kept += [key_u32(f"llama.{name}", value) for name, value in (
        ("context_length", CONTEXT), ("embedding_length", WIDTH), ("block_count", 1), ("feed_forward_length", FF), ("attention.head_count", 1),
        ("attention.head_count_kv", 1), ("rope.dimension_count", WIDTH), ("vocab_size", len(vocabulary)))]
    kept.append(text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    tensors, heads, body = tensors_of(len(vocabulary), follow), b"", b""
    for name, shape, values in tensors:
        heads += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(body))
        body += floats(values)
        body += bytes(-len(body) % ALIGNMENT)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(kept)) + b"".join(kept) + heads
    with open(target, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT) + body)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], sys.argv[3:])
