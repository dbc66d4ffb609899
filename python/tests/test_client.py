# SPDX-License-Identifier: Apache-2.0
"""Client and AsyncClient against a real `reprise serve`: answers, streams that end early, errors."""

import asyncio
import contextlib
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from conftest import MODEL, PROGRAM, environment, environment_of_programs

from reprise import AsyncClient, Client, Engine, Markup, Prompt, Schema, errors

SCHEMA = Schema.parse(
    '<schema name="towns-1"><system>Read the documents. <module name="belvik">Belvik is known for its clocks.</module> '
    '<module name="zantec">Zantec makes a <param name="thing" len="4"/>.</module></system></schema>'
)
LONG: Any = {"max_tokens": 1_000_000, "ignore_eos": True, "context_shift": True}  # ends when it is left


def towns(question: str, schema: Schema = SCHEMA) -> Prompt:
    prompt = Prompt(schema).module("belvik").module("zantec", thing="camera")
    with prompt.user():
        prompt.text(question)
    return prompt


class Server:
    def __init__(self, *options: str, port: int = 0, log: pathlib.Path | None = None) -> None:
        command = [PROGRAM, "serve", "-m", MODEL, "--threads", "1", "--port", str(port), *options]
        with log.open("a") if log else contextlib.nullcontext() as file:
            self.process = subprocess.Popen(
                command if log else [*command, "--log", "off"],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment_of_programs(),
            )
        assert self.process.stdout is not None
        self.url = ""
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.url = line.removeprefix("listening on ").strip()
            if line == "ready\n":
                return
        raise AssertionError(f"the server ended: {self.process.wait()}")

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(120) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics") as reply:
            return sum(
                float(value)
                for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", reply.read().decode(), re.MULTILINE)
            )

    def until_idle(self) -> None:
        end = time.monotonic() + 60
        while self.metric("reprise_requests_running") > 0:
            assert time.monotonic() < end
            time.sleep(0.005)


class Tasks:
    """AsyncClient with the methods of Client: each call is a task of one event loop."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.client = AsyncClient(*arguments, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self.runner.run(getattr(self.client, name)(*arguments, **options))

    def stream(self, *arguments: Any, **options: Any) -> "TasksStream":
        return TasksStream(self.runner, self.client.stream(*arguments, **options))

    def __enter__(self) -> "Tasks":
        return self

    def __exit__(self, *exception: object) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


class TasksStream:
    def __init__(self, runner: asyncio.Runner, stream: Any) -> None:
        self.runner, self.stream = runner, stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> "TasksStream":
        return self

    def __next__(self) -> str:
        try:
            piece: str = self.runner.run(self.stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
        return piece

    def __enter__(self) -> "TasksStream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.runner.run(self.stream.__aexit__(*exception))


AnyClient: TypeAlias = type[Client] | type[Tasks]
both = pytest.mark.parametrize("kind", [Client, Tasks])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


# ---- answers ----


@both
def test_answers_are_the_engines(server: Server, engine: Engine, kind: AnyClient) -> None:
    messages = [
        {"role": "system", "content": "Belvik is known for its clocks."},
        {"role": "user", "content": "What is Belvik known for?"},
    ]
    with kind(server.url) as client:
        for prompt in (
            towns("What is Belvik known for?"),
            "Once upon a time",
            messages,
            engine.model.tokenize("Once upon a time"),
        ):
            answer = client.run(prompt, max_tokens=16)
            with client.stream(prompt, max_tokens=16) as stream:
                pieces = list(stream)
            assert "".join(pieces) == answer.text == stream.result.text == engine.run(prompt, max_tokens=16).text
            assert answer.finish_reason == stream.result.finish_reason
            assert (
                answer.usage.prompt_tokens
                == answer.usage.cached_tokens + answer.usage.fresh_tokens
                == sum(p.n_tokens for p in answer.plan)
            )
            assert answer.usage.answer_tokens == stream.result.usage.answer_tokens > 0
            assert answer.timings.ttft_ms > 0 and answer.report["request"]
        markup = Markup(
            '<prompt schema="towns-1"><belvik/><zantec thing="camera"/><user>What is Belvik known for?</user></prompt>'
        )
        answer = client.run(towns("What is Belvik known for?"), max_tokens=16)
        assert client.run(markup, max_tokens=16).text == answer.text and "belvik" in answer._repr_html_()
        assert "towns-1" in client.schemas() and client.models() == (engine.model.info.name,)
        assert client.health() == "ready"
        client.load(SCHEMA, prefill=True)
        assert client.run(towns("?"), max_tokens=1).usage.cached_tokens > 0


def test_many_tasks_share_a_client(server: Server, engine: Engine) -> None:
    prompts = [f"Story number {i}. Once upon a time" for i in range(32)]
    expected = [engine.run(prompt, max_tokens=8).text for prompt in prompts]

    async def one(client: AsyncClient, i: int) -> str:
        if i % 2:
            return (await client.run(prompts[i], max_tokens=8)).text
        async with client.stream(prompts[i], max_tokens=8) as stream:
            text = "".join([piece async for piece in stream])
            assert stream.result.text == text
            return text

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            assert await asyncio.gather(*(one(client, i) for i in range(32))) == expected

    asyncio.run(main())


def test_open_roles_are_sent_as_a_conversation(server: Server, engine: Engine) -> None:
    guide = Schema.parse(
        '<schema name="guide-open"><system>You answer from documents. '
        '<module name="belvik">Belvik makes clocks.</module></system>'
        '<module name="question">What does Belvik make?</module></schema>'
    )
    engine.load(guide)
    prompt = Prompt(guide)
    with prompt.role("system", is_open=True):
        prompt.module("belvik")
    with prompt.role("user", is_open=True):
        prompt.module("question").text(" One word.")
    closed = Prompt(guide)
    with closed.system():
        closed.module("belvik")
    with closed.user():
        closed.module("question").text(" One word.")
    mixed = Prompt(guide).text("Well. ")
    with mixed.role("user", is_open=True):
        mixed.module("question")
    with Client(server.url) as client:
        answer = client.run(prompt, max_tokens=12)
        expected = engine.run(prompt, max_tokens=12)
        assert answer.text == expected.text and answer.usage.prompt_tokens == expected.usage.prompt_tokens
        with client.stream(prompt, max_tokens=12) as stream:
            assert "".join(stream) == answer.text
        other = client.run(closed, max_tokens=12).usage.prompt_tokens  # a second system message
        assert answer.usage.prompt_tokens < other == engine.run(closed, max_tokens=12).usage.prompt_tokens
        with pytest.raises(errors.InvalidError, match="open role has a part outside"):
            client.run(mixed)


# ---- ends ----


@both
def test_leaving_a_stream_ends_the_request(server: Server, kind: AnyClient) -> None:
    with kind(server.url) as client:
        for _ in range(2):
            with client.stream("Once", **LONG) as stream:
                next(stream)
                with pytest.raises(errors.InvalidError, match="not ended"):
                    stream.result
            assert list(stream) == []
            server.until_idle()
        stream = client.stream("Once", **LONG)
        next(stream)
        del stream
        server.until_idle()
        assert client.run("Once", max_tokens=1).text


def test_cancelling_a_task_ends_the_request(server: Server) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            for _ in range(8):
                task = asyncio.create_task(client.run("Once", **LONG))
                await client.run("Once", max_tokens=1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                with pytest.raises(TimeoutError):  # not CancelledError: nothing else has cancelled this task
                    async with asyncio.timeout(0.02):
                        await client.run("Once", **LONG)

    asyncio.run(main())
    server.until_idle()


@pytest.mark.parametrize("is_stream", [False, True])
def test_cancelling_at_any_step_ends_the_request_with_its_loop(server: Server, is_stream: bool) -> None:
    """anyio before 4 swallows a cancellation at the end of connecting: a loop that ended waited for the answer."""

    async def main(n_steps: int) -> None:
        client = AsyncClient(server.url)
        task = asyncio.ensure_future(anext(client.stream("Once", **LONG)) if is_stream else client.run("Once", **LONG))
        for _ in range(n_steps):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    for n_steps in range(60):
        asyncio.run(main(n_steps))
    server.until_idle()


def test_others_may_close_a_stream(server: Server) -> None:
    with Client(server.url) as client:
        stream = client.stream("Once", **LONG)
        next(stream)
        threading.Thread(target=stream.close).start()
        assert all(stream)
        with pytest.raises(errors.InvalidError, match="not ended"):
            stream.result
    server.until_idle()

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            stream = client.stream("Once", **LONG)
            await anext(stream)
            asyncio.get_running_loop().call_later(0.01, stream.close)
            assert all([piece async for piece in stream])

    asyncio.run(main())
    server.until_idle()


def test_a_client_serves_one_loop_after_another_and_breaks_end_requests(server: Server) -> None:
    client = AsyncClient(server.url)

    async def main() -> None:
        assert (await client.run(towns("?"), max_tokens=1)).text
        async for _ in client.stream("Once", **LONG):
            break

    for _ in range(3):
        asyncio.run(main())
        server.until_idle()


# ---- errors ----


@both
@pytest.mark.parametrize(
    "cls, prompt, options",
    [
        (errors.UnknownNameError, Prompt("nothing").text("x"), {}),
        (errors.UnknownNameError, Prompt(SCHEMA).module("bellvik"), {}),
        (errors.ContextLengthError, "word " * 4000, {}),
        (errors.LimitError, "word " * (4 << 20), {}),
        (errors.InvalidError, "x", {"max_tokens": "many"}),
        (errors.MarkupError, Markup("<prompt"), {}),
        (TypeError, "x", {"max_token": 3}),
        (errors.InvalidError, 7, {}),
    ],
    ids=["schema", "module", "context", "body", "option", "markup", "no option", "no prompt"],
)
def test_errors_by_class(
    server: Server, kind: AnyClient, cls: type[Exception], prompt: Any, options: dict[str, Any]
) -> None:
    with kind(server.url) as client:
        for ask in (client.run, lambda prompt, **options: list(client.stream(prompt, **options))):
            with pytest.raises(cls) as caught:
                ask(prompt, **options)
            assert str(caught.value) and "\n" not in str(caught.value)
        assert client.run("Once", max_tokens=1).text  # the connection is as good as before


def test_options_are_checked_before_anything_is_sent() -> None:
    client = Client("http://127.0.0.1:9")
    with pytest.raises(TypeError, match="no option 'max_token': do you mean 'max_tokens'"):
        client.run("x", max_token=1)  # type: ignore[call-arg]
    with pytest.raises(errors.InvalidError, match="cannot be JSON"):
        client.run("x", temperature=float("nan"))
    with pytest.raises(errors.InvalidError, match="cannot be JSON"):
        client.run(Prompt().text(b"bytes"), max_tokens=1)  # type: ignore[arg-type]
    for url in ("127.0.0.1:80", "ftp://a", "http://", "http://a?b", "http://a\r\nb: c", "http://a:x", "http://a b"):
        with pytest.raises(errors.InvalidError, match="base_url"):
            Client(url)
    with pytest.raises(errors.InvalidError, match="api_key"):
        Client("http://a", api_key="a\nb")


def test_without_httpx_a_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['httpx'] = None; import reprise; reprise.Client(); reprise.AsyncClient()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert "ImportError: AsyncClient needs httpx" in done.stderr.splitlines()[-1] and "python3-httpx" in done.stderr


def hashed_key(key: str) -> str:
    done = subprocess.run(
        [PROGRAM, "serve", "--hash-key"],
        input=key,
        capture_output=True,
        text=True,
        check=True,
        env=environment_of_programs(),
    )
    return done.stdout.split()[0]


def test_keys(tmp_path: pathlib.Path) -> None:
    key, keys = "k" * 20, tmp_path / "keys"
    keys.write_text(f"{hashed_key(key)} tenant=acme rights=request,schemas running=1\n")
    keys.chmod(0o600)
    with Server("--api-keys", str(keys)) as server:
        with Client(server.url) as stranger, pytest.raises(errors.AccessError):
            stranger.run("Once")
        with Client(f"{server.url}/v1/", api_key=key) as client:
            assert client.run(towns("?"), max_tokens=1).text is not None
            with client.stream("Once", **LONG) as stream:
                next(stream)
                with pytest.raises(errors.BusyError):
                    client.run("Once")


def test_errors_of_an_upload_have_the_documents_name(server: Server) -> None:
    wrong = Schema.parse('<schema name="wrong">\n<modul name="a"/></schema>', document="prompts/wrong.xml")
    with Client(server.url) as client, pytest.raises(errors.MarkupError) as caught:
        client.run(Prompt(wrong).module("a"))
    assert caught.value.where == "prompts/wrong.xml:2:1" and str(caught.value).startswith(
        "prompts/wrong.xml:2:1: unknown"
    )
    with Client(server.url) as client, pytest.raises(errors.MarkupError) as caught:
        client.run("x", grammar="root ::= (")
    assert caught.value.where.startswith("grammar:1:")
