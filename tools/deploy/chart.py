# SPDX-License-Identifier: Apache-2.0
"""Renders share/helm/reprise without Helm: the subset of Go's templates that the chart is written in. What is not in it is an error, so that the
chart stays within it. `make test-deploy` compares the result with that of Go's own engine (tools/deploy/render.go).

    actions    {{ pipeline }}, if, else, else if, with, range (of lists), define, end, comments; {{- and -}} trim white space
    operands   . .a.b $ $.a.b "text" 12 (pipeline)
    functions  see FUNCTIONS
"""
import json
import os
import re

import yaml

ACTION = re.compile(r"\{\{(-\s)?\s*(.*?)\s*(\s-)?\}\}", re.S)
TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()|]|[^\s()|]+)')


class ChartError(Exception):
    pass


def text_of(value):
    """As Go prints a value of JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e21:
        value = int(value)
    return value if isinstance(value, str) else str(value)


def required(message, value):
    if value is None or value == "":
        raise ChartError(message)
    return value


def pairs(*items):
    return dict(zip(items[::2], items[1::2]))


FUNCTIONS = {
    "add": lambda *n: sum(int(i) for i in n),
    "default": lambda other, value=None: value or other,
    "dict": pairs,
    "int": int,
    "mul": lambda a, b: int(a) * int(b),
    "nindent": lambda n, text: "\n" + "\n".join(" " * n + line if line else line for line in text.split("\n")),
    "printf": lambda form, *values: form % tuple(text_of(v) for v in values),
    "quote": lambda value: json.dumps(text_of(value), ensure_ascii=False),
    "required": required,
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False, width=1000).removesuffix("\n...\n").rstrip("\n"),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda n, text: text[:n],
}


def pieces(source, name):
    """Text and actions, white space trimmed: [("text", s) | ("action", words, line)]."""
    found, at, trim = [], 0, False
    for match in ACTION.finditer(source):
        text = source[at:match.start()]
        if trim:
            text = text.lstrip()
        if match[1]:
            text = text.rstrip()
        found.append(("text", text))
        where = f"{name}:{source.count(chr(10), 0, match.start()) + 1}"
        if not match[2].startswith("/*"):
            found.append(("action", TOKEN.findall(match[2]), where))
        at, trim = match.end(), bool(match[3])
    found.append(("text", source[at:].lstrip() if trim else source[at:]))
    return found


class Chart:
    def __init__(self, folder):
        self.folder, self.named, self.files = folder, {}, {}
        for name in sorted(os.listdir(os.path.join(folder, "templates"))):
            with open(os.path.join(folder, "templates", name), encoding="utf-8") as f:
                todo = pieces(f.read(), name)
            self.files[name], rest = self.block(todo, ("",))
            assert not rest
        with open(os.path.join(folder, "Chart.yaml"), encoding="utf-8") as f:
            self.about = yaml.safe_load(f)
        with open(os.path.join(folder, "values.yaml"), encoding="utf-8") as f:
            self.defaults = yaml.safe_load(f)

    # ---- Parsing: a tree of ("text", s), ("print", words, where), ("if" | "with" | "range", words, where, body, other)

    def block(self, todo, ends):
        """Nodes up to one of the ends, which stays in the list that is left."""
        nodes = []
        while todo:
            kind, what, *where = todo[0]
            if kind == "text":
                nodes.append(("text", what))
            elif what[0] in ("end", "else"):
                if what[0] not in ends:
                    raise ChartError(f"{where[0]}: {what[0]} without a beginning")
                return nodes, todo
            elif what[0] == "define":
                self.named[json.loads(what[1])], todo = self.block(todo[1:], ("end",))
            elif what[0] in ("if", "with", "range"):
                node, todo = self.branch(what, where[0], todo[1:])
                nodes.append(node)
            else:
                nodes.append(("print", what, where[0]))
            todo = todo[1:]
        if "" not in ends:
            raise ChartError("end is missing")
        return nodes, todo

    def branch(self, what, where, todo):
        body, todo = self.block(todo, ("end", "else"))
        other, words = [], todo[0][1]
        if words[0] == "else" and len(words) > 1:
            node, todo = self.branch(words[1:], where, todo[1:])
            other = [node]
        elif words[0] == "else":
            other, todo = self.block(todo[1:], ("end",))
        return (what[0], what[1:], where, body, other), todo

    # ---- Evaluation

    def render(self, values, release="demo", namespace="default"):
        """The texts of all files that make objects, by name."""
        merged = merge(self.defaults, values)
        self.root = {"Values": merged, "Release": {"Name": release, "Namespace": namespace, "Service": "Helm"},
                     "Chart": {k[0].upper() + k[1:]: v for k, v in self.about.items()}}
        return {name: self.run(nodes, self.root) for name, nodes in self.files.items() if not name.startswith("_")}

    def run(self, nodes, dot):
        out = []
        for node in nodes:
            if node[0] == "text":
                out.append(node[1])
            elif node[0] == "print":
                out.append(text_of(self.pipeline(node[1], dot, node[2])))
            else:
                kind, words, where, body, other = node
                value = self.pipeline(words, dot, where)
                if not value:
                    out.append(self.run(other, dot))
                elif kind == "range":
                    out += [self.run(body, item) for item in value]
                else:
                    out.append(self.run(body, value if kind == "with" else dot))
        return "".join(out)

    def pipeline(self, words, dot, where):
        value, rest = self.piped(list(words), dot, where)
        if rest:
            raise ChartError(f"{where}: {rest[0]} is not expected here")
        return value

    def piped(self, words, dot, where):
        last = ()
        while True:
            command = []
            while words and words[0] not in ("|", ")"):
                word = words.pop(0)
                if word == "(":
                    value, words = self.piped(words, dot, where)
                    words = words[1:]
                    command.append(("value", value))
                else:
                    command.append(("word", word))
            last = (self.call(command, last, dot, where),)
            if not words or words[0] == ")":
                return last[0], words
            words.pop(0)

    def call(self, command, last, dot, where):
        (kind, first), *arguments = command
        if kind == "word" and re.fullmatch(r"[a-zA-Z]+", first) and first not in ("true", "false"):
            arguments = [self.operand(a, dot, where) for a in arguments] + list(last)
            try:
                if first == "include":
                    return self.run(self.named[arguments[0]], arguments[1])
                return FUNCTIONS[first](*arguments)
            except KeyError as e:
                raise ChartError(f"{where}: {e} is not in the subset of tools/deploy/chart.py") from None
            except TypeError as e:
                raise ChartError(f"{where}: {first}: {e}") from None
        if arguments or last:
            raise ChartError(f"{where}: {first} is no function")
        return self.operand(command[0], dot, where)

    def operand(self, operand, dot, where):
        kind, word = operand
        if kind == "value":
            return word
        if word[0] == '"':
            return json.loads(word)
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        if word in ("true", "false"):
            return word == "true"
        if word[0] not in ".$":
            raise ChartError(f"{where}: {word} is not in the subset of tools/deploy/chart.py")
        value = self.root if word[0] == "$" else dot
        for name in [n for n in word.lstrip("$").split(".") if n]:
            if not isinstance(value, dict) or name not in value:
                raise ChartError(f"{where}: {word}: there is no {name}") # Go prints nothing: a name with a typing error would go unseen
            value = value[name]
        return value


def merge(defaults, values):
    """As Helm: objects are merged, anything else is replaced."""
    if not isinstance(defaults, dict) or not isinstance(values, dict):
        return values
    return {**defaults, **{k: merge(defaults[k], v) if k in defaults else v for k, v in values.items()}}


def objects(texts):
    """The objects of rendered files, NOTES.txt left out."""
    return [o for name, text in sorted(texts.items()) if name.endswith(".yaml") for o in yaml.safe_load_all(text) if o is not None]
