# SPDX-License-Identifier: Apache-2.0
"""What a router costs, with nodes that compute nothing (bench/bench_nodes.c): processor time when idle, beside names that change, and of requests with
long prompts; time and memory of snapshots. Times depend on the machine and on what else it does: processor seconds of the router's process, medians."""
import os
import random
import statistics
import subprocess
import time

import traffic
from cluster import Folder, Member, RouterServer, processor_seconds, say, until
from server_process import MODEL, SOURCE

PROGRAM = os.environ.get("REPRISE_BENCH_NODES", os.path.join(SOURCE, "build", "bench", "bench_nodes"))
NODES = 100
IDLE_S = 10
PROMPT_TOKENS = 100000
WARM, REQUESTS = 20, 45  # the first ones meet caches and memory pools that are cold


class Fakes:
    """The process of the nodes."""

    def __init__(self, folder, prompt, nodes=NODES, names=1000, changes=0):
        path = folder.write("prompt", prompt)
        self.process = subprocess.Popen([PROGRAM, MODEL, folder.at("secret"), str(nodes), str(names), str(changes), path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.urls, self.tokens, self.names, self.tokenize_ms, self.plan_ms = [], 0, 0, 0.0, 0.0
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "node":
                self.urls.append(f"{words[1]}={words[2]}")
            elif words[0] == "prompt":
                self.tokens, self.names, self.tokenize_ms, self.plan_ms = int(words[1]), int(words[3]), float(words[5]), float(words[8])
            elif words[0] == "ready":
                break
        assert len(self.urls) == nodes, "bench_nodes ended"

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Bench:
    """A router before fake nodes."""

    def __init__(self, prompt, **more):
        self.folder = Folder()
        self.fakes = Fakes(self.folder, prompt, **more)
        options = [w for url in self.fakes.urls for w in ("--node", url)]
        self.router = Member("router", lambda: RouterServer("--cluster-secret", self.folder.at("secret"), "--log", "off", *options))

    def __enter__(self):
        start = time.monotonic()
        self.router.start().ready()
        until(lambda: self.router.metrics()["reprise_route_nodes_well"] == len(self.fakes.urls), "all nodes are well")
        self.start_s, self.start_cpu_s = time.monotonic() - start, self.seconds()
        return self

    def __exit__(self, *failure):
        self.router.terminate()
        self.fakes.stop()
        self.folder.remove()

    def seconds(self):
        return processor_seconds(self.router.pid)

    def resident(self):
        with open(f"/proc/{self.router.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024

    def idle(self):
        """Share of one core over some seconds without requests."""
        time.sleep(2)  # what the start has left
        before, start = self.seconds(), time.monotonic()
        time.sleep(IDLE_S)
        return (self.seconds() - before) / (time.monotonic() - start)

    def ask(self, path, **body):
        """Milliseconds of the router's processor, and of the clock, for a request."""
        before, start = self.seconds(), time.monotonic()
        reply = self.router.server.post(path, body)
        assert reply.status == 200, reply.body[:300]
        return 1000 * (self.seconds() - before), 1000 * (time.monotonic() - start)


def long_prompt(tokens):
    """About so many tokens: the words of documents, of which the bundled model's vocabulary makes one or two each."""
    draw, words = random.Random(7), []
    while len(words) < tokens:
        words += traffic.document(draw.randrange(1 << 30)).split()
    return " ".join(words[:tokens])


def measured_prompt():
    """A prompt of about PROMPT_TOKENS tokens: cut by what its beginning has."""
    text, folder = long_prompt(PROMPT_TOKENS), Folder()
    fakes = Fakes(folder, text[:100000], nodes=1, names=0)
    characters = 100000 / fakes.tokens
    fakes.stop()
    folder.remove()
    return text[:int(PROMPT_TOKENS * characters)]


def of_requests(bench, prompt):
    """Milliseconds of the router's processor, the least and the median, and the median of the clock."""
    times = [bench.ask("/v1/completions", prompt=prompt, max_tokens=1) for _ in range(WARM + REQUESTS)][WARM:]
    return min(t[0] for t in times), statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def measure(_):
    prompt = measured_prompt()
    with Bench(prompt) as b:
        say(f"costs: {NODES} nodes, {b.fakes.tokens} tokens in the prompt, {b.fakes.names} names of its KV; each node holds 1,000 others")
        say(f"costs: idle: {100 * b.idle():.2f} % of a core in {IDLE_S} s; {b.resident():.0f} MiB resident")
        whole, half, short = of_requests(b, prompt), of_requests(b, prompt[:len(prompt) // 2]), of_requests(b, prompt[:400])
        metrics = b.router.metrics()
        held = metrics["reprise_route_held_tokens_total"] / metrics["reprise_route_prompt_tokens_total"]
        assert held > 0.98, f"the router finds {held} of the prompts' tokens: its names are not those of the nodes"
        tokenize_ms, plan_ms = b.fakes.tokenize_ms, b.fakes.plan_ms
    with Bench(prompt, nodes=1) as b:
        alone = of_requests(b, prompt)
    say(f"costs: a request with this prompt, median of {REQUESTS}: {whole[1]:.1f} ms of the router's processor ({whole[2]:.0f} ms by the clock); with half of it "
        f"{half[1]:.1f} ms, with 400 bytes of it {short[1]:.1f} ms; with one node instead of {NODES}: {alone[1]:.1f} ms. Least times, as what else the machine does "
        f"adds to all of them: {whole[0]:.1f} ms; of the library alone: tokenizing {tokenize_ms:.1f} ms, tokenizing and names {plan_ms:.1f} ms; "
        f"beyond tokenizing {whole[0] - tokenize_ms:.1f} ms")
    with Bench("short", names=1000, changes=100) as b:
        say(f"costs: 100 names of each node change a second, 10,000 in all: {100 * b.idle():.2f} % of a core")
    with Bench("short", names=0) as b:
        without_s, without_cpu_s = b.start_s, b.start_cpu_s
    with Bench("short", names=10000) as b:
        metrics = b.router.metrics()
        say(f"costs: {metrics['reprise_route_names']:.0f} names of {NODES} nodes, from the router's start until all are well, less the same without names: "
            f"{b.start_s - without_s:.2f} s by the clock, {b.start_cpu_s - without_cpu_s:.2f} s of the router's processor; "
            f"index {metrics['reprise_route_index_bytes'] / 2**20:.0f} MiB, {b.resident():.0f} MiB resident")
