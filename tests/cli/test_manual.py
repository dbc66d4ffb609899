#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual and the completion of command lines know the commands and options that the program has, all of them and no others."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))


def said(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=True).stdout


def commands_of(text):
    """Names below "commands:" in a help text."""
    found = re.search(r"^commands:\n((?:  .*\n)+)", text, re.M)
    return [line.split()[0] for line in found.group(1).splitlines()] if found else []


def options_of(text):
    """{"--model": "-m", "--seed": None, ...}"""
    return {name: letter for letter, name in re.findall(r"^  (?:(-\w), |    )(--[a-z0-9-]+)\b", text, re.M)}


def all_commands():
    """[["run"], ["cache"], ["cache", "ls"], ...]"""
    names = [name for name in commands_of(said("help")) if name != "help"]
    return [[name, *part] for name in names for part in [[]] + [[p] for p in commands_of(said("help", name))]]


class Manual(unittest.TestCase):
    def page(self, name):
        with open(os.path.join(SOURCE, "docs", "man", f"reprise{name}.1"), encoding="utf-8") as f:
            return f.read()

    def test_pages(self):
        commands = {c[0] for c in all_commands()}
        pages = {re.match(r"reprise-?(.*)\.1$", f).group(1) for f in os.listdir(os.path.join(SOURCE, "docs", "man"))}
        self.assertEqual(pages, commands | {""})
        overview = self.page("")
        for name in commands:
            self.assertIn(f".It Cm {name}\n", overview)
            self.assertIn(f".Xr reprise-{name} 1", overview)

    def test_options(self):
        for name in {c[0] for c in all_commands()}:
            parts = [c for c in all_commands() if c[0] == name]
            has = {}
            for command in parts:
                has.update(options_of(said("help", *command)))
            text = self.page("-" + name)
            told = {"--" + long: letter and "-" + letter
                    for letter, long in re.findall(r"^\.It (?:Fl (\w) , )?Fl -([a-z0-9-]+)", text, re.M)}
            # options that share an entry: .It Fl -port , Fl -host
            for line in re.findall(r"^\.It .*Fl -.*$", text, re.M):
                for long in re.findall(r"Fl -([a-z0-9-]+)", line):
                    told.setdefault("--" + long, None)
            with self.subTest(name):
                self.assertEqual(set(has) - set(told), set(), "not in the manual")
                self.assertEqual(set(told) - set(has), set(), "not in the program")

    def test_what_man_says(self):
        if not shutil.which("mandoc"):
            self.skipTest("mandoc is not here")
        pages = [os.path.join(SOURCE, "docs", "man", f) for f in os.listdir(os.path.join(SOURCE, "docs", "man"))]
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True)
        self.assertEqual(done.stdout, "")


class Completion(unittest.TestCase):
    def complete(self, *words, folder=None):
        """What bash offers for the last word."""
        script = 'source <("$0" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _reprise; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", script, PROGRAM, "reprise", *words], capture_output=True, text=True, check=True,
                              cwd=folder)
        self.assertEqual(done.stderr, "")
        return [w for w in done.stdout.split("\n") if w]

    def test_commands(self):
        names = commands_of(said("help"))
        self.assertEqual(set(self.complete("")), set(names))
        self.assertEqual(self.complete("serv"), ["serve"])
        self.assertEqual(set(self.complete("help", "")), set(names))
        self.assertEqual(set(self.complete("cache", "")), set(commands_of(said("help", "cache"))))
        self.assertEqual(self.complete("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(set(self.complete("--")), {"--help", "--version"})

    def test_options(self):
        for command in all_commands():
            with self.subTest(command):
                self.assertEqual(set(self.complete(*command, "--")), set(options_of(said("help", *command))))

    def test_values(self):
        self.assertEqual(self.complete("serve", "--log", ""), ["requests", "off"])
        self.assertEqual(self.complete("serve", "--write", "b"), ["back"])
        self.assertEqual(self.complete("serve", "--write", "=", "t"), ["through"])
        self.assertEqual(self.complete("serve", "--write", "="), ["back", "through", "off"])
        self.assertEqual(self.complete("serve", "--port", ""), [])
        self.assertIn("--seconds", self.complete("bench", "--load", "soak", "--"))
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "a folder"))
            with open(os.path.join(folder, "a file"), "w", encoding="utf-8"):
                pass
            self.assertEqual(set(self.complete("run", "-m", "a", folder=folder)), {"a file", "a folder"})
            self.assertEqual(self.complete("serve", "--store", "a", folder=folder), ["a folder"])
            self.assertEqual(set(self.complete("cache", "simulate", "", folder=folder)), {"a file", "a folder"})

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not here")
        lines = [["reprise", *c, "--"] for c in all_commands()]
        lines += [["reprise", *c] for c in (["bench", "--load", "soak", "--sec"], [""], ["cache", ""], ["serve", "--log", ""])]
        asked = "".join(f"complete -C '{' '.join(line)}'; echo ==\n" for line in lines)
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(["fish", "-N"], input=said("completion", "fish") + asked, capture_output=True, text=True, check=True,
                                  env={"HOME": home, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
        self.assertEqual(done.stderr, "")
        offered = [{line.split("\t")[0] for line in block.split("\n") if line} for block in done.stdout.split("==\n")]
        for line, found in zip(lines, offered):
            if line[-1] == "--":
                self.assertEqual(found - {"--version"}, set(options_of(said("help", *line[1:-1]))), line)
        self.assertEqual(offered[len(lines) - 4], {"--seconds"})
        self.assertEqual(offered[len(lines) - 3], set(commands_of(said("help"))))
        self.assertEqual(offered[len(lines) - 2], set(commands_of(said("help", "cache"))))
        self.assertEqual(offered[len(lines) - 1], {"requests", "off"})

    def test_syntax(self):
        for shell in ("bash", "zsh", "fish"):
            text = said("completion", shell)
            for command in all_commands():
                self.assertIn(command[-1], text)
            if shutil.which(shell):
                done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_wrong_use(self):
        for args, says in (((), "needs"), (("tcsh",), "bash, zsh or fish"), (("bash", "zsh"), "unexpected argument")):
            done = subprocess.run([PROGRAM, "completion", *args], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(says, done.stderr)


class Units(unittest.TestCase):
    def test_systemd(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not here")
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name in ("reprise.service", "reprise.socket"):
                with open(os.path.join(SOURCE, "share", "systemd", name), encoding="utf-8") as f:
                    text = f.read()
                paths.append(os.path.join(folder, name))
                with open(paths[-1], "w", encoding="utf-8") as f:
                    f.write(text.replace("@REPRISE_BINDIR@/reprise", os.path.abspath(PROGRAM)))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_example_config(self):
        """Its names are options, those in comments too."""
        known = options_of(said("serve", "--help"))
        with open(os.path.join(SOURCE, "share", "reprise.conf"), encoding="utf-8") as f:
            names = re.findall(r"^#?([a-z0-9-]+) = ", f.read(), re.M)
        self.assertGreater(len(names), 5)
        for name in names:
            self.assertIn("--" + name, known)


if __name__ == "__main__":
    unittest.main()
