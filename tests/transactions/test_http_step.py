"""The Http step against a real server on loopback that hangs, floods, redirects, fails, or talks nonsense."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import ClosedError, ConfigError, StepFailedError
from penstock.transactions.pipelines.steps import Http
from penstock.transactions.worker.http_calls import MAX_FAILURE_BYTES, HttpCaller, HttpStepError
from penstock.webhooks.addresses import policy
from tests.certificates import CERTIFICATES
from tests.places import until
from tests.webhooks.receiver import Received, Receiver

LOOPBACK = policy(["127.0.0.0/8"])
DATA = {"order": {"id": "o/1 ä?&=%", "no": 7, "rush": True}, "note": "private-data"}


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture
async def caller() -> AsyncIterator[HttpCaller]:
    caller = HttpCaller(LOOPBACK, max_body_bytes=10_000)
    yield caller
    await caller.close()


async def call(
    caller: HttpCaller, url: str, data: Any = DATA, *, timeout_ms: int = 10_000, **step: Any
) -> Any:
    return await caller.call(Http(url, **step), data, idempotency_key="tx-0-1:pay", timeout_ms=timeout_ms)


async def failure(caller: HttpCaller, url: str, data: Any = DATA, **settings: Any) -> HttpStepError:
    with pytest.raises(HttpStepError) as caught:
        await call(caller, url, data, **settings)
    assert isinstance(caught.value, StepFailedError)
    assert caught.value.names[0] == "HttpError"
    assert "private-data" not in caught.value.note
    return caught.value


def at(server: Receiver, target: str) -> str:
    return f"http://127.0.0.1:{server.port}{target}"


# ---------------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_the_data_goes_as_json_and_json_comes_back(
    caller: HttpCaller, server: Receiver, method: str
) -> None:
    server.answer = lambda _: (201, {"content-type": "application/json"}, b'{"paid": [1, 2.5, null]}')
    answer = await call(caller, server.url, method=method, headers={"Authorization": "Bearer x"})
    assert answer == {"paid": [1, 2.5, None]}
    [got] = server.received
    assert (got.method, json.loads(got.body)) == (method, DATA)
    assert got.headers["content-type"] == "application/json"
    assert got.headers["idempotency-key"] == "tx-0-1:pay"
    assert got.headers["authorization"] == "Bearer x"
    assert got.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
async def test_these_have_no_body_unless_it_is_named(
    caller: HttpCaller, server: Receiver, method: str
) -> None:
    server.answer = lambda _: (204, {}, b"")
    assert await call(caller, server.url, method=method) is None
    await call(caller, server.url, method=method, body="order.no")
    assert [(got.method, got.body) for got in server.received] == [(method, b""), (method, b"7")]


async def test_bodies(caller: HttpCaller, server: Receiver) -> None:
    await call(caller, server.url, body="order")
    await call(caller, server.url, body="none")
    await call(caller, server.url, None)
    await call(caller, server.url, headers={"Content-Type": "application/vnd.x+json"})
    part, none, null, typed = server.received
    assert json.loads(part.body) == DATA["order"]
    assert (none.body, none.headers["content-length"], none.headers.get("content-type")) == (b"", "0", None)
    assert null.body == b"null"
    assert typed.headers["content-type"] == "application/vnd.x+json"
    error = await failure(caller, server.url, body="order.nowhere")
    assert "body: the data has no field 'order.nowhere'" in error.note
    assert (error.status, error.retryable, len(server.received)) == (None, False, 4)


async def test_fields_in_the_url_cannot_change_its_shape(caller: HttpCaller, server: Receiver) -> None:
    await call(
        caller,
        at(server, "/orders/{order.id}/{order.no}?q={order.id}&rush={order.rush}&e={e}"),
        {**DATA, "e": ""},
    )
    encoded = "o%2F1%20%C3%A4%3F%26%3D%25"
    assert server.received[0].target == f"/orders/{encoded}/7?q={encoded}&rush=true&e="


@pytest.mark.parametrize(
    ("target", "value", "text"),
    [
        ("/o/{x}", "", "is empty"),
        ("/o/{x}", "..", "lead elsewhere"),
        ("/o/{x}/y", ".", "lead elsewhere"),
        ("/o/.{x}", ".", "lead elsewhere"),
        ("/o/{x}", "a/../../admin", "lead elsewhere"),
        ("/o/{x}", "a\\..\\admin", "lead elsewhere"),
        ("/o/{x}", None, "not null"),
        ("/o/{x}", {"a": 1}, "not an object"),
        ("/o?q={x}", [1], "not an array"),
        ("/o/{y}", 1, "no field 'y'"),
        ("/o/{x}", "a" * 3_000, "at most 2048"),
        ("/o/{x}", "\ud800", "UTF-8"),
    ],
)
async def test_data_that_does_not_fit_the_url(
    caller: HttpCaller, server: Receiver, target: str, value: Any, text: str
) -> None:
    error = await failure(caller, at(server, target), {"x": value})
    assert text in error.note
    assert (error.status, error.retryable, error.names) == (None, False, ("HttpError",))
    assert server.connections == 0


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Transfer-Encoding", "Idempotency-Key"])
async def test_headers_that_are_not_the_steps_to_set(caller: HttpCaller, server: Receiver, name: str) -> None:
    error = await failure(caller, server.url, headers={name: "1"})
    assert name.lower() in error.note
    assert (error.retryable, server.connections) == (False, 0)


async def test_connections_are_used_again(caller: HttpCaller, server: Receiver) -> None:
    for _ in range(5):
        await call(caller, server.url)
    assert server.connections == 1


# ----------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"", None),
        (b"null", None),
        (b'"x"', "x"),
        (b"plain text", "plain text"),
        (b"{broken", "{broken"),
        (b"\xff\xfe", "��"),
        (b"[" * 9_000, "[" * 9_000),
        (b"x" * 10_000, "x" * 10_000),
    ],
    ids=["nothing", "null", "json", "text", "broken", "bytes", "deep", "at the limit"],
)
async def test_bodies_of_answers(caller: HttpCaller, server: Receiver, content: bytes, value: Any) -> None:
    server.answer = lambda _: (200, {}, content)
    assert await call(caller, server.url) == value


async def test_all_of_an_answer(caller: HttpCaller, server: Receiver) -> None:
    server.answer = lambda _: (202, {"X-Id": "5", "x-a": "1\r\nX-A: 2"}, b"[1]")
    answer = await call(caller, server.url, save="all")
    assert (answer["status"], answer["body"]) == (202, [1])
    assert (answer["headers"]["x-id"], answer["headers"]["x-a"]) == ("5", "1, 2")


async def test_expected_statuses(caller: HttpCaller, server: Receiver) -> None:
    server.answer = lambda _: (404, {}, b"")
    assert (await call(caller, server.url, save="all", expect=[200, 404]))["status"] == 404
    server.answer = lambda _: (201, {}, b"")
    error = await failure(caller, server.url, expect=[200, 404])
    assert (error.status, error.retryable) == (201, False)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (408, True), (409, False), (425, True), (429, True),
     (500, True), (503, True), (599, True)],
)  # fmt: skip
async def test_a_status_is_a_failure_with_names(
    caller: HttpCaller, server: Receiver, status: int, retryable: bool
) -> None:
    server.answer = lambda _: (status, {}, b'{"why": "no"}')
    error = await failure(caller, f"{server.url}?key=hidden")
    assert (error.status, error.retryable) == (status, retryable)
    assert error.names == ("HttpError", f"http-{status}", f"http-{status // 100}xx")
    assert error.output == {"status": status, "body": {"why": "no"}}
    assert error.note == f'POST {server.url} answered {status}: {{"why": "no"}}'


async def test_how_long_to_wait_is_told(server: Receiver) -> None:
    caller = HttpCaller(LOOPBACK, clock=ManualClock(1_445_412_480_000))
    server.answer = lambda _: (429, {"retry-after": "7"}, b"")
    assert (await failure(caller, server.url)).retry_after_ms == 7_000
    server.answer = lambda _: (503, {"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, b"")
    assert (await failure(caller, server.url)).retry_after_ms == 30_000
    server.answer = lambda _: (503, {"retry-after": "soon"}, b"")
    assert (await failure(caller, server.url)).retry_after_ms is None
    await caller.close()


async def test_the_body_of_a_failure_is_cut(caller: HttpCaller, server: Receiver) -> None:
    server.answer = lambda _: (500, {}, b"x" * 1_000_000)
    error = await failure(caller, server.url)
    assert error.output == {"status": 500, "body": "x" * MAX_FAILURE_BYTES}
    assert len(error.note) < 300


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirections_are_not_followed(caller: HttpCaller, server: Receiver, status: int) -> None:
    async with Receiver() as elsewhere:
        server.answer = lambda _: (status, {"location": elsewhere.url}, b"")
        error = await failure(caller, server.url)
        assert (error.status, error.retryable) == (status, False)
        assert "http-3xx" in error.names
        answer = await call(caller, server.url, expect=[status], save="all")
        assert answer["headers"]["location"] == elsewhere.url
        assert elsewhere.connections == 0


# ------------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize("is_declared", [True, False])
async def test_an_answer_that_is_too_large(caller: HttpCaller, server: Receiver, is_declared: bool) -> None:
    flood = b"x" * 5_000_000
    server.answer = lambda _: (200, {}, flood) if is_declared else b"HTTP/1.1 200 OK\r\n\r\n" + flood
    error = await failure(caller, server.url)
    assert "more than 10000 bytes" in error.note
    assert (error.status, error.retryable) == (200, False)
    server.answer = lambda _: (200, {}, b"1")
    assert await call(caller, server.url) == 1


async def test_what_comes_behind_the_limit_is_not_overlooked(caller: HttpCaller, server: Receiver) -> None:
    """A part that ends exactly there must not be taken for the whole."""
    chunks = b"2710\r\n" + b"x" * 10_000 + b"\r\n1\r\nx\r\n0\r\n\r\n"
    server.answer = lambda _: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks
    assert "more than 10000 bytes" in (await failure(caller, server.url)).note


async def test_a_compressed_answer_is_refused(caller: HttpCaller, server: Receiver) -> None:
    server.answer = lambda _: (200, {"content-encoding": "gzip"}, b"\x1f\x8b")
    error = await failure(caller, server.url)
    assert "compressed" in error.note
    assert not error.retryable


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nx"]
)
async def test_a_server_that_hangs(caller: HttpCaller, head: bytes) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await reader.read(-1)  # until the other side has gone
        writer.close()

    listening = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    async with asyncio.timeout(10):
        error = await failure(caller, url, timeout_ms=100)
    assert (error.status, error.retryable, error.names) == (None, True, ("HttpError", "timeout"))
    assert "within 100 ms" in error.note
    listening.close()
    await listening.wait_closed()


async def test_resolving_is_within_the_timeout() -> None:
    async def stuck(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    caller = HttpCaller(resolver=stuck)
    assert "timeout" in (await failure(caller, "http://slow.example/", timeout_ms=50)).names
    await caller.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"garbage\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
     b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", b"HTTP/1.1 200 OK\r\n" + b"a" * 200_000],
)  # fmt: skip
async def test_what_is_not_http(caller: HttpCaller, server: Receiver, answer: bytes) -> None:
    server.answer = lambda _: answer
    error = await failure(caller, server.url)
    assert (error.status, error.retryable, error.names) == (None, True, ("HttpError", "connection"))


async def test_nobody_listens(caller: HttpCaller) -> None:
    async with Receiver() as gone:
        url = gone.url
    error = await failure(caller, url)
    assert (error.retryable, error.names) == (True, ("HttpError", "connection"))


# --------------------------------------------------------------------------------------------- addresses


async def test_private_addresses_are_refused(server: Receiver) -> None:
    async def inner(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    caller = HttpCaller(resolver=inner)
    for host in ("127.0.0.1", "localhost", "inner.example", "[::1]", "2130706433"):
        error = await failure(caller, f"http://{host}:{server.port}/")
        assert (error.status, error.retryable, error.names) == (None, False, ("HttpError",)), host
    assert server.connections == 0
    await caller.close()


async def test_a_name_is_asked_once_and_its_answer_dialed(server: Receiver) -> None:
    """Allowed when it is checked, another address when it is asked again: there is no second question."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]

    async def changing(host: str, port: int) -> list[str]:
        return answers.pop(0)

    caller = HttpCaller(LOOPBACK, resolver=changing)
    await call(caller, f"http://name.example:{server.port}/")
    assert server.received[0].headers["host"] == f"name.example:{server.port}"
    assert len(answers) == 1
    await caller.close()


async def test_tls_is_verified_against_the_name() -> None:
    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
    trusting = ssl.create_default_context(cafile=CERTIFICATES / "server.crt")
    async with Receiver(tls=context) as secure:
        secure.answer = lambda _: (200, {}, b"1")
        caller = HttpCaller(LOOPBACK, ssl_context=trusting, resolver=here)
        assert await call(caller, f"https://localhost:{secure.port}/") == 1
        error = await failure(caller, f"https://other.example:{secure.port}/")
        assert "certificate verify failed" in error.note.lower()
        assert "connection" in error.names
        await caller.close()


# --------------------------------------------------------------------------------------------- lifecycle


async def test_connections_are_bounded_and_waiting_is_within_the_timeout(server: Receiver) -> None:
    go = asyncio.Event()

    async def wait(_: Received) -> int:
        await go.wait()
        return 200

    server.answer = wait
    caller = HttpCaller(LOOPBACK, max_connections=2)
    calls = [asyncio.create_task(call(caller, server.url)) for _ in range(6)]
    await until(lambda: server.busy == 2)
    assert "timeout" in (await failure(caller, server.url, timeout_ms=30)).names
    go.set()
    await asyncio.gather(*calls)
    assert (server.most_busy, len(server.received)) == (2, 6)
    await caller.close()


async def test_closing_ends_what_runs_and_what_waits(server: Receiver) -> None:
    async def never(_: Received) -> int:
        await asyncio.Event().wait()
        return 200

    server.answer = never
    caller = HttpCaller(LOOPBACK, max_connections=1)
    running = asyncio.create_task(call(caller, server.url))
    await until(lambda: server.busy == 1)
    waiting = asyncio.create_task(call(caller, server.url))
    await asyncio.sleep(0)  # it has come as far as the slots
    await caller.close()
    await caller.close()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(running, waiting, return_exceptions=True)
    assert isinstance(ended[0], HttpStepError)
    assert isinstance(ended[1], ClosedError)
    with pytest.raises(ClosedError):
        await call(caller, server.url)
    assert len(server.received) == 1


async def test_a_cancelled_call_gives_back_its_place(server: Receiver) -> None:
    async def never(_: Received) -> int:
        await asyncio.Event().wait()
        return 200

    server.answer = never
    caller = HttpCaller(LOOPBACK, max_connections=1)
    running = asyncio.create_task(call(caller, server.url))
    await until(lambda: server.busy == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    server.answer = lambda _: (200, {}, b"1")
    assert await call(caller, server.url) == 1
    await caller.close()


@pytest.mark.parametrize("settings", [{"max_body_bytes": 0}, {"max_connections": 0}])
def test_settings_that_make_no_sense(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        HttpCaller(**settings)


def test_httpcore_is_asked_for_by_the_first_call_only() -> None:
    program = """
import asyncio, sys
sys.modules["httpcore"] = None  # as if it were not installed
from penstock.errors import ConfigError
from penstock.transactions.pipelines.steps import Http
from penstock.transactions.worker.http_calls import HttpCaller

async def main():
    caller = HttpCaller()
    try:
        await caller.call(Http("https://a.example/"), {}, idempotency_key="k", timeout_ms=1000)
    except ConfigError as error:
        print(error)
    await caller.close()

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "Http steps need the package httpcore: install penstock[gateway]\n", ended.stderr
