# SPDX-License-Identifier: Apache-2.0
"""asyncio and threads: many tasks and threads share one engine; cancelled tasks cancel their requests."""

import asyncio
import gc
import threading

import pytest

from reprise import Engine, Model, errors


@pytest.fixture
def wide(model: Model):  # type: ignore[no-untyped-def]
    with Engine(model, n_threads=2, max_sequences=16) as engine:
        yield engine


def prompt(i: int) -> str:
    return f"Story number {i}. Once upon a time"


def test_64_tasks_and_8_threads_share_an_engine(wide: Engine) -> None:
    expected = [wide.run(prompt(i), max_tokens=24).text for i in range(72)]
    texts: dict[int, str] = {}

    def thread(i: int) -> None:
        with wide.stream(prompt(i), max_tokens=24) as stream:
            texts[i] = "".join(stream)

    async def task(i: int) -> None:
        texts[i] = "".join([piece async for piece in wide.stream_async(prompt(i), max_tokens=24)])

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticker = asyncio.create_task(tick())
        await asyncio.gather(*map(task, range(64)))
        ticker.cancel()
        assert ticks > 64  # the loop was never blocked by an answer

    threads = [threading.Thread(target=thread, args=(i,)) for i in range(64, 72)]
    for one in threads:
        one.start()
    asyncio.run(main())
    for one in threads:
        one.join()
    assert [texts[i] for i in range(72)] == expected
    assert wide.info.running == wide.info.waiting == 0


def test_results_and_errors(wide: Engine) -> None:
    async def main() -> None:
        result = await wide.run_async("Once upon a time", max_tokens=8)
        assert result.text == wide.run("Once upon a time", max_tokens=8).text
        with pytest.raises(errors.ContextLengthError):
            await wide.run_async("word " * 4000)
        stream = wide.stream_async("Once upon a time", max_tokens=8)
        with pytest.raises(errors.InvalidError, match="not ended"):
            stream.result
        assert "".join([piece async for piece in stream]) == stream.result.text == result.text

    asyncio.run(main())


def test_cancelled_tasks_cancel_their_requests(wide: Engine) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(wide.run_async(prompt(i), max_tokens=1500, ignore_eos=True)) for i in range(20)]
        async with wide.stream_async("Once", max_tokens=1500, ignore_eos=True) as stream:
            assert await anext(stream)
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in results)
        dropped = wide.stream_async("Once", max_tokens=1500, ignore_eos=True)
        await anext(dropped)
        del dropped
        gc.collect()
        async with asyncio.timeout(60):
            while wide.info.running + wide.info.waiting > 0:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_loop_that_ends_early_leaves_nothing(model: Model) -> None:
    async def main(engine: Engine) -> None:
        stream = engine.stream_async("Once", max_tokens=1500, ignore_eos=True)
        await anext(stream)
        asyncio.create_task(engine.run_async("Once", max_tokens=1500, ignore_eos=True))
        await asyncio.sleep(0)

    for _ in range(5):
        with Engine(model, n_threads=1) as engine:
            asyncio.run(main(engine))
            assert asyncio.run(engine.run_async("Once", max_tokens=4)).text  # another loop


def test_an_engine_closed_before_its_tasks(model: Model) -> None:
    async def main(engine: Engine) -> None:
        tasks = [asyncio.create_task(engine.run_async(prompt(i), max_tokens=1500, ignore_eos=True)) for i in range(6)]
        stream = engine.stream_async("Once", max_tokens=1500, ignore_eos=True)
        await anext(stream)
        engine.close()
        for task in tasks[:3]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in results[:3])
        assert all(isinstance(one, errors.InvalidError) and "closed" in str(one) for one in results[3:])
        with pytest.raises(errors.InvalidError, match="closed"):
            await stream.finish()

    with Engine(model, n_threads=1) as engine:
        asyncio.run(main(engine))
