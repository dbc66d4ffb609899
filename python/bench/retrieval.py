#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Questions over 200 documents in changing order: a prompt program with a library, and the same text as /v1/chat/completions with the prefix cache.

    python/bench/retrieval.py [MODEL] [--documents 200] [--per-prompt 5] [--questions 60] [--words 60]

One server for each way, started empty, in turns; every question has another selection of documents in another order. Reported apart: questions over
documents that no earlier question had, and those whose documents had all been prefilled.
"""
import argparse
import pathlib
import random
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from reprise import Client, library, program, system, text, use, user  # noqa: E402

WORDS = (ROOT / "models" / "eval" / "stories.txt").read_text(encoding="utf-8").split()
documents = library("documents")


@program
def ask(found: list[str], question: str):
    with system():
        text("You answer from the documents. Read the documents.")
        for document in use(documents, found):
            text(f" {document.text}")
    with user():
        text(question)


class Server:
    def __init__(self, model: pathlib.Path) -> None:
        command = [ROOT / "build" / "reprise", "serve", "-m", model, "--port", "0", "--log", "off"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = ""
        for line in self.process.stdout or ():
            self.url = self.url or (line.split()[2] if line.startswith("listening on") else "")
            if line == "ready\n":
                break

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default=ROOT / "models" / "reprise-mini.gguf", type=pathlib.Path)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--per-prompt", type=int, default=5)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--words", type=int, default=60)
    options = parser.parse_args()
    r = random.Random(1)
    for i in range(options.documents):
        documents.add(f"d{i}", f"Document {i}. " + " ".join(r.choice(WORDS) for _ in range(options.words)))
    n_new = -(-options.documents // options.per_prompt)
    order = r.sample([d.id for d in documents], options.documents)
    selections = [order[i * options.per_prompt :][: options.per_prompt] for i in range(n_new)]  # each document once,
    selections += [r.sample(order, options.per_prompt) for _ in range(options.questions)]  # then any of them
    rows: dict[str, list[tuple[float, int, int]]] = {"modules": [], "chat": []}
    with Server(options.model) as one, Server(options.model) as other, Client(one.url) as modular, Client(
        other.url
    ) as chat:
        for i, found in enumerate(selections):
            question = f"Question {i}: what comes next?"
            prompt = ask(found, question)
            messages = [{"role": role, "content": content} for role, content in ask.messages(found, question)]
            ways = [("modules", modular, prompt), ("chat", chat, messages)]
            for name, client, what in ways if i % 2 else reversed(ways):
                answer = client.run(what, max_tokens=1)
                rows[name].append((answer.timings.ttft_ms, answer.usage.cached_tokens, answer.usage.prompt_tokens))
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    print(
        f"{options.model.name}, {cpu[1] if cpu else '?'}; {options.documents} documents, {options.per_prompt} a prompt; medians\n"
    )
    print("|  | cached, % | TTFT, ms |\n| --- | ---: | ---: |")
    for label, part in (("documents new", slice(0, n_new)), ("documents known", slice(n_new, None))):
        for name, title in (("modules", "a program's modules"), ("chat", "/v1/chat/completions")):
            listed = rows[name][part]
            share = 100 * sum(cached for _, cached, _ in listed) / sum(n for *_, n in listed)
            print(f"| {title}, {label} | {share:.1f} | {statistics.median(ms for ms, *_ in listed):.2f} |")


if __name__ == "__main__":
    main()
