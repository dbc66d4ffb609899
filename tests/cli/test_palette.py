#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One palette: the drawings of the program and the plots of tools/peers have the colours of the page (web/frame.css), by what they mean."""
import os
import re
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as f:
        return f.read()


class Palette(unittest.TestCase):
    def setUp(self):
        self.page = {name: (light, dark) for name, light, dark in
                     re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", read("web", "frame.css"))}
        light, _, dark = read("cli", "common", "svg.c").partition("@media (prefers-color-scheme:dark)")
        self.svg = light, dark

    def colour(self, theme, rule, what):
        found = re.search(rf"\.{rule}{{[^}}]*{what}:(#[0-9a-f]{{6}})", self.svg[theme])
        self.assertIsNotNone(found, rule)
        return found.group(1)

    def test_drawings(self):
        for theme in (0, 1):
            for rule, name in (("cached", "ram"), ("fresh", "fresh"), ("extent", "ram"), ("on-cached", "on-tile"), ("on-fresh", "on-tile")):
                self.assertEqual(self.colour(theme, rule, "fill"), self.page[name][theme], (rule, theme))
            for i in range(8):
                self.assertEqual(self.colour(theme, f"c{i}", "stroke"), self.page[f"series-{i}"][theme], (i, theme))
                self.assertEqual(self.colour(theme, f"m{i}", "fill"), self.page[f"series-{i}"][theme], (i, theme))

    def test_plots(self):
        found = re.search(r'COLOURS = \{OURS: "(#[0-9a-f]{6})", "llama.cpp": "(#[0-9a-f]{6})"\}', read("tools", "peers", "figures.py"))
        self.assertEqual(found.groups(), (self.page["series-0"][0], self.page["series-1"][0]))

    def test_meanings(self):
        """The colour of one meaning is that of no other."""
        for theme in (0, 1):
            names = ["ram", "disk", "computed", "fresh", "rest"] + [f"series-{i}" for i in range(1, 8)]
            used = [self.page[name][theme] for name in names]
            self.assertEqual(len(set(used)), len(names), used)
            self.assertEqual(self.page["series-0"][theme], self.page["ram"][theme])


if __name__ == "__main__":
    unittest.main()
