# SPDX-License-Identifier: Apache-2.0
"""Measures every cell of a model, in rounds."""
import datetime
import os
import random
import statistics
import time

from peers.common import CACHED, DEPTHS, FRESH, MEMORY_TOKENS, OTHER_ORDER, OURS, REUSING, ROOT, fail, say
from peers.machine import Limits, quietly
from peers.models import Work, make_model
from peers.programs import Ours, Server, lab, llama_bench, read_versions


GENERATED = 32         # tokens of a decode sample
DOCUMENT = 1000        # tokens of a document, as in bench_peer.c
SAMPLE_S = 1.0         # short samples are repeated to last this long together, at most MAX_RUNS times
MAX_RUNS = 5
LONG_S = 30            # subjects that need longer for a sample are measured only in the first round


class Sitting:
    """Both programs with one model. take(subject, cell) gives samples: ms, or bytes for `memory`."""

    def __init__(self, shape, kind, options):
        self.path, self.options = make_model(shape, kind), options
        self.work = Work(self.path)
        self.words = random.Random(1)
        self.ours, self.servers, self.facts = None, {}, {}
        self.flash = None  # "0" or "1": llama.cpp's best setting for long prompts, once known
        self.documents = [self.letters(DOCUMENT) for _ in CACHED]
        self.deep = self.letters(DEPTHS[-1])

    def close(self):
        if self.ours:
            self.ours.close()
        for server in self.servers.values():
            server.close()

    def letters(self, n):
        """Ids of letters, like those of bench_peer's texts: 3 + byte in mkgguf's vocabularies."""
        return [3 + self.words.randrange(ord("a"), ord("z") + 1) for _ in range(n)]

    def reprise(self):
        if not self.ours:
            self.ours = Ours(self.path, self.options.threads)
            self.ours.ask("prefill 64 1")  # warms up, as llama-bench and llama-server do
        return self.ours

    def server(self, flash, *more):
        key = (flash, *more)
        if key not in self.servers:
            if os.path.getsize(os.path.join(ROOT, self.path)) > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 6:
                while self.servers:  # memory has one server beside this program
                    self.servers.popitem()[1].close()
            self.servers[key] = server = Server(self.path, self.options.threads, flash, *more)
            text = "kxqz river of the north"
            theirs = server.post("/tokenize", {"content": text, "add_special": True})["tokens"]
            ours = self.reprise().ask("tokens " + text)["ids"]
            if theirs != ours:
                fail(f"{self.path}: the programs read other tokens in '{text}': {ours} and {theirs}")
        return self.servers[key]

    def subjects(self, cell):
        """The subjects of a cell."""
        name, _, n = cell.partition("-")
        theirs, servers = ["llama-bench fa 0", "llama-bench fa 1"], ["llama-server fa 0", "llama-server fa 1"]
        if name in ("fresh", "full"):
            theirs = servers
        elif name == "decode" and n != "0":
            theirs = servers + theirs
        if name == "full":  # slow: uses the setting that was best without a cache
            theirs = [t for t in theirs if self.flash in (None, t[-1])] + ([REUSING] if self.options.cache_reuse else [])
        return ([OURS, OTHER_ORDER] if name == "fresh" else [OURS]) + theirs

    def take(self, subject, cell, runs):
        name, _, n = cell.partition("-")
        n = int(n or 0)
        if subject in (OURS, OTHER_ORDER):
            return self.take_ours(name, n, runs, "backward" if subject == OTHER_ORDER else "forward")
        flash = 0 if subject.endswith(" 0") else 1
        if subject.startswith("llama-bench"):
            return self.take_bench(name, n, runs, flash)
        more = ["--cache-reuse", str(self.options.cache_reuse)] if subject == REUSING else []
        return self.take_server(name, n, runs, self.server(flash, *more), "cached after the swap, " + subject)

    def take_ours(self, name, n, runs, order):
        if name == "memory":
            once = Ours(self.path, self.options.threads, MEMORY_TOKENS + 64)
            once.ask(f"prefill {MEMORY_TOKENS} 1")
            peak = once.ask("memory")["peak_bytes"]
            once.close()
            return [peak]
        if name == "load":
            start = time.monotonic()
            once = Ours(self.path, self.options.threads, MEMORY_TOKENS + 64)
            once.ask("prefill 1 1")
            once.close()
            self.facts |= {key: once.opened[key] for key in ("open_ms", "engine_ms")}
            return [(time.monotonic() - start) * 1e3]
        line = {"prefill": f"prefill {n} {runs}", "decode": f"decode {n} {GENERATED} {runs}", "fresh": f"fresh {n} {FRESH} {runs} {order}",
                "full": f"full {n} {FRESH} {runs}"}[name]
        answer = self.reprise().ask(line)
        self.facts |= {key: answer[key] for key in ("cached", "fresh", "plan_ms", "bytes_copied", "kv_bytes")}
        return answer["ms"]

    def take_bench(self, name, n, runs, flash):
        threads = self.options.threads
        if name == "prefill":
            return llama_bench(self.path, threads, flash, runs, "-p", str(n), "-n", "0")[0]
        if name == "decode":
            return [ms / GENERATED for ms in llama_bench(self.path, threads, flash, runs, "-p", "0", "-n", str(GENERATED), "-d", str(n))[0]]
        if name == "memory":
            return [llama_bench(self.path, threads, flash, 1, "-p", str(MEMORY_TOKENS), "-n", "0", "--no-warmup")[1]]
        script = 'a=$(date +%s%N); "$@" >/dev/null 2>&1 || exit 1; b=$(date +%s%N); echo $((b - a))'
        output, _ = lab("sh", "-c", script, "timed", "llama-bench", "-m", self.path, "-t", str(threads), "-fa", str(flash), "-r", "1",
                        "-p", "1", "-n", "0", "--no-warmup")
        return [int(output) * 1e-6]

    def take_server(self, name, n, runs, server, fact):
        if name == "decode":
            server.complete(self.deep[:n], 1)  # the context, once
            return [server.complete(self.deep[:n], GENERATED)["predicted_per_token_ms"] for _ in range(runs)]
        k = n // DOCUMENT
        if name == "fresh":
            samples = []
            prompt = [1] + sum(self.documents[:k], [])
            for _ in range(runs + 1):
                timings = server.complete(prompt + self.letters(FRESH), 1)
                if timings["cache_n"] >= n and timings["prompt_n"] <= FRESH + 1 and len(samples) < runs:
                    samples.append(timings["prompt_ms"])
            if not samples:
                fail(f"llama-server does not find its prefix of {n} tokens: {timings}")
            return samples
        # New documents, in one order, then in the other: they share only the start with the cached prompt.
        documents = [self.letters(DOCUMENT) for _ in range(k)]
        server.complete([1] + sum(documents, []) + self.letters(FRESH), 1)
        timings = server.complete([1] + sum(reversed(documents), []) + self.letters(FRESH), 1)
        self.facts[fact] = timings["cache_n"]
        return [timings["prompt_ms"]]


# ---- rounds ----

def new_record(shape, kind, cell, versions):
    return {"shape": shape, "type": kind, "cell": cell, "date": None, **versions, "samples": {}, "others": {}, "seconds": {}, "limits": [],
            "limit": None, "facts": {}}


def best_setting(samples):
    """llama.cpp's subject with the smallest median in {subject: samples}, without --cache-reuse."""
    return min((s for s in samples if s.startswith("llama") and s != REUSING), key=lambda s: statistics.median(samples[s]), default=None)


def in_round(record, subject, first):
    """Whether a subject is measured: all in the first round, except llama-bench at a depth, which prefills it each
    time: only with the server's better setting. Later, slow subjects are skipped, and of llama.cpp's settings only the
    best is used."""
    samples = record["samples"]
    if first:
        return not subject.startswith("llama-bench") or "llama-server fa 1" not in samples or subject[-1] == best_setting(samples)[-1]
    quick = {s: x for s, x in samples.items() if record["seconds"][s] <= LONG_S}
    return subject in quick and (not subject.startswith("llama") or subject in (REUSING, best_setting(quick)))


def measure_cell(sitting, record, limits, first):
    cell, o = record["cell"], sitting.options
    sitting.facts = {}
    subjects = sitting.subjects(cell)
    record["limits"].append(limits.now(o.patience))
    for subject in subjects:
        if not in_round(record, subject, first):
            continue
        known = record["samples"].get(subject) or record["samples"].get(OURS)
        runs = 1 if cell in ("memory", "load") or not known else max(1, min(MAX_RUNS, int(SAMPLE_S * 1e3 / sample_ms(cell, known))))
        if first and subject == OURS and cell.split("-")[0] in ("prefill", "decode", "fresh"):
            runs = max(1, min(MAX_RUNS, int(SAMPLE_S * 1e3 / sample_ms(cell, sitting.take(OURS, cell, 1)))))
        samples, share, seconds = quietly(subject, lambda: sitting.take(subject, cell, runs), o.patience)
        record["seconds"][subject] = round(seconds, 1)
        record["samples"].setdefault(subject, []).extend(round(s, 4) for s in samples)
        record["others"].setdefault(subject, []).append(round(share, 4))
    record["facts"] |= sitting.facts
    record["date"] = datetime.datetime.now().isoformat(timespec="seconds")
    middle = {key: statistics.median(l[key] for l in record["limits"]) for key in record["limits"][0]}
    record["limit"] = sitting.work.limit(cell, middle)
    if cell.startswith("fresh-"):
        record["facts"]["states_ms"] = sitting.work.states_ms(int(cell[6:]), middle)
    if cell in ("prefill-512", "prefill-2048"):
        sitting.flash = best_setting(record["samples"])[-1]


def sample_ms(cell, samples):
    """Duration of a sample of these."""
    return statistics.median(samples) * (GENERATED if cell.startswith("decode") else 1)


def measure(options, results, save):
    """Fills in results["cells"]; save() is called after each."""
    limits, versions = Limits(options.threads), read_versions()
    for shape in options.shapes:
        for kind in options.types:
            sitting = Sitting(shape, kind, options)
            records = {cell: new_record(shape, kind, cell, versions) for cell in options.cells}
            try:
                for number in range(options.rounds):
                    for cell, record in records.items():
                        say(f"{shape} {kind}, round {number + 1} of {options.rounds}: {cell}")
                        measure_cell(sitting, record, limits, number == 0)
                        results["cells"][f"{shape}/{kind}/{cell}"] = record
                        save()
            finally:
                sitting.close()
