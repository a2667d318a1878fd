"""What a client may not do: be too slow, too much, too many, or say what two readers take differently."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from tests.places import until
from tests.unit.gateway.serving.wire import Client, connected, error_of, serving, statuses

HEAD = b"GET /a HTTP/1.1\r\nHost: x\r\n"
GET = HEAD + b"\r\n"
PUT = b"PUT /a HTTP/1.1\r\nHost: x\r\n"


async def drip(client: Client, data: bytes, pause_s: float) -> None:
    """A byte at a time, until the server has enough of it."""
    for at in range(len(data)):
        try:
            await client.send(data[at : at + 1])
        except ConnectionError:
            return
        await asyncio.sleep(pause_s)


async def until_answered(client: Client, dripping: asyncio.Task[None]) -> tuple[int, dict[str, str], bytes]:
    try:
        return await client.answer()
    finally:
        dripping.cancel()


# ------------------------------------------------------------------------------ time


async def test_slow_headers():
    """However steadily bytes come: a head has a time as a whole."""
    async with serving(header_timeout_s=0.3) as served, connected(served) as client:
        dripping = asyncio.ensure_future(drip(client, HEAD + b"X: " + b"y" * 10_000, 0.02))
        status, headers, body = await until_answered(client, dripping)
        assert (status, headers["connection"], headers["content-type"]) == (408, "close", "application/json")
        assert "headers took too long" in error_of(body)
        assert await client.is_closed()
    assert served.guarded == ["header_timeout"]


async def test_slow_headers_of_a_later_request():
    async with serving(header_timeout_s=0.3) as served, connected(served) as client:
        await client.send(GET)
        assert (await client.answer())[0] == 200
        dripping = asyncio.ensure_future(drip(client, HEAD + b"X: " + b"y" * 10_000, 0.02))
        assert (await until_answered(client, dripping))[0] == 408


async def test_silence_from_the_start_ends_without_a_word():
    async with serving(header_timeout_s=0.2) as served, connected(served) as client:
        assert await client.rest() == b""
        await until(lambda: served.connections == 0)
    assert served.guarded == []


async def test_idle_connections_end_without_a_word():
    async with serving(header_timeout_s=0.1, idle_timeout_s=0.4) as served, connected(served) as client:
        loop = asyncio.get_running_loop()
        await client.send(GET)
        assert (await client.answer())[0] == 200
        began_s = loop.time()
        assert await client.rest() == b""
        assert loop.time() - began_s > 0.3


async def test_a_request_that_takes_its_time_is_not_idle():
    async with serving(header_timeout_s=0.1, idle_timeout_s=0.1) as served, connected(served) as client:
        await client.send(GET.replace(b"/a", b"/wait"))
        await until(lambda: served.app.began.is_set())
        # The timer of the connection has gone off long before.
        await asyncio.sleep(0.5)
        served.app.released.set()
        assert (await client.answer())[2] == b"released"
        assert await client.rest() == b""


async def test_a_body_that_stops():
    async with serving(body_timeout_s=0.2) as served, connected(served) as client:
        await client.send(PUT + b"Content-Length: 10\r\n\r\nabc")
        status, _, body = await client.answer()
        assert status == 408
        assert "body took too long" in error_of(body)
        await until(lambda: served.app.gone == 1)
    assert served.guarded == ["body_timeout"]


async def test_a_body_that_drips():
    """Progress alone is not enough: the whole request has a time, too."""
    async with serving(body_timeout_s=0.3, read_timeout_s=0.6) as served, connected(served) as client:
        await client.send(PUT + b"Content-Length: 100000\r\n\r\n")
        dripping = asyncio.ensure_future(drip(client, b"x" * 10_000, 0.02))
        assert (await until_answered(client, dripping))[0] == 408


async def test_a_body_that_nobody_reads_stops():
    async with serving(body_timeout_s=0.2) as served, connected(served) as client:
        await client.send(PUT.replace(b"/a", b"/early-open") + b"Content-Length: 10\r\n\r\nabc")
        assert (await client.answer())[0] == 401
        # It has its answer; another one would be taken for that of the next request.
        assert await client.rest() == b""
        await until(lambda: served.connections == 0)


async def test_an_answer_that_nobody_takes():
    async with serving(write_timeout_s=0.3) as served, connected(served, limit=1024) as client:
        await client.send(GET.replace(b"/a", b"/big"))
        await until(lambda: served.guarded == ["write_timeout"])
        await until(lambda: served.connections == 0)


async def test_a_closed_connection_that_nobody_empties():
    async with serving(write_timeout_s=0.3) as served, connected(served, limit=1024) as client:
        await client.send(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await until(lambda: served.app.began.is_set())
        await until(lambda: served.connections == 0)


# ------------------------------------------------------------------------------ size


async def test_endless_headers():
    async with serving(headers_bytes=10_000) as served, connected(served) as client:
        await client.send(HEAD)
        for number in range(200):
            await client.send(b"X-%d: %b\r\n" % (number, b"y" * 100))
        assert (await client.answer())[0] == 431
        assert await client.is_closed()
    assert served.guarded == ["header_size"]
    assert served.app.scopes == []


async def test_one_endless_header():
    async with serving(headers_bytes=10_000) as served, connected(served) as client:
        await client.send(HEAD + b"X: ")
        for _ in range(50):
            await client.send(b"y" * 1000)
        assert (await client.answer())[0] == 431


async def test_big_headers_in_one_piece():
    async with serving(headers_bytes=10_000) as served, connected(served) as client:
        await client.send(HEAD + b"X: " + b"y" * 10_000 + b"\r\n\r\n")
        assert (await client.answer())[0] == 431
    assert served.app.scopes == []


async def test_a_long_address():
    async with serving(headers_bytes=10_000) as served, connected(served) as client:
        await client.send(b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.answer())[0] == 414


async def test_many_small_headers():
    async with serving() as served, connected(served) as client:
        await client.send(HEAD + b"".join(b"X%d: y\r\n" % number for number in range(300)) + b"\r\n")
        assert (await client.answer())[0] == 431


async def test_a_big_body_behind_a_small_head_is_no_big_head():
    async with serving(headers_bytes=1000) as served, connected(served) as client:
        await client.send(PUT + b"Content-Length: 50000\r\n\r\n" + b"x" * 50_000)
        assert (await client.answer())[0] == 200


async def test_endless_trailers():
    async with serving(headers_bytes=10_000) as served, connected(served) as client:
        await client.send(PUT + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ")
        await until(lambda: served.app.began.is_set())
        for _ in range(100):
            await client.send(b"y" * 1000)
        assert (await client.answer())[0] == 400
    assert served.guarded == ["overhead"]


async def test_chunks_of_one_byte_are_no_attack():
    async with serving(headers_bytes=1000) as served, connected(served) as client:
        await client.send(PUT + b"Transfer-Encoding: chunked\r\n\r\n")
        await until(lambda: served.app.began.is_set())
        # More than a server reads at once.
        await client.send(b"1\r\na\r\n" * 200_000)
        await client.send(b"0\r\n\r\n")
        assert len(json.loads((await client.answer())[2])["body"]) == 200_000


async def test_an_endless_body_that_nobody_wants():
    async with serving() as served, connected(served) as client:
        await client.send(PUT.replace(b"/a", b"/early-open") + b"Content-Length: 1000000000\r\n\r\n")
        assert (await client.answer())[0] == 401
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                await client.send(b"x" * 65536)


async def test_a_refusal_reaches_a_client_that_does_not_stop_to_listen():
    """Closing with unread bytes would make the client's system throw the refusal away."""
    async with serving() as served, connected(served) as client:
        await client.send(b"nonsense\r\n")
        await until(lambda: served.guarded == ["malformed"])
        for _ in range(30):
            await client.send(b"x" * 65536)
            await asyncio.sleep(0)
        assert (await client.answer())[0] == 400


async def test_a_client_that_sends_on_after_its_refusal():
    async with serving(linger_s=0.2) as served, connected(served) as client:
        await client.send(b"nonsense\r\n")
        assert (await client.answer())[0] == 400
        with pytest.raises(ConnectionError):
            while True:
                await client.send(b"x" * 1000)
                await asyncio.sleep(0.01)
        await until(lambda: served.connections == 0)


# ------------------------------------------------------------------------------ number


async def test_too_many_connections():
    async with serving(connections=3) as served, AsyncExitStack() as stack:
        for _ in range(3):
            client = await stack.enter_async_context(connected(served))
            await client.send(GET)
            assert (await client.answer())[0] == 200
        async with connected(served) as surplus:
            await surplus.send(GET)
            status, headers, body = await surplus.answer()
            assert (status, headers["retry-after"]) == (503, "1")
            assert "too many connections" in error_of(body)
            assert await surplus.is_closed()
        client.close()
        await until(lambda: served.connections == 2)
        another = await stack.enter_async_context(connected(served))
        await another.send(GET)
        assert (await another.answer())[0] == 200
    assert served.guarded == ["connections"]


async def test_too_many_pipelined_requests():
    """Those that were taken are answered, then the refusal comes."""
    async with serving(pipelined_requests=5) as served, connected(served) as client:
        await client.send(GET.replace(b"/a", b"/wait") + GET * 20)
        await until(lambda: served.guarded == ["pipeline"])
        served.app.released.set()
        assert statuses(await client.rest()) == [200] * 6 + [503]


async def test_two_thousand_idle_connections_do_not_disturb():
    async with serving() as served:
        clients = [await asyncio.open_connection("127.0.0.1", served.server.port) for _ in range(2000)]
        await until(lambda: served.connections == 2000)
        async with connected(served) as client:
            for _ in range(100):
                await client.send(GET)
                assert (await client.answer())[0] == 200
        for _, writer in clients:
            writer.close()
        await until(lambda: served.connections == 0)


# ------------------------------------------------------------------------------ meaning


MALFORMED = {
    "garbage": b"\x00\x01\x02garbage\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c403034e5a"),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "length and chunked": PUT + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": PUT + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": PUT + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "the same length twice": PUT + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "list of lengths": PUT + b"Content-Length: 3, 3\r\n\r\nabc",
    "negative length": PUT + b"Content-Length: -3\r\n\r\nabc",
    "signed length": PUT + b"Content-Length: +3\r\n\r\nabc",
    "hexadecimal length": PUT + b"Content-Length: 0x3\r\n\r\nabc",
    "length beyond numbers": PUT + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "chunk beyond numbers": PUT + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
    "negative chunk": PUT + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "chunk without end": PUT + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "chunk ended by a line feed": PUT + b"Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
    "chunked twice": PUT + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked first": PUT + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "space before a colon": PUT + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "folded header": PUT + b"X: a\r\n b\r\n\r\n",
    "line feeds alone": b"GET /a HTTP/1.1\nHost: x\n\n",
    "carriage return alone": b"GET /a HTTP/1.1\r\nHost: x\rX: y\r\n\r\n",
    "null in a value": HEAD + b"X: a\x00b\r\n\r\n",
    "no host": b"GET /a HTTP/1.1\r\n\r\n",
    "two hosts": HEAD + b"Host: y\r\n\r\n",
    "not ascii": "GET /ä HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_malformed_is_refused_once(data: bytes):
    """Whatever follows on the connection is not served: somebody in between may have seen another border."""
    async with serving(linger_s=0.2) as served, connected(served) as client:
        await client.send(data + GET.replace(b"/a", b"/smuggled"))
        raw = await client.rest()
        assert statuses(raw) == [400]
        assert error_of(raw.partition(b"\r\n\r\n")[2])
    assert len(served.guarded) == 1
    assert not any(path == "/smuggled" for _, path, _ in served.app.seen)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (PUT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (PUT.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"CONNECT other:443 HTTP/1.1\r\nHost: other\r\n\r\n", 405),
    ],
)
async def test_what_is_not_spoken_here(data: bytes, status: int):
    async with serving(linger_s=0.2) as served, connected(served) as client:
        await client.send(data)
        assert (await client.answer())[0] == status
        assert await client.is_closed()
    assert served.app.scopes == []


async def test_garbage_after_a_request_does_not_overtake_its_answer():
    async with serving(linger_s=0.2) as served, connected(served) as client:
        await client.send(GET.replace(b"/a", b"/wait") + b"garbage\r\n\r\n")
        await until(lambda: len(served.guarded) == 1)
        served.app.released.set()
        raw = await client.rest()
        assert statuses(raw) == [200, 400]
        assert raw.index(b"released") < raw.index(b"400")


async def test_a_bad_chunk_in_the_middle_of_a_body():
    async with serving(linger_s=0.2) as served, connected(served) as client:
        await client.send(PUT + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: served.app.began.is_set())
        await client.send(b"nonsense\r\n")
        assert (await client.answer())[0] == 400
        await until(lambda: served.app.gone == 1)


async def test_a_bad_body_behind_a_request_that_is_served():
    async with serving(linger_s=0.2) as served, connected(served) as client:
        await client.send(
            GET.replace(b"/a", b"/wait") + PUT + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense"
        )
        await until(lambda: len(served.guarded) == 1)
        served.app.released.set()
        assert statuses(await client.rest()) == [200, 400]
        assert served.app.seen == []
