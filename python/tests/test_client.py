# SPDX-License-Identifier: Apache-2.0
"""Client and AsyncClient against a real `reprise serve`, and against a server that sends anything but HTTP."""

import asyncio
import hashlib
import pathlib
import re
import socket
import subprocess
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import MODEL, PROGRAM, environment_of_programs

from reprise import AsyncClient, Client, Engine, Markup, Prompt, Schema, errors
from reprise.http1 import BadResponse, EventParser, ResponseParser

SCHEMA = Schema.parse(
    '<schema name="towns-1"><system>Read the documents. <module name="belvik">Belvik is known for its clocks.</module> '
    '<module name="zantec">Zantec makes a <param name="thing" len="4"/>.</module></system></schema>'
)
LONG = {"max_tokens": 1500, "ignore_eos": True}


def towns(question: str) -> Prompt:
    prompt = Prompt(SCHEMA).module("belvik").module("zantec", thing="camera")
    with prompt.user():
        prompt.text(question)
    return prompt


class Server:
    def __init__(self, *options: str, port: int = 0) -> None:
        command = [PROGRAM, "serve", "-m", MODEL, "--threads", "1", "--port", str(port), "--log", "off", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment_of_programs())
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


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


# ---- answers ----


def test_answers_are_the_engines(server: Server, engine: Engine) -> None:
    messages = [
        {"role": "system", "content": "Belvik is known for its clocks."},
        {"role": "user", "content": "What is Belvik known for?"},
    ]
    with Client(server.url) as client:
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
        assert (
            client.run(markup, max_tokens=16).text == client.run(towns("What is Belvik known for?"), max_tokens=16).text
        )
        assert "towns-1" in client.schemas() and client.models() == (engine.model.info.name,)
        assert "belvik" in client.run(towns("?"), max_tokens=1)._repr_html_()


def test_a_schema_is_uploaded_once_and_again_after_a_restart() -> None:
    server = Server()
    port = int(server.url.rsplit(":", 1)[1])
    client, asynchronous = Client(server.url), AsyncClient(server.url)
    uploads = 'reprise_http_requests_total{route="/v1/schemas/{name}",method="PUT",status="201"}'
    for _ in range(3):
        client.run(towns("?"), max_tokens=1)
    assert client.schemas() == ("towns-1",)
    first = client.run(towns("What?"), max_tokens=1)
    assert {p.module: p.tier for p in first.plan}["belvik"] == "ram", uploads
    server.stop()
    server = Server(port=port)
    assert client.run(towns("?"), max_tokens=1).finish_reason == "length"
    with client.stream(towns("?"), max_tokens=1) as stream:
        list(stream)
    client.unload(SCHEMA)
    client.close()

    async def main() -> None:
        async with asynchronous:
            assert (await asynchronous.run(towns("?"), max_tokens=1)).finish_reason == "length"
            await asynchronous.unload(SCHEMA)
            asynchronous._uploaded.add(SCHEMA)  # as after a restart
            assert [piece async for piece in asynchronous.stream(towns("What?"), max_tokens=2)]
            newer = Schema("towns-2", SCHEMA.pml.replace("towns-1", "towns-2"), replaces="towns-1")
            await asynchronous.load(newer, prefill=True)
            assert await asynchronous.schemas() == ("towns-2",) and await asynchronous.models()

    asyncio.run(main())
    server.stop()


def test_asyncio(server: Server, engine: Engine) -> None:
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


def test_leaving_early_ends_the_request(server: Server) -> None:
    with Client(server.url) as client:
        for _ in range(2):
            with client.stream("Once", **LONG) as stream:  # type: ignore[arg-type]
                next(stream)
                with pytest.raises(errors.InvalidError, match="not ended"):
                    stream.result
            assert list(stream) == []
            server.until_idle()
        stream = client.stream("Once", **LONG)  # type: ignore[arg-type]
        next(stream)
        del stream
        server.until_idle()
        assert client.run("Once", max_tokens=1).text

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            async with client.stream("Once", **LONG) as stream:  # type: ignore[arg-type]
                await anext(stream)
            task = asyncio.create_task(client.run("Once", **LONG))  # type: ignore[arg-type]
            await client.run("Once", max_tokens=1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    server.until_idle()


def test_first_uses_at_once_upload_once_and_text_that_changed_again(server: Server) -> None:
    changed = Schema("towns-1", SCHEMA.pml.replace("clocks", "bells"))

    async def main() -> None:
        async with AsyncClient(server.url) as client:
            uploads = 0
            load = client.load

            async def counted(schema: Schema, *, prefill: bool = False) -> None:
                nonlocal uploads
                uploads += 1
                await load(schema, prefill=prefill)

            client.load = counted  # type: ignore[method-assign]
            await asyncio.gather(*(client.run(towns(f"{i}?"), max_tokens=1) for i in range(16)))
            assert uploads == 1
            before = await client.run(towns("What is Belvik known for?"), max_tokens=8)
            other = Prompt(changed).module("belvik").module("zantec", thing="camera")
            with other.user():
                other.text("What is Belvik known for?")
            after = await client.run(other, max_tokens=8)
            assert uploads == 2 and "clocks" in before.text and "bells" in after.text

    asyncio.run(main())


def test_a_client_serves_one_loop_after_another_and_breaks_end_requests(server: Server) -> None:
    client = AsyncClient(server.url)

    async def main() -> None:
        assert (await client.run("Once", max_tokens=1)).text
        async for _ in client.stream("Once", **LONG):  # type: ignore[arg-type]
            break
        end = time.monotonic() + 60
        while server.metric("reprise_requests_running") > 0:
            assert time.monotonic() < end
            await asyncio.sleep(0.005)

    asyncio.run(main())
    asyncio.run(main())


def test_threads_share_a_client(server: Server) -> None:
    texts: list[str] = []
    with Client(server.url) as client:
        expected = client.run("Once upon a time", max_tokens=8).text
        threads = [
            threading.Thread(target=lambda: texts.append(client.run("Once upon a time", max_tokens=8).text))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == [expected] * 12


# ---- errors ----


@pytest.mark.parametrize(
    "cls, prompt, options",
    [
        (errors.UnknownNameError, Prompt("nothing").text("x"), {}),
        (errors.UnknownNameError, Prompt(SCHEMA).module("bellvik"), {}),
        (errors.ContextLengthError, "word " * 4000, {}),
        (errors.InvalidError, "x", {"max_tokens": "many"}),
        (errors.MarkupError, Markup("<prompt"), {}),
        (TypeError, "x", {"max_token": 3}),
        (errors.InvalidError, 7, {}),
    ],
)
def test_errors_by_class(server: Server, cls: type[Exception], prompt: Any, options: dict[str, Any]) -> None:
    with Client(server.url) as client:
        for ask in (client.run, client.stream):
            with pytest.raises(cls) as caught:
                ask(prompt, **options)
            assert str(caught.value) and "\n" not in str(caught.value)
        assert client.run("Once", max_tokens=1).text  # the connection is as good as before


def test_keys(tmp_path: pathlib.Path) -> None:
    key = "k" * 20
    done = subprocess.run(
        [PROGRAM, "serve", "--hash-key"],
        input=key,
        capture_output=True,
        text=True,
        check=True,
        env=environment_of_programs(),
    )
    keys = tmp_path / "keys"
    keys.write_text(f"{done.stdout.split()[0]} tenant=acme rights=request,schemas running=1\n")
    keys.chmod(0o600)
    server = Server("--api-keys", str(keys))
    with Client(server.url) as stranger, pytest.raises(errors.AccessError):
        stranger.run("Once")
    with Client(f"{server.url}/v1/", api_key=key) as client:
        assert client.run(towns("?"), max_tokens=1).text is not None
        with client.stream("Once", **LONG) as stream:  # type: ignore[arg-type]
            next(stream)
            with pytest.raises(errors.BusyError):
                client.run("Once")
    with pytest.raises(errors.InvalidError):
        Client(server.url, api_key="a\nb")
    server.stop()
    assert len(hashlib.sha256(key.encode()).hexdigest()) == 64


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(errors.FileError, match=f"http://127.0.0.1:{port}: Connection refused: start"):
        Client(f"http://127.0.0.1:{port}").run("x")
    with pytest.raises(errors.FileError, match="start `reprise serve`"):
        asyncio.run(AsyncClient(f"http://127.0.0.1:{port}").run("x"))
    for url in ("127.0.0.1:80", "ftp://a", "http://", "http://a?b", "http://a\r\nb: c", "http://a:x", "http://a b"):
        with pytest.raises(errors.InvalidError, match="base_url"):
            Client(url)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HOSTILE = {
    "nothing": b"",
    "garbage": b"SSH-2.0-OpenSSH_9.2\r\n" * 3,
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "length": OK + b"Content-Length: -5\r\n\r\n",
    "short": OK + b"Content-Length: 50\r\n\r\n{}",
    "chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "negative": OK + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nabc",
    "long size": OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 1000,
    "cut chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\nabc",
    "no JSON": OK + b"Content-Length: 5\r\n\r\nhello",
    "other JSON": OK + b"Content-Length: 2\r\n\r\n[]",
    "error page": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops",
    "event": OK + b'Connection: close\r\n\r\nevent: text\ndata: ["a"]\n\n',
    "endless": OK + b"Connection: close\r\n\r\n" + b"x" * (70 << 20),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_server_that_is_none(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(3):
                with listener.accept()[0] as connection:
                    connection.settimeout(0.2)  # a client may keep the connection
                    connection.recv(1 << 16)
                    try:
                        connection.sendall(HOSTILE[name])
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(1 << 16)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        calls: list[Callable[[], object]] = [
            lambda: Client(url).run("x"),
            lambda: list(Client(url).stream("x")),
            lambda: asyncio.run(AsyncClient(url).run("x")),
        ]
        for call in calls:
            tracemalloc.start()
            with pytest.raises((errors.FormatError, errors.FileError)) as caught:
                call()
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert most < 200 << 20 and url in str(caught.value) and "\n" not in str(caught.value)
        thread.join(60)


def test_parsers_do_not_depend_on_how_bytes_are_cut() -> None:
    body = b'event: text\r\ndata: {"a":\ndata: 1}\r\n\r\ndata: x\n\n: ping\n\n'
    chunks = (
        b"".join(b"%x;q=1\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7))
        + b"0\r\nt: 1\r\n\r\n"
    )
    response = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    for step in range(1, len(response) + 1):
        parser, events, found = ResponseParser(), EventParser(), []
        for i in range(0, len(response), step):
            found += events.feed(parser.feed(response[i : i + step]))
        assert parser.is_complete and parser.keeps_alive and found == [("text", '{"a":\n1}'), ("message", "x")]
    with pytest.raises(BadResponse):
        ResponseParser().feed(b"")
