#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RP_KV_FORMATS of include/reprise.h is the only list of KV formats: a format of elements that exist is one more row, and nothing else.

    a_row_is_enough           the header with one more row compiles, and the enum, names, parsing, elements, messages and help have the format
    no_file_has_a_list        no other source names a format, except generated or checked files
    the_api_lists_the_small   src/server/admin/openapi.json has the formats of less than 16 bits, in any order
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(r'X\((\w+), (\d+), "(\w+)", (\w+), (\w+)\)')
PROBE = r"""
#include <assert.h>
#include <string.h>
#include "common/loader.h"
#include "kv/kv_format.h"
int main(void) {
    rp_kv_format f;
    const char *names = RP_KV_FORMAT_NAMES, *help = CLI_KV_FORMATS;
    assert(RP_KV_NEW == NUMBER && RP_N_KV_FORMATS == NUMBER + 1 && kv_format_parse("new", &f) && f == RP_KV_NEW);
    assert(strcmp(kv_format_name(f), "new") == 0 && kv_format_keys(f) == KV_ELEMENT_INT8 && kv_format_values(f) == KV_ELEMENT_2BIT);
    assert(kv_format_is_encoded(f) && kv_format_is_small(f) && strcmp(names + strlen(names) - 4, " new") == 0);
    assert(strncmp(help, "f16|", 4) == 0 && strcmp(help + strlen(help) - 4, "|new") == 0);
    return 0;
}
"""


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def rows():
    header = read("include", "reprise.h")
    start = header.index("#define RP_KV_FORMATS(X)")
    return ROW.findall(header[start : header.index("\n\n", start)])


class FormatList(unittest.TestCase):
    def test_a_row_is_enough(self):
        number = len(rows())
        row = ROW.pattern  # the last row gets a successor
        header = read("include", "reprise.h")
        last = list(re.finditer(row, header))[-1]
        header = f'{header[:last.end()]} X(NEW, {number}, "new", INT8, 2BIT){header[last.end():]}'
        with tempfile.TemporaryDirectory() as at:
            for name, text in (("reprise.h", header), ("probe.c", PROBE)):
                with open(os.path.join(at, name), "w", encoding="utf-8") as f:
                    f.write(text)
            probe = os.path.join(at, "probe")
            flags = ["-std=c11", "-Wall", "-Werror", f"-DNUMBER={number}", f"-I{at}"] + [f"-I{os.path.join(ROOT, d)}" for d in ("src", "cli")]
            sources = [os.path.join(at, "probe.c"), os.path.join(ROOT, "src", "kv", "kv_format.c")]
            subprocess.run([os.environ.get("CC", "cc"), *flags, *sources, "-o", probe], check=True)
            subprocess.run([probe], check=True)

    def test_no_file_has_a_list(self):
        encoded = [name for _, _, name, _, values in rows() if values.endswith("BIT")]  # their names are no other words
        allowed = {os.path.join("include", "reprise.h"), os.path.join("python", "reprise", "_abi.py")}
        self.assertEqual(len(encoded), 4)
        found = []
        for folder in ("include", "src", "cli", os.path.join("python", "reprise"), "web"):
            for at, _, names in os.walk(os.path.join(ROOT, folder)):
                for path in (os.path.relpath(os.path.join(at, name), ROOT) for name in names if name.endswith((".c", ".h", ".py", ".js"))):
                    code = re.sub(r"/\*.*?\*/", "", read(path), flags=re.DOTALL)
                    found += [f"{path}: {name}" for name in encoded if path not in allowed and re.search(rf"\b{name}\b", code)]
        self.assertEqual(found, [])

    def test_the_api_lists_the_small(self):
        small = sorted(name for _, _, name, keys, _ in rows() if keys not in ("F16", "F32"))
        lists = [sorted(one) for one in enums(json.loads(read("src", "server", "admin", "openapi.json"))) if small[0] in one]
        self.assertEqual(lists, [small])


def enums(schema):
    """All lists of values in a JSON schema."""
    if isinstance(schema, list):
        return [one for item in schema for one in enums(item)]
    if not isinstance(schema, dict):
        return []
    return [one for name, item in schema.items() for one in ([item] if name == "enum" else enums(item))]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
