#!/usr/bin/env python3
"""`reprise split`: prompts from files and JSON Lines; a schema and prompts that `reprise run` takes; one line about what is wrong."""
import json
import os
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
SYSTEM = "You answer from the documents. Read the documents."
CLOCKS = " Belvik lies in the south of the country. The mayor of Belvik is Yarina. Belvik is known for its clocks."
CAMERA = " Zantec is a young company. Zantec has its office in Belvik. Zantec makes a camera. Zantec employs 85 people."
COFFEE = " The Wolqueen is at sea. Elena commands the Wolqueen. The Wolqueen carries coffee & tea < 3 tons."


def split(*args, stdin=""):
    return subprocess.run([PROGRAM, "split", *args], capture_output=True, text=True, input=stdin, check=False)


def conversation(*documents, ask):
    return json.dumps({"messages": [{"role": "system", "content": SYSTEM + "".join(documents)},
                                    {"role": "user", "content": [{"type": "text", "text": ask}]}]})


LINES = "\n".join([conversation(CLOCKS, CAMERA, ask="What is Belvik known for?"), conversation(CAMERA, COFFEE, ask="What does Zantec make?"), "",
                   conversation(COFFEE, CLOCKS, ask="Who commands the Wolqueen?")])


class Split(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, text=None):
        path = os.path.join(self.folder.name, name)
        if text is not None:
            with open(path, "w", encoding="utf-8", newline="") as f:
                f.write(text)
        return path

    def test_conversations(self):
        schema, prompts = self.path("schema.xml"), self.path("prompts.jsonl")
        done = split(self.path("requests.jsonl", LINES), "-m", MODEL, "-o", schema, "--prompts", prompts, "--name", "towns", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = json.loads(done.stdout)
        self.assertEqual([m["prompts"] for m in said["modules"]], [2, 2, 2])
        self.assertEqual(said["unit"], "tokens")
        self.assertEqual([p["name"][-2:] for p in said["prompts"]], [":1", ":2", ":4"])
        self.assertGreater(said["all"]["cached_in_order"], said["all"]["prefix"])
        with open(prompts, encoding="utf-8") as f:
            documents = [json.loads(line)["prompt"] for line in f]
        for proposed, asked in zip(documents, LINES.replace("\n\n", "\n").split("\n")):
            prompt = self.path("prompt.xml", proposed)
            ran = subprocess.run([PROGRAM, "run", "-m", MODEL, "--schema", schema, "--prompt", prompt, "-n", "1", "--json"], capture_output=True,
                                 text=True, check=False)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            usage = json.loads(ran.stdout)["usage"]
            figures = said["prompts"][documents.index(proposed)]
            self.assertEqual((usage["prompt_tokens"], usage["cached_tokens"]), (figures["total"], figures["cached"]))
            self.assertIn(json.loads(asked)["messages"][1]["content"][0]["text"], proposed)

    def test_files(self):
        files = [self.path(f"{i}.txt", SYSTEM + text) for i, text in enumerate([CLOCKS + CAMERA, CAMERA + COFFEE, COFFEE + CLOCKS])]
        done = split(*files)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith('<schema name="proposed" layout="packed"'))
        self.assertEqual(done.stdout.count("<module "), 3)
        self.assertIn("found by a cache of prefixes", done.stderr)
        self.assertEqual(split("-", stdin=SYSTEM).returncode, 0)
        self.assertEqual(split(*files, "--min", "2000").stdout.count("<module "), 0)

    def refuse(self, status, says, *args, stdin=""):
        done = split(*args, stdin=stdin)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertRegex(done.stderr, r"^reprise: [^\n]*\n$")
        self.assertIn(says, done.stderr)

    def test_what_is_wrong(self):
        self.refuse(2, "needs FILE")
        self.refuse(1, "no-such-file", "no-such-file")
        self.refuse(1, "stdin: byte 1 (0x00)", "-", stdin="a\0b")
        self.refuse(1, "stdin:2: not JSON", "-", stdin='{"prompt": "a"}\n{"prompt"')
        self.refuse(1, "stdin:1: byte 1 (0x00)", "-", stdin='{"prompt": "a\\u0000"}')
        self.refuse(1, 'stdin:2: give an object with "prompt"', "-", stdin='{"prompt": "a"}\n{"text": "b"}')
        self.refuse(1, "message 0 has no \"role\"", "-", stdin='{"messages": [{"role": "king", "content": "a"}]}')
        self.refuse(1, "message 0 has no \"content\"", "-", stdin='{"messages": [{"role": "user", "content": 3}]}')
        self.refuse(1, "\"messages\" is not a list", "-", stdin='{"messages": []}')
        self.refuse(1, "'a b' cannot be a schema's name", "-", "--name", "a b", stdin="a")
        self.refuse(1, "cannot write", "-", "-o", os.path.join(self.folder.name, "none", "schema.xml"), stdin="a")


if __name__ == "__main__":
    unittest.main()
