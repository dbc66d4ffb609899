# SPDX-License-Identifier: Apache-2.0
"""Model files in real shapes with random weights, and the lower bound of their work."""
import math
import os
import struct
import subprocess

from peers.common import CTX, FRESH, MEMORY_TOKENS, ROOT, fail, last_line, say
from peers.programs import LAB


MODELS = os.path.join("build", "bench-models")  # from ROOT, which is /repo in the lab


def model_path(shape, kind):
    return os.path.join(MODELS, f"{shape}-{kind}.gguf")


def make_model(shape, kind):
    """The model's file, with a shorter context; generated if missing or from an older mkgguf. A partial file never has its name."""
    path = model_path(shape, kind)
    full = os.path.join(ROOT, path)
    if os.path.exists(full) and read_gguf(full)[0].get("context_length", 0) >= CTX:
        return path
    os.makedirs(os.path.dirname(full), exist_ok=True)
    say(f"making {path}")
    if kind == "Q4_K_M":
        source = make_model(shape, "F16")
        command = [LAB, "run", "llama-quantize", source, path + ".new", kind, "2"]
    else:
        command = [os.path.join(ROOT, "build", "mkgguf"), shape, kind, path + ".new"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{path} cannot be made: {last_line(done.stderr) or last_line(done.stdout)}")
    os.rename(full + ".new", full)
    return path


def read_gguf(path):
    """A GGUF file's header: {key: number}, without other values, and [(name, sizes, type, bytes)] of its tensors."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    formats = {4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q"}
    with open(path, "rb") as f:
        def number(form):
            return struct.unpack(form, f.read(struct.calcsize(form)))[0]

        def text():
            return f.read(number("<Q")).decode("utf-8")

        def value(kind):
            if kind == 8:
                return text()
            if kind == 9:
                item, n = number("<I"), number("<Q")
                if item == 8:
                    for _ in range(n):
                        f.seek(number("<Q"), os.SEEK_CUR)
                else:
                    f.seek(n * sizes[item], os.SEEK_CUR)
                return None
            raw = f.read(sizes[kind])
            return struct.unpack(formats[kind], raw)[0] if kind in formats else None

        if f.read(4) != b"GGUF":
            fail(f"{path} is no GGUF file: remove it, it is made anew")
        number("<I")
        n_tensors, n_keys = number("<Q"), number("<Q")
        keys = {}
        for _ in range(n_keys):
            key = text()
            found = value(number("<I"))
            if isinstance(found, (int, float)):
                keys[key.partition(".")[2]] = found
        tensors = []
        for _ in range(n_tensors):
            name, n = text(), number("<I")
            tensors.append((name, [number("<Q") for _ in range(n)], number("<I"), number("<Q")))
        ends = sorted(t[3] for t in tensors) + [os.path.getsize(path) - (f.tell() + 31) // 32 * 32]
        return keys, [(name, dims, kind, ends[ends.index(at) + 1] - at) for name, dims, kind, at in tensors]


class Work:
    """What a model must at least read and multiply. Rows of the last layer that no later token asks for count for their keys and
    values alone; attention counts as f32 (AVX2 multiplies no f16), quantised weights as 8-bit products. Experts are read as often
    as rows choose them at random. Latent attention has one cell a token for all heads."""

    def __init__(self, path):
        keys, tensors = read_gguf(os.path.join(ROOT, path))
        self.layers, self.heads = keys["block_count"], keys["attention.head_count"]
        self.used_experts = keys.get("expert_used_count", 1) / keys.get("expert_count", 1)  # share of a layer's experts for a row
        latent = keys.get("attention.kv_lora_rank")
        if latent:
            self.pair_dims = 2 * latent + keys["rope.dimension_count"]  # multiplications of a head with a slot
            self.kv_bytes = self.layers * (latent + keys["rope.dimension_count"]) * 2
        else:
            self.pair_dims = 2 * keys["attention.key_length"]
            self.kv_bytes = self.layers * 2 * keys["attention.head_count_kv"] * keys["attention.key_length"] * 2
        self.file_bytes = os.path.getsize(os.path.join(ROOT, path))
        self.weight_bytes, self.expert_bytes = 0, 0
        self.all_rows, self.one_row = {"int8_gops": 0, "f32_gops": 0}, {"int8_gops": 0, "f32_gops": 0}  # operations
        tied = not any(name == "output.weight" for name, _, _, _ in tensors)
        for name, dims, kind, n_bytes in tensors:
            if name == "token_embd.weight" and not tied:
                continue  # one row of it is looked up
            expert = "_exps." in name
            if expert:
                self.expert_bytes += n_bytes
            else:
                self.weight_bytes += n_bytes
            if len(dims) < 2:
                continue
            last = name.startswith(f"blk.{self.layers - 1}.") and ".attn_k." not in name and ".attn_v." not in name
            rows = self.one_row if last or not name.startswith("blk.") else self.all_rows
            rows["f32_gops" if kind in (0, 1, 30) else "int8_gops"] += 2 * math.prod(dims) * (self.used_experts if expert else 1)

    def read_bytes(self, n):
        """Bytes of weights that n rows read."""
        return self.weight_bytes + self.expert_bytes * (1 - (1 - self.used_experts) ** n)

    def prompt_ms(self, cached, n, limits):
        """TTFT of n new tokens after `cached` ones."""
        multiplied = sum((self.all_rows[unit] * n + self.one_row[unit]) / limits[unit] for unit in self.all_rows)
        pairs = cached * n + n * (n + 1) / 2
        multiplied += 2 * self.heads * self.pair_dims * ((self.layers - 1) * pairs + cached + n) / limits["f32_gops"]
        read = (self.read_bytes(n) + cached * self.kv_bytes) / limits["read_gbs"]
        return max(multiplied, read) * 1e-6

    def limit(self, cell, limits):
        """The lower bound of a cell: ms, or bytes for `memory`."""
        name, _, n = cell.partition("-")
        n = int(n or 0)
        if name == "prefill":
            return self.prompt_ms(0, n, limits)
        if name == "decode":
            return self.prompt_ms(n, 1, limits)
        if name == "fresh":
            return self.prompt_ms(n + 1, FRESH, limits)
        if name == "full":
            return self.prompt_ms(0, n + 1 + FRESH, limits)
        if name == "load":
            return self.file_bytes / limits["read_gbs"] * 1e-6
        return self.read_bytes(MEMORY_TOKENS) + MEMORY_TOKENS * self.kv_bytes

    def states_ms(self, n, limits):
        return n * self.kv_bytes / limits["read_gbs"] * 1e-6
