#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python costs over C: the same requests by a C program and by this package, in turns, in processes of their own.

    python/bench/overhead.py [MODEL] [--rounds N]

Medians over rounds. A request: one token after a cached prompt, from the call to the result, its text and usage read. A streamed token: wall time of
an answer of 400 tokens, by token; and the processor time of the thread that reads the stream.
"""
import argparse
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUESTS, TOKENS = 400, 400

C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "reprise.h"
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
static bool take(void *user, const char *text, size_t n) { *(size_t *)user += n; (void)text; return true; }
static int compare(const void *a, const void *b) { double x = *(const double *)a, y = *(const double *)b; return (x > y) - (x < y); }
int main(int argc, char **argv) {
    rp_model *m; rp_engine *e; rp_error err; rp_result *r; size_t bytes = 0; static double us[REQUESTS];
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    if (argc < 2 || rp_model_open(&m, argv[1], NULL, &err) || rp_engine_new(&e, m, &o, &err)) return fprintf(stderr, "%s\n", err.message), 1;
    rp_request q = rp_request_defaults();
    q.text = "Once upon a time there was a small town by the river"; q.max_tokens = 1; q.ignore_eos = true;
    for (int i = -20; i < REQUESTS; i++) {
        double start = now();
        if (rp_engine_run(e, &q, &r, &err)) return fprintf(stderr, "%s\n", err.message), 1;
        bytes += strlen(r->text) + (size_t)r->prompt_tokens;
        rp_result_free(r);
        if (i >= 0) us[i] = now() - start;
    }
    qsort(us, REQUESTS, sizeof(*us), compare);
    printf("%f\n", us[REQUESTS / 2]);
    q.max_tokens = TOKENS; q.on_text = take; q.user = &bytes;
    double start = now();
    if (rp_engine_run(e, &q, &r, &err)) return 1;
    printf("%f\n", (now() - start) / TOKENS);
    rp_result_free(r); rp_engine_free(e); rp_model_close(m);
    return bytes == 0;
}
"""

PYTHON = """
import statistics, sys, time
from reprise import Engine
with Engine(sys.argv[1], n_threads=1) as engine:
    text, us = "Once upon a time there was a small town by the river", []
    for i in range(-20, REQUESTS):
        start = time.perf_counter()
        result = engine.run(text, max_tokens=1, ignore_eos=True)
        result.text, result.usage.prompt_tokens
        if i >= 0:
            us.append((time.perf_counter() - start) * 1e6)
    print(statistics.median(us))
    start, used = time.perf_counter(), time.thread_time()
    with engine.stream(text, max_tokens=TOKENS, ignore_eos=True) as stream:
        for piece in stream:
            pass
    print((time.perf_counter() - start) * 1e6 / TOKENS)
    print((time.thread_time() - used) * 1e6 / TOKENS)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default=ROOT / "models" / "reprise-mini.gguf", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    defines = [f"-DREQUESTS={REQUESTS}", f"-DTOKENS={TOKENS}"]
    script = PYTHON.replace("REQUESTS", str(REQUESTS)).replace("TOKENS", str(TOKENS))
    measured: dict[str, list[list[float]]] = {"C": [], "Python": []}
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "c.c"), pathlib.Path(folder, "c")
        source.write_text(C)
        build = ROOT / "build"
        command = [
            "cc",
            "-O2",
            *defines,
            f"-I{ROOT / 'include'}",
            source,
            f"-L{build}",
            "-lreprise",
            f"-Wl,-rpath,{build}",
            "-o",
            program,
        ]
        subprocess.run(command, check=True)
        environment = {"PYTHONPATH": str(ROOT / "python"), "REPRISE_LIBRARY": str(build / "libreprise.so")}
        for _ in range(options.rounds):
            for name, run in (("C", [program]), ("Python", [sys.executable, "-c", script])):
                done = subprocess.run(
                    [*run, options.model], env=environment, stdout=subprocess.PIPE, text=True, check=True
                )
                measured[name].append([float(line) for line in done.stdout.split()])
    cpu = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    median = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in measured.items()}
    c, python = median["C"], median["Python"]
    print(f"{options.model.name}, {cpu}, Python {platform.python_version()}, medians of {options.rounds} rounds, us\n")
    print("|  | C | Python | over C |\n| --- | ---: | ---: | ---: |")
    print(f"| request of one token | {c[0]:.1f} | {python[0]:.1f} | {python[0] - c[0]:.1f} |")
    print(f"| streamed token, wall time | {c[1]:.2f} | {python[1]:.2f} | {python[1] - c[1]:.2f} |")
    print(f"| streamed token, processor time of the reader | - | {python[2]:.2f} | {python[2]:.2f} |")


if __name__ == "__main__":
    main()
