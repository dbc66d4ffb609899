# SPDX-License-Identifier: Apache-2.0
"""Objects that the collector ends, in any order and on any thread; and processes that fork. In processes of their own: what fails here hangs or crashes."""

import os
import subprocess
import sys

import pytest
from conftest import MODEL, environment

PREAMBLE = f"""
import gc, os, threading, time
import reprise
from reprise import _library, requests
lib = _library.lib
gc.disable()
class Cycle: pass
def cycle(**values):
    one = Cycle()
    one.__dict__ |= values
    one.me = one
order = []
def note(name, what, before=lambda: None):  # in which order the library frees
    real = getattr(lib, name)
    def freed(*args):
        before()
        order.append(what)
        return real(*args)
    setattr(lib, name, freed)
long = dict(max_tokens=1500, ignore_eos=True)
"""
PROGRAMS = {
    # A thread collects a job, and another closes the engine before the job is freed.
    "a job is freed before its engine": """
engine = reprise.Engine(MODEL, n_threads=1)
began = threading.Event()
note("rp_job_free", "job", lambda: (began.set(), time.sleep(0.2)))
note("rp_engine_close", "engine")
cycle(job=engine.submit("Once", **long))
thread = threading.Thread(target=gc.collect)
thread.start()
assert began.wait(60)
engine.close()
thread.join()
assert order == ["job", "engine"], order
""",
    "an engine is freed before its model": """
note("rp_engine_close", "engine")
note("rp_model_close", "model")
model = reprise.Model(MODEL)
cycle(model=model, engine=reprise.Engine(model, n_threads=1))
del model
gc.collect()
assert order == ["engine", "model"], order
""",
    "everything in one cycle": """
for _ in range(5):
    model = reprise.Model(MODEL)
    engine = reprise.Engine(model, n_threads=1)
    stream = engine.stream("Once", **long)
    next(stream)
    cycle(store=engine.store, stream=stream, job=engine.submit("Once", **long), engine=engine, model=model)
    del model, engine, stream
    gc.collect()
""",
    # ctypes may start a collection as it makes the arguments of a callback, before the callback's first line.
    "a collection on the engine's thread": """
engine = reprise.Engine(MODEL, n_threads=1)
take = requests.StepCallbacks._take
def collect(self, *args):
    gc.collect()
    take(self, *args)
requests.StepCallbacks._take = collect
cycle(job=engine.submit("Once", **long))
stream = engine.stream("Once", **long)
next(stream)
cycle(stream=stream)
del stream
cycle(engine=reprise.Engine(engine.model, n_threads=1))
assert len(engine.run("Once", max_tokens=5, ignore_eos=True, logits=True).tokens) == 5
end = time.monotonic() + 60
while engine.info.running + engine.info.waiting:
    assert time.monotonic() < end
""",
    "a forked process": """
engine = reprise.Engine(MODEL, n_threads=1)
store = engine.store
job = engine.submit("Once", max_tokens=300, ignore_eos=True)
stream = engine.stream("Once", **long)
next(stream)
child = os.fork()
if child == 0:
    for use in (lambda: engine.run("Once"), lambda: engine.info, job.result, lambda: job.status, store.list):
        try:
            use()
        except reprise.errors.InvalidError as e:
            assert "forked" in str(e), e
        else:
            raise AssertionError("used an engine of another process")
    assert engine.model.tokenize("Once")
    with reprise.Engine(MODEL, n_threads=1) as own:
        assert own.run("Once", max_tokens=2).text
    engine.close()
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
assert len(job.result().tokens) == 300  # the parent's go on
""",
    # Issue 46: "the job is closed". Each object holds what it borrows from, and nothing else holds it.
    "temporaries are held by what borrows from them": """
import asyncio
short = dict(max_tokens=20, ignore_eos=True)
def engine():
    return reprise.Engine(reprise.Model(MODEL), n_threads=1)
def all_of(one):  # after a collection between any two steps
    gc.collect()
    return one
assert len(all_of(engine().submit("Once", **short)).result().tokens) == 20
with all_of(engine().submit("Once", **short)) as job:
    gc.collect()
    assert job.wait() and job.status.state == "done"
result = all_of(engine().submit("Once", logits=True, n_logprobs=2, **short)).result()
gc.collect()
assert len(result.tokens) == len(result.logprobs) == len(result.logits) == 20
tokens = all_of(engine().run("Once", **short)).tokens
gc.collect()
assert len(tokens) == 20
stream = engine().stream("Once", **short)
text = ""
for piece in stream:
    gc.collect()
    text += piece
assert len(stream.result.tokens) == 20 and stream.result.text == text
def generator():
    with engine().stream("Once", **short) as answer:
        yield from answer
assert "".join(all_of(generator())) == text
async def aloud():
    answer, text = engine().stream_async("Once", **short), ""
    async for piece in answer:
        gc.collect()
        text += piece
    return text, len((await engine().run_async("Once", **short)).tokens)
assert asyncio.run(aloud()) == (text, 20)
store = engine().store
gc.collect()
assert store.list() == ()
assert len(engine().embed(["Once", "Tom"])) == 2
assert engine().model.tokenize("Once")
pml = "<schema name='s'><module name='m'>Tom had a red ball.</module></schema>"
prompt = reprise.Schema.parse(pml)
inspection = engine().inspect(prompt)
gc.collect()
assert inspection.nodes
note("rp_engine_close", "engine")
note("rp_model_close", "model")
job = engine().submit("Once", **short)
job.result()
job.close()
gc.collect()
assert order == ["engine", "model"], order  # a closed job holds nothing
job = engine().submit("Once", **long)
cycle(job=job)
del job
gc.collect()
assert order == ["engine", "model"] * 2, order
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lifetimes(name: str) -> None:
    code = f"{PREAMBLE}MODEL = {os.fspath(MODEL)!r}\n{PROGRAMS[name]}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
