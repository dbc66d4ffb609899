# SPDX-License-Identifier: Apache-2.0
"""Reads GGUF files and writes changed ones: models with other keys, chat templates or tensors for tests of a server."""
import struct

U32, F32, STRING, ARRAY = 4, 6, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, U32: 4, 5: 4, F32: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def u32(value):
    return U32, struct.pack("<I", value)


def f32(value):
    return F32, struct.pack("<f", value)


def string(value):
    return STRING, value.encode()


def text_bytes(data):
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind, value):
    if kind == STRING:
        return text_bytes(value)
    if isinstance(value, list):
        return struct.pack("<IQ", STRING, len(value)) + b"".join(text_bytes(one) for one in value)
    return value


class Gguf:
    """metadata: name: (kind, bytes of the value; an array of strings: a list of them). directory: the bytes that describe n_tensors tensors; body: their
    data."""

    def __init__(self, metadata, n_tensors, directory, body):
        self.metadata, self.n_tensors, self.directory, self.body = metadata, n_tensors, directory, body

    def write(self, path):
        head = b"GGUF" + struct.pack("<IQQ", 3, self.n_tensors, len(self.metadata))
        head += b"".join(text_bytes(name.encode()) + struct.pack("<I", kind) + value_bytes(kind, value) for name, (kind, value) in self.metadata.items())
        head += self.directory
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % self.alignment()) + self.body)

    def alignment(self):
        return struct.unpack("<I", self.metadata.get("general.alignment", u32(32))[1])[0]

    def texts(self, name):
        """An array of strings, as text."""
        return [one.decode("utf-8", "replace") for one in self.metadata[name][1]]

    def number(self, name):
        return struct.unpack("<I", self.metadata[name][1])[0]


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self):
        return self.take(self.number("Q"))

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.take(SIZES[kind])
        inner, n = self.number("I"), self.number("Q")
        if inner == STRING:
            return [self.text() for _ in range(n)]
        return struct.pack("<IQ", inner, n) + self.take(SIZES[inner] * n)


def read(path):
    with open(path, "rb") as file:
        r = Reader(file.read())
    magic, version, n_tensors, n_keys = r.take(4), r.number("I"), r.number("Q"), r.number("Q")
    if magic != b"GGUF" or version != 3:
        raise ValueError(f"{path} is not a GGUF file of version 3")
    metadata = {}
    for _ in range(n_keys):
        name, kind = r.text().decode(), r.number("I")
        metadata[name] = (kind, r.value(kind))
    begin = r.at
    for _ in range(n_tensors):
        r.text()
        r.take(8 * r.number("I") + 4 + 8)
    found = Gguf(metadata, n_tensors, r.data[begin:r.at], b"")
    found.body = r.data[r.at + -r.at % found.alignment():]
    return found


def copy(source, target, keys=None, names=()):
    """Writes the model at source with further keys, name: (kind, value), or other values of its keys; names: pairs of a token's name and the one that it
    gets."""
    model = read(source)
    model.metadata.update(keys or {})
    tokens = model.metadata["tokenizer.ggml.tokens"][1]
    for old, new in names:
        tokens[tokens.index(old.encode())] = new.encode()
    model.write(target)
