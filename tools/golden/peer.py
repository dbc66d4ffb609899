# SPDX-License-Identifier: Apache-2.0
"""Runs tests/golden with Debian's llama.cpp and records in the index how far it agrees.

    python3 tools/golden/peer.py [NAME...]     in the lab (tools/lab.sh), after make.py

Each prompt gets "peer": {"error": largest difference of a logit / largest logit, "same": number of equal greedy tokens
before the first different one}, and "greedy" if some differ; none if llama.cpp refuses the
file. Fails if llama.cpp refuses a file, or disagrees, and the index gives no reason.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import index

TOLERANCE = 1e-3  # llama.cpp uses an f16 table for GELU, and only its tanh approximation
SOURCE = Path(__file__).with_name("peer.c")


def build(folder):
    program = f"{folder}/peer"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", str(SOURCE), "-lllama", "-lggml", "-lggml-base", "-o", program], check=True)
    return program


def run(program, model, folder):
    """The logits and the greedy tokens of each prompt, or None if llama.cpp refuses."""
    lines = [" ".join(map(str, (p["rows"], len(p["greedy"]), len(p["tokens"]), *p["tokens"]))) for p in model["prompts"]]
    out = f"{folder}/logits"
    done = subprocess.run([program, str(index.FOLDER / f"{model['name']}.gguf"), out], input="\n".join(lines) + "\n", text=True,
                          stdout=subprocess.PIPE)
    if done.returncode:
        return None
    return np.fromfile(out, "<f4").reshape(-1, model["vocabulary"]), [list(map(int, line.split())) for line in done.stdout.splitlines()]


def compare(model, logits, continuations):
    reference = np.fromfile(index.FOLDER / f"{model['name']}.logits", "<f4").reshape(-1, model["vocabulary"])
    for p, greedy in zip(model["prompts"], continuations):
        rows = slice(p["offset"], p["offset"] + p["rows"])
        error = np.abs(logits[rows] - reference[rows]).max() / np.abs(reference[rows]).max()
        same = next((i for i, (a, b) in enumerate(zip(p["greedy"], greedy)) if a != b), len(greedy))
        p["peer"] = {"error": float(f"{error:.1e}"), "same": same}
        if same < len(greedy):
            p["peer"]["greedy"] = greedy
    alike = all(p["peer"]["error"] < TOLERANCE and "greedy" not in p["peer"] for p in model["prompts"])
    return alike or "differs" in model


def check(program, model, folder):
    computed = run(program, model, folder)
    good = computed is not None and compare(model, *computed)
    if computed is None:
        what, good = "refused", "differs" in model
        for p in model["prompts"]:
            p.pop("peer", None)
    else:
        what = ", ".join(f"{p['name']} {p['peer']['error']:.1e} {p['peer']['same']}" for p in model["prompts"])
    print(f"peer: {model['name']}: {what}" + ("" if good else "  <- unexplained"), flush=True)
    return good


def main():
    wanted = set(sys.argv[1:])
    golden = index.read()
    golden["made_with"]["llama.cpp"] = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libllama0"], text=True, check=True,
                                                      stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        good = [check(program, m, folder) for m in golden["models"] if not wanted or m["name"] in wanted]
    index.write(golden["made_with"], golden["models"])
    sys.exit(0 if all(good) else "peer: llama.cpp disagrees")


if __name__ == "__main__":
    main()
