# SPDX-License-Identifier: Apache-2.0
"""What clients do with their connections and uploads: one upload by many requests, restarts, reuse, TLS, IPv6."""

import asyncio
import pathlib
import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_client import LONG, SCHEMA, AnyClient, Server, both, hashed_key, towns

from reprise import AsyncClient, Client, Schema, errors

N = 32


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def in_parallel(one: Callable[[int], object], n: int = N) -> list[BaseException]:
    """What calls by n threads at a time raise."""
    with ThreadPoolExecutor(n, initializer=threading.Barrier(n).wait) as pool:
        calls = [pool.submit(one, i) for i in range(n)]
        return [error for call in calls if (error := call.exception())]


# ---- uploads ----


@both
def test_many_requests_upload_a_schema_once(kind: AnyClient, tmp_path: pathlib.Path) -> None:
    """Before and after a restart of the server, which each of them notices by its own error."""
    log = tmp_path / "log"

    async def gather(client: AsyncClient) -> None:
        async def streamed(i: int) -> None:
            async with client.stream(towns(f"{i}?"), max_tokens=2) as stream:
                assert "".join([piece async for piece in stream]) == stream.result.text

        await asyncio.gather(*(streamed(i) if i % 2 else client.run(towns(f"{i}?"), max_tokens=2) for i in range(N)))

    def count_after_all_at_once() -> int:
        if isinstance(client, Client):
            assert not in_parallel(lambda i: client.run(towns(f"{i}?"), max_tokens=2))
        else:
            client.runner.run(gather(client.client))
        return log.read_text().count('"method":"PUT"')

    with Server("--sequences", "4", log=log) as server:
        client = kind(server.url)
        assert count_after_all_at_once() == 1 == count_after_all_at_once()
    with client, Server("--sequences", "4", log=log, port=int(server.url.rsplit(":", 1)[1])):
        assert count_after_all_at_once() == 2


@both
def test_a_schema_that_changed_or_is_gone_is_uploaded_again(server: Server, kind: AnyClient) -> None:
    changed = Schema(SCHEMA.name, SCHEMA.pml.replace("clocks", "bells"))
    newer = Schema("towns-2", SCHEMA.pml.replace("towns-1", "towns-2"), replaces="towns-1")
    question = "What is Belvik known for?"
    with kind(server.url) as client, Client(server.url) as other:
        assert "clocks" in client.run(towns(question), max_tokens=8).text
        assert "bells" in client.run(towns(question, changed), max_tokens=8).text
        client.unload(SCHEMA)
        with pytest.raises(errors.UnknownNameError):
            client.unload("towns-1")
        assert "bells" in client.run(towns(question, changed), max_tokens=8).text
        other.unload(SCHEMA)
        with client.stream(towns(question, changed), max_tokens=8) as stream:
            assert "bells" in "".join(stream)
        client.load(newer)
        assert "towns-2" in client.schemas() and "towns-1" not in client.schemas()


@both
def test_keys_without_the_right_to_upload_use_what_the_operator_loaded(kind: AnyClient, tmp_path: pathlib.Path) -> None:
    keys, file = ("o" * 20, "p" * 20), tmp_path / "keys"
    file.write_text(
        f"{hashed_key(keys[0])} tenant=acme rights=request,schemas,share,operate\n"
        f"{hashed_key(keys[1])} tenant=acme rights=request\n"
    )
    file.chmod(0o600)
    with Server("--api-keys", str(file)) as server:
        with Client(server.url, keys[0]) as operator, kind(server.url, keys[1]) as other:
            with pytest.raises(errors.AccessError, match="lacks the right"):
                other.run(towns("?"), max_tokens=1)  # nobody has loaded it: the error is that of the upload
            operator.load(SCHEMA)
            assert other.run(towns("?"), max_tokens=1).plan
            operator.unload(SCHEMA)
            with pytest.raises(errors.AccessError, match="lacks the right"):
                other.run(towns("?"), max_tokens=1)


# ---- connections ----


@both
def test_connections_are_used_again(server: Server, kind: AnyClient) -> None:
    with kind(server.url) as client:
        before = server.metric("reprise_connections_total")
        for i in range(10):
            client.run(f"{i}", max_tokens=1)
            with client.stream(f"{i}", max_tokens=1) as stream:
                list(stream)
            with pytest.raises(errors.InvalidError):
                client.run("x", temperature=-1)
        assert server.metric("reprise_connections_total") == before + 2  # the client's, and this request's


@both
def test_a_kept_connection_that_the_server_closed_is_replaced(kind: AnyClient) -> None:
    with Server("--idle-timeout", "50") as server, kind(server.url) as client:
        client.run("x", max_tokens=1)
        (kept,) = (client._requests if isinstance(client, Client) else client.client)._idle
        select.select([kept._socket], [], [])  # until the server closes it
        assert client.run("x", max_tokens=1).text is not None


@both
@pytest.mark.parametrize("bytes_before", [b"", b"HTTP/1.1 2"])
def test_a_kept_connection_that_gives_no_answer_is_replaced(kind: AnyClient, bytes_before: bytes) -> None:
    """A server that closes a connection while a request is on its way."""
    reply = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"data":["a"]}'
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for replies in ([reply, bytes_before], [reply]):
                connection, _ = listener.accept()
                with connection:
                    for data in replies:
                        connection.recv(1 << 16)
                        connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        with kind(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            assert client.schemas() == client.schemas() == ("a",)
        thread.join()


def test_overload_says_when_to_retry() -> None:
    with Server("--sequences", "1", "--queue", "1") as server, Client(server.url) as client:
        with client.stream("Once", **LONG) as stream:
            next(stream)
            failed = in_parallel(lambda i: client.run("Twice", max_tokens=1), 16)
            assert failed and all(isinstance(e, errors.BusyError) and e.retry_after_ms >= 1000 for e in failed)
        assert client.run("Once", max_tokens=1)


@both
def test_no_server(kind: AnyClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with kind(f"http://127.0.0.1:{port}", timeout=1) as client:
            with pytest.raises(errors.FileError, match=f"http://127.0.0.1:{port}: no byte for 1 s"):
                client.run("x")
    for host in ("127.0.0.1", "localhost"):
        with kind(f"http://{host}:{port}") as client:
            with pytest.raises(errors.FileError, match=f"http://{host}:{port}: Connection refused: start"):
                client.run("x")


@both
def test_ipv6(kind: AnyClient) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with Server("--host", "::1") as server, kind(server.url) as client:
        assert server.url.startswith("http://[::1]:") and client.run("x", max_tokens=1)


@both
def test_https(server: Server, kind: AnyClient, tmp_path: pathlib.Path) -> None:
    """Through a proxy with TLS, whose certificate is checked."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext"
    command += f" subjectAltName=DNS:localhost -keyout {key} -out {certificate}"
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

    def clients(url: str) -> None:
        with kind(url, tls=ssl.create_default_context(cafile=str(certificate))) as client:
            text = client.run(towns("?"), max_tokens=8).text
            with client.stream(towns("?"), max_tokens=8) as stream:
                assert "".join(stream) == text
            with client.stream("Once", **LONG) as stream:
                next(stream)
            server.until_idle()
        with kind(url) as client, pytest.raises(errors.FileError, match="certificate verify failed"):
            client.run("x")

    async def main() -> None:
        async with await asyncio.start_server(proxied, "localhost", 0, ssl=context) as proxy:
            await asyncio.to_thread(clients, f"https://localhost:{proxy.sockets[0].getsockname()[1]}")

    asyncio.run(main())
