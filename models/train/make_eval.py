# SPDX-License-Identifier: Apache-2.0
"""Writes the task files of models/eval: held-out names and phrases, in PML, for `reprise eval`.

    python3 make_eval.py [folder]
"""
import json
import os
import random
import re
import sys
from xml.sax.saxutils import escape, quoteattr

import corpus

ITEMS = 200
PREAMBLE = "Read the documents."

# file: task, level, how many questions a schema is asked, what is special
FILES = {
    "facts-1": ("facts", 1, 1, ""),
    "facts-2": ("facts", 2, 2, ""),
    "facts-4": ("facts", 4, 2, ""),
    "facts-8": ("facts", 8, 4, ""),
    "facts-16": ("facts", 16, 5, ""),
    "facts-4-shuffled": ("facts", 4, 2, "shuffled"),
    "facts-16-shuffled": ("facts", 16, 5, "shuffled"),
    "facts-4-of-16": ("facts", 16, 5, "some"),
    "facts-4-bare": ("facts", 4, 2, "bare"),
    "distractor": ("distractor", 2, 2, ""),
    "two-hop": ("two-hop", 2, 2, ""),
    "passkey": ("passkey", 5, 1, ""),
    "pairs-16": ("pairs", 16, 4, ""),
    "persona": ("persona", 2, 2, ""),
    "parameters": ("parameters", 2, 1, "parameters"),
    "labels": ("labels", 3, 3, ""),
    "code": ("code", 2, 2, ""),
    "code-complete": ("code", 2, 2, "complete"),
    "listing": ("listing", 3, 3, ""),
    "not-stated": ("not-stated", 2, 2, ""),
}
METRICS = {"two-hop": "contains"}
# Tokens of the longest argument of each kind: what a schema's author would write as len.
LENGTHS = {"time": 3, "town": 5, "party": 6, "tone": 4, "person": 5, "topic": 7, "count": 3, "product": 5, "company": 5, "weekday": 1, "thing": 5,
           "language": 6}


def template(text):
    """The PML of a text with {parameters}."""
    return re.sub(r"\{(\w+)\}", lambda m: f'<param name="{m[1]}" len="{LENGTHS[m[1]]}"/>', escape(text))


def schema_of(c, name):
    modules = []
    for i, part in enumerate(c.parts):
        text = template(c.template) if i == c.template_at else escape(part)
        modules.append(f'<module name="d{i + 1}">{text}</module>')
    before = " ".join(escape(t) for t in (c.system, c.preamble) if t)
    return f'<schema name="{name}"><system>{before} {" ".join(modules)}</system></schema>'


def prompt_of(c, name, parts, question):
    imports = []
    for i in parts:
        arguments = "".join(f" {k}={quoteattr(v)}" for k, v in c.arguments.items()) if i == c.template_at else ""
        imports.append(f"<d{i + 1}{arguments}/>")
    return f'<prompt schema="{name}">{"".join(imports)}<user>{escape(question)}</user></prompt>'


def context(rng, task, level, special):
    """Held-out, with a text before the documents unless the file is to have none."""
    c = corpus.make(rng, task, level, held=True)
    if special == "bare":
        c.system = c.preamble = ""
    else:
        c.preamble = c.preamble or PREAMBLE
    if special == "complete":
        c.questions = [(f"Complete: {call.split('(')[0]}(", call) for _, call in c.questions]
    return c


def order(rng, c, needed, special):
    parts = list(range(len(c.parts)))
    if special == "some":
        others = [i for i in parts if i not in needed]
        parts = needed + rng.sample(others, 4 - len(needed))
    if special in ("some", "shuffled"):
        rng.shuffle(parts)
    return parts


def answers_of(task, answer):
    return [answer.split(": ")[1]] if task == "two-hop" else [answer]


def items(file):
    task, level, asked, special = FILES[file]
    rng, lines = random.Random("held out: " + file), []
    while len(lines) < ITEMS:
        c = context(rng, task, level, special)
        schema = schema_of(c, file)
        for k, (question, answer) in enumerate(c.questions[:asked]):
            item = {"schema": schema} if k == 0 else {}
            item["prompt"] = prompt_of(c, file, order(rng, c, c.needed[k], special), question)
            item["answers"] = answers_of(task, answer)
            item["metric"] = METRICS.get(task, "exact")
            lines.append(item)
    return lines[:ITEMS]


def closed():
    """Questions of every task without its documents: nobody can know the answers."""
    lines, rng = [], random.Random("closed")
    while len(lines) < ITEMS + 20:
        for file, (task, level, _, special) in FILES.items():
            if special or task in ("not-stated", "parameters"):
                continue
            c = context(rng, task, level, special)
            question, answer = c.questions[0]
            lines.append({"schema": schema_of(c, "closed"), "prompt": prompt_of(c, "closed", [], question),
                          "answers": answers_of(task, answer), "metric": "contains"})
    return lines


def stories(path):
    """Real text for a real model: the paragraphs of a story are modules, its last one is what is to be predicted."""
    lines = []
    with open(path) as f:
        text = "".join(line for line in f if not line.startswith("#"))
    for story in text.split("\n---\n"):
        paragraphs = [p.strip() for p in story.strip().split("\n\n")]
        modules = " ".join(f'<module name="p{i + 1}">{escape(p)}</module>' for i, p in enumerate(paragraphs[:-1]))
        imports = " ".join(f"<p{i + 1}/>" for i in range(len(paragraphs) - 1))
        lines.append({"schema": f'<schema name="story">{modules}</schema>', "prompt": f'<prompt schema="story">{imports}</prompt>',
                      "answers": [paragraphs[-1]], "metric": "perplexity"})
    return lines


def write(path, lines):
    with open(path, "w") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{path}: {len(lines)} items, {os.path.getsize(path) // 1024} KiB")


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "eval")
    for file in FILES:
        write(f"{folder}/{file}.jsonl", items(file))
    write(f"{folder}/closed.jsonl", closed())
    write(f"{folder}/stories.jsonl", stories(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "eval", "stories.txt")))
