"""Limits of a link: the backlog, full queues, and the time that commands and peers may take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.connection import Slot
from penstock.client.policies import Constant
from penstock.errors import BackpressureError, CommandTimeoutError
from tests.places import until
from tests.unit.client.link.harness import NEVER, Setting
from tests.unit.client.waiting import outcome, settle


async def test_the_backlog_is_bounded_while_there_is_no_connection(it: Setting) -> None:
    it.server.refuse_connections(1)
    link = it.link(max_command_buffer_len=2, reconnect=Constant(base_ms=50))
    kept = [link.call(("ECHO", number)) for number in range(2)]
    with pytest.raises(BackpressureError, match=r"2 commands wait for server:1 \(max_command_buffer_len 2\)"):
        await link.call(("ECHO", "one too many"))
    assert await asyncio.gather(*kept) == [b"0", b"1"]


async def test_callers_that_have_gone_do_not_fill_the_backlog(it: Setting) -> None:
    it.server.refuse_connections(1000)
    link = it.link(max_command_buffer_len=2, reconnect=NEVER, command_timeout_ms=0, idle_ping_ms=4)
    for _ in range(2):
        link.call(("ECHO", "gone")).cancel()
    await until(lambda: link.statistics()["waiting"] == 0)
    assert not link.call(("ECHO", "stays")).done()


async def test_replays_and_redirections_are_not_refused_for_lack_of_room(it: Setting) -> None:
    gate = it.server.on("GET").hold()
    link = await it.open(max_command_buffer_len=1, max_in_flight=10)
    written = [link.call(("GET", number)) for number in range(5)]
    await settle()
    it.server.cut()
    gate.held.clear()
    it.server.on("GET").reply(b"v")
    redirected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.resume(Slot(redirected, ("GET", "redirected"), asyncio.get_running_loop().time(), 1))
    assert await asyncio.gather(*written, redirected) == [b"v"] * 6


async def test_full_with_wait_slows_callers_down_and_loses_none(it: Setting) -> None:
    link = await it.open(max_in_flight=3, max_command_buffer_len=1)
    futures = [link.call(("ECHO", number)) for number in range(50)]
    assert link.statistics()["waiting"] == 47
    assert await asyncio.gather(*futures) == [b"%d" % number for number in range(50)]
    assert max(it.server.connection.writes) <= 3


async def test_full_with_error_refuses_at_once(it: Setting) -> None:
    link = await it.open(max_in_flight=3, when_full="error")
    futures = [link.call(("ECHO", number)) for number in range(3)]
    with pytest.raises(BackpressureError, match=r"3 commands are unanswered on server:1 \(max_in_flight 3"):
        await link.call(("ECHO", "one too many"))
    assert await asyncio.gather(*futures) == [b"0", b"1", b"2"]
    assert await link.call(("ECHO", "again")) == b"again"


async def test_paused_writing_waits_in_the_backlog_and_keeps_order(it: Setting) -> None:
    link = await it.open()
    it.server.connection.pause()
    futures = [link.call(("ECHO", number)) for number in range(3)]
    await settle()
    assert it.sent == []
    it.server.connection.resume()
    assert await asyncio.gather(*futures) == [b"0", b"1", b"2"]
    assert it.sent == ["ECHO 0", "ECHO 1", "ECHO 2"]


async def test_an_empty_command_is_refused(it: Setting) -> None:
    link = await it.open()
    with pytest.raises(TypeError, match="needs at least its name"):
        link.call(())
    with pytest.raises(TypeError, match="needs at least its name"):
        link.call_burst([("MULTI",), ()])
    assert await link.call(("ECHO", 1)) == b"1"


async def test_a_bad_argument_that_waited_fails_its_caller_alone(it: Setting) -> None:
    link = it.link()
    bad, good = link.call(("ECHO", None)), link.call(("ECHO", "good"))  # type: ignore[arg-type]
    assert await good == b"good"
    assert isinstance(await outcome(bad), TypeError)


# --------------------------------------------------------------------------------------------- time


async def test_a_command_timeout_leaves_a_tombstone(it: Setting) -> None:
    gate = it.server.on("SLOW").hold()
    link = await it.open(command_timeout_ms=20)
    with pytest.raises(CommandTimeoutError, match="no reply to SLOW"):
        await link.call(("SLOW",))
    assert link.statistics()["tombstones"] == 1
    later = link.call(("ECHO", "later"))
    await settle()
    gate.release(b"too late")
    assert await later == b"later"
    assert link.statistics()["discarded_replies"] == 1
    assert len(it.server.connections) == 1


async def test_the_command_timeout_covers_waiting_for_a_connection(it: Setting) -> None:
    it.server.refuse_connections(1000)
    link = it.link(command_timeout_ms=20, reconnect=NEVER)
    with pytest.raises(CommandTimeoutError, match=r"not sent to server:1 .*refuses connections"):
        await link.call(("GET", "k"))


async def test_the_command_timeout_covers_replays(it: Setting) -> None:
    it.server.on("GET").drop()
    link = await it.open(command_timeout_ms=30, max_attempts=0)
    with pytest.raises(CommandTimeoutError):
        await link.call(("GET", "k"))
    assert len(it.sent) > 1


async def test_a_blocking_command_has_its_own_time_first(it: Setting) -> None:
    gate = it.server.on("BLPOP").hold()
    link = await it.open(command_timeout_ms=10, unresponsive_timeout_ms=10)
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    for_ever = link.call_blocking(("BLPOP", "a", "0"), None)
    bounded = link.call_blocking(("BLPOP", "b", "0.05"), 0.05)
    with pytest.raises(CommandTimeoutError):
        await bounded
    assert loop.time() - since_s >= 0.06
    assert not for_ever.done()
    assert len(it.server.connections) == 1
    gate.release([b"a", b"x"])
    assert await for_ever == [b"a", b"x"]


async def test_a_peer_that_owes_a_reply_for_too_long_is_given_up(it: Setting) -> None:
    it.server.expect("GET").hold()
    link = await it.open(unresponsive_timeout_ms=200)
    assert await link.call(("GET", "k")) == b"v"
    assert len(it.server.connections) == 2
    assert it.sent == ["GET k", "GET k"]


async def test_steady_writes_do_not_hide_a_dead_peer(it: Setting) -> None:
    it.server.on("ECHO").hold()
    link = await it.open(unresponsive_timeout_ms=30)
    while len(it.server.connections) == 1:
        link.call(("ECHO", "still writing")).add_done_callback(lambda future: future.exception())
        await asyncio.sleep(0.001)


async def test_a_resent_command_does_not_make_a_fresh_connection_look_dead(it: Setting) -> None:
    gate = it.server.on("GET").hold()
    link = await it.open(unresponsive_timeout_ms=10_000)
    old: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.resume(Slot(old, ("GET", "k"), asyncio.get_running_loop().time() - 60, 2))
    await settle()
    link._look()
    await settle()
    assert len(it.server.connections) == 1
    gate.release(b"v")
    assert isinstance(await outcome(old), CommandTimeoutError | bytes)


async def test_an_idle_connection_is_asked_for_a_sign_of_life(it: Setting) -> None:
    ping = it.server.on("PING").reply(b"PONG")
    link = await it.open(idle_ping_ms=10)
    await until(lambda: ping.count >= 2)
    it.server.on("PING").hold()
    await link.close()


async def test_an_idle_connection_that_does_not_answer_is_given_up(it: Setting) -> None:
    it.server.on("PING").hold()
    await it.open(idle_ping_ms=10, unresponsive_timeout_ms=20)
    await until(lambda: len(it.server.connections) >= 2)
