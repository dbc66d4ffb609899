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

import gguf_copy

WIDTH, FF, CONTEXT = 64, 32, 131072
SCALE = 0.5  # of logits: 32 for the next token of the answer, about 0 for all others
REPLACED = ("general.file_type", "general.name", "llama.")
BEGIN = "\u010a"  # a line end: the last token of chatml's generation prompt


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


def write(source, target, words, pairs=(), marks=(), template=None):
    """words: tokens of the answer, as the vocabulary writes them. pairs: more tokens that follow one another, where a grammar allows them. marks: names
    that the last tokens of the vocabulary get: no text is cut into these. template: a chat template."""
    model = gguf_copy.read(source)
    if marks:
        model.metadata["tokenizer.ggml.tokens"][1][-len(marks):] = [mark.encode() for mark in marks]
    vocabulary, end = model.texts("tokenizer.ggml.tokens"), model.number("tokenizer.ggml.eos_token_id")
    chain = [vocabulary.index(word) for word in (BEGIN, *words)] + [end]
    if len(set(chain)) != len(chain):
        raise ValueError("each token of the answer may occur once")
    follow = [*zip(chain, chain[1:]), *((vocabulary.index(a), vocabulary.index(b)) for a, b in pairs)]
    metadata = {name: value for name, value in model.metadata.items() if not name.startswith(REPLACED)}
    metadata |= {"general.name": gguf_copy.string("scripted"), "general.file_type": gguf_copy.u32(0)}
    metadata |= {f"llama.{name}": gguf_copy.u32(value) for name, value in (
        ("context_length", CONTEXT), ("embedding_length", WIDTH), ("block_count", 1), ("feed_forward_length", FF), ("attention.head_count", 1),
        ("attention.head_count_kv", 1), ("rope.dimension_count", WIDTH), ("vocab_size", len(vocabulary)))}
    if template:
        metadata["tokenizer.chat_template"] = gguf_copy.string(template)
    metadata["llama.attention.layer_norm_rms_epsilon"] = gguf_copy.f32(1e-5)
    tensors, directory, body = tensors_of(len(vocabulary), follow), b"", b""
    for name, shape, values in tensors:
        directory += gguf_copy.text_bytes(name.encode()) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(body))
        body += floats(values)
        body += bytes(-len(body) % model.alignment())
    gguf_copy.Gguf(metadata, len(tensors), directory, body).write(target)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], sys.argv[3:])
