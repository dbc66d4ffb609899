# SPDX-License-Identifier: Apache-2.0
"""Reads the keys of a GGUF file, for tests that write models of their own."""
import struct

STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
HEADER = 24  # magic, version, numbers of tensors and keys
ALIGNMENT = 32


class Reader:
    def __init__(self, data, at=HEADER):
        self.data, self.at = data, at

    def number(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def array_of_texts(self):
        inner, n = self.number("I"), self.number("Q")
        if inner != STRING:
            raise ValueError("the array has no texts")
        return [self.text() for _ in range(n)]

    def skip_value(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip_value(inner)
        else:
            self.at += SIZES[kind]
