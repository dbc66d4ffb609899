# SPDX-License-Identifier: Apache-2.0
"""A program that ends, or is interrupted, while requests run ends cleanly."""

import signal
import subprocess
import sys

import pytest
from conftest import MODEL, environment

PROGRAMS = {
    "stream": "s = e.stream('Once', max_tokens=1500, ignore_eos=True); next(s)",
    "jobs": "jobs = [e.submit('Once', max_tokens=1500, ignore_eos=True) for _ in range(20)]",
    "thread": "threading.Thread(target=lambda: list(e.stream('Once', max_tokens=300, ignore_eos=True))).start()",
    "daemon": "threading.Thread(target=lambda: e.run('Once', max_tokens=1500, ignore_eos=True), daemon=True).start()\n"
    "while e.info.running + e.info.waiting == 0: pass",
    "async": "asyncio.run(one())",
    "logits": "j = e.submit('Once', max_tokens=1500, ignore_eos=True, logits=True)",
    "error": "s = e.stream('Once', max_tokens=1500, ignore_eos=True); next(s); sys.exit(0)",
}
PREAMBLE = f"""
import asyncio, sys, threading
import reprise
e = reprise.Engine({str(MODEL)!r}, n_threads=1)
async def one():
    s = e.stream_async('Once', max_tokens=1500, ignore_eos=True)
    await anext(s)
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_exit_with_running_requests_is_clean(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + PROGRAMS[name]],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_a_run() -> None:
    code = PREAMBLE + (
        "s = e.stream('Once', max_tokens=4)\nlist(s)\n"
        "try:\n    print('ready', flush=True)\n    e.run('Once', max_tokens=1_000_000, ignore_eos=True, context_shift=True)\n"
        "except KeyboardInterrupt:\n    print(e.info.running)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as p:
        assert p.stdout is not None and p.stderr is not None
        assert p.stdout.readline() == "ready\n"
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=120)
    assert (p.returncode, out, err) == (0, "0\n", "")
