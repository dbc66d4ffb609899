# SPDX-License-Identifier: Apache-2.0
"""Load by other programs on this machine, and its peak rates."""
import json
import os
import platform
import subprocess
import time

from peers.common import ROOT, fail, last_line, say


LIMITS_AGE_S = 40    # older limits are measured again
QUIET_SHARE = 0.03   # of all processors that other programs may use during a sample
TRIES = 3


def foreign_seconds():
    """Processor seconds so far of all processes that are not this one's descendants, those of children that ended included, and of
    other guests of the machine below."""
    times, parents = {}, {}
    with open("/proc/stat", encoding="utf-8") as f:
        stolen = int(f.readline().split()[8])
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
        times[int(name)] = sum(int(x) for x in fields[11:15])
    ours = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not more:
            break
        ours |= more
    return (stolen + sum(t for pid, t in times.items() if pid not in ours)) / os.sysconf("SC_CLK_TCK")


class Foreign:
    """The share of all processors that other programs have used since this object was created."""

    def __init__(self):
        self.start, self.seconds = time.monotonic(), foreign_seconds()

    def share(self):
        passed = max(time.monotonic() - self.start, 1e-3)
        return max(0.0, foreign_seconds() - self.seconds) / passed / (os.cpu_count() or 1)


def wait_until_quiet(patience):
    """Waits until other programs have been idle for half a second; returns after `patience` seconds in any case."""
    start, told = time.monotonic(), False
    while time.monotonic() - start < patience:
        watch = Foreign()
        time.sleep(0.5)
        if watch.share() <= QUIET_SHARE:
            return
        if not told:
            say(f"  waiting: other programs use {100 * watch.share():.0f} % of the processors")
            told = True


def quietly(what, take, patience):
    """The result of take() without load by other programs, if possible; the share that others used, and seconds."""
    best = None
    for _ in range(TRIES):
        wait_until_quiet(patience)
        watch = Foreign()
        value = take()
        share, seconds = watch.share(), time.monotonic() - watch.start
        if best is None or share < best[1]:
            best = (value, share, seconds)
        if share <= QUIET_SHARE:
            break
        say(f"  {what}: others used {100 * share:.0f} % of the processors meanwhile")
    return best


class Limits:
    """The machine's peak rates, measured within the same minute."""

    def __init__(self, threads):
        self.threads, self.taken, self.value = threads, None, None

    def take(self):
        done = subprocess.run([os.path.join(ROOT, "build", "bench", "bench_limits"), "--threads", str(self.threads)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fail(f"bench_limits: {last_line(done.stderr)}")
        return json.loads(done.stdout)

    def now(self, patience):
        if self.taken is None or time.monotonic() - self.taken > LIMITS_AGE_S:
            self.value, _, _ = quietly("the machine's limits", self.take, patience)
            self.taken = time.monotonic()
        return self.value


def read_machine():
    model = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            model = next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), model)
    except OSError:
        pass
    return {"processor": model, "processors": os.cpu_count(), "system": platform.platform()}
