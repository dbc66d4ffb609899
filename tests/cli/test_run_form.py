#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise run --json-schema` and `--tools`: answers that a program can read, and one right line for each slip. `reprise chat --json-schema`."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.abspath(os.path.join(SOURCE, "models", "reprise-mini.gguf"))
QUESTION = "Tom had a red ball. What did Tom have?"
SCHEMA = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["colour", "n"], "additionalProperties": False}
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather in a city.", "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Miami", "Rome"]}}, "required": ["city"], "additionalProperties": False}}}
NOW = {"name": "now"}  # without the outer object

sys.path.insert(0, os.path.join(SOURCE, "tests", "server"))
import gguf_copy  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.run_args = ["run", "-m", MODEL]

    def reprise(self, *args, text=""):
        return subprocess.run([PROGRAM, *args], input=text, capture_output=True, text=True, cwd=self.folder, timeout=120, check=False)

    def file(self, name, content):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
            f.write(content if isinstance(content, str) else json.dumps(content))
        return name

    def fine(self, *args, text=""):
        done = self.reprise(*args, text=text)
        self.assertEqual((done.returncode, done.stderr), (0, ""), args)
        return done.stdout

    def refused(self, line, *args, status=1, output=""):
        done = self.reprise(*args)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (status, output, f"reprise: {line}\n"), args)


class Schemas(Case):
    def check(self, text):
        answer = json.loads(text)
        self.assertEqual(set(answer), {"colour", "n"})
        self.assertIn(answer["colour"], ("red", "blue"))
        self.assertTrue(1 <= answer["n"] <= 9)
        return answer

    def test_a_file_and_its_text(self):
        self.file("s.json", SCHEMA)
        whole = self.fine(*self.run_args, "--json-schema", "s.json", QUESTION)
        self.check(whole)
        self.assertEqual(self.fine(*self.run_args, "--json-schema", json.dumps(SCHEMA), "-p", QUESTION), whole)
        self.file("bom.json", "\ufeff" + json.dumps(SCHEMA))
        self.assertEqual(self.fine(*self.run_args, "--json-schema", "bom.json", "-p", QUESTION), whole)

    def test_each_prompt_has_a_line(self):
        out = self.fine(*self.run_args, "--json-schema", json.dumps(SCHEMA), "-p", QUESTION, "-p", "Hello", "--system", "Answer in JSON.")
        self.assertEqual(len([self.check(line) for line in out.splitlines()]), 2)

    def test_prompts_that_are_no_conversation(self):
        """Text to continue, and modules: the grammar alone."""
        self.check(self.fine(*self.run_args, "--json-schema", json.dumps(SCHEMA), "--raw", "Once"))
        self.file("s.xml", "<schema name='s'><user>Tom had <module name='m'>a red ball.</module></user></schema>")
        self.file("p.xml", "<prompt schema='s'><m/>What did Tom have?</prompt>")
        self.check(self.fine(*self.run_args, "--json-schema", json.dumps(SCHEMA), "--schema", "s.xml", "--pml", "p.xml"))

    def test_as_json(self):
        report = json.loads(self.fine(*self.run_args, "--json-schema", json.dumps(SCHEMA), "--json", QUESTION))
        self.check(report["text"])
        self.assertEqual((report["reasoning"], report["tool_calls"], report["finish_reason"]), ("", [], "stop"))
        plain = json.loads(self.fine(*self.run_args, "--json", "-n", "4", QUESTION))
        self.assertNotIn("tool_calls", plain)

    def test_a_cut_answer_is_a_failure(self):
        whole = self.fine(*self.run_args, "--json-schema", json.dumps(SCHEMA), QUESTION)
        done = self.reprise(*self.run_args, "--json-schema", json.dumps(SCHEMA), "-n", "3", QUESTION)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "reprise: text: the answer ended after 3 tokens, before its JSON did: give a larger --max-tokens\n"))
        self.assertTrue(whole.startswith(done.stdout) and done.stdout != whole)
        long = {"type": "array", "items": {"const": "many words"}, "minItems": 60, "maxItems": 60}
        self.assertEqual(len(json.loads(self.fine(*self.run_args, "--json-schema", json.dumps(long), QUESTION))), 60)  # more than 128 tokens

    def test_errors(self):
        run = [*self.run_args, QUESTION, "--json-schema"]
        self.file("bad.json", '{\n  "type": "object",\n}')
        self.refused("bad.json:3:1: not JSON: string or '}' expected near '}'", *run, "bad.json")
        self.refused("--json-schema:1:3: not JSON: string or '}' expected near 'a'", *run, "{ a", status=2)
        self.refused("cannot open 'none.json': No such file or directory", *run, "none.json")
        self.file("list.json", [1])
        self.refused("list.json: 'schema': give a JSON Schema", *run, "list.json")
        for schema in ({"dependentSchemas": {}}, {"properties": {"a": {"minimum": "x"}}}):
            self.file("s.json", schema)
            done = self.reprise(*run, "s.json")
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (1, "", 1))
            self.assertTrue(done.stderr.startswith("reprise: s.json: 'schema."), done.stderr)
        self.file("g.gbnf", 'root ::= "a"')
        self.refused("--grammar and --json-schema exclude each other: give one of them", *run, "{}", "--grammar", "g.gbnf", status=2)
        self.refused("unknown option '-j' of 'reprise run': use --json-schema: a file, or its text", *self.run_args, "-j", "{}", status=2)


class Tools(Case):
    def calls(self, *args):
        return [json.loads(line) for line in self.fine(*self.run_args, *args, QUESTION).splitlines()]

    def test_calls_are_lines_of_json(self):
        self.file("tools.json", [WEATHER, NOW])
        self.file("body.json", {"model": "m", "tools": [WEATHER, NOW]})
        calls = self.calls("--tools", "tools.json", "--tool-choice", "weather")
        self.assertGreaterEqual(len(calls), 1)
        for i, call in enumerate(calls):
            self.assertEqual((list(call), call["id"], call["name"]), (["id", "name", "arguments"], f"call_{i}", "weather"))
            self.assertIn(call["arguments"]["city"], ("Miami", "Rome"))
        self.assertEqual(self.calls("--tools", "body.json", "--tool-choice", "weather"), calls)
        self.assertEqual({call["name"] for call in self.calls("--tools", "tools.json", "--tool-choice", "now")}, {"now"})

    def test_text_and_calls_as_json(self):
        self.file("tools.json", [WEATHER])
        report = json.loads(self.fine(*self.run_args, "--tools", "tools.json", "--tool-choice", "required", "--json", QUESTION))
        self.assertEqual((report["text"], report["tool_calls"][0]["name"]), ("", "weather"))
        text = self.fine(*self.run_args, "--tools", "tools.json", "--tool-choice", "none", "-n", "8", QUESTION)
        self.assertEqual(text, self.fine(*self.run_args, "-n", "8", QUESTION))

    def test_a_cut_call_is_a_failure(self):
        self.file("tools.json", [WEATHER])
        done = self.reprise(*self.run_args, "--tools", "tools.json", "--tool-choice", "required", "-n", "2", QUESTION)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn("the answer ended after 2 tokens, before its call: give a larger --max-tokens", done.stderr)
        for n in range(3, 40):
            done = self.reprise(*self.run_args, "--tools", "tools.json", "--tool-choice", "required", "-n", str(n), QUESTION)
            if "within a call of 'weather'" in done.stderr:
                break
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn(f"the answer ended after {n} tokens, within a call of 'weather': give a larger --max-tokens", done.stderr)

    def test_warnings(self):
        self.file("tools.json", [{"name": "f", "parameters": {"type": "object", "dependentSchemas": {}}}])
        done = self.reprise(*self.run_args, "--tools", "tools.json", "-n", "1", "-p", QUESTION, "-p", QUESTION)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (0, 1))
        self.assertTrue(done.stderr.startswith("warning: tools.json: tools[0].parameters.dependentSchemas"), done.stderr)

    def test_errors(self):
        run = [*self.run_args, QUESTION, "--tools"]
        cases = (
            ('[{"name": ]', "t.json:1:11: not JSON: unexpected token near ']'"),
            ("{}", "t.json: it has no tools: give an array of {\"type\": \"function\", \"function\": {\"name\": ...}}"),
            ("[1]", "t.json: tools[0] is no function: give {\"type\": \"function\", \"function\": {\"name\": ...}}"),
            ([NOW, {"type": "web_search"}], "t.json: tools[1] is of type 'web_search': give functions only"),
            ([{"type": "function", "function": {}}], "t.json: tools[0] has no name: give \"name\", a string"),
            ([{"name": "f", "parameters": []}], "t.json: tools[0].parameters: give a JSON Schema, an object"),
            ([{"name": "f", "strict": "yes"}], "t.json: tools[0].strict: give true or false"),
            ([{"name": "f", "description": 1}], "t.json: tools[0].description: give a string"),
            ([NOW, NOW], "t.json: duplicate tool 'now'"),
            ([{"name": "a b"}], "t.json: tool 'a b': a name has up to 128 letters, digits and _-.:"),
        )
        for content, line in cases:
            self.file("t.json", content)
            self.refused(line, *run, "t.json")
        self.file("t.json", [{"name": "f", "strict": True, "parameters": {"type": "object", "properties": {"a": {"minimum": "x"}}}}])
        done = self.reprise(*run, "t.json")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith("reprise: t.json: 'tools[0].parameters.properties.a.minimum'"), done.stderr)
        self.file("t.json", [NOW])
        self.refused("--tool-choice 'later': give auto, required, none, or the name of a tool in t.json", *run, "t.json", "--tool-choice", "later", status=2)
        self.refused("--tool-choice needs tools: give --tools FILE, too", *self.run_args, QUESTION, "--tool-choice", "auto", status=2)
        self.refused("--tools is for messages in the model's chat template: leave out --raw", *run, "t.json", "--raw", status=2)
        self.file("p.xml", "<prompt schema='s'/>")
        self.refused("--tools is for messages in the model's chat template: leave out --pml", *self.run_args, "--tools", "t.json", "--pml", "p.xml", status=2)


class Thinking(Case):
    """A model that reasons, unless it is told not to. The bundled one never ends its reasoning."""

    TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
                "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}{# </think> #}")

    def setUp(self):
        super().setUp()
        gguf_copy.copy(MODEL, os.path.join(self.folder, "thinks.gguf"), {"tokenizer.chat_template": gguf_copy.string(self.TEMPLATE)})
        self.run_args = ["run", "-m", "thinks.gguf", "--json-schema", '{"const": 4}', "-n", "20", QUESTION]

    def test_on_and_off(self):
        self.assertEqual(self.fine(*self.run_args, "--thinking", "off"), "4")
        for thinking in ("auto", "on"):
            self.refused("text: the answer ended after 20 tokens, before its JSON did: give a larger --max-tokens", *self.run_args, "--thinking", thinking)

    def test_reasoning_is_no_text(self):
        shown = self.reprise(*self.run_args, "-v")
        report = self.reprise(*self.run_args, "--json")
        self.assertEqual((shown.returncode, shown.stdout, report.returncode), (1, "", 1))
        reasoning = json.loads(report.stdout)["reasoning"]
        self.assertGreater(len(reasoning), 20)
        self.assertIn(reasoning, shown.stderr)
        self.assertEqual(json.loads(report.stdout)["text"], "")

    def test_without_a_form(self):
        plain = ["run", "-m", "thinks.gguf", QUESTION]
        self.assertTrue(self.fine(*plain, "--thinking", "off"))
        self.assertEqual(self.fine(*plain, "-n", "20", "--thinking", "on"), "")
        self.refused("--thinking is for messages in the model's chat template: leave out --raw", *plain, "--thinking", "on", "--raw", status=2)
        self.refused("unknown option '--reasoning-budget' of 'reprise run': use --thinking: off, or on", *plain, "--reasoning-budget", "0", status=2)


class Chat(Case):
    def test_each_answer_is_json(self):
        out = self.fine("chat", "-m", MODEL, "--json-schema", json.dumps(SCHEMA), text=f"{QUESTION}\nAnd now?\n")
        self.assertEqual([set(json.loads(line)) for line in out.splitlines()], [{"colour", "n"}] * 2)
        self.refused("cannot open 'none.json': No such file or directory", "chat", "-m", MODEL, "--json-schema", "none.json")


if __name__ == "__main__":
    unittest.main()
