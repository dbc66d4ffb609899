# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint as GGUF: llama or granitehybrid, Q8_0 matrices, F32 vectors, the vocabulary and the chat format.

    python3 export.py run/model.pt ../reprise-mini.gguf
"""
import os
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


# Our name of each tensor -> GGUF's.
BOTH = {"attn_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight", "gate.weight": "ffn_gate.weight",
        "up.weight": "ffn_up.weight", "down.weight": "ffn_down.weight"}
ATTENTION = {"q.weight": "attn_q.weight", "k.weight": "attn_k.weight", "v.weight": "attn_v.weight", "o.weight": "attn_output.weight"}
MAMBA2 = {"inputs.weight": "ssm_in.weight", "conv.weight": "ssm_conv1d.weight", "conv.bias": "ssm_conv1d.bias", "dt_bias": "ssm_dt.bias",
          "a_log": "ssm_a", "skip": "ssm_d", "norm.weight": "ssm_norm.weight", "o.weight": "ssm_out.weight"}


def mixers_of(shape):
    return shape.get("mixers", "a" * shape["layers"])


def names_of(shape):
    names = {"embed.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    for i, mixer in enumerate(mixers_of(shape)):
        for ours, theirs in {**BOTH, **(ATTENTION if mixer == "a" else MAMBA2)}.items():
            names[f"layers.{i}.{ours}"] = f"blk.{i}.{theirs}"
    return names


def tensors_of(state, shape):
    """(name, dimensions fastest first, type, bytes)"""
    for ours, theirs in names_of(shape).items():
        x = state[ours].float().numpy()
        if theirs.endswith(("ssm_a", "ssm_d")):
            x = (-np.exp(x) if theirs.endswith("ssm_a") else x)[:, None]
        elif theirs.endswith("ssm_norm.weight"):
            x = x[None]  # of one group
        elif theirs.endswith("ssm_conv1d.weight"):
            x = x[:, 0]
        is_matrix = x.ndim == 2 and ".ssm_" not in theirs or theirs.endswith(("ssm_in.weight", "ssm_out.weight"))
        yield (theirs, x.shape[::-1], 8, q8_0(x)) if is_matrix else (theirs, x.shape[::-1], 0, x.astype(np.float32).tobytes())


def hyperparameters(shape):
    """Metadata of the architecture."""
    arch = "llama" if shape["kind"] == "llama" else "granitehybrid"
    common = [
        ("context_length", U32, shape["context"]), ("embedding_length", U32, shape["d"]), ("block_count", U32, shape["layers"]),
        ("feed_forward_length", U32, shape["ff"]), ("attention.head_count", U32, shape["heads"]),
        ("attention.head_count_kv", U32, shape["heads"]), ("attention.layer_norm_rms_epsilon", F32, shape["eps"]),
        ("rope.freq_base", F32, shape["theta"]), ("rope.dimension_count", U32, shape["d"] // shape["heads"]),
        ("vocab_size", U32, shape["vocab"]),
    ]
    if arch == "granitehybrid":
        common[5] = ("attention.head_count_kv", ARRAY, (I32, [shape["heads"] if m == "a" else 0 for m in mixers_of(shape)]))
        common += [
            ("attention.scale", F32, (shape["d"] // shape["heads"]) ** -0.5), ("embedding_scale", F32, 1.0), ("residual_scale", F32, 1.0),
            ("logit_scale", F32, 1.0), ("rope.scaling.finetuned", BOOL, False), ("expert_count", U32, 0), ("expert_used_count", U32, 0),
            ("ssm.conv_kernel", U32, shape["kernel"]), ("ssm.state_size", U32, shape["state"]), ("ssm.group_count", U32, 1),
            ("ssm.inner_size", U32, shape["ssm_heads"] * shape["ssm_dim"]), ("ssm.time_step_rank", U32, shape["ssm_heads"]),
        ]
    return arch, [(f"{arch}.{key}", kind, v) for key, kind, v in common]


def write(path, state, shape, name):
    t = bpe.Tokenizer()
    arch, own = hyperparameters(shape)
    metadata = [
        ("general.architecture", STRING, arch), ("general.name", STRING, name), ("general.alignment", U32, ALIGNMENT),
        ("general.file_type", U32, 7), ("general.license", STRING, "apache-2.0"), *own,
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
    write(sys.argv[2], saved["model"], saved["shape"], os.path.basename(sys.argv[2]).split(".")[0])
