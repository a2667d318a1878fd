"""Commands that go in bursts, or to another link."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import OutcomeUnknownError
from tests.unit.client.link.harness import Setting
from tests.unit.client.waiting import settle


async def test_a_burst_goes_in_one_piece(it: Setting) -> None:
    for name in ("MULTI", "EXEC"):
        it.server.on(name).reply(name.encode())
    link = await it.open(max_in_flight=4)
    futures = [link.call(("ECHO", number)) for number in range(3)]
    burst = link.call_burst([("MULTI",), ("INCR", "k"), ("EXEC",)])
    later = link.call(("ECHO", "later"))
    assert await burst == [b"MULTI", 1, b"EXEC"]
    assert await asyncio.gather(*futures, later) == [b"0", b"1", b"2", b"later"]
    assert it.sent == ["ECHO 0", "ECHO 1", "ECHO 2", "MULTI", "INCR k", "EXEC", "ECHO later"]


async def test_a_burst_above_the_limit_goes_when_nothing_else_is_in_flight(it: Setting) -> None:
    link = await it.open(max_in_flight=2)
    first = link.call(("ECHO", "first"))
    burst = link.call_burst([("ECHO", number) for number in range(5)])
    assert await first == b"first"
    assert await burst == [b"%d" % number for number in range(5)]
    assert await link.call_burst([]) == []


async def test_a_burst_that_was_written_is_not_sent_again(it: Setting) -> None:
    it.server.on("MULTI").reply(b"OK")
    it.server.on("EXEC").drop()
    link = await it.open(retry_idempotent_writes=True)
    with pytest.raises(OutcomeUnknownError):
        await link.call_burst([("MULTI",), ("EXEC",)])
    assert it.sent == ["MULTI", "EXEC"]


async def test_a_burst_that_was_not_written_is_sent_again_whole(it: Setting) -> None:
    for name in ("MULTI", "EXEC"):
        it.server.on(name).reply(name.encode())
    link = await it.open()
    burst = link.call_burst([("MULTI",), ("INCR", "k"), ("EXEC",)])
    it.server.cut()
    assert await burst == [b"MULTI", 1, b"EXEC"]
    assert it.sent == ["MULTI", "INCR k", "EXEC"]


async def test_a_harmless_burst_is_sent_again_from_its_beginning(it: Setting) -> None:
    it.server.on("ASKING").reply(b"OK")
    it.server.expect("GET").drop()
    link = await it.open()
    assert await link.call_burst([("ASKING",), ("GET", "k")], is_harmless=True) == [b"OK", b"v"]
    assert it.sent == ["ASKING", "GET k"] * 2


async def test_a_burst_with_several_commands_unanswered_is_repeated_once(it: Setting) -> None:
    it.server.expect("ECHO").hold()
    link = await it.open()
    burst = link.call_burst([("ECHO", number) for number in range(3)], is_harmless=True)
    await settle()
    it.server.cut()
    assert await burst == [b"0", b"1", b"2"]
    assert it.sent == ["ECHO 0", "ECHO 1", "ECHO 2"] * 2


async def test_a_redirected_command_keeps_its_caller(it: Setting) -> None:
    it.server.expect("GET").error("MOVED 1 elsewhere:1")
    there = Setting()
    there.server.on("GET").reply(b"from elsewhere")
    other = there.link()
    it.links.append(other)
    it.owner.redirect = other.resume
    link = await it.open()
    assert await link.call(("GET", "k")) == b"from elsewhere"


async def test_a_reply_whose_caller_has_gone_is_told(it: Setting) -> None:
    gate = it.server.on("BLPOP").hold()
    link = await it.open()
    orphans: list[tuple[Any, Any]] = []
    link.on_orphan = lambda slot, reply: orphans.append((slot.arguments, reply))
    future = link.call_blocking(("BLPOP", "q", "0"), None)
    await settle()
    future.cancel()
    gate.release([b"q", b"element"])
    await link.call(("ECHO", 1))
    assert orphans == [(("BLPOP", "q", "0"), [b"q", b"element"])]
