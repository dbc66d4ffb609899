# SPDX-License-Identifier: Apache-2.0
"""Writes LoRA adapters for a model's file, for tests of a server."""
import random
import struct

import gguf_copy


def matrices(path):
    """The names and shapes of a model's matrices that adapters change."""
    model = gguf_copy.read(path)
    r = gguf_copy.Reader(model.directory)
    found = []
    for _ in range(model.n_tensors):
        name = r.text().decode()
        dims = [r.number("Q") for _ in range(r.number("I"))]
        r.take(12)
        if len(dims) == 2 and name.startswith("blk.") and name.endswith(".weight"):
            found.append((name, dims))
    return model, found


def u32_array(values):
    return gguf_copy.ARRAY, struct.pack("<IQ", gguf_copy.U32, len(values)) + struct.pack(f"<{len(values)}I", *values)


def write(model_path, path, seed, rank=4, alpha=8.0, size=0.2, invocation=None, architecture=None):
    model, found = matrices(model_path)
    numbers = random.Random(seed)
    keys = {"general.type": gguf_copy.string("adapter"), "adapter.type": gguf_copy.string("lora"), "adapter.lora.alpha": gguf_copy.f32(alpha),
            "general.architecture": gguf_copy.string(architecture) if architecture else model.metadata["general.architecture"]}
    if invocation:
        keys["adapter.alora.invocation_tokens"] = u32_array(invocation)
    directory, body = b"", b""
    for name, (n_in, n_out) in found:
        for side, dims in (("a", (n_in, rank)), ("b", (rank, n_out))):
            body += bytes(-len(body) % 32)
            directory += gguf_copy.text_bytes(f"{name}.lora_{side}".encode()) + struct.pack("<IQQIQ", 2, *dims, 0, len(body))
            body += struct.pack(f"<{dims[0] * dims[1]}f", *(numbers.gauss(0, size) for _ in range(dims[0] * dims[1])))
    gguf_copy.Gguf(keys, 2 * len(found), directory, body).write(path)
