# SPDX-License-Identifier: Apache-2.0
"""Random templates from a grammar of the language, and random input for them. Names and literals are few, so that they meet."""

# Names of the input are never set: of a name that is set in a scope, Jinja does not see the input's value in bodies before that.
NAMES = ["a", "b", "s", "n", "l", "d", "objs", "x", "missing", "i", "v", "w"]
STRINGS = ["''", "'a'", "'b'", "'abc'", "'é🙂'", "'<b>'", "'%s'", "' x '", "'a,b'", "'1'", "'\\n'", "'name'", "'A'", "'{}'"]
ATTRIBUTES = ["name", "n", "tags", "zz", "a", "items|list"]
# Generators become lists: as texts they have addresses.
FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "list", "first", "last", "join", "join(',')", "string", "int", "float", "abs", "round",
    "round(1)", "sort", "reverse|list", "unique|list", "tojson", "tojson(indent=2)", "default('d')", "default(1, true)", "replace('a', 'b')", "sum", "max", "min",
    "map('upper')|list", "map('string')|list", "map(attribute='name')|list", "select|list", "reject('none')|list", "selectattr('n')|list", "select('string')|list", "items|list", "dictsort",
    "indent", "indent(1, true)", "batch(2)|list", "slice(2)|list", "wordcount", "center(8)", "count", "format(1)", "urlencode", "attr('name')",
    "rejectattr('zz', 'defined')|list", "sort(reverse=true)", "map('length')|list", "map('first')|list", "truncate(4)", "d",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "odd", "even", "true", "false", "boolean", "integer", "float",
    "lower", "upper", "callable", "divisibleby(2)", "in l", "eq 1", "gt 1", "sameas none", "lt 'b'", "ne 'a'", "in 'abc'",
]
METHODS = [
    "strip()", "upper()", "lower()", "split()", "split(',')", "title()", "startswith('a')", "endswith('c')", "replace('a', 'x')", "items()", "keys()",
    "values()", "get('name')", "get('zz', 0)", "count(1)", "index(1)", "find('b')", "join(['a', 'b'])", "format(1, 2)", "lstrip('a')", "rstrip()", "zfill(4)",
    "splitlines()", "rsplit(',', 1)", "partition('b')", "isdigit()", "append(1)", "copy()", "swapcase()", "capitalize()", "center(5)", "isalpha()",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]


class Writer:
    """Writes one template; `budget` bounds its size."""

    def __init__(self, rng):
        self.rng, self.budget, self.macros, self.in_loop = rng, rng.randrange(3, 40), [], 0

    def atom(self):
        rng, kind = self.rng, self.rng.randrange(12)
        if kind < 5:
            return rng.choice(NAMES)
        if kind < 7:
            return rng.choice(STRINGS)
        if kind < 9:
            return rng.choice(["0", "1", "2", "-1", "1.5", "7", "true", "false", "none", "10"])
        if kind == 9:
            return "[" + ", ".join(self.expression() for _ in range(rng.randrange(3))) + "]"
        if kind == 10:
            return "{" + ", ".join(f"{rng.choice(STRINGS)}: {self.expression()}" for _ in range(rng.randrange(3))) + "}"
        inner = ["loop.index", "loop.first", "loop.last", "loop.length", "loop.previtem", "loop.revindex0"] if self.in_loop else ["range(3)", "(1, 2)", "()"]
        return rng.choice(inner)

    def expression(self):
        rng = self.rng
        self.budget -= 1
        if self.budget <= 0:
            return self.atom()
        kind = rng.randrange(16)
        if kind < 4:
            return self.atom()
        if kind < 7:
            return f"{self.operand()} {rng.choice(OPERATORS)} {self.operand()}"
        if kind < 10:
            return f"{self.operand()}|{rng.choice(FILTERS)}"
        if kind == 10:
            return f"{self.operand()} is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
        if kind == 11:
            return f"{self.operand()}.{rng.choice(METHODS)}"
        if kind == 12:
            return f"{self.operand()}{rng.choice(['.' + rng.choice(ATTRIBUTES), '[' + self.expression() + ']', '[' + rng.choice(STRINGS) + ']'])}"
        if kind == 13:
            bounds = [rng.choice(["", "0", "1", "-1", "2", "-2", "n"]) for _ in range(rng.choice([2, 2, 3]))]
            return f"{rng.choice(NAMES + STRINGS)}[{':'.join(bounds)}]"  # Jinja folds constants, and forgives errors in them
        if kind == 14:
            return rng.choice([f"not {self.operand()}", f"-{self.operand()}", f"{self.operand()} if {self.operand()} else {self.operand()}", f"{self.operand()} if {self.operand()}"])
        if self.macros and rng.random() < 0.7:
            name = rng.choice(self.macros)
            return f"{name}({', '.join(rng.choice(['', 'p=', '', 'q=']) + self.expression() for _ in range(rng.randrange(3)))})"
        return f"({self.expression()})"

    def operand(self):
        text = self.expression()
        simple = text.replace("_", "").isalpha() or (text[0] in "[{(" and "|" not in text and " is " not in text)
        return text if simple else f"({text})"

    def tag(self, text):
        rng = self.rng
        return "{%" + rng.choice(["", "", "", "-", "+"]) + f" {text} " + rng.choice(["", "", "", "-"]) + "%}"

    def body(self):
        return "".join(self.piece() for _ in range(self.rng.randrange(1, 4)))

    def loop(self):
        rng = self.rng
        target = rng.choice(["i", "i", "i", "a, b", "k, v"])
        condition = f" if {self.expression()}" if rng.random() < 0.15 else ""
        head = self.tag(f"for {target} in {self.operand()}{condition}")
        self.in_loop += 1
        body = self.body()
        if rng.random() < 0.15:
            body += self.tag(f"if {self.expression()}") + self.tag(rng.choice(["break", "continue"])) + self.tag("endif")
        self.in_loop -= 1
        return head + body + (self.tag("else") + self.body() if rng.random() < 0.15 else "") + self.tag("endfor")

    def macro(self):
        name = self.rng.choice(["m", "f"])
        parameters = self.rng.choice(["", "p", "p, q", "p, q=1", "p=n, q='x'"])
        loops, self.in_loop = self.in_loop, 0
        body = self.body() + "{{ p }}"
        self.in_loop = loops
        self.macros.append(name)
        return self.tag(f"macro {name}({parameters})") + body + self.tag("endmacro")

    def piece(self):
        rng = self.rng
        self.budget -= 1
        kind = rng.randrange(14) if self.budget > 0 else rng.randrange(6)
        if kind < 3:
            return rng.choice(["text", " ", "\n", "  \n", "\n  ", "é🙂", "a\n\n  b ", "}", "{ ", "x"])
        if kind < 7:
            return "{{" + rng.choice(["", "", "-"]) + f" {self.expression()} " + rng.choice(["", "", "-"]) + "}}"
        if kind < 9:
            middle = self.tag("else") + self.body() if rng.random() < 0.4 else self.tag(f"elif {self.expression()}") + self.body() if rng.random() < 0.2 else ""
            return self.tag(f"if {self.expression()}") + self.body() + middle + self.tag("endif")
        if kind < 11:
            return self.loop()
        if kind == 11:
            return self.tag(f"set {rng.choice(['v', 'w', 'v, w'])} = {self.expression()}")
        if kind == 12:
            return rng.choice([self.macro, self.block, self.with_block, self.namespace])()
        return rng.choice(["{# c #}", "{#- c -#}", "{% raw %}{{ x }}{% endraw %}", "{# a\nb #}\n"])

    def block(self):
        loops, self.in_loop = self.in_loop, 0
        text = self.body()
        self.in_loop = loops
        name = self.rng.choice(["v", "w"])
        return self.rng.choice([self.tag(f"set {name}") + text + self.tag("endset"), self.tag(f"filter {self.rng.choice(['upper', 'trim', 'indent(2)'])}") + text + self.tag("endfilter")])

    def with_block(self):
        return self.tag(f"with a = {self.expression()}") + self.body() + self.tag("endwith")

    def namespace(self):
        return self.tag(f"set ns = namespace(name={self.expression()})") + self.tag(f"set ns.name = {self.rng.choice(STRINGS)} ~ n") + "{{ ns.name }}"


def template(rng):
    writer = Writer(rng)
    out = ""
    while writer.budget > 0:
        out += writer.piece()
    return out


def _value(rng, depth=0):
    kind = rng.randrange(9 if depth < 2 else 6)
    if kind < 3:
        return rng.choice(["", "a", "abc", "é🙂", "<b>&", "a,b", "1", "Hello World", "a\nb"])
    if kind < 6:
        return [rng.randrange(-2, 12), rng.choice([0.5, 1.0, -2.25, 1e20]), rng.choice([True, False, None])][kind - 3]
    if kind < 8:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["name", "n", "tags", "a", "é"]): _value(rng, depth + 1) for _ in range(rng.randrange(4))}


def values(rng):
    out = {name: _value(rng) for name in ["a", "b", "x"] if rng.random() < 0.9}
    out["s"] = rng.choice(["", "abc", "Hello World", "é🙂 x", "a,b,c", "42"])
    out["n"] = rng.randrange(-3, 10)
    out["l"] = [_value(rng, 1) for _ in range(rng.randrange(4))] if rng.random() < 0.6 else [1, 3, 2]
    out["d"] = {"name": _value(rng, 1), "n": rng.randrange(5), "items": 1}
    if rng.random() < 0.8:
        del out["d"]["items"]
    out["objs"] = [{"name": rng.choice(["b", "A", "c"]), "n": rng.randrange(3), "tags": ["x"]} for _ in range(rng.randrange(3))]
    return out
