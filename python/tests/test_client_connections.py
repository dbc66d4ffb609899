# SPDX-License-Identifier: Apache-2.0
"""What clients do with their connections and uploads: one upload by many requests, restarts, reuse, TLS, IPv6, closing from another thread."""

import asyncio
import contextlib
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
from conftest import MODEL, PROGRAM, environment_of_programs
from test_client import LONG, SCHEMA, Server, towns

from reprise import AsyncClient, Client, Engine, Markup, Prompt, Schema, errors

N = 32


@contextlib.contextmanager
def running(*options: str) -> Iterator[Server]:
    """A server of a test's own."""
    server = Server(*options)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def in_parallel(one: Callable[[int], object], n: int = N) -> list[BaseException]:
    failed: list[BaseException] = []
    start = threading.Barrier(n)

    def run(i: int) -> None:
        start.wait()
        try:
            one(i)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


# ---- uploads ----


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_many_requests_upload_a_schema_once(kind: str, tmp_path: pathlib.Path) -> None:
    """Before and after a restart of the server, which each of them notices by its own error."""
    log = tmp_path / "log"

    def count() -> int:
        return log.read_text().count('"method":"PUT"')

    def started(port: int = 0) -> tuple[subprocess.Popen[str], str]:
        command = [str(PROGRAM), "serve", "-m", str(MODEL), "--threads", "1", "--port", str(port), "--sequences", "4"]
        with log.open("a") as errors_to:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors_to, text=True, env=environment_of_programs()
            )
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            url = line.removeprefix("listening on ").strip() if line.startswith("listening on ") else url
            if line == "ready\n":
                return process, url
        raise AssertionError("the server ended")

    def stop(process: subprocess.Popen[str]) -> None:
        process.terminate()
        assert process.wait(120) == 0
        assert process.stdout is not None
        process.stdout.close()

    process, url = started()
    client, tasks = Client(url), AsyncClient(url)

    async def gather(n: int) -> None:
        async def streamed(i: int) -> None:
            async with tasks.stream(towns(f"{i}?"), max_tokens=2) as stream:
                assert "".join([piece async for piece in stream]) == stream.result.text

        await asyncio.gather(*(streamed(i) if i % 2 else tasks.run(towns(f"{i}?"), max_tokens=2) for i in range(n)))

    def all_at_once() -> None:
        if kind == "threads":
            assert not in_parallel(lambda i: client.run(towns(f"{i}?"), max_tokens=2))
        else:
            asyncio.run(gather(N))

    all_at_once()
    assert count() == 1
    all_at_once()
    assert count() == 1
    stop(process)
    process, _ = started(int(url.rsplit(":", 1)[1]))
    all_at_once()
    assert count() == 2
    client.close()
    stop(process)


def test_a_schema_that_changed_under_its_name_is_uploaded_again(server: Server) -> None:
    first = Schema("bells", '<schema name="bells"><module name="a">The bells of Belvik.</module></schema>')
    second = Schema("bells", '<schema name="bells"><module name="b">The clocks of Zantec.</module></schema>')
    with Client(server.url) as client:
        client.run(Prompt(first).module("a").text(" What?"), max_tokens=1)
        client.run(Prompt(second).module("b").text(" What?"), max_tokens=1)
        with pytest.raises(errors.UnknownNameError, match="has no module 'a'"):
            client.run(Prompt(second).module("a"), max_tokens=1)
        client.unload("bells")
        with pytest.raises(errors.UnknownNameError):
            client.unload(first)
        client.run(Prompt(second).module("b").text(" What?"), max_tokens=1)
        assert "bells" in client.schemas()


def test_keys_without_the_right_to_upload_use_what_the_operator_loaded(tmp_path: pathlib.Path) -> None:
    keys = {"operator": "o" * 20, "other": "p" * 20}
    rights = {"operator": "request,schemas,share,operate", "other": "request"}
    lines = []
    for name, key in keys.items():
        done = subprocess.run(
            [PROGRAM, "serve", "--hash-key"],
            input=key,
            capture_output=True,
            text=True,
            check=True,
            env=environment_of_programs(),
        )
        lines.append(f"{done.stdout.split()[0]} tenant=acme rights={rights[name]}\n")
    file = tmp_path / "keys"
    file.write_text("".join(lines))
    file.chmod(0o600)
    with running("--api-keys", str(file)) as server:
        with Client(server.url, keys["operator"]) as operator, Client(server.url, keys["other"]) as other:
            with pytest.raises(errors.AccessError, match="lacks the right"):
                other.run(towns("?"), max_tokens=1)  # nobody has loaded it: the error is that of the upload
            operator.load(SCHEMA)
            assert other.run(towns("?"), max_tokens=1).plan

            async def main() -> None:
                async with AsyncClient(server.url, keys["other"]) as tasks:
                    assert (await tasks.run(towns("?"), max_tokens=1)).plan
                    operator.unload(SCHEMA)
                    with pytest.raises(errors.AccessError, match="lacks the right"):
                        await tasks.run(towns("?"), max_tokens=1)

            asyncio.run(main())


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


# ---- prompts ----


def test_open_roles_are_sent_as_a_conversation(server: Server, engine: Engine) -> None:
    guide = Schema.parse(
        '<schema name="guide-open"><system>You answer from documents. <module name="belvik">Belvik makes clocks.</module>'
        '</system><module name="question">What does Belvik make?</module></schema>'
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


def test_options_are_checked_before_anything_is_sent() -> None:
    client = Client("http://127.0.0.1:9")
    with pytest.raises(TypeError, match="no option 'max_token': do you mean 'max_tokens'"):
        client.run("x", max_token=1)  # type: ignore[call-arg]
    with pytest.raises(errors.InvalidError, match="cannot be JSON"):
        client.run("x", temperature=float("nan"))
    with pytest.raises(errors.InvalidError, match="cannot be JSON"):
        client.run(Prompt().text(b"bytes"), max_tokens=1)  # type: ignore[arg-type]


def test_markup_and_health(server: Server) -> None:
    async def main() -> str:
        async with AsyncClient(server.url) as client:
            assert await client.models() and (
                await client.run(Markup('<prompt schema="towns-1">Hi</prompt>'), max_tokens=1)
            )
            return await client.health()

    with Client(server.url) as client:
        client.load(SCHEMA, prefill=True)
        assert client.run(towns("?"), max_tokens=1).usage.cached_tokens > 0
        assert client.health() == "ready" == asyncio.run(main())


# ---- connections ----


def test_connections_are_used_again(server: Server) -> None:
    with Client(server.url) as client:
        before = server.metric("reprise_connections_total")
        for i in range(10):
            client.run(f"{i}", max_tokens=1)
            with client.stream(f"{i}", max_tokens=1) as stream:
                list(stream)
            with pytest.raises(errors.InvalidError):
                client.run("x", temperature=-1)
        assert server.metric("reprise_connections_total") == before + 2  # the client's, and this request's


def test_a_kept_connection_that_the_server_closed_is_replaced(server: Server) -> None:
    with running("--idle-timeout", "50") as first:
        with Client(first.url) as client:
            client.run("x", max_tokens=1)
            kept = client._idle[0]
            assert kept.recv(1) == b""  # the server closes it
            assert client.run("x", max_tokens=1).text is not None

        async def main() -> None:
            async with AsyncClient(first.url) as tasks:
                await tasks.run("x", max_tokens=1)
                reader, _ = tasks._idle[0]
                while not reader.at_eof():
                    await asyncio.sleep(0)
                await tasks.run("x", max_tokens=1)

        asyncio.run(main())


def test_a_client_works_in_one_event_loop_after_another(server: Server) -> None:
    client = AsyncClient(server.url)

    async def main() -> str:
        return (await client.run(towns("?"), max_tokens=4)).text

    assert len({asyncio.run(main()) for _ in range(3)}) == 1
    client.close()


def test_another_thread_may_close_a_stream(server: Server) -> None:
    with Client(server.url) as client:
        stream = client.stream("Once", **LONG)  # type: ignore[arg-type]
        next(stream)
        threading.Thread(target=stream.close).start()
        for _ in stream:
            pass
        with pytest.raises(errors.InvalidError, match="not ended"):
            stream.result
        server.until_idle()


def test_overload_says_when_to_retry() -> None:
    with running("--sequences", "1", "--queue", "1") as server:
        with Client(server.url) as client:
            with client.stream("Once", **LONG) as stream:  # type: ignore[arg-type]
                next(stream)
                failed = in_parallel(lambda i: client.run("Twice", max_tokens=1), 16)
                assert failed and all(isinstance(e, errors.BusyError) and e.retry_after_ms >= 1000 for e in failed)
            assert client.run("Once", max_tokens=1)


def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with running("--host", "::1") as server:
        assert server.url.startswith("http://[::1]:")
        with Client(server.url) as client:
            assert client.run("x", max_tokens=1)

        async def main() -> None:
            async with AsyncClient(server.url) as tasks:
                await tasks.run("x", max_tokens=1)

        asyncio.run(main())


def test_https(server: Server, tmp_path: pathlib.Path) -> None:
    """Through a proxy with TLS, whose certificate is checked."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    host, port = server.url.removeprefix("http://").split(":")

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def proxied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pipe(reader, inner[1]), pipe(inner[0], writer))

    async def main() -> None:
        proxy = await asyncio.start_server(proxied, "localhost", 0, ssl=context)
        url = f"https://localhost:{proxy.sockets[0].getsockname()[1]}"
        trusting = ssl.create_default_context(cafile=str(certificate))

        def threads() -> None:
            with Client(url, tls=trusting) as client:
                text = client.run(towns("?"), max_tokens=8).text
                with client.stream(towns("?"), max_tokens=8) as stream:
                    assert "".join(stream) == text
                with client.stream("Once", **LONG) as stream:  # type: ignore[arg-type]
                    next(stream)
            with pytest.raises(errors.FileError, match="certificate verify failed"):
                Client(url).run("x")

        await asyncio.to_thread(threads)
        async with AsyncClient(url, tls=trusting) as tasks:
            async with tasks.stream(towns("?"), max_tokens=8) as stream:
                assert "".join([piece async for piece in stream]) == stream.result.text
            async with tasks.stream("Once", **LONG) as stream:  # type: ignore[arg-type]
                await anext(stream)
        with pytest.raises(errors.FileError, match="certificate verify failed"):
            await AsyncClient(url).run("x")
        await asyncio.to_thread(server.until_idle)
        proxy.close()

    asyncio.run(main())
