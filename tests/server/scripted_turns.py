#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that answers each step of a conversation by a script, tool calls included: for agents, whose prompts are long and who run what it calls.

    scripted_turns.py PROGRAM SOURCE OUT SCRIPT [TEMPLATE]

SCRIPT is a JSON list of answers. MARKS[i], a letter that no prompt of an agent has, makes answer i due; of those in a prompt the last in MARKS
counts. So the user's question has a mark, and so has the file that a tool reads; one within an answer tells apart what looks the same before and
after it.
Without a mark the answer is empty. PROGRAM (build/reprise) tokenizes the
answers: their tokens are those of their text. SOURCE gives the tokenizer, TEMPLATE the chat template.

One layer, residual dimensions in order: code of the token | 1 | strength of a mark | filler (equal norms) | outputs of the 4 heads.

    heads 0-2   attend each to the token so many positions before: constant queries, turned back by them, and constant keys
    head 3      attends to the strongest mark; its rotation is too slow to count
    FFN         one unit for each token of the script: it is on if the mark and the tokens (the last one, three before it) are its own, and writes the
                code of the next one
"""
import itertools
import json
import math
import random
import struct
import subprocess
import sys

import gguf_copy

CODE, HEAD, HEADS, WIDTH = 24, 32, 4, 128
ONE, STRENGTH, FILLER, OUTPUTS = 24, 25, 26, 32  # dimensions of the residual
CONTEXT, BASE = 131072, 1e8
LOOK_BACK = 16  # tokens
FAR = 4  # bits in which two codes differ at least: the product of different contexts is 2 * FAR lower than that of equal ones
MARKS = "\u0221\u0263\u0292\u0398\u03c9\u0416\u044e\u04a8\u04dc\u051a\u0554\u05e9"  # their first UTF-8 bytes are tokens that differ
PROMPT = "<|im_end|>\n<|im_start|>assistant\n"
REPLACED = ("general.file_type", "general.name", "llama.")


def tokens_of(program, model, text):
    run = subprocess.run([program, "tokenize", "-m", model, "--special", "--ids"], input=text.encode(), stdout=subprocess.PIPE, check=True)
    return [int(one) for one in run.stdout.split()]


def codes_of(n):
    """A word of +-1 for each token; two of them differ in FAR places at least."""
    draw, found = random.Random(1), []
    while len(found) < n:
        code = draw.getrandbits(CODE)
        if all((code ^ other).bit_count() >= FAR for other in found):
            found.append(code)
    return [[1.0 if code >> i & 1 else -1.0 for i in range(CODE)] for code in found]


def contexts_of(sequence, begin, marks, mark, back):
    """(mark, tokens before, as `back` selects them): the token that follows; for sequence[begin:]. Of tokens before the generation prompt, which are
    any, there is None. Nothing if two places look the same."""
    found = {}
    for i in range(begin, len(sequence)):
        if sequence[i - 1] in marks[marks.index(mark):]:
            mark = sequence[i - 1]
        context = (mark, *(sequence[i - 1 - n] if i > n else None for n in back))
        for other, token in found.items():
            if token != sequence[i] and all(a == b or None in (a, b) for a, b in zip(context, other, strict=True)):
                return None
        found[context] = sequence[i]
    return found


def units_of(program, source, answers, end):
    """The first tokens of marks; which tokens before the next one the heads look at; (mark, those tokens): the token that follows."""
    marks = [tokens_of(program, source, mark) for mark in MARKS[:len(answers)]]
    if any(len(mark) != 2 for mark in marks) or len({mark[0] for mark in marks}) != len(marks):
        raise ValueError("the first bytes of marks are not tokens of their own in this vocabulary")
    marks = [mark[0] for mark in marks]
    first = tokens_of(program, source, PROMPT)
    sequences = [first + tokens_of(program, source, answer) + [end] for answer in answers]
    for three in itertools.combinations(range(1, LOOK_BACK), 3):
        found = [contexts_of(sequence, len(first), marks, mark, (0, *three)) for sequence, mark in zip(sequences, marks, strict=True)]
        if None not in found:
            return marks, three, {context: token for of_answer in found for context, token in of_answer.items()}
    raise ValueError("an answer has places that look the same: use other words, or a higher mark between them")


class Matrix:
    def __init__(self, n_in, n_out):
        self.shape, self.rows = (n_in, n_out), [[0.0] * n_in for _ in range(n_out)]

    def bytes(self):
        return b"".join(struct.pack(f"<{len(row)}f", *row) for row in self.rows)


def attention(layer, back):
    q, k, v, out = (Matrix(WIDTH, n) for n in (WIDTH, HEAD, HEAD, WIDTH))
    layer.update({"attn_q": q, "attn_k": k, "attn_v": v, "attn_output": out})
    slow = HEAD // 2 - 1  # the pair of marks
    k.rows[2 * slow][STRENGTH] = 1.0
    q.rows[3 * HEAD + 2 * slow][ONE] = 20 * math.sqrt(HEAD)  # factors of e^10 between marks, of e^40 between one and other tokens
    for pair in range(slow):
        k.rows[2 * pair][ONE] = 20.0
        for head, n in enumerate(back):
            angle = -n * BASE**(-2 * pair / HEAD)
            q.rows[head * HEAD + 2 * pair][ONE], q.rows[head * HEAD + 2 * pair + 1][ONE] = 20 * math.cos(angle), 20 * math.sin(angle)
    for i in range(CODE):
        v.rows[i][i] = 1.0
        for head in range(HEADS):
            out.rows[OUTPUTS + head * CODE + i][head * HEAD + i] = 1.0


def feed_forward(layer, codes, units):
    n = len(units)
    gate, up, down = Matrix(WIDTH, n), Matrix(WIDTH, n), Matrix(n, WIDTH)
    layer.update({"ffn_gate": gate, "ffn_up": up, "ffn_down": down})
    norm = math.sqrt((WIDTH + HEADS * CODE) / WIDTH)  # what the norm before it divides by
    for unit, ((mark, *context), token) in enumerate(units.items()):
        places = [0, OUTPUTS, OUTPUTS + CODE, OUTPUTS + 2 * CODE, OUTPUTS + 3 * CODE]
        known = [(place, one) for place, one in zip(places, [*context, mark], strict=True) if one is not None]
        for place, one in known:
            gate.rows[unit][place:place + CODE] = [20 * norm * value for value in codes[one]]
        gate.rows[unit][ONE] = -20 * norm * (len(known) * CODE - FAR)  # 80 if all are equal, -80 at most if not
        up.rows[unit][ONE] = norm
        for i, value in enumerate(codes[token]):
            down.rows[i][unit] = value * 50 / (20 * FAR)


def tensors_of(n_vocab, marks, back, units, end):
    codes, layer = codes_of(n_vocab), {}
    attention(layer, back)
    feed_forward(layer, codes, units)
    embedding, output = Matrix(WIDTH, n_vocab), Matrix(WIDTH, n_vocab)
    for token, code in enumerate(codes):
        strength = 2 + marks.index(token) / 2 if token in marks else 0.0
        embedding.rows[token][:FILLER + 1] = [*code, 1.0, strength, math.sqrt(WIDTH - CODE - 1 - strength**2)]
        output.rows[token][:CODE] = [4 * value for value in code]
    output.rows[end][ONE] = 200.0  # where no unit is on
    ones = Matrix(WIDTH, 1)
    ones.rows[0] = [1.0] * WIDTH
    ones.shape = (WIDTH,)
    named = {"token_embd": embedding, "output": output, "output_norm": ones, "blk.0.attn_norm": ones, "blk.0.ffn_norm": ones}
    return named | {"blk.0." + name: matrix for name, matrix in layer.items()}


def write(program, source, target, answers, template=None):
    model = gguf_copy.read(source)
    n_vocab, end = len(model.texts("tokenizer.ggml.tokens")), model.number("tokenizer.ggml.eos_token_id")
    marks, back, units = units_of(program, source, answers, end)
    metadata = {name: value for name, value in model.metadata.items() if not name.startswith(REPLACED)}
    metadata |= {"general.name": gguf_copy.string("scripted-turns"), "general.file_type": gguf_copy.u32(0)}
    metadata |= {f"llama.{name}": gguf_copy.u32(value) for name, value in (
        ("context_length", CONTEXT), ("embedding_length", WIDTH), ("block_count", 1), ("feed_forward_length", len(units)), ("attention.head_count", HEADS),
        ("attention.head_count_kv", 1), ("rope.dimension_count", HEAD), ("vocab_size", n_vocab))}
    metadata |= {"llama.attention.layer_norm_rms_epsilon": gguf_copy.f32(1e-6), "llama.rope.freq_base": gguf_copy.f32(BASE)}
    if template is not None:
        metadata["tokenizer.chat_template"] = gguf_copy.string(template)
    tensors, directory, body = tensors_of(n_vocab, marks, back, units, end), b"", b""
    for name, matrix in tensors.items():
        directory += gguf_copy.text_bytes(name.encode() + b".weight")
        directory += struct.pack(f"<I{len(matrix.shape)}QIQ", len(matrix.shape), *matrix.shape, 0, len(body))
        body += matrix.bytes()
        body += bytes(-len(body) % model.alignment())
    gguf_copy.Gguf(metadata, len(tensors), directory, body).write(target)


if __name__ == "__main__":
    with open(sys.argv[4], encoding="utf-8") as script:
        ANSWERS = json.load(script)
    TEMPLATE = None
    if len(sys.argv) > 5:
        with open(sys.argv[5], encoding="utf-8") as jinja:
            TEMPLATE = jinja.read()
    write(sys.argv[1], sys.argv[2], sys.argv[3], ANSWERS, TEMPLATE)
