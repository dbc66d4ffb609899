# SPDX-License-Identifier: Apache-2.0
"""Trains the models of model.py, the bundled one and a hybrid, on answers that stand only in the context.

    ./run.sh --out run --minutes 120
    ./run.sh --out run --minutes 60 --kind hybrid --tasks retold:4,facts:4,pairs:16

Runs on CPUs; on a GPU where torch finds one. The learning rate falls to nothing over the minutes given. Checkpoints go to
run/model.pt every few minutes, a line of figures a minute to run/log.csv.
"""
import argparse
import csv
import json
import os
import random
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

import bpe
import corpus
from model import HYBRID, LLAMA, Model

BOS, START, END = 0, 1, 2

# ---- The optimizer -------------------------------------------------------------------------------------------------------

class Muon(torch.optim.Optimizer):
    """Momentum whose matrix is brought near an orthogonal one by Newton-Schulz steps (Jordan et al., 2024). Each worker steps its share
    of the matrices; share() gives them to the others."""

    def __init__(self, params, lr, momentum=0.95, decay=0.02):
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(g["momentum"]).add_(p.grad)
                x = p.grad + g["momentum"] * m
                flip = x.shape[0] > x.shape[1]
                x = x.T if flip else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                p.mul_(1 - g["lr"] * g["decay"])
                p.add_(x.T if flip else x, alpha=-g["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def average(tensors, workers):
    """Of each tensor, over the workers, in place."""
    flat = torch.cat([x.flatten() for x in tensors])
    dist.all_reduce(flat)
    for x, y in zip(tensors, flat.div_(workers).split([x.numel() for x in tensors])):
        x.copy_(y.view_as(x))


class Update:
    """The step of all weights, by workers that each computed the gradient of a batch of its own."""

    def __init__(self, model, lr, rank, workers):
        self.weights, self.rank, self.workers = list(model.parameters()), rank, workers
        matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
        rest = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
        self.shares = [matrices[r::workers] for r in range(workers)]
        self.optimizers = [(Muon(self.shares[rank], lr), lr), (torch.optim.Adam(rest, lr=lr / 3, betas=(0.9, 0.98)), lr / 3)]

    def __call__(self, loss, rate):
        for p in self.weights:
            p.grad = None
        loss.backward()
        if self.workers > 1:
            average([p.grad for p in self.weights], self.workers)
        for o, lr in self.optimizers:
            o.param_groups[0]["lr"] = lr * rate
            o.step()
        for r in range(self.workers if self.workers > 1 else 0):
            flat = torch.cat([p.detach().flatten() for p in self.shares[r]])
            dist.broadcast(flat, r)
            with torch.no_grad():
                for p, x in zip(self.shares[r], flat.split([p.numel() for p in self.shares[r]])):
                    p.copy_(x.view_as(p))


# ---- Data ----------------------------------------------------------------------------------------------------------------

class Sample:
    """A conversation as tokens. loss: 0 for text, else 1 + the question's number; positions may skip between parts."""

    def __init__(self, t, rng, task, c, context, gaps):
        self.task, self.tokens, self.loss, self.n = task, [BOS], [0], len(c.questions) + len(c.told)
        breaks = []

        def add(text, mark=0, control=None):
            ids = t.encode(text) + ([control] if control is not None else [])
            self.tokens += ids
            self.loss += [mark] * len(ids)

        def open_turn(role):
            add("", control=START)
            add(role + "\n")

        def close_turn():
            add("", control=END)
            add("\n")

        # The parts stand in the system message, in a user's message of their own, or before the first question.
        place = rng.choice(["system", "apart", "before", "before"])
        texts = ([c.preamble] if c.preamble else []) + c.parts
        if c.system and place != "system":
            open_turn("system")
            add(c.system)
            close_turn()
        open_turn("system" if place == "system" else "user")
        if c.system and place == "system":
            texts.insert(0, c.system)
        for i, p in enumerate(texts):
            add(p if rng.random() < (0.03 if i else 0.5) else " " + p)
            breaks.append(len(self.tokens))
        if place != "before":
            close_turn()
        for i, (q, a) in enumerate(c.questions):
            if i or place != "before":
                open_turn("user")
            add(q if i or place != "before" else " " + q, control=END)
            add("\n")
            open_turn("assistant")
            add(" " + a, mark=1 + i, control=END)  # as its words stand in the text
            add("\n")
        if c.told:
            if place == "before":
                close_turn()
            open_turn("assistant")
            for i, (words, value) in enumerate(c.told):
                add(" " + words)
                add(" " + value, mark=1 + i)
            close_turn()
        self.positions = list(range(len(self.tokens)))
        free = context - len(self.tokens)
        if free > 0 and rng.random() < gaps:  # a text's distances grow as if more stood between the parts, or as holes leave them in a sentence
            free = rng.randint(0, free)
            skips = [(at, rng.randint(0, free // 3)) for at in rng.sample(breaks, min(len(breaks), 3))]
            skips += [(rng.randrange(1, breaks[-1]), rng.randint(1, 5)) for _ in range(rng.randint(0, min(16, free // 5)))]
            for at, n in skips:
                for i in range(at, len(self.tokens)):
                    self.positions[i] += n


class Curriculum:
    """Tasks at levels of their own: a task goes one up when nine of ten of its answers are right, and each step up opens one more task."""

    def __init__(self, last):
        """last: of each task that is taught, its last level."""
        self.last = last
        self.level = {k: corpus.TASKS[k][1] for k in last}
        self.right = {k: 0.0 for k in last}
        self.seen = {k: 0 for k in last}
        self.open = 2

    def choose(self, rng):
        tasks = list(self.last)[:self.open]
        task = rng.choices(tasks, [corpus.TASKS[k][3] * (1.25 - self.right[k]) / self.level[k] ** 0.5 for k in tasks])[0]  # long texts cost more
        level = self.level[task]
        return task, level if rng.random() < 0.6 else rng.randint(corpus.TASKS[task][1], level)

    def learn(self, task, right):
        self.right[task] += 0.02 * (right - self.right[task])
        self.seen[task] += 1
        if self.right[task] > 0.9 and self.seen[task] >= 40 and self.level[task] < self.last[task]:
            self.level[task] += 1 if self.level[task] < 8 else 2
            self.seen[task] = 0
            self.open += 1


def batches(t, rng, curriculum, budget, gaps, context):
    """Samples of like length together: at most `budget` tokens, padding included."""
    while True:
        pool, tokens = [], 0
        while tokens < 6 * budget:
            task, level = curriculum.choose(rng)
            s = Sample(t, rng, task, corpus.make(rng, task, level), context, gaps)
            if len(s.tokens) <= context:
                pool.append(s)
                tokens += len(s.tokens)
        pool.sort(key=lambda s: len(s.tokens))
        cut, batch = [], []
        for s in pool:
            if batch and (len(batch) + 1) * len(s.tokens) > budget:
                cut.append(batch)
                batch = []
            batch.append(s)
        cut.append(batch)
        rng.shuffle(cut)
        yield from cut


def tensors(batch, rng, extra, device):
    """tokens, positions, wanted, target, weight and, for each wanted token, its question's number in the batch (-1: text)."""
    t = max(len(s.tokens) for s in batch)
    tokens, positions = torch.zeros(len(batch), t, dtype=torch.long), torch.zeros(len(batch), t)
    wanted, target, weight, question, base = [], [], [], [], 0
    for b, s in enumerate(batch):
        tokens[b, :len(s.tokens)] = torch.tensor(s.tokens)
        positions[b, :len(s.tokens)] = torch.tensor(s.positions, dtype=torch.float)
        for i in range(len(s.tokens) - 1):
            mark = s.loss[i + 1]
            if mark or rng.random() < extra:
                wanted.append(b * t + i)
                target.append(s.tokens[i + 1])
                weight.append(1.0 if mark else 0.1)
                question.append(base + mark - 1 if mark else -1)
        base += s.n
    return (tokens.to(device), positions.to(device), torch.tensor(wanted, device=device), torch.tensor(target, device=device),
            torch.tensor(weight, device=device), torch.tensor(question), base)


def warm_up(model, update, device, seed):
    """Random words written twice, until the second half is known from the first: the heads that look back form within a few hundred
    short steps here, and take millions of tokens in text that can half be guessed. Returns the tokens seen."""
    g, step, right, half = torch.Generator().manual_seed(seed), 0, torch.zeros(1), 32
    while right < 0.97 and step < 2000:
        x = torch.randint(len(bpe.SPECIAL) + 256, model.shape["vocab"], (15, half), generator=g)
        tokens = torch.cat([x, x], 1)
        wanted = (torch.arange(15)[:, None] * 2 * half + torch.arange(half, 2 * half - 1)).flatten()
        logits = model(tokens.to(device), torch.arange(2.0 * half).expand(15, -1).to(device), wanted.to(device))
        target = tokens[:, half + 1:].flatten().to(device)
        update(F.cross_entropy(logits, target), min(1, (step + 1) / 30))
        right[0] = (logits.argmax(-1) == target).float().mean()
        if update.workers > 1:
            average([right], update.workers)
        step += 1
    if update.rank == 0:
        print(f"warm-up: {step} steps, right {right.item():.2f}", flush=True)
    return step * 15 * 2 * half * update.workers


def judge(logits, target, question, n):
    """For each question of a batch: whether every token of its answer comes first."""
    wrong = (logits.argmax(-1) != target).cpu() & (question >= 0)
    right = torch.ones(n)
    right[question[wrong]] = 0
    return right


@torch.no_grad()
def held_out(model, t, levels, n, device):
    """Share of right answers on held-out names and phrases, at given levels."""
    result = {}
    for task, level in levels.items():
        rng, right, total = random.Random(7), 0.0, 0
        samples = [Sample(t, rng, task, corpus.make(rng, task, level, True), model.shape["context"], 0) for _ in range(n)]
        for s in samples:
            tokens, positions, wanted, target, _, question, count = tensors([s], rng, 0, device)
            right += judge(model(tokens, positions, wanted), target, question, count).sum().item()
            total += count
        result[task] = right / total
    return result


def last_levels(text):
    """"facts:4,pairs" -> {"facts": 4, "pairs": its last level}; "": all tasks."""
    pairs = [x.split(":") for x in text.split(",")] if text else [[k] for k in corpus.TASKS]
    return {p[0]: int(p[1]) if len(p) > 1 else corpus.TASKS[p[0]][2] for p in pairs}


def work(rank, workers, a):
    """One worker: batches, gradients and a curriculum of its own; the weights are the same in all. The first one writes."""
    if workers > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{os.path.abspath(a.out)}/workers", rank=rank, world_size=workers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    rng, t = random.Random(a.seed + 1000 * rank), bpe.Tokenizer()
    shape = {"llama": LLAMA, "hybrid": HYBRID}[a.kind]
    assert len(t.tokens) == shape["vocab"], f"vocab.json holds {len(t.tokens)} tokens, not {shape['vocab']}"
    model, curriculum, seen, step = Model(shape).to(device), Curriculum(last_levels(a.tasks)), 0, 0
    update = Update(model, a.lr, rank, workers)
    if a.resume:
        saved = torch.load(a.resume, map_location=device)
        model.load_state_dict(saved["model"])
        for name, values in saved["curriculum"].items():
            if name == "last":
                continue
            if isinstance(values, dict):
                getattr(curriculum, name).update({k: v for k, v in values.items() if k in curriculum.last})
            else:
                setattr(curriculum, name, values)
        seen, step = saved["seen"], saved["step"]
        rng.seed(a.seed + 1000 * rank + step)
    else:
        seen = warm_up(model, update, device, a.seed + rank)

    log = open(a.out + "/log.csv", "a", newline="") if rank == 0 else None
    rows = csv.writer(log) if log else None
    if log:
        print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters on {device}, {workers} workers", flush=True)
        if log.tell() == 0:
            rows.writerow(["minutes", "tokens", "loss", "tokens_per_second", "levels", "right", "held_out"])

    def save():
        torch.save({"model": model.state_dict(), "curriculum": curriculum.__dict__, "seen": seen, "step": step, "shape": shape},
                   a.out + "/model.pt.new")
        os.replace(a.out + "/model.pt.new", a.out + "/model.pt")

    start = shown = saved_at = tested = time.time()
    shown_tokens, first, loss_sum, loss_n = seen, step, 0.0, 0
    for batch in batches(t, rng, curriculum, a.batch, a.gaps, shape["context"]):
        tokens, positions, wanted, target, weight, question, n = tensors(batch, rng, 0.1, device)
        sums = torch.tensor([sum(len(s.tokens) for s in batch), time.time() - start], dtype=torch.float64)
        if workers > 1:
            dist.all_reduce(sums)
        left = 1 - sums[1].item() / workers / 60 / a.minutes
        if left <= 0:
            break
        logits = model(tokens, positions, wanted)
        loss = (F.cross_entropy(logits, target, reduction="none") * weight).sum() / weight.sum()
        update(loss, min((step - first + 1) / 100, max(0.02, left)))
        right, i = judge(logits.detach(), target, question, n), 0
        for s in batch:
            curriculum.learn(s.task, right[i:i + s.n].mean().item())
            i += s.n
        seen += int(sums[0].item())
        step += 1
        loss_sum, loss_n = loss_sum + loss.item(), loss_n + 1
        now = time.time()
        if rank == 0 and now - shown > 60:
            held = {}
            if now - tested > 600:
                held, tested = held_out(model, t, curriculum.level, 8, device), now
            speed = (seen - shown_tokens) / (now - shown)
            rows.writerow([f"{(now - start) / 60:.1f}", seen, f"{loss_sum / loss_n:.4f}", f"{speed:.0f}", json.dumps(curriculum.level),
                           json.dumps({k: round(v, 3) for k, v in curriculum.right.items()}),
                           json.dumps({k: round(v, 3) for k, v in held.items()})])
            log.flush()
            print(f"{(now - start) / 60:6.1f} min {seen / 1e6:6.2f} M  loss {loss_sum / loss_n:.3f}  {speed:.0f} tokens/s  " +
                  " ".join(f"{k}:{curriculum.level[k]}:{curriculum.right[k]:.2f}" for k in list(curriculum.last)[:curriculum.open]) +
                  ("  held " + " ".join(f"{k}:{v:.2f}" for k, v in held.items()) if held else ""), flush=True)
            shown, shown_tokens, loss_sum, loss_n = time.time(), seen, 0.0, 0
            if now - saved_at > 150:
                save()
                saved_at = now
    if rank == 0:
        save()
        print("held out, last levels:", held_out(model, t, curriculum.last, 40, device))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default="run")
    p.add_argument("--kind", choices=["llama", "hybrid"], default="llama")
    p.add_argument("--tasks", default="", help="what is taught, in this order, up to a level: facts:4,pairs:16; default: all tasks")
    p.add_argument("--minutes", type=float, default=120, help="of training; the learning rate falls to nothing over them")
    p.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of one thread each; with one, torch takes the threads it likes")
    p.add_argument("--batch", type=int, default=2000, help="tokens of a step, for each worker")
    p.add_argument("--lr", type=float, default=0.005, help="of the matrices; the rest has a third of it")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--gaps", type=float, default=0.3, help="share of samples whose positions skip between parts (the hybrid has none)")
    p.add_argument("--resume", help="a checkpoint to go on from")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    workers = 1 if torch.cuda.is_available() else a.workers
    if workers == 1:
        work(0, 1, a)
    else:
        if os.path.exists(a.out + "/workers"):
            os.remove(a.out + "/workers")  # where they meet
        mp.spawn(work, (workers, a), workers)


if __name__ == "__main__":
    main()
