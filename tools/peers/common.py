# SPDX-License-Identifier: Apache-2.0
"""Cells and constants shared by all parts of bench_peers."""
import os
import sys


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SHAPES = ["smollm2-135m", "tinyllama-1.1b", "llama3.2-1b"]
OTHER_SHAPES = ["deepseek2-lite"]  # on request, not on the page
TYPES = ["Q8_0", "Q4_0", "Q4_K_M", "F16"]
PREFILL = [20, 64, 128, 512, 2048]
DEPTHS = [0, 2048, 4096, 8192]
CACHED = [1000, 2000, 3000, 4000, 5000]  # 2,000 and 5,000 are in the tables, all in the figures
FULL = [2000, 5000]
CELLS = ([f"prefill-{n}" for n in PREFILL] + [f"decode-{d}" for d in DEPTHS] + [f"fresh-{k}" for k in CACHED] +
         [f"full-{k}" for k in FULL] + ["memory", "load"])

FRESH = 20           # new tokens after cached ones
CTX = 16384          # tokens, of models and programs
MEMORY_TOKENS = 512  # of the prefill for peak memory
OURS, OTHER_ORDER, REUSING = "reprise", "reprise, other order", "llama-server cache-reuse"


def fail(message):
    sys.exit(f"bench_peers: {message}")


def say(message):
    print(message, file=sys.stderr, flush=True)


def last_line(text):
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else ""
