#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reprise chat`: on a pseudo-terminal as a person uses it, and in a pipe; `reprise run` shows the progress of a prefill."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import tempfile
import termios
import time
import unittest

SOURCE = os.environ.get("REPRISE_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PROGRAM = os.environ.get("REPRISE_PROGRAM", os.path.join(SOURCE, "build", "reprise"))
MODEL = os.path.join(SOURCE, "models", "reprise-mini.gguf")
DEADLINE_S = 120
QUESTION = "Tom had a red ball. What did Tom have?"
ENDLESS = ["--logit-bias", "<|im_end|>=-inf", "--logit-bias", "<|endoftext|>=-inf", "--ctx", "50000", "-n", "20000"]
STATUS = r"\[prompt (\d+) tokens, (\d+) % cached; first token \d+ ms; answer (\d+) tokens, [\d.]+ tokens/s"


class Terminal:
    """The program on a pseudo-terminal of 24 lines of 100 cells."""

    def __init__(self, *args, shell=None, **env):
        self.folder = tempfile.TemporaryDirectory()
        self.home = self.folder.name
        self.seen = self.all = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.pop("XDG_STATE_HOME", None)
            os.environ.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HOME": self.home, **env})
            os.environ.pop("NO_COLOR", None) if "NO_COLOR" not in env else None
            os.execvp("bash", ["bash", "--norc", "-m", "-c", shell, PROGRAM, *args]) if shell else os.execv(PROGRAM, [PROGRAM, *args])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))

    def read(self):
        """More output; False at the program's end."""
        if not select.select([self.fd], [], [], DEADLINE_S)[0]:
            raise AssertionError(f"no output for {DEADLINE_S} s after {self.all[-2000:]!r}")
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.seen += data
        self.all += data
        return data != b""

    def wait_for(self, pattern):
        """Reads up to and including the pattern; gives what was matched."""
        end = time.monotonic() + DEADLINE_S
        while not (found := re.search(pattern.encode(), self.seen)):
            if not self.read() or time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} in {self.all[-2000:]!r}")
        self.seen = self.seen[found.end():]
        return found

    def send(self, text):
        os.write(self.fd, text if isinstance(text, bytes) else text.encode())

    def ask(self, text):
        """Sends a message; gives (prompt tokens, per cent cached, answer tokens) of the status line."""
        self.send(text + "\r")
        found = self.wait_for(STATUS)
        self.prompt()
        return [int(group) for group in found.groups()]

    def prompt(self):
        self.wait_for(r">(\x1b\[0m)? ")

    def end(self):
        """Reads to the end; gives the exit status."""
        while self.read():
            pass
        os.close(self.fd)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.folder.cleanup()
        return status


class OnTerminal(unittest.TestCase):
    def open(self, *args, **env):
        terminal = Terminal("chat", "-m", MODEL, *args, **env)
        terminal.prompt()
        return terminal

    def finish(self, terminal):
        terminal.send(b"\x04")
        self.assertEqual(terminal.end(), 0)

    def test_conversation_is_reused(self):
        t = self.open("-n", "30")
        first = t.ask(QUESTION)
        second = t.ask("And who has it now?")
        self.assertGreater(second[0], first[0])
        self.assertGreater(second[1], 30)
        t.send("/undo\r")
        t.prompt()
        self.assertEqual(t.ask("And who has it now?")[0], second[0])
        t.send("/retry\r")
        self.assertEqual(int(t.wait_for(STATUS).group(1)), second[0])
        t.prompt()
        t.send("/reset\r")
        t.prompt()
        self.assertEqual(t.ask(QUESTION)[0], first[0])
        self.assertIn(b"\x1b[2m[prompt", t.all)
        self.finish(t)

    def test_a_message_of_several_lines(self):
        one = self.open("-n", "4")
        tokens = one.ask("\x1b[200~first line\rsecond\x1b[31m line\x1b[201~")[0]
        self.assertNotIn(b"\x1b[31m", one.all)
        sent = ["first line\x1b\rsecond[31m line", "first line\\\rsecond[31m line", '"""first line\rsecond[31m line"""',
                '"""\rfirst line\rsecond[31m line\r"""']
        for text in sent:
            one.send("/reset\r")
            one.prompt()
            with self.subTest(text):
                self.assertEqual(one.ask(text)[0], tokens)
        self.finish(one)

    def test_editing_and_whole_characters(self):
        for locale in ("C.UTF-8", "C"):
            t = self.open("-n", "4", LC_ALL=locale)
            plain = t.ask("äö€x")[0]
            t.send("/reset\r")
            t.prompt()
            self.assertEqual(t.ask("äö€€\x7fx")[0], plain)
            self.finish(t)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        t = self.open(*ENDLESS)
        t.send(QUESTION + "\r")
        t.wait_for(r"\?\r\n[^>]*\w+ \w+ ")
        t.send(b"\x03")
        found = t.wait_for(STATUS + r"; stopped\]")
        self.assertLess(int(found.group(3)), 20000)
        t.prompt()
        t.send("/stats\r")
        t.wait_for(r"1 answers; prompts \d+ tokens")
        t.prompt()
        t.send("half a message")
        t.wait_for("half a message")
        t.send(b"\x03")
        t.prompt()
        t.send("/quit\r")
        self.assertEqual(t.end(), 0)

    def test_stopped_and_continued(self):
        """Ctrl-Z gives the shell its terminal as it was; the line is there again afterwards."""
        t = self.open(shell='"$0" "$@"; echo "stopped $?"; stty -a; fg >/dev/null')
        t.send("half")
        t.wait_for("half")
        t.send(b"\x1a")
        t.wait_for("stopped 148")
        t.wait_for(r" icanon [\s\S]* echo ")
        t.wait_for("half")
        t.send(" of it\r")
        t.wait_for(STATUS)
        t.prompt()
        self.finish(t)

    def test_escape_sequences_of_a_model(self):
        t = self.open("-n", "5", "--logit-bias", "\x1b=1000")
        t.send("Hello\r")
        t.wait_for(r"\?\?\?\?\?\r\n")
        t.prompt()
        self.finish(t)
        self.assertNotIn(b"\x1b\x1b", t.all)

    def test_colours(self):
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            with self.subTest(env):
                t = self.open("-n", "4", **env)
                t.ask("Hello")
                self.finish(t)
                self.assertNotRegex(t.all, rb"\x1b\[\d*m")
                if "TERM" in env:
                    self.assertNotIn(b"\x1b", t.all)

    def test_history(self):
        with tempfile.TemporaryDirectory() as state:
            t = self.open("-n", "4", XDG_STATE_HOME=state)
            tokens = t.ask("\x1b[200~a first line\rof two\x1b[201~")[0]
            self.finish(t)
            path = os.path.join(state, "reprise", "chat_history")
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            with open(path, encoding="utf-8") as f:
                self.assertEqual([json.loads(line) for line in f], ["a first line\nof two"])
            with open(path, "a", encoding="utf-8") as f:  # one of another session, and a damaged one
                f.write('{"not": "ours"\n')
            t = self.open("-n", "4", XDG_STATE_HOME=state)
            self.assertEqual(t.ask("\x1b[A")[0], tokens)
            self.finish(t)
            with open(path, "w", encoding="utf-8") as f:
                f.write("".join(f'"message {i}"\n' for i in range(2500)))
            self.finish(self.open(XDG_STATE_HOME=state))
            with open(path, encoding="utf-8") as f:
                self.assertEqual(f.read().splitlines(), [f'"message {i}"' for i in range(1500, 2500)])
            t = self.open("--history", "off", XDG_STATE_HOME=state)
            self.finish(t)
            node = os.path.join(state, "fifo")  # as root, a link to /dev/null was chmod-ed, and a pipe stopped the command
            os.mkfifo(node, 0o644)
            t = self.open("--history", node)
            self.assertIn(b"messages are not remembered", t.all)
            self.finish(t)
            self.assertEqual(stat.S_IMODE(os.stat(node).st_mode), 0o644)
            t = self.open("--history", "/no/such/folder/history")
            self.assertIn(b"messages are not remembered", t.all)
            self.finish(t)

    def test_errors_do_not_end_it(self):
        t = self.open("-n", "4")
        for line, says in (("/frob", "unknown command '/frob'"), ("/sav x", r"did you mean '/save'\?"), ("/save", "give /save FILE"),
                           ("/load /no/such", "cannot open"), ("/set temp warm", "--temp 'warm': give a number"), ("/undo", "no message"),
                           ("/retry", "no answer"), ("/help me", "takes no argument")):
            t.send(line + "\r")
            t.wait_for("reprise: [^\r]*" + says)
            t.prompt()
        t.ask("//usr/bin is a path")
        self.finish(t)

    def test_progress_of_a_long_prefill(self):
        """Of a prompt, for chat and run: a bar with tokens, rate and time left."""
        words = "The market of Osthaven is held every Friday, and people come from all the towns of the north. " * 420
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "saved.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"messages": [{"role": "system", "content": words}]}, f)
            t = self.open("--ctx", "30000", "-n", "4", "--threads", "1", "--chunk", "32")
            t.send(f"/load {path}\r")
            t.prompt()
            t.send("Hello\r")
            t.wait_for(r"prefilling \[#*\.*\] \d+/\d+ tokens, [\d.]+K?/s, \d+ (s|min) left")
            t.wait_for(STATUS)
            t.prompt()
            self.finish(t)
            t = Terminal("run", "-m", MODEL, "--ctx", "30000", "-n", "4", "--threads", "1", "--chunk", "32", "--raw", "-p", words)
            t.wait_for(r"prefilling \[#*\.*\] \d+/\d+ tokens, [\d.]+K?/s, \d+ (s|min) left")
            self.assertEqual(t.end(), 0)


class InPipe(unittest.TestCase):
    def chat(self, text, *args, **env):
        return subprocess.run([PROGRAM, "chat", "-m", MODEL, "-n", "30", *args], input=text, capture_output=True, text=True, check=False,
                              env={**os.environ, **env})

    def answers(self, text, *args):
        done = self.chat(text, *args)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_answers_only(self):
        one, two = self.answers(QUESTION + "\n"), self.answers(f"{QUESTION}\n\n  \nWhere is it?")
        self.assertTrue(two.startswith(one))
        self.assertEqual(two.count("\n"), 2)
        self.assertEqual(self.answers(f'"""\n{QUESTION}\n"""\n'), one)
        self.assertEqual(self.answers("Tom had a red ball. \\\nWhat did Tom have?\n").count("\n"), 1)
        self.assertEqual(self.answers(""), "")

    def test_equals_run(self):
        """The answer of a first message is that of its prompt in the model's chat format."""
        with tempfile.TemporaryDirectory() as folder:
            schema, prompt = os.path.join(folder, "s.xml"), os.path.join(folder, "p.xml")
            with open(schema, "w", encoding="utf-8") as f:
                f.write('<schema name="s"><module name="m">x</module></schema>')
            with open(prompt, "w", encoding="utf-8") as f:
                f.write(f'<prompt schema="s"><system>You are a guide.</system><user>{QUESTION}</user></prompt>')
            ran = subprocess.run([PROGRAM, "run", "-m", MODEL, "--schema", schema, "--pml", prompt, "-n", "30"], capture_output=True, text=True,
                                 check=True)
        self.assertEqual(self.answers(QUESTION + "\n", "--system", "You are a guide."), ran.stdout + "\n")

    def test_save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "saved.json")
            with open(path, "w", encoding="utf-8") as f:
                f.write("an older file, longer than what comes, " * 99)
            os.chmod(path, 0o644)  # a file that was there stayed readable
            first = self.answers(f"/system You are a guide.\n{QUESTION}\n/save {path}\n")
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            with open(path, encoding="utf-8") as f:
                saved = json.load(f)["messages"]
            self.assertEqual([m["role"] for m in saved], ["system", "user", "assistant"])
            self.assertEqual(saved[2]["content"] + "\n", first)
            both = self.answers(f"/system You are a guide.\n{QUESTION}\nWhere is it?\n")
            self.assertEqual(first + self.answers(f"/load {path}\nWhere is it?\n"), both)
            for wrong, says in (("[", "not JSON"), ("{}", "no conversation"), ('{"messages": [{"role": "king", "content": ""}]}', '"role"'),
                                ('{"messages": [{"role": "assistant", "content": ""}]}', "take turns"),
                                ('{"messages": [{"role": "user", "content": ""}]}', "no answer")):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(wrong)
                done = self.chat(f"/load {path}\n")
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"^reprise: [^\n]*\n$")
                self.assertIn(says, done.stderr)

    def test_settings(self):
        said = self.chat("/set temp 0.5\n/set top-k=7\n/set seed 18446744073709551615\n/set\n").stderr
        for line in (r"temp +0.5$", r"top-k +7$", r"seed +18446744073709551615$", r"max-tokens +30$", r"repeat-last +64$"):
            self.assertRegex(said, re.compile(line, re.M))
        long, short = (self.answers(f"{text}Tell me.\n", *ENDLESS[:4], "-n", "40") for text in ("", "/set max-tokens 3\n"))
        self.assertTrue(long.startswith(short[:-1]) and len(long) > len(short))
        done = self.chat("/set temp 2\nHello\n/retry\n/set\n")
        self.assertRegex(done.stderr, re.compile(r"seed +1$", re.M))

    def test_reports(self):
        done = self.chat(f"{QUESTION}\nWhere?\n/explain\n/stats\n")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"position +tokens +source +reason")
        self.assertRegex(done.stderr, r"reused .*\n.*computed")
        self.assertRegex(done.stderr, r"2 answers; prompts \d+ tokens, [1-9]\d % cached")

    def test_store(self):
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            cached = []
            for _ in range(2):
                done = self.chat(f"{QUESTION * 12}\n/explain\n/stats\n", "--store", store, "--write", "through")
                self.assertIn("store (works)", done.stderr)
                cached.append("from disk" in done.stderr)
            self.assertEqual(cached, [False, True])

    def test_a_conversation_longer_than_the_context(self):
        done = self.chat("".join(f"Message {i}: the town of Osthaven lies in the north, and Belvik in the south.\n" for i in range(30)), "--ctx", "256",
                         "-n", "8")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_is_wrong(self):
        for text, args, status, says in (("/frob\n", (), 1, "unknown command"), ('"""never ends', (), 1, "has no end"), ("a\0b\n", (), 1, "zero byte"),
                                         ("", ("--max-tokens", "0"), 2, "--max-tokens"), ("", ("--stop", ""), 2, "--stop"), ("", ("x",), 2, "unexpected")):
            done = self.chat(text, *args)
            self.assertEqual((done.returncode, done.stdout), (status, ""))
            self.assertRegex(done.stderr, r"^reprise: [^\n]*\n$")
            self.assertIn(says, done.stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "chat", "-m", MODEL], input="Hello\n", stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)

    def test_ctrl_c_ends_it(self):
        process = subprocess.Popen([PROGRAM, "chat", "-m", MODEL, *ENDLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdin.write(b"Hello\n")
        process.stdin.flush()
        self.assertNotEqual(process.stdout.read(5), b"")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        self.assertEqual(process.wait(), 130)
        self.assertTrue(rest.endswith(b"\n"))
        process.stdin.close()
        process.stdout.close()


if __name__ == "__main__":
    unittest.main()
