# SPDX-License-Identifier: Apache-2.0
"""Requests leave no memory behind, in Python or in the library."""

import asyncio
import gc
import tracemalloc

from conftest import rounds

from reprise import Engine, Prompt, Schema

SCHEMA = Schema.parse(
    '<schema name="s"><module name="a">One two three four <param name="p" len="4"/> five.</module></schema>'
)


def test_memory_is_flat_over_many_requests(engine: Engine) -> None:
    def some(n: int) -> None:
        async def both() -> None:
            await engine.run_async("Once", max_tokens=2)

        for i in range(n):
            prompt = Prompt(SCHEMA).module("a", p=str(i % 10)).text("What?")
            result = engine.run(prompt, max_tokens=2, ignore_eos=True, stop=["zzzz"], n_logprobs=2, logits=i % 8 == 0)
            assert result.plan and result.usage and result.top_logprobs and result.tokens[0] >= 0
            with engine.stream(prompt, max_tokens=8, ignore_eos=True) as stream:
                next(stream)
        asyncio.run(both())

    some(50)
    gc.collect()
    tracemalloc.start()
    some(20)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    some(rounds(300))
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 40_000, f"{after - before} bytes more"
    assert engine.info.running == 0
