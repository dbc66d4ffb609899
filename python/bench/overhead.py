#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python costs over C: the same requests by a C program and by this package, in turns, in processes of their own.

    python/bench/overhead.py [MODEL] [--rounds N] [--requests N] [--tokens N]

Medians over rounds. A request: one token after a cached prompt, from the call to the result, its text and usage read. A streamed token: wall time of
an answer of --tokens, by token, and the processor time of the thread that reads it; C reads it from an rp_stream, as Python does.
"""
import argparse
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "reprise.h"
static double now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
static int compare(const void *a, const void *b) { double x = *(const double *)a, y = *(const double *)b; return (x > y) - (x < y); }
int main(int argc, char **argv) {
    rp_model *m; rp_engine *e; rp_error err; rp_result *r; size_t bytes = 0; static double us[REQUESTS], cpu[REQUESTS];
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    if (argc < 2 || rp_model_open(&m, argv[1], NULL, &err) || rp_engine_new(&e, m, &o, &err)) return fprintf(stderr, "%s\n", err.message), 1;
    rp_request q = rp_request_defaults();
    q.text = "Once upon a time there was a small town by the river"; q.max_tokens = 1; q.ignore_eos = true;
    for (int i = -5; i < REQUESTS; i++) {
        double start = now(CLOCK_MONOTONIC), used = now(CLOCK_THREAD_CPUTIME_ID);
        if (rp_engine_run(e, &q, &r, &err)) return fprintf(stderr, "%s\n", err.message), 1;
        bytes += strlen(r->text) + (size_t)r->prompt_tokens;
        rp_result_free(r);
        if (i >= 0) us[i] = now(CLOCK_MONOTONIC) - start, cpu[i] = now(CLOCK_THREAD_CPUTIME_ID) - used;
    }
    qsort(us, REQUESTS, sizeof(*us), compare);
    qsort(cpu, REQUESTS, sizeof(*cpu), compare);
    printf("%f\n%f\n", us[REQUESTS / 2], cpu[REQUESTS / 2]);
    rp_stream *s; rp_job *j; const rp_stream_event *events;
    q.max_tokens = TOKENS;
    double start = now(CLOCK_MONOTONIC), used = now(CLOCK_THREAD_CPUTIME_ID);
    if (rp_stream_new(&s, &err)) return 1;
    q.stream = s;
    if (rp_engine_submit(e, &q, &j, &err)) return 1;
    for (bool ended = false; !ended;)
        for (int32_t i = 0, n = rp_stream_read(s, 100, &events); i < n; i++) bytes += events[i].n_bytes, ended = events[i].ended;
    if (rp_job_result(j, &r, &err)) return 1;
    rp_job_free(j); rp_stream_free(s);
    printf("%f\n%f\n", (now(CLOCK_MONOTONIC) - start) / TOKENS, (now(CLOCK_THREAD_CPUTIME_ID) - used) / TOKENS);
    rp_result_free(r); rp_engine_free(e); rp_model_close(m);
    return bytes == 0;
}
"""

PYTHON = """
import statistics, sys, time
from reprise import Engine
with Engine(sys.argv[1], n_threads=1) as engine:
    text, us, cpu = "Once upon a time there was a small town by the river", [], []
    for i in range(-5, REQUESTS):
        start, used = time.perf_counter(), time.thread_time()
        result = engine.run(text, max_tokens=1, ignore_eos=True)
        result.text, result.usage.prompt_tokens
        if i >= 0:
            us.append((time.perf_counter() - start) * 1e6)
            cpu.append((time.thread_time() - used) * 1e6)
    print(statistics.median(us))
    print(statistics.median(cpu))
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
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    defines = [f"-DREQUESTS={options.requests}", f"-DTOKENS={options.tokens}"]
    script = PYTHON.replace("REQUESTS", str(options.requests)).replace("TOKENS", str(options.tokens))
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
        environment = {"PYTHONPATH": str(ROOT / "python"), "REPRISE_LIBRARY": str(build / "libreprise-tools.so")}
        subjects: list[tuple[str, list[object]]] = [("C", [program]), ("Python", [sys.executable, "-c", script])]
        for _ in range(options.rounds):
            subjects.reverse()
            for name, run in subjects:
                done = subprocess.run(
                    [*run, options.model], env=environment, stdout=subprocess.PIPE, text=True, check=True
                )
                measured[name].append([float(line) for line in done.stdout.split()])
    cpu = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    print(
        f"{options.model.name}, {cpu}, Python {platform.python_version()}, {options.rounds} rounds, us; over C: quartiles of rounds\n"
    )
    print("|  | C | Python | over C |\n| --- | ---: | ---: | ---: |")
    rows = (
        "request of one token",
        "request, processor time of the caller",
        "streamed token",
        "streamed token, processor time of the reader",
    )
    for i, row in enumerate(rows):
        c, python = [[round[i] for round in measured[name]] for name in ("C", "Python")]
        low, middle, high = statistics.quantiles([b - a for a, b in zip(c, python)], n=4)
        print(
            f"| {row} | {statistics.median(c):.1f} | {statistics.median(python):.1f} | {middle:.1f} ({low:.1f} to {high:.1f}) |"
        )


if __name__ == "__main__":
    main()
