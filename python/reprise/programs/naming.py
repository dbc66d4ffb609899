# SPDX-License-Identifier: Apache-2.0
"""Names of modules: readable, made of what the author wrote, and independent of the text elsewhere in the program.

A name is made of a case's value, a condition, a constant's or a parameter's name, or the hash of a text. Names are
unique among siblings: a second "plan" is "plan-2". Every name is an XML name and none of PML's reserved ones.
"""

from __future__ import annotations

import ast
import enum
import hashlib
import re
import unicodedata

RESERVED = frozenset(
    "schema prompt module union param parameter scaffold system user assistant tool".split()
)  # elements of PML (docs/pml.md)
MAX_BYTES = 60  # of a slug: longer ones end in a hash
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


def hash_of(text: str, digits: int = 8) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def is_name(text: str) -> bool:
    """An XML name of ASCII characters, without ':'."""
    return bool(_NAME.match(text))


def slug(text: str, prefix: str = "text") -> str:
    """An XML name like the text: "São Paulo!" -> "Sao-Paulo", "3 days" -> "{prefix}-3-days"."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", plain).strip("-.")
    if not name:
        return f"{prefix}-{hash_of(text)}"
    if len(name) > MAX_BYTES:
        name = f"{name[:MAX_BYTES - 9].rstrip('-.')}-{hash_of(text)}"
    return name if is_name(name) else f"{prefix}-{name}"


def name_of_value(value: object, prefix: str) -> str:
    """The name of a case: the value itself, an Enum member's name."""
    if isinstance(value, enum.Enum):
        return slug(value.name, prefix)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return slug(str(value), prefix)


_WORDS = [
    (r"\bis not\b", "is-not"),
    (r"\bnot in\b", "not-in"),
    (r"==", " "),
    (r"!=", " not "),
    (r"<=", " at-most "),
    (r">=", " at-least "),
    (r"<", " below "),
    (r">", " above "),
]


def name_of_condition(test: ast.expr) -> str:
    """`with_kids` -> "with_kids", `city == "miami" and with_kids` -> "city-miami-and-with_kids"."""
    text = ast.unparse(test)
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return slug(text, "if")


def negated(name: str) -> str:
    """The name of the `else` of an `if`."""
    return name.removeprefix("not-") if name.startswith("not-") else "not-" + name


def name_of_item(item: object, variable: str, index: int) -> str:
    """The name of a loop's module: the item if it is short text, or its name; else its index."""
    if isinstance(item, tuple):  # dict.items(), enumerate() and zip(): the first text in it
        texts = [name_of_item(one, variable, -1) for one in item]
        return next((one for one in texts if one), f"{variable}-{index}")
    for one in (item, getattr(item, "id", None), getattr(item, "name", None)):
        if isinstance(one, str) and 0 < len(one) <= MAX_BYTES and "\n" not in one:
            return slug(one, variable)
    return f"{variable}-{index}" if index >= 0 else ""


class Names:
    """The names that are taken among siblings."""

    def __init__(self) -> None:
        self._taken = set(RESERVED)

    def take(self, name: str) -> str:
        """The name itself, or with -2, -3, ... if it is taken."""
        unique, n = name, 1
        while unique in self._taken:
            n += 1
            unique = f"{name}-{n}"
        self._taken.add(unique)
        return unique
