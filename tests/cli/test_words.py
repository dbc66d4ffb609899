#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The words of the command line: -p is text and --pml a file, a model needs no -m, and each slip gets one right line."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.abspath(os.path.join(SOURCE, "models", "reprise-mini.gguf"))
GOLDEN = os.path.abspath(os.path.join(SOURCE, "tests", "golden"))
PROJECTOR = "this is the projector of images or audio (mmproj) of a model: give the model itself; only text is supported"
BOM = b"\xef\xbb\xbf"
QUESTION = "Tom had a red ball. What did Tom have?"
SCHEMA = b"<schema name='s'><user>Tom had <module name='m'>a red ball.</module></user></schema>"
PROMPT = b"<prompt schema='s'><m/>What did Tom have?</prompt>"

sys.path.insert(0, os.path.join(SOURCE, "tests", "server"))
import gguf_copy  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def reprise(self, *args, text=""):
        return subprocess.run([PROGRAM, *args], input=text, capture_output=True, text=True, cwd=self.folder, timeout=120, check=False)

    def file(self, name, content):
        with open(os.path.join(self.folder, name), "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        return name

    def fine(self, *args, text="", warning=""):
        done = self.reprise(*args, text=text)
        self.assertEqual((done.returncode, done.stderr), (0, warning), args)
        return done.stdout

    def refused(self, line, *args, status=2, text=""):
        done = self.reprise(*args, text=text)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (status, "", f"reprise: {line}\n"), args)


class Prompts(Case):
    def test_a_text_in_every_form(self):
        whole = self.fine("run", "-m", MODEL, "-n", "8", QUESTION)
        self.assertTrue(whole)
        self.file("q.txt", QUESTION + "\r\n")
        for args, text in ([(["-m", MODEL, "-p", QUESTION], ""), (["-m", MODEL, "--prompt=" + QUESTION], ""), ([MODEL, QUESTION], ""),
                            ([QUESTION, "-m", MODEL], ""), (["-m", MODEL, "-f", "q.txt"], ""), (["-m", MODEL, "-f", "-"], QUESTION + "\n"),
                            ([MODEL], QUESTION + "\n"), ([MODEL, "-"], QUESTION)]):
            self.assertEqual(self.fine("run", "-n", "8", *args, text=text), whole, args)

    def test_the_chat_template(self):
        """A text is a user's message, with the tokens that `reprise template` shows; --raw leaves the template out."""
        def tokens(*args):
            return json.loads(self.fine("run", "-m", MODEL, "-n", "1", "--json", *args))["usage"]["prompt_tokens"]
        def rendered(*messages):
            body = json.dumps({"messages": [dict(zip(("role", "content"), m)) for m in messages], "add_generation_prompt": True})
            return len(self.fine("template", "-m", MODEL, "--tokens", text=body).split())
        self.assertEqual(tokens(QUESTION), rendered(("user", QUESTION)))
        self.assertEqual(tokens("--system", "Be brief.", QUESTION), rendered(("system", "Be brief."), ("user", QUESTION)))
        self.assertEqual(tokens("--raw", QUESTION), len(self.fine("tokenize", "-m", MODEL, "--bos", "--ids", QUESTION).split()))
        self.assertEqual(tokens("<|im_start|>"), rendered(("user", "<|im_start|>")))  # text is never a control token

    def test_several(self):
        done = self.fine("run", "-m", MODEL, "-n", "1", "--json", "-p", "Once", "--prompt", "Twice")
        self.assertEqual([json.loads(line)["prompt"] for line in done.splitlines()], ["text", "text"])

    def test_pml(self):
        self.file("s.xml", SCHEMA)
        self.file("p.xml", PROMPT)
        run = ["run", "-m", MODEL, "-n", "6", "--schema", "s.xml"]
        answer = self.fine(*run, "--pml", "p.xml")
        self.assertEqual(self.fine(*run, "--pml", "-", text=PROMPT.decode()), answer)
        self.assertIn("m", self.fine("inspect", "-m", MODEL, "--schema", "s.xml", "--pml", "p.xml"))
        self.refused("--pml and text (--prompt) exclude each other: give one of them", *run, "--pml", "p.xml", "-p", "x")
        self.refused("--system is for prompts of text: write a <system> element in the schema or the prompt", *run, "--pml", "p.xml", "--system", "x")

    def test_a_file_is_not_a_text(self):
        self.file("one.xml", BOM + b"\n" + PROMPT)
        self.file("q.txt", QUESTION)
        run = ["run", "-m", MODEL, "-n", "1"]
        self.fine(*run, "-p", "one.xml", warning="warning: '-p one.xml' is text: for a PML file give --pml one.xml\n")
        self.fine(*run, "-p", "q.txt", warning="warning: '-p q.txt' is text: for the text of a file give -f q.txt\n")
        self.fine(*run, "q.txt", warning="warning: 'q.txt' is text: for the text of a file give -f q.txt\n")
        self.fine(*run, "-p", "-", warning="warning: '-p -' is text: for standard input give -f -\n")
        self.fine("tokenize", "-m", MODEL, "-p", "q.txt", warning="warning: '-p q.txt' is text: for the text of a file give -f q.txt\n")

    def test_tokenize_and_embed(self):
        self.file("q.txt", QUESTION)
        ids = self.fine("tokenize", MODEL, "--ids", text=QUESTION)
        for args in (["-p", QUESTION], [QUESTION], ["-f", "q.txt"]):
            self.assertEqual(self.fine("tokenize", "-m", MODEL, "--ids", *args), ids)
        self.refused("more than one text: give one of TEXT, --prompt and --file, and put a text of several words in quotes",
                     "tokenize", "-m", MODEL, "-p", "a", "b")
        self.file("lines.txt", "one\ntwo\n")
        vectors = self.fine("embed", MODEL, "one", "two")
        self.assertEqual(self.fine("embed", "-m", MODEL, "-p", "one", "-p", "two"), vectors)
        self.assertEqual(self.fine("embed", "-m", MODEL, "-f", "lines.txt"), vectors)
        self.refused("--file and texts (TEXT, --prompt) exclude each other: give one of them", "embed", MODEL, "one", "-f", "lines.txt")


class Slips(Case):
    def test_arguments(self):
        quotes = "put a prompt of several words in quotes, and give each of several prompts with -p"
        self.refused(f"unexpected argument 'is': {quotes}", "run", "-m", "x", "Why", "is", "the", "sky")
        self.refused(f"unexpected argument 'b': {quotes}", "run", "-m", "x", "-p", "a", "b")
        self.refused(f"unexpected argument 'hello': {quotes}; the model with -m FILE", "run", "llama3", "hello")
        self.refused("'reprise run' needs a prompt: give -p TEXT, -f FILE or --pml FILE, or text on standard input", "run", "x.gguf")
        self.refused("two models, 'a.gguf' and 'b.gguf': give one", "run", "a.gguf", "-m", "b.gguf", "x")
        self.refused("--model is empty: give --model FILE", "run", "--model=", "x")
        self.refused("--raw and --system exclude each other: a system prompt needs the chat template", "run", "x.gguf", "--raw", "--system", "s", "x")

    def test_no_command(self):
        self.refused("no command before 'x.gguf': give reprise chat x.gguf, reprise run x.gguf \"TEXT\" or reprise serve x.gguf", "x.gguf")
        self.refused("unknown option '--hepl': did you mean '--help'?", "--hepl")
        self.refused("'-m' before a command: give the command first, as in reprise run -m MODEL \"TEXT\"", "-m", "x.gguf", "-p", "hello")

    def test_a_file_where_the_store_is_meant(self):
        self.file("store", "text")
        line = f"{os.path.realpath(self.folder)}/store: this is a file, but the store is a folder: give an empty or a new folder"
        for args in (["run", MODEL, "x", "-n", "1"], ["run", MODEL, "x", "--read-only"], ["chat", MODEL], ["serve", MODEL, "--port", "0", "--log", "off"], ["cache", "ls"],
                     ["cache", "verify"]):
            done = self.reprise(*args, "--store", "store")
            self.assertEqual((done.returncode, done.stderr), (1, f"reprise: {line}\n"), args)
        done = self.reprise("run", MODEL, "x", "-n", "1", "--store", "store/below")
        self.assertIn("a part of the path is a file or a symbolic link", done.stderr)
        with open(os.path.join(self.folder, "store"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "text")

    def test_contexts(self):
        """Beyond the training context is a warning; what no model has is refused."""
        train = "the model was trained for 2048 positions; output beyond them may be wrong\n"
        self.fine("run", MODEL, "x", "-n", "1", "-c", "4096", warning=f"warning: --ctx 4096: {train}")
        self.refused("--ctx 2000000000: give 0 to 1073741824 positions", "run", MODEL, "x", "-c", "2000000000", status=1)

    def test_files_that_are_no_models(self):
        """One line each that says what the file is."""
        lora = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
        for metadata, line in ((lora, "this is a LoRA adapter: use it with --lora, and its base model with -m"),
                               ({"general.type": "mmproj", "general.architecture": "clip"}, PROJECTOR), ({"general.architecture": "clip"}, PROJECTOR),
                               ({"general.type": "imatrix"}, "this is an importance matrix for quantization: give a model"),
                               ({"general.architecture": "controlvector"}, "this is a control vector, which is not supported: give a model")):
            gguf_copy.Gguf({k: gguf_copy.string(v) for k, v in metadata.items()}, 0, b"", b"").write(os.path.join(self.folder, "m.gguf"))
            for args in (["run", "-m", "m.gguf", "x"], ["tokenize", "m.gguf", "x"], ["inspect", "m.gguf"]):
                self.refused(f"m.gguf: {line}", *args, status=1)
        whole = gguf_copy.read(MODEL)
        gguf_copy.Gguf(whole.metadata, 0, b"", b"").write(os.path.join(self.folder, "vocabulary.gguf"))
        self.refused("vocabulary.gguf: the file has a vocabulary, but no weights: give a whole model", "run", "vocabulary.gguf", "x", status=1)
        self.fine("tokenize", "vocabulary.gguf", "x")
        keys = {"split.no": gguf_copy.u32(1), "split.count": gguf_copy.u32(3), "split.tensors.count": gguf_copy.u32(whole.n_tensors)}
        gguf_copy.Gguf(keys, 0, b"", b"").write(os.path.join(self.folder, "m-00002-of-00003.gguf"))
        self.refused("m-00002-of-00003.gguf: is part 2 of 3 of a model: open the first, 'm-00001-of-00003.gguf'", "run", "m-00002-of-00003.gguf", "x",
                     status=1)

    def test_files_of_other_formats(self):
        convert = "convert it with llama.cpp's convert_hf_to_gguf.py"
        for content, line in ((struct.pack("<Q", 2) + b'{"x":1}', f"it is safetensors: {convert}"), (b"PK\3\4", f"it is a PyTorch or zip archive: {convert}"),
                              (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer: download the file itself, as with git lfs pull"),
                              (b"<!DOCTYPE html>", "it is a web page or XML: download the file itself"), (b"", "it is empty"),
                              (b"GGML", "it does not begin with 'GGUF'")):
            self.refused(f"m.bin: header: not a GGUF file: {line}", "run", "-m", self.file("m.bin", content), "x", status=1)
        os.mkdir(os.path.join(self.folder, "folder"))
        self.refused("cannot read 'folder': it is a directory: give a model file (GGUF) in it", "run", "-m", "folder", "x", status=1)

    def test_words_of_others(self):
        self.refused("unknown option '-ngl' of 'reprise run': use --device-layers", "run", "x.gguf", "-ngl99")
        self.refused("unknown option '-no-cnv' of 'reprise run': use --raw", "run", "x.gguf", "-no-cnv")
        self.refused("unknown option '-sys' of 'reprise run': use --system", "run", "x.gguf", "-sys", "Be brief.")
        self.refused("unknown option '--max-model-len' of 'reprise serve': use --ctx", "serve", "x.gguf", "--max-model-len", "4096")
        self.refused("unknown option '--text' of 'reprise run': use --prompt: with --raw the model continues the text", "run", "x.gguf", "--text", "x")
        self.refused("unknown option '-p' of 'reprise chat': it is --prompt of 'reprise run': leave it out here", "chat", "x.gguf", "-p", "x")

    def test_a_model_without_its_option(self):
        self.assertIn("llama", self.fine("inspect", MODEL))
        self.assertTrue(self.fine("chat", MODEL, text=QUESTION + "\n").strip())
        self.fine("lint", MODEL, warning=self.reprise("lint", "-m", MODEL).stderr)
        self.refused("cannot open 'x.gguf': No such file or directory", "bench", "x.gguf", status=1)
        self.refused("--port '99999': give a whole number from 0 to 65535", "serve", "small=" + MODEL, "--port", "99999")


class Marks(Case):
    """UTF-8 files may begin with a byte order mark; UTF-16 is refused in one line."""

    def test_byte_order_marks(self):
        self.file("s.xml", BOM + SCHEMA)
        self.file("p.xml", BOM + PROMPT)
        self.file("plain.txt", QUESTION)
        self.file("q.txt", BOM + QUESTION.encode())
        self.file("g.gbnf", BOM + b'root ::= " Tom"')
        self.file("t.jinja", BOM + b"{{ messages[0].content }}")
        run = ["run", "-m", MODEL, "-n", "4"]
        self.fine(*run, "--schema", "s.xml", "--pml", "p.xml")
        self.assertEqual(self.fine(*run, "-f", "q.txt"), self.fine(*run, "-f", "plain.txt"))
        self.assertEqual(self.fine(*run, "--grammar", "g.gbnf", "Who?"), " Tom")
        body = json.dumps({"messages": [{"role": "user", "content": "x"}]})
        self.assertEqual(self.fine("template", "--template", "t.jinja", text="\ufeff" + body), "x")
        self.assertEqual(self.fine("tokenize", "-m", MODEL, "--ids", "-f", "q.txt"), self.fine("tokenize", "-m", MODEL, "--ids", QUESTION))

    def test_files_of_a_server(self):
        """Keys and options in files with the mark; UTF-16 is refused."""
        row = self.fine("serve", "--hash-key", text="a-key-of-many-letters\n").strip()
        self.file("keys", BOM + f"{row} tenant=one\nnonsense\n".encode())  # its first line is read, and the second is the first error
        done = self.reprise("serve", MODEL, "--port", "0", "--log", "off", "--api-keys", "keys")
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn("keys:2:", done.stderr)
        self.file("options", BOM + b"api-keys = keys\nport = 99999\n")
        self.refused("options:2: port = 99999: give a whole number from 0 to 65535", "serve", MODEL, "--config", "options")
        self.file("utf16", "a".encode("utf-16"))
        for option, path in (("--api-keys", "utf16"), ("--config", "utf16")):
            self.refused(f"cannot read '{path}': it is UTF-16: save it as UTF-8", "serve", MODEL, "--port", "0", "--log", "off", option, path,
                         status=2 if option == "--config" else 1)

    def test_keys(self):
        """A key file of digits, written by an editor that adds the mark, is the same key."""
        self.file("plain.key", "ab" * 32 + "\n")
        self.file("marked.key", BOM + b"ab" * 32 + b"\r\n")
        for name in ("plain.key", "marked.key"):
            os.chmod(os.path.join(self.folder, name), 0o600)  # a key that others may read is refused
        run = ["run", "-m", MODEL, "-n", "2", "--raw", "-p", QUESTION, "--json", "--write", "through", "--store", "store", "--store-key"]
        self.fine(*run, "plain.key")
        self.assertGreater(json.loads(self.fine(*run, "marked.key"))["usage"]["cached_tokens"], 0)

    def test_utf16(self):
        for name, encoding in (("le", "utf-16"), ("be", "utf-16-be")):
            mark = b"" if name == "le" else b"\xfe\xff"
            self.file("s.xml", mark + SCHEMA.decode().encode(encoding))
            self.file("p.xml", mark + PROMPT.decode().encode(encoding))
            self.file("q.txt", mark + QUESTION.encode(encoding))
            run = ["run", "-m", MODEL, "-n", "1"]
            for path, args in (("p.xml", ["--pml", "p.xml"]), ("q.txt", ["-f", "q.txt"]), ("q.txt", ["--grammar", "q.txt", "x"])):
                self.refused(f"cannot read '{path}': it is UTF-16: save it as UTF-8", *run, *args, status=1)
            done = self.reprise(*run, "--schema", "s.xml", "x")
            self.assertEqual((done.returncode, done.stderr), (1, "reprise: cannot read 's.xml': it is UTF-16: save it as UTF-8\n"))


if __name__ == "__main__":
    unittest.main()
