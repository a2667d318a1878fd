"""The end of a link; other loops, forks and contexts; what it tells others."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.handshake import ServerFacts
from penstock.client.link import Link, LinkState
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import ClosedError, OutcomeUnknownError
from tests.places import until
from tests.unit.client.link.harness import NEVER, Owner, Setting
from tests.unit.client.waiting import outcome, settle


async def test_close_leaves_no_future_pending(it: Setting) -> None:
    it.server.on("SLOW").hold()
    link = await it.open(max_in_flight=2)
    written = [link.call(("SLOW",)) for _ in range(2)]
    await settle()
    waiting = link.call(("SLOW",))
    await link.close()
    assert [type(await outcome(future)) for future in written] == [OutcomeUnknownError] * 2
    assert isinstance(await outcome(waiting), ClosedError)
    with pytest.raises(ClosedError, match="the client of server:1 is closed"):
        await link.call(("GET", "k"))
    with pytest.raises(ClosedError):
        await link.wait_open()


async def test_close_waits_for_replies_that_are_on_their_way(it: Setting) -> None:
    gate = it.server.on("SLOW").hold()
    link = await it.open(close_timeout_ms=10_000, max_in_flight=2)
    it.server.cut()
    await until(lambda: link.state is LinkState.OPEN)
    futures = [link.call(("SLOW", number)) for number in range(3)]
    await settle()
    closing = asyncio.ensure_future(link.close())
    await settle()
    for value in (b"first", b"second", b"third"):
        with pytest.raises(ClosedError):
            await link.call(("GET", "too late"))
        await until(lambda: gate.held)
        gate.release(value)
        await settle()
    await closing
    assert await asyncio.gather(*futures) == [b"first", b"second", b"third"]


async def test_what_was_issued_just_before_close_is_answered(it: Setting) -> None:
    link = await it.open(close_timeout_ms=10_000)
    future = link.call(("ECHO", "last words"))
    await link.close()
    assert await future == b"last words"


@pytest.mark.parametrize("state", ["new", "connecting", "waiting", "closed"])
async def test_close_in_every_state(it: Setting, state: str) -> None:
    async def never(connection: Connection) -> ServerFacts:
        await asyncio.Event().wait()
        raise AssertionError

    link = it.link(dial=never if state == "connecting" else None, reconnect=NEVER)
    futures = []
    if state == "waiting":
        it.server.refuse_connections(1)
    if state not in ("new", "closed"):
        futures.append(link.call(("GET", "k")))
        await settle()
    if state == "closed":
        await link.close()
    assert link.state.value == state
    await asyncio.gather(link.close(), link.close())
    assert link.state is LinkState.CLOSED
    for future in futures:
        assert isinstance(await outcome(future), ClosedError)


async def test_a_connection_lost_during_close_ends_everything(it: Setting) -> None:
    it.server.on("GET").hold()
    link = await it.open(close_timeout_ms=60_000)
    future = link.call(("GET", "k"))
    await settle()
    closing = asyncio.ensure_future(link.close())
    await settle()
    it.server.cut()
    await closing
    assert isinstance(await outcome(future), OutcomeUnknownError)
    assert len(it.server.connections) == 1


async def test_a_cancelled_close_goes_on(it: Setting) -> None:
    it.server.on("GET").hold()
    link = await it.open(close_timeout_ms=20)
    future = link.call(("GET", "k"))
    await settle()
    closing = asyncio.ensure_future(link.close())
    await settle()
    closing.cancel()
    await link.close()
    assert isinstance(await outcome(future), OutcomeUnknownError)


# --------------------------------------------------------------------------- loops, forks, contexts


async def test_another_loop_gets_a_clear_error(it: Setting) -> None:
    it.server.refuse_connections(1000)
    connected, waiting = Setting(), it.link(reconnect=NEVER)
    link = await connected.open()
    it.links.append(link)
    waiting.start()
    await settle()
    errors: list[str] = []

    async def misuse(act: Callable[[], Any]) -> None:
        try:
            await act()
        except ClosedError as error:
            errors.append(str(error))

    acts = [lambda: link.call(("GET", "k")), lambda: waiting.call(("GET", "k")), link.close]
    for act in acts:
        thread = threading.Thread(target=asyncio.run, args=(misuse(act),))
        thread.start()
        thread.join()
    assert len(errors) == 3
    assert all("another event loop" in text for text in errors)
    assert await link.call(("GET", "k")) == b"v"


async def test_a_forked_child_has_only_closed_links(it: Setting) -> None:
    link = await it.open()
    link.call(("ECHO", "begins a tick"))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        message = "nothing was raised"
        try:
            link.call(("GET", "k")).result()
        except ClosedError as error:
            message = str(error)
        finally:
            os.write(write, message.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
        assert b"server:1 was opened before fork and cannot be used in the child" in answer.read()
    assert await link.call(("GET", "k")) == b"v"


async def test_nothing_keeps_the_context_of_the_first_caller() -> None:
    class Request:
        pass

    variable: contextvars.ContextVar[Request] = contextvars.ContextVar("request")
    server = ScriptedServer()
    server.on("GET").reply(b"v")
    links: list[Link] = []

    async def handle() -> weakref.ref[Request]:
        request = Request()
        variable.set(request)
        link = Link("server:1", Owner(), server.dial, Settings())
        links.append(link)
        assert await link.call(("GET", "k")) == b"v"
        return weakref.ref(request)

    reference = await asyncio.create_task(handle())
    await settle()
    gc.collect()
    assert reference() is None
    await links[0].close()


# ----------------------------------------------------------------------------- what others are told


async def test_pushes_reach_the_owner(it: Setting) -> None:
    await it.open()
    it.server.push(b"invalidate", [b"k"])
    await settle()
    assert it.owner.pushes == [[b"invalidate", [b"k"]]]


async def test_statistics(it: Setting) -> None:
    it.server.on("SLOW").hold()
    link = await it.open(max_in_flight=2)
    await link.call(("ECHO", 1))
    futures = [link.call(("SLOW",)) for _ in range(3)]
    await settle()
    futures[0].cancel()
    figures = link.statistics()
    assert 0 < figures.pop("latency_ms")["mean"] < 1000
    assert 0 <= figures.pop("queueing_ms")["max"] < 1000
    assert figures == {
        "state": "open",
        "in_flight": 2,
        "tombstones": 1,
        "waiting": 1,
        "bytes_sent": 0,
        "bytes_received": 0,
        "sent": 3,
        "discarded_replies": 0,
        "reconnections": 0,
    }
