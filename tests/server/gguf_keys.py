# SPDX-License-Identifier: Apache-2.0
"""Copies of GGUF files with further keys, for servers that need a model with them."""
import struct

U32, STRING, ARRAY = 4, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
HEADER = 24  # magic, version, numbers of tensors and keys
ALIGNMENT = 32  # unless general.alignment says otherwise


class Reader:
    def __init__(self, data):
        self.data, self.at = data, HEADER

    def number(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def skip_value(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, n = self.number("I"), self.number("Q")
            if inner in SIZES:
                self.at += n * SIZES[inner]
            else:
                for _ in range(n):
                    self.skip_value(inner)
        else:
            self.at += SIZES[kind]


def add_keys(source, target, keys):
    """Writes a copy of source with more keys: names and 32-bit numbers."""
    with open(source, "rb") as f:
        data = f.read()
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    reader = Reader(data)
    alignment = ALIGNMENT
    for _ in range(n_keys):
        name, kind = reader.text(), reader.number("I")
        if name == "general.alignment":
            alignment, = struct.unpack_from("<I", data, reader.at)
        reader.skip_value(kind)
    for _ in range(n_tensors):
        reader.text()
        n_dimensions = reader.number("I")
        reader.at += 8 * n_dimensions + 4 + 8
    head, rest = data[HEADER:reader.at], data[-(-reader.at // alignment) * alignment:]
    added = b"".join(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<II", U32, value) for name, value in keys.items())
    start = data[:16] + struct.pack("<Q", n_keys + len(keys)) + added + head
    with open(target, "wb") as f:
        f.write(start + bytes(-len(start) % alignment) + rest)
