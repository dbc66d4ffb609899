#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise lint` as its users meet it: what it says of the examples, files of prompts, exit statuses, JSON, chat templates; `reprise template --check`."""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(SOURCE, "tests", "server"))
import gguf_copy  # pylint: disable=wrong-import-position

TEMPLATES = os.path.join(os.environ.get("REPRISE_TEST_DATA", "/nonexistent"), "templates")
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
EXAMPLES = os.path.join(SOURCE, "examples")
LONG = "It was a long day and many people came to see what had been built there in the years before that one."
SCHEMA = f"""<schema name="s">We answer from the texts that follow here, in a few plain words each.
<module name="a">{LONG} For <param name="p" len="6"/>.</module>
<module name="b">{LONG}</module>
</schema>
"""
PROMPT = "<prompt schema='s'><a p='three days in May'/> And now?</prompt>"

# What lint says of the examples over their own prompts, by line. docs/lint.md says why it stays so.
EXPECTED = {
    "cities": [],
    "code": [],
    "labels": [],
    "reader": [],
    "retrieval": [(5, "outside-name", "zantec"), (6, "outside-name", "lormax"), (7, "outside-name", "wolqueen"), (9, "outside-name", "danemar")],
    "travel": [(3, "small-module", "plan")],
}


def lint(*arguments, text=None):
    return subprocess.run([PROGRAM, "lint", "-m", MODEL, *arguments], capture_output=True, text=True, check=False, input=text)


def check(template, *messages):
    """`reprise template --check` of a template's text."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(template)
        file.flush()
        return subprocess.run([PROGRAM, "template", "--template", file.name, "--check"], capture_output=True, text=True, check=False,
                              input=json.dumps({"messages": [{"role": r, "content": c} for r, c in messages]}))


class TemplateCheck(unittest.TestCase):
    """The same check of a conversation that is given."""

    def test_check(self):
        turns = [("user", "Hi"), ("assistant", "(Hm)Yes"), ("user", "Why?")]
        done = check("{% for m in messages %}\n{{ m.content }}\n{% endfor %}", *turns)
        self.assertEqual((done.returncode, done.stdout), (0, "3 of 3 beginnings of the conversation render, 0 changes\n"))
        done = check("{% for m in messages %}\n{{ m.content if loop.last else m.content.split(')')[-1] }}\n{% endfor %}", *turns)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "2 and 3 messages differ in message 2, at byte 3, line 2, by line 2 of the template:\n"
                         "  2 messages:   \"Hi\\n(Hm)Yes\\n\"\n  3 messages:   \"Hi\\nYes\\nWhy?\\n\"\n"
                         "  expect the text from there on to be prefilled again, or give the model a template that keeps it\n"
                         "3 of 3 beginnings of the conversation render, 1 change\n")
        done = check("{{ strftime_now('%Y-%m-%d') }} {{ messages[0].content }}", ("user", "Hi"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"^1 message: the date or the time, at byte 0, line 1, by line 1 of the template:\n  now: +\"\d{4}-\d\d-\d\d Hi")
        self.assertEqual(check("{{ raise_exception('no') }}", *turns).stdout, "0 of 3 beginnings of the conversation render, 0 changes\n")
        done = check("x")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("messages", done.stderr)


class Lint(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def is_schema(self, path):
        with open(path, encoding="utf-8") as f:
            return f.read().startswith("<schema ")

    def report(self, *arguments, status=0):
        done = lint("--json", *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout)

    def test_examples(self):
        folders = {os.path.basename(os.path.dirname(f)) for f in glob.glob(os.path.join(EXAMPLES, "*", "*.xml"))}
        self.assertEqual(folders, set(EXPECTED))
        for folder in sorted(folders):
            with self.subTest(example=folder):
                files = [os.path.join(EXAMPLES, folder, f) for f in sorted(os.listdir(os.path.join(EXAMPLES, folder))) if f.endswith(".xml")]
                schema, = [f for f in files if self.is_schema(f)]
                prompts = [f for f in files if f != schema]
                said = self.report(schema, *[x for f in prompts for x in ("--pml", f)])
                self.assertEqual([(f["line"], f["code"], f["module"]) for f in said["findings"]], EXPECTED[folder])
                self.assertEqual((said["prompts"], said["other_prompts"], said["errors"]), (len(prompts), 0, 0))

    def test_tasks(self):
        """Task files of `reprise eval` are files of prompts."""
        task = os.path.join(SOURCE, "models", "eval", "labels.jsonl")
        with open(task, encoding="utf-8") as f:
            first = json.loads(f.readline())
        said = self.report(self.file("s.xml", first["schema"]), "--pml", task)
        self.assertEqual(said["prompts"], 200)
        self.assertEqual([(f["code"], f["module"]) for f in said["findings"]], [("always-imported", "d1"), ("always-imported", "d2"), ("always-imported", "d3")])

    def test_files_of_prompts(self):
        schema = self.file("s.xml", SCHEMA)
        documents = ("\ufeff<?xml version='1.0'?>\n<!-- <prompt> --><prompt schema='s'><a p='a &gt; b>'/><!-- </prompt> --> <![CDATA[</prompt>]]></prompt>\n\n"
                     "<prompt schema='s'/><prompt schema='other'>Hello.</prompt>\n  <prompt schema='s'>\n  <c/></prompt>\n<!-- the end -->\n")
        said = self.report(schema, "--pml", self.file("p.xml", documents), status=1)
        self.assertEqual((said["prompts"], said["other_prompts"], said["errors"]), (2, 1, 1))
        error, = [f for f in said["findings"] if f["severity"] == "error"]
        self.assertEqual((error["code"], os.path.basename(error["document"]), error["line"], error["column"]), ("invalid-prompt", "p.xml#4", 2, 3))
        self.assertTrue(error["message"].startswith("schema 's' has no module 'c'"), error["message"])

        lines = "\n".join([json.dumps(PROMPT), "", json.dumps({"prompt": "<prompt schema='s'><c/></prompt>", "answers": ["x"]})])
        said = self.report(schema, "--pml", self.file("p.jsonl", lines), status=1)
        self.assertEqual((said["prompts"], [os.path.basename(f["document"]) for f in said["findings"]]), (1, ["p.jsonl#3"]))

        done = lint(schema, "--pml", "-", text=PROMPT + PROMPT)
        self.assertEqual((done.returncode, done.stderr), (0, "0 errors, 0 warnings, 0 notes; 2 prompts\n"))

    def test_files_that_are_none(self):
        schema = self.file("s.xml", SCHEMA)
        for text, says in (("", "no prompts"), ("<!-- nothing -->", "no prompts"), ('{"prompt": 3}', ":1: no prompt"), ('{"a": ', ":1:"),
                           ('"x"\n{}', ":2: no prompt")):
            done = lint(schema, "--pml", self.file("p", text))
            self.assertEqual((done.returncode, done.stdout), (1, ""), text)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(lint(schema, "--pml", "/nowhere").returncode, 1)

    def test_exit_status(self):
        good = self.file("good.xml", SCHEMA)
        glued = self.file("glued.xml", SCHEMA.replace(" For <", " For<"))
        small = self.file("small.xml", SCHEMA.replace(f'"b">{LONG}', '"b">So.'))
        for schema, plain, strict in ((good, 0, 0), (small, 0, 0), (glued, 0, 1)):
            self.assertEqual((lint(schema).returncode, lint(schema, "--strict").returncode), (plain, strict), schema)
        self.assertEqual(lint(good, "--ctx", "30").returncode, 1)
        self.assertEqual(lint(self.file("wrong.xml", "<schema/>")).returncode, 1)
        self.assertEqual(lint("--pml", good).returncode, 2)
        self.assertEqual(lint(good, "--promts", "x").returncode, 2)

    def of_template(self, template, *arguments):
        """Findings about a model with this chat template."""
        model = os.path.join(self.folder.name, "model.gguf")
        gguf_copy.copy(MODEL, model, {"tokenizer.chat_template": gguf_copy.string(template)})
        done = subprocess.run([PROGRAM, "lint", "-m", model, "--json", *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["findings"]

    def test_templates(self):
        stable = "{%- for m in messages %}\n{{- m.role + ': ' + m.content + '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
        self.assertEqual(self.of_template(stable), [])
        self.assertEqual(self.of_template("{{ raise_exception('no') }}"), [])
        found = self.of_template("{%- set day = strftime_now('%d %b %Y') %}\n{{- 'Day: ' + day + '\\n' }}\n" + stable)
        self.assertEqual([(f["code"], f["severity"], f["document"], f["line"], f["module"]) for f in found], [("unstable-template", "note", "chat template", 2, "")])
        self.assertRegex(found[0]["message"], r"^the template prints the date or the time, here '\d\d \w+ \d{4}': ")
        drops = stable.replace("m.content", "(m.content.split('</think>')[-1] if not loop.last else m.content)")
        found = self.of_template(drops)
        self.assertEqual([(f["code"], f["line"]) for f in found], [("unstable-template", 2)])
        self.assertIn("in message 2 while the conversation has 2 messages", found[0]["message"])
        self.assertIn("once it has 3", found[0]["message"])
        schema = self.file("glued.xml", SCHEMA.replace(" For <", " For<"))
        self.assertEqual([f["code"] for f in self.of_template(drops, schema)], ["joined-words", "unstable-template"])

    @unittest.skipUnless(os.path.isdir(TEMPLATES), "REPRISE_TEST_DATA has no templates")
    def test_published_templates(self):
        """By model: the lines that are unstable. docs/templates.md has the list."""
        found = {}
        for path in glob.glob(os.path.join(TEMPLATES, "*.jinja")):
            with open(path, encoding="utf-8") as f:
                found[os.path.basename(path)[:-len(".jinja")].split("-", 1)[1]] = [one["line"] for one in self.of_template(f.read())]
        self.assertEqual({name: lines for name, lines in found.items() if lines}, {
            "ai-DeepSeek-R1-Distill-Llama-8B": [1], "Hermes-3-Llama-3.1-8B-tool_use": [145], "Qwen3-0.6B": [41, 41], "granite-granite-3.3-2B-Instruct": [32],
            "llama-Llama-3.2-3B-Instruct": [33], "Mistral-Nemo-Instruct-2407": [28, 52], "gpt-oss-120b": [230, 306]}, found)
        self.assertEqual(len(found), 14)

    def test_lines(self):
        schema = self.file("s.xml", SCHEMA.replace(" For <", " For<"))
        done = lint(schema)
        self.assertRegex(done.stdout, r"^[^\n]*s\.xml:2:\d+: warning: a: '[^\n]* For' and [^\n]* \[joined-words\]\n$")
        self.assertEqual(done.stderr, "0 errors, 1 warnings, 0 notes\n")
        said = self.report(schema)
        self.assertEqual(set(said), {"findings", "left_out", "errors", "warnings", "notes", "prompts", "other_prompts"})
        self.assertEqual(set(said["findings"][0]), {"code", "severity", "document", "line", "column", "module", "message"})


if __name__ == "__main__":
    unittest.main()
