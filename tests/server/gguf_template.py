# SPDX-License-Identifier: Apache-2.0
"""Copies of a GGUF file with another chat template, and control tokens under other names: models of other families for tests of a server."""
import struct

FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def text(self):
        return self.take(self.number("Q"))

    def value(self, kind):
        """The value's bytes; an array of strings as a list of them."""
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.take(FIXED[kind])
        inner, n = self.number("I"), self.number("Q")
        if inner == STRING:
            return [self.text() for _ in range(n)]
        return struct.pack("<IQ", inner, n) + self.take(FIXED[inner] * n)


def text(data):
    return struct.pack("<Q", len(data)) + data


def written(kind, value):
    if kind == STRING:
        return text(value)
    if isinstance(value, list):
        return struct.pack("<IQ", STRING, len(value)) + b"".join(text(one) for one in value)
    return value


def copy(source, target, template, names=()):
    """names: pairs of a token's name and the one that it gets."""
    with open(source, "rb") as file:
        r = Reader(file.read())
    magic, version, n_tensors, n_keys = r.take(4), r.number("I"), r.number("Q"), r.number("Q")
    assert magic == b"GGUF" and version == 3
    metadata = {}
    for _ in range(n_keys):
        key, kind = r.text(), r.number("I")
        metadata[key] = (kind, r.value(kind))
    begin = r.at
    for _ in range(n_tensors):
        r.text()
        r.take(8 * r.number("I") + 4 + 8)
    directory, end = r.data[begin:r.at], r.at
    alignment = struct.unpack("<I", metadata.get(b"general.alignment", (4, struct.pack("<I", 32)))[1])[0]
    metadata[b"tokenizer.chat_template"] = (STRING, template.encode())
    tokens = metadata[b"tokenizer.ggml.tokens"][1]
    for old, new in names:
        tokens[tokens.index(old.encode())] = new.encode()
    head = magic + struct.pack("<IQQ", version, n_tensors, len(metadata))
    head += b"".join(text(key) + struct.pack("<I", kind) + written(kind, value) for key, (kind, value) in metadata.items()) + directory
    with open(target, "wb") as file:
        file.write(head + bytes(-len(head) % alignment) + r.data[end + -end % alignment:])
