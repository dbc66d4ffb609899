# SPDX-License-Identifier: Apache-2.0
"""A copy of a GGUF file with another chat template."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
KEY = b"tokenizer.chat_template"


def string_end(data, at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def value_end(data, at, kind):
    if kind == STRING:
        return string_end(data, at)
    if kind != ARRAY:
        return at + SIZES[kind]
    inner, n = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in SIZES:
        return at + n * SIZES[inner]
    for _ in range(n):
        at = value_end(data, at, inner)
    return at


def with_template(path, template):
    """The file's bytes; template None: without one. Offsets of tensors count from the data's beginning, so they stay."""
    with open(path, "rb") as f:
        data = f.read()
    magic, version, n_tensors, n_values = struct.unpack_from("<4sIQQ", data, 0)
    at, kept, n_kept = 24, [], 0
    for _ in range(n_values):
        begin, end_key = at, string_end(data, at)
        end = value_end(data, end_key + 4, struct.unpack_from("<I", data, end_key)[0])
        if data[begin + 8:end_key] != KEY:
            kept.append(data[begin:end])
            n_kept += 1
        at = end
    if template is not None:
        text = template.encode()
        kept.append(struct.pack("<Q", len(KEY)) + KEY + struct.pack("<IQ", STRING, len(text)) + text)
        n_kept += 1
    tensors = at
    for _ in range(n_tensors):
        at = string_end(data, at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    start = (at + 31) // 32 * 32
    head = struct.pack("<4sIQQ", magic, version, n_tensors, n_kept) + b"".join(kept) + data[tensors:at]
    return head + b"\0" * (-len(head) % 32) + data[start:]
