# SPDX-License-Identifier: Apache-2.0
"""Generates tests/golden/formats: random blocks of every weight format, with their values as decoded by llama.cpp's
gguf-py.

    python3 tools/golden/formats.py     in the lab (tools/lab.sh)

One GGUF file: a tensor NAME of the format, and NAME.values, F32. Every bit is random, those of scales too: there are
infinities and NaNs.
"""
import os
import sys
import zlib

os.environ.update(NO_LOCAL_GGUF="1")
sys.path.insert(1, "/usr/share/llama.cpp/llama.cpp-tools")  # Debian's folder of the converter

import gguf
import numpy as np

import index

FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
           "MXFP4")
ELEMENTS = {1: 256, 32: 512, 256: 1024}  # of a tensor, by the format's block


def blocks_of(kind):
    """Random bytes, a block a row."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(zlib.crc32(kind.name.encode()))
    blocks = random.integers(0, 256, (ELEMENTS[elements] // elements, size), np.uint8)
    if kind.name == "MXFP4":
        blocks[:3, 0] = (0, 1, 255)  # exponents with a subnormal scale, and E8M0's NaN
    return blocks


def main():
    folder = index.FOLDER / "formats"
    folder.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(folder / "blocks.gguf", "none")
    writer.add_string("made_with", f"gguf-py {index.gguf_version()}")
    for name in FORMATS:
        kind = gguf.GGMLQuantizationType[name]
        blocks = blocks_of(kind)
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(blocks, kind).astype("<f4").ravel()
        writer.add_tensor(name, blocks.ravel(), raw_dtype=kind)
        writer.add_tensor(f"{name}.values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
