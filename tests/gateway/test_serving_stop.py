"""How a server stops: those who wait are answered, streams end as streams end, and the time is kept."""

from __future__ import annotations

import asyncio
import json

from penstock.gateway.config.surroundings import HttpConfig
from penstock.gateway.serving.server import HttpServer
from tests.places import until
from tests.unit.gateway.serving.wire import Client, Served, answer, connected, serving

GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_waiting_requests_are_answered_and_nobody_new_is_let_in():
    async with serving() as served, connected(served) as waiting, connected(served) as idle:
        await idle.send(GET % b"a")
        await idle.answer()
        await waiting.send(GET % b"wait")
        await until(lambda: len(served.app.scopes) == 2)
        await served.server.stop(5)
        status, headers, body = await waiting.answer()
        assert (status, headers["connection"], body) == (200, "close", b"released")
        assert await waiting.is_closed()
        assert await idle.is_closed()
        assert served.events == ["draining", "released"]
        try:
            await asyncio.open_connection("127.0.0.1", served.server.port)
        except ConnectionError:
            return
        raise AssertionError("somebody was let in")


async def test_readiness_goes_before_the_door_is_closed():
    async with serving() as served:
        port_was_open: list[bool] = []

        def look() -> None:
            listener = served.server._listener
            port_was_open.append(listener is not None and bool(listener.sockets))

        served.server._on_draining = look
        await served.server.stop(1)
        assert port_was_open == [True]


async def test_a_request_in_the_middle_of_its_body_is_finished():
    async with serving() as served, connected(served) as client:
        await client.send(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        await until(lambda: served.app.began.is_set())
        stopping = asyncio.ensure_future(served.server.stop(5))
        await until(lambda: "released" in served.events)
        await client.send(b"cd")
        status, headers, body = await client.answer()
        assert (status, headers["connection"], json.loads(body)["body"]) == (200, "close", "abcd")
        await stopping


async def test_a_stream_gets_a_proper_end():
    async with serving() as served, connected(served) as client:
        await client.send(GET % b"stream")
        await until(lambda: served.app.began.is_set())
        stopping = asyncio.ensure_future(served.server.stop(5))
        # The last chunk is there: the client can tell this from a broken connection.
        assert (await client.answer())[2] == b"one"
        assert await client.is_closed()
        await asyncio.wait_for(stopping, 2)
        assert served.app.gone == 1


async def test_whoever_still_waits_is_told_to_come_again():
    async with serving() as served, connected(served) as client:
        served.server._release = None
        await client.send(GET % b"wait")
        await until(lambda: served.app.began.is_set())
        stopping = asyncio.ensure_future(served.server.stop(0.5))
        status, headers, body = await client.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        assert "stopping" in json.loads(body)["error"]
        await stopping


async def test_what_does_not_end_is_cut_off_in_time():
    began = asyncio.Event()
    cancelled = asyncio.Event()

    async def stubborn(scope: object, receive: object, send: object) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    server = HttpServer(stubborn, HttpConfig(listen="127.0.0.1:0"))
    await server.start()
    async with connected(Served(server, None)) as client:  # type: ignore[arg-type]
        await client.send(GET % b"a")
        await began.wait()
        began_s = asyncio.get_running_loop().time()
        await server.stop(0.3)
        assert 0.25 < asyncio.get_running_loop().time() - began_s < 15
        assert cancelled.is_set()
        assert await client.is_closed()
        assert server.statistics()["connections"] == 0


async def test_a_release_that_hangs_or_fails_does_not_stop_the_stop():
    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise LookupError

    async def application(scope: object, receive: object, send: object) -> None:
        await answer(send, 200, b"")

    for release in (hang, fail):
        server = HttpServer(application, HttpConfig(listen="127.0.0.1:0"), release=release)
        await server.start()
        await asyncio.wait_for(server.stop(0.2), 2)


async def test_stopping_twice_is_stopping_once():
    async with serving() as served:
        await asyncio.gather(served.server.stop(1), served.server.stop(1))
        assert served.events == ["draining", "released"]
        assert "stopping" in repr(served.server)


async def test_pipelined_requests_are_left_to_be_sent_again():
    async with serving() as served, connected(served) as client:
        await client.send(GET % b"wait" + GET % b"later")
        await until(lambda: served.app.began.is_set())
        await served.server.stop(5)
        assert (await client.answer())[2] == b"released"
        assert await _is_over(client)
        assert served.app.seen == []


async def _is_over(client: Client) -> bool:
    return await client.rest() == b""
