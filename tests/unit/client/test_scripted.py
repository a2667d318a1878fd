"""The scripted server that users test their own code with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.config import Settings
from penstock.client.connection import Slot
from penstock.client.link import Link
from penstock.client.policies import Constant
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import CommandError, OutcomeUnknownError


class Owner:
    def __init__(self) -> None:
        self.pushes: list[list[Any]] = []
        self.arrived = asyncio.Event()

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None:
        self.pushes.append(list(push))
        self.arrived.set()

    def on_state(self, link: Link) -> None: ...


def open_link(server: ScriptedServer, owner: Owner | None = None) -> Link:
    return Link("scripted", owner or Owner(), server.dial, Settings(reconnect=Constant(base_ms=1)))


async def test_replies_errors_functions_and_what_was_sent() -> None:
    server = ScriptedServer()
    server.on("GET", "greeting").reply(b"hello")
    server.on("GET").reply(None)
    server.on("GET", "greeting").reply(b"hello")
    server.on("INCR").error("ERR value is not an integer or out of range")
    server.on("ECHO").reply(lambda arguments: arguments[1] * 2)
    link = open_link(server)
    assert await link.call(("get", "greeting")) == b"hello"
    assert await link.call(("GET", "other")) is None
    assert await link.call(("ECHO", 12)) == b"1212"
    with pytest.raises(CommandError, match="not an integer"):
        await link.call(("INCR", b"k"))
    assert server.sent == [(b"get", b"greeting"), (b"GET", b"other"), (b"ECHO", b"12"), (b"INCR", b"k")]
    server.check()
    await link.close()


async def test_the_rule_added_last_wins_and_expectations_come_in_order() -> None:
    server = ScriptedServer()
    rule = server.on("GET").reply(b"old")
    server.on("GET").reply(b"new")
    server.expect("GET").reply(b"first")
    server.expect("GET").reply(b"second")
    link = open_link(server)
    assert [await link.call(("GET", "k")) for _ in range(3)] == [b"first", b"second", b"new"]
    assert rule.count == 0
    await link.close()


async def test_check_names_what_came_without_a_rule_and_what_did_not_come() -> None:
    server = ScriptedServer()
    server.expect("DEL", "k").reply(1)
    with pytest.raises(AssertionError, match=r"did not come: \[\(b'DEL', b'k'\)\]"):
        server.check()
    link = open_link(server)
    with pytest.raises(CommandError, match="ERR unexpected command"):
        await link.call(("FLUSHALL",))
    with pytest.raises(AssertionError, match=r"without a rule.*FLUSHALL"):
        server.check()
    await link.close()


async def test_a_held_command_holds_back_those_behind_it() -> None:
    server = ScriptedServer()
    gate = server.on("BLPOP").hold()
    server.on("GET").reply(b"v")
    link = open_link(server)
    await link.wait_open()
    blocked, behind = link.call(("BLPOP", "q", 0)), link.call(("GET", "k"))
    while not gate.held:
        await asyncio.sleep(0)
    assert not behind.done()
    gate.release([b"q", b"job"])
    assert await blocked == [b"q", b"job"]
    assert await behind == b"v"
    await link.close()


async def test_a_delay_counts_on_the_loops_clock() -> None:
    server = ScriptedServer()
    server.on("GET").after_ms(20).reply(b"late")
    link = open_link(server)
    await link.wait_open()
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    assert await link.call(("GET", "k")) == b"late"
    assert loop.time() - since_s >= 0.019
    await link.close()


async def test_drops_cuts_and_refused_connections() -> None:
    server = ScriptedServer()
    server.expect("GET").drop()
    server.on("GET").reply(b"v")
    server.on("INCR").drop()
    link = open_link(server)
    assert await link.call(("GET", "k")) == b"v"
    assert len(server.connections) == 2
    server.refuse_connections(2)
    with pytest.raises(OutcomeUnknownError):
        await link.call(("INCR", "k"))
    assert await link.call(("GET", "k")) == b"v"
    assert server.refusals == 0
    server.cut()
    assert await link.call(("GET", "k")) == b"v"
    await link.close()


async def test_pushes_reach_everybody_who_is_connected() -> None:
    server = ScriptedServer()
    owner = Owner()
    link = open_link(server, owner)
    await link.wait_open()
    server.push(b"message", b"channel", b"text")
    await owner.arrived.wait()
    assert owner.pushes == [[b"message", b"channel", b"text"]]
    await link.close()
    server.push(b"message", b"channel", b"nobody there")


async def test_arguments_are_what_the_wire_takes() -> None:
    server = ScriptedServer()
    server.on("SET").reply(b"OK")
    link = open_link(server)
    await link.call(("SET", memoryview(b"k"), 1.5))
    assert server.sent == [(b"SET", b"k", b"1.5")]
    for bad in (None, True, ["x"]):
        with pytest.raises(TypeError, match="an argument must be"):
            await link.call(("SET", "k", bad))  # type: ignore[arg-type]
    await link.close()


async def test_a_function_that_cuts_ends_the_connection_after_the_write() -> None:
    server = ScriptedServer()

    def cut(arguments: tuple[bytes, ...]) -> bytes:
        server.cut()
        return b"never seen"

    server.on("INCR").reply(cut)
    link = open_link(server)
    with pytest.raises(OutcomeUnknownError):
        await link.call(("INCR", "k"))
    await link.close()


async def test_repr_tells_the_state() -> None:
    server = ScriptedServer()
    server.on("GET").hold()
    link = open_link(server)
    await link.wait_open()
    future = link.call(("GET", "k"))
    while not server.sent:
        await asyncio.sleep(0)
    assert repr(server.connection) == "<ScriptedTransport open unanswered=1>"
    future.cancel()
    server.cut()
    assert repr(server.connections[0]) == "<ScriptedTransport closed unanswered=1>"
    await link.close()
