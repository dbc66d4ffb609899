#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RP_KV_FORMATS of include/reprise_quality.h is the only list of KV formats: a format of elements that exist is one more row, and nothing else.

    a_row_is_enough           the header with one more row compiles, and the enum, names, parsing, elements, messages and help have the format
    removed_formats_...       their numbers and names stay theirs
    two_formats_with_a_...    one number for two formats, removed ones too, is an error of the compiler
    no_file_has_a_list        no other source names a format, except generated or checked files
    the_api_lists_the_small   src/server/admin/openapi.json has the formats of less than 16 bits, in any order
    the_manual_lists_all      manual pages list all, in this order
    pages_describe_the_list   docs/pml.md has the names, docs/format.md the numbers
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = "reprise_quality.h"
ROW = re.compile(r'X\((\w+), (\d+), "(\w+)", (\w+), (\w+)\)')
REMOVED = re.compile(r'X\((\d+), "(\w+)", "([^"]*)"\)')
COMPILER = os.environ.get("CC", "cc").split()
PROBE = r"""
#include <assert.h>
#include <string.h>
#include "common/loader.h"
#include "kv/kv_format.h"
int main(void) {
    rp_kv_format f;
    const char *names = RP_KV_FORMAT_NAMES, *help = CLI_KV_FORMATS;
    assert(RP_KV_NEW == N_BEFORE && RP_N_KV_FORMATS == N_BEFORE + 1 && kv_format_parse("new", &f) && f == RP_KV_NEW);
    assert(kv_format_number(f) == 99 && kv_format_of_number(99, &f) && f == RP_KV_NEW && !kv_format_removed(99));
    assert(!kv_format_of_number(7, &f) && strcmp(kv_format_removed(7), "fp8") == 0);
    assert(strstr(kv_format_advice("fp8"), "use int8") && strstr(kv_format_advice("fp8"), " new") && strstr(kv_format_advice("q4_0"), " new"));
    assert(strcmp(kv_format_name(f), "new") == 0 && kv_format_keys(f) == KV_ELEMENT_INT8 && kv_format_values(f) == KV_ELEMENT_2BIT);
    assert(kv_format_is_encoded(f) && kv_format_is_small(f) && strcmp(names + strlen(names) - 4, " new") == 0);
    assert(strncmp(help, "f16|", 4) == 0 && strcmp(help + strlen(help) - 4, "|new") == 0);
    return 0;
}
"""


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def copy_headers(folder):
    """The public headers include each other from their own folder."""
    for name in os.listdir(os.path.join(ROOT, "include")):
        shutil.copy(os.path.join(ROOT, "include", name), folder)


def rows():
    header = read("include", HEADER)
    start = header.index("#define RP_KV_FORMATS(X)")
    return ROW.findall(header[start : header.index("\n\n", start)])


class FormatList(unittest.TestCase):
    def test_a_row_is_enough(self):
        row = ROW.pattern  # the last row gets a successor
        header = read("include", HEADER)
        last = list(re.finditer(row, header))[-1]
        header = f'{header[:last.end()]} X(NEW, 99, "new", INT8, 2BIT){header[last.end():]}'
        with tempfile.TemporaryDirectory() as at:
            copy_headers(at)
            for name, text in ((HEADER, header), ("probe.c", PROBE)):
                with open(os.path.join(at, name), "w", encoding="utf-8") as f:
                    f.write(text)
            probe = os.path.join(at, "probe")
            flags = ["-std=c11", "-Wall", "-Werror", f"-DN_BEFORE={len(rows())}", f"-I{at}"] + [f"-I{os.path.join(ROOT, d)}" for d in ("src", "cli")]
            sources = [os.path.join(at, "probe.c"), *(os.path.join(ROOT, "src", *path) for path in (("kv", "kv_format.c"), ("base", "check.c")))]
            subprocess.run([*COMPILER, *flags, *sources, "-o", probe], check=True)
            subprocess.run([probe], check=True)

    def test_removed_formats_stay_removed(self):
        """The number or the name that records on some disk have is never another format's, and the advice names a format."""
        removed = REMOVED.findall(read("src", "kv", "kv_format.h"))
        self.assertEqual([(number, name) for number, name, _ in removed], [("3", "k8v4"), ("7", "fp8")])
        for number, name, advice in removed:
            self.assertNotIn(number, [row[1] for row in rows()])
            self.assertNotIn(name, [row[2] for row in rows()])
            self.assertIn(re.match(r"use (\w+)", advice).group(1), [row[2] for row in rows()])

    def test_two_formats_with_a_number_do_not_compile(self):
        header = read("include", HEADER)
        last = list(ROW.finditer(header))[-1]
        for number, compiles in ((99, True), (3, False), (7, False), (int(rows()[0][1]), False)):
            with tempfile.TemporaryDirectory() as at:
                copy_headers(at)
                with open(os.path.join(at, HEADER), "w", encoding="utf-8") as f:
                    f.write(f'{header[:last.end()]} X(NEW, {number}, "new", INT8, 2BIT){header[last.end():]}')
                flags = ["-std=c11", "-fsyntax-only", f"-I{at}", f"-I{os.path.join(ROOT, 'src')}"]
                done = subprocess.run([*COMPILER, *flags, os.path.join(ROOT, "src", "kv", "kv_format.c")], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode == 0, compiles, done.stderr)
                self.assertTrue(compiles or "duplicate case value" in done.stderr, done.stderr)

    def test_no_file_has_a_list(self):
        encoded = [name for _, _, name, _, values in rows() if values.endswith("BIT")]  # their names are no other words
        allowed = {os.path.join("include", HEADER), os.path.join("python", "reprise", "_abi.py"), os.path.join("src", "kv", "kv_format.h")}
        self.assertEqual(len(encoded), 3)
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

    def test_the_manual_lists_all(self):
        names = [row[2] for row in rows()]
        pages = sorted(os.listdir(os.path.join(ROOT, "docs", "man")))
        lists = {page: re.findall(r"-kv-format (?:Ar|Cm) (f16 ?\|[\w |]*\w)", read("docs", "man", page)) for page in pages}
        self.assertEqual(sorted(page for page in pages if lists[page]), [f"reprise-{name}.1" for name in ("bench", "cache", "chat", "eval", "run", "serve")])
        for page, found in lists.items():
            for one in found:
                self.assertEqual(re.split(r" ?\| ?", one), names, page)

    def test_pages_describe_the_list(self):
        """docs/pml.md lists the names, docs/format.md the numbers, those of removed formats too."""
        listed = re.search(r"^- `kv` \(([\w, ]*)\)", read("docs", "pml.md"), re.MULTILINE).group(1)
        self.assertEqual(listed.split(", "), [row[2] for row in rows()])
        line = re.search(r"\| KV format: ([^|]*)\|", read("docs", "format.md")).group(1)
        numbers = dict(re.findall(r"(\d+) ([a-z]\w+)", line))
        removed = {number: name for number, name, _ in REMOVED.findall(read("src", "kv", "kv_format.h"))}
        self.assertEqual({n: name for n, name in numbers.items() if n != "128"}, {**{row[1]: row[2] for row in rows()}, **removed})


def enums(schema):
    """All lists of values in a JSON schema."""
    if isinstance(schema, list):
        return [one for item in schema for one in enums(item)]
    if not isinstance(schema, dict):
        return []
    return [one for name, item in schema.items() for one in ([item] if name == "enum" else enums(item))]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
