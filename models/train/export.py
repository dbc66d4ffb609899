# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint as GGUF: Llama architecture, Q8_0 matrices, F32 norms, the vocabulary and the chat format.

    python3 export.py run/model.pt ../reprise-mini.gguf
"""
import struct
import sys

import numpy as np
import torch

import bpe

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
CHAT = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
ALIGNMENT = 32


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == ARRAY:
        inner, items = v
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return string(v) if kind == STRING else struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def q8_0(x):
    """Blocks of 32: an F16 scale and 32 signed bytes."""
    x = x.reshape(-1, 32)
    scale = (np.abs(x).max(1, keepdims=True) / 127).astype(np.float16)
    inverse = np.where(scale == 0, 0, 1 / np.maximum(scale.astype(np.float32), 1e-30))
    q = np.clip(np.rint(x * inverse), -127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), q.view(np.uint8)], 1).tobytes()


def names_of(shape):
    """Our name of each tensor -> GGUF's."""
    names = {"embed.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    parts = {"attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
             "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    for i in range(shape["layers"]):
        for ours, theirs in parts.items():
            names[f"layers.{i}.{ours}.weight"] = f"blk.{i}.{theirs}.weight"
    return names


def tensors_of(state, shape):
    """(name, dimensions fastest first, type, bytes)"""
    for ours, theirs in names_of(shape).items():
        x = state[ours].float().numpy()
        yield (theirs, x.shape[::-1], 8, q8_0(x)) if x.ndim == 2 else (theirs, x.shape, 0, x.astype(np.float32).tobytes())


def write(path, state, shape):
    t = bpe.Tokenizer()
    metadata = [
        ("general.architecture", STRING, "llama"), ("general.name", STRING, "reprise-mini"), ("general.alignment", U32, ALIGNMENT),
        ("general.file_type", U32, 7), ("general.license", STRING, "apache-2.0"),
        ("llama.context_length", U32, shape["context"]), ("llama.embedding_length", U32, shape["d"]),
        ("llama.block_count", U32, shape["layers"]), ("llama.feed_forward_length", U32, shape["ff"]),
        ("llama.attention.head_count", U32, shape["heads"]), ("llama.attention.head_count_kv", U32, shape["heads"]),
        ("llama.attention.layer_norm_rms_epsilon", F32, shape["eps"]), ("llama.rope.freq_base", F32, shape["theta"]),
        ("llama.rope.dimension_count", U32, shape["d"] // shape["heads"]), ("llama.vocab_size", U32, shape["vocab"]),
        ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, t.tokens)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [3 if x in bpe.SPECIAL else 1 for x in t.tokens])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, [" ".join(m) for m in t.merges])),
        ("tokenizer.ggml.bos_token_id", U32, 0), ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.padding_token_id", U32, 0),
        ("tokenizer.ggml.add_bos_token", BOOL, True), ("tokenizer.chat_template", STRING, CHAT),
    ]
    tensors, offset, infos, data = list(tensors_of(state, shape)), 0, b"", b""
    for name, dims, kind, raw in tensors:
        infos += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
        data += raw + b"\0" * (-len(raw) % ALIGNMENT)
        offset = len(data)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(string(k) + struct.pack("<I", kind) + value(kind, v) for k, kind, v in metadata) + infos
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT) + data)


if __name__ == "__main__":
    saved = torch.load(sys.argv[1], map_location="cpu")
    write(sys.argv[2], saved["model"], saved["shape"])
