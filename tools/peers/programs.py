# SPDX-License-Identifier: Apache-2.0
"""The compared programs: bench_peer, and llama.cpp in the lab."""
import atexit
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from peers.common import CTX, ROOT, fail, last_line


LAB = os.path.join(ROOT, "tools", "lab.sh")


class Ours:
    """bench_peer with one model, of this checkout or of another one; exits at the end of its input."""

    def __init__(self, path, threads, ctx=CTX, checkout=ROOT):
        program = os.path.join(checkout, "build", "bench", "bench_peer")
        if not os.access(program, os.X_OK):
            fail(f"{os.path.relpath(program)} is missing: run make")
        self.process = subprocess.Popen([program, path, "--threads", str(threads), "--ctx", str(ctx)], cwd=ROOT, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.opened = self.answer("opening the model")

    def answer(self, what):
        line = self.process.stdout.readline()
        if not line:
            fail(f"bench_peer ended during '{what}': see its message above")
        return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Reprise:
    """`reprise serve` on a free port of the loopback device; close() ends it."""

    def __init__(self, path, threads, *more):
        program = os.path.join(ROOT, "build", "reprise")
        if not os.access(program, os.X_OK):
            fail("build/reprise is missing: run make")
        self.process = subprocess.Popen([program, "serve", "-m", path, "--threads", str(threads), "--port", "0", "--log", "off", *more], cwd=ROOT,
                                        text=True, stdout=subprocess.PIPE)
        atexit.register(self.close)
        line = ""
        for line in self.process.stdout:
            if line.startswith("listening on http://"):
                self.port = int(line.rsplit(":", 1)[1])
            if line == "ready\n":
                return
        fail(f"reprise serve does not start: {last_line(line) or 'see its message above'}")

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.process.stdout.close()
        atexit.unregister(self.close)


# ---- llama.cpp ----

def lab(*command):
    """Runs a command in the lab: its output, peak memory in bytes. Waits for it, and raises an error if it fails."""
    with subprocess.Popen([LAB, "run", *command], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        output, errors = p.stdout.read(), p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        fail(f"{command[0]} failed in the lab: {last_line(errors)}")
    return output, usage.ru_maxrss * 1024


def llama_bench(path, threads, flash, runs, *more):
    output, peak = lab("llama-bench", "-m", path, "-t", str(threads), "-fa", str(flash), "-r", str(runs), "-o", "json", *more)
    return [ns * 1e-6 for ns in json.loads(output)[0]["samples_ns"]], peak


# The server exits at the end of this script's input, whatever happens to its parent process.
LEASH = 'exec 3<&0; "$@" </dev/null & p=$!; (cat <&3 >/dev/null; kill $p) & wait $p'


class Server:
    """llama-server in the lab on a free port of the loopback device."""

    def __init__(self, path, threads, flash, *more):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = os.path.join(ROOT, "build", "bench-peers-server.log")
        command = [LAB, "run", "sh", "-c", LEASH, "leash", "llama-server", "-m", path, "-t", str(threads), "-c", str(CTX), "-np", "1",
                   "-fa", "on" if flash else "off", "--no-webui", "--port", str(self.port), *more]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        atexit.register(self.close)
        self.wait_until_ready()

    def wait_until_ready(self):
        start = time.monotonic()
        while time.monotonic() - start < 300:
            if self.process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.close()
        fail(f"llama-server does not start: see {os.path.relpath(self.log)}")

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=3600) as reply:
                return json.load(reply)
        except (urllib.error.URLError, OSError) as e:
            self.close()
            fail(f"llama-server: {path}: {e}: see {os.path.relpath(self.log)}")

    def complete(self, tokens, n):
        """Timings of n greedy tokens after a prompt."""
        return self.post("/completion", {"prompt": tokens, "n_predict": n, "cache_prompt": True, "ignore_eos": True, "temperature": 0,
                                         "top_k": 1, "samplers": ["top_k"]})["timings"]

    def close(self):
        """Closes the input; kills a server that has not exited within ten seconds."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        atexit.unregister(self.close)


def read_versions():
    output, _ = lab("sh", "-c", "llama-bench --version 2>&1")
    theirs = next((line.split()[1] for line in output.splitlines() if line.startswith("version:")), "?")
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {"reprise": done.stdout.strip() or "?", "llama.cpp": theirs}


def check_lab():
    root = os.path.join(os.environ.get("REPRISE_LAB", "/var/tmp/reprise-lab"), "sid", "usr", "bin", "llama-bench")
    if not os.path.exists(root):
        fail(f"llama.cpp is missing ({root}): run tools/lab.sh setup")
