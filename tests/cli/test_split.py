#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise split`: prompts from files and JSON Lines; a schema and prompts that `reprise run` takes; one line about what is wrong."""
import json
import os
import random
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
DATA = os.environ.get("REPRISE_TEST_DATA")
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
        done = split(self.path("requests.jsonl", LINES), "-m", MODEL, "-o", schema, "--pml", prompts, "--name", "towns", "--json")
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
            ran = subprocess.run([PROGRAM, "run", "-m", MODEL, "--schema", schema, "--pml", prompt, "-n", "1", "--json"], capture_output=True,
                                 text=True, check=False)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            answer, figures = json.loads(ran.stdout), said["prompts"][documents.index(proposed)]
            views = sum(tile["tokens"] for tile in answer["plan"] if tile["kind"] == "view")
            self.assertEqual((answer["usage"]["prompt_tokens"], views), (figures["total"], figures["cached"]))
            self.assertIn(json.loads(asked)["messages"][1]["content"][0]["text"], proposed)

    def test_files(self):
        files = [self.path(f"{i}.txt", SYSTEM + text) for i, text in enumerate([CLOCKS + CAMERA, CAMERA + COFFEE, COFFEE + CLOCKS])]
        done = split(*files)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith('<schema name="proposed" layout="packed"'))
        self.assertEqual(done.stdout.count("<module "), 3)
        self.assertIn("cached by a prefix cache", done.stderr)
        self.assertEqual(split("-", stdin=SYSTEM).returncode, 0)
        self.assertEqual(split(*files, "--min", "2000").stdout.count("<module "), 0)

    def test_paragraphs_in_any_order(self):
        """120 questions, each behind five of 32 paragraphs in some order: nearly all that a paragraph's second prompt has is found, by prefix next to nothing."""
        if not DATA:
            self.skipTest("REPRISE_TEST_DATA is not set")
        with open(os.path.join(DATA, "qa", "xquad.en.json"), encoding="utf-8") as f:
            paragraphs = [p for article in json.load(f)["data"] for p in article["paragraphs"]][:32]
        draw, lines, seen, repeated = random.Random(1), [], set(), 0
        for _ in range(120):
            chosen = draw.sample(range(len(paragraphs)), 5)
            texts = [paragraphs[i]["context"] for i in chosen]
            repeated += sum(len(text.encode()) for i, text in zip(chosen, texts) if i in seen)
            seen.update(chosen)
            question = draw.choice(paragraphs[chosen[0]]["qas"])["question"]
            lines.append(json.dumps({"messages": [{"role": "system", "content": "Answer from the documents.\n\n" + "\n\n".join(texts)},
                                                  {"role": "user", "content": question}]}))
        requests = self.path("requests.jsonl", "\n".join(lines))
        said = json.loads(split(requests, "--json").stdout)
        self.assertGreater(said["all"]["cached_in_order"], 0.97 * repeated)
        self.assertLess(said["all"]["prefix"], 0.2 * repeated)
        done = split(requests, "-m", MODEL, "-o", self.path("schema.xml"))
        self.assertEqual(done.returncode, 0, done.stderr)
        print("\n".join(line for line in done.stderr.splitlines() if "%" in line or "prompt" in line))

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
        self.refuse(1, "message 0 needs a \"role\"", "-", stdin='{"messages": [{"role": "king", "content": "a"}]}')
        self.refuse(1, "message 0 needs a \"content\"", "-", stdin='{"messages": [{"role": "user", "content": 3}]}')
        self.refuse(1, "\"messages\" is not a list", "-", stdin='{"messages": []}')
        self.refuse(1, "'a b' cannot be a schema's name", "-", "--name", "a b", stdin="a")
        self.refuse(1, "cannot write", "-", "-o", os.path.join(self.folder.name, "none", "schema.xml"), stdin="a")


if __name__ == "__main__":
    unittest.main()
