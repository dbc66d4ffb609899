# SPDX-License-Identifier: Apache-2.0
"""Vocabularies of 320 tokens, sufficient for llama.cpp to load them and tokenize text. The golden prompts are token ids."""
import gguf

N = 320
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def byte_letters():
    """GPT-2's character for each byte: printable bytes represent themselves, the others map to U+0100 and above."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, n = {}, 0
    for b in range(256):
        letters[b] = chr(b) if b in printable else chr(256 + n)
        n += b not in printable
    return [letters[b] for b in range(256)]


def write_gpt2(writer, pre):
    """Control tokens 0 to 2, the bytes, and a word for each merge of a space or a vowel with a letter."""
    letters = "etaoinshrdlu"
    merges = [("Ġ", a) for a in letters] + [(a, b) for a in "eaoiu" for b in letters]
    merges = merges[:N - 256 - 3]
    tokens = ["<|begin|>", "<|end|>", "<|pad|>"] + byte_letters() + [a + b for a, b in merges]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL] * 3 + [NORMAL] * (N - 3))
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)


def write_llama(writer):
    """A SentencePiece one: unknown, control, the bytes, a space and numbered words."""
    words = ["▁"] + [f"▁t{i}" for i in range(N - 260)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + words)
    writer.add_token_scores([0.0] * 259 + [-float(i + 1) for i in range(len(words))])
    writer.add_token_types([UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def write(writer: gguf.GGUFWriter, kind):
    write_llama(writer) if kind == "llama" else write_gpt2(writer, kind)
