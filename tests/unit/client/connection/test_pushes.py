"""What is not one reply for one command: pushes, confirmations of subscriptions, bursts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.connection import Burst
from penstock.client.transports.base import NO_MORE
from penstock.errors import CommandError
from tests.unit.client.connection.harness import Setting, echo, start
from tests.unit.client.waiting import settle


async def test_a_push_takes_no_slot() -> None:
    it = await start()
    gate = it.server.on("SLOW").hold()
    future = it.call(("SLOW",))
    await settle()
    it.server.push(b"invalidate", [b"k"])
    await settle()
    assert it.owner.pushes == [[b"invalidate", [b"k"]]]
    assert not future.done()
    gate.release(b"mine")
    assert await future == b"mine"


async def subscribe(it: Setting, *arguments: str) -> asyncio.Future[Any]:
    """Issue a command whose only answers are pushes."""
    it.server.on(arguments[0]).hold()
    future = it.call(arguments)
    await settle()
    it.transport._answers.pop()
    return future


@pytest.mark.parametrize("protocol", [2, 3])
async def test_subscribe_is_answered_by_its_last_confirmation(protocol: int) -> None:
    it = await start(protocol=protocol)
    future = await subscribe(it, "subscribe", "a", "b")
    it.server.push(b"subscribe", b"a", 1)
    it.server.push(b"message", b"a", b"early")
    await settle()
    assert not future.done()
    it.server.push(b"subscribe", b"b", 2)
    assert await future == 2
    assert [push[0] for push in it.owner.pushes] == [b"subscribe", b"message", b"subscribe"]
    it.server.push(b"pmessage", b"*", b"a", b"late")
    if protocol == 3:
        assert await it.call(echo(1)) == b"1"
    await settle()
    assert it.owner.pushes[-1] == [b"pmessage", b"*", b"a", b"late"]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_refused_subscribe_is_an_error_like_others(protocol: int) -> None:
    it = await start(protocol=protocol)
    it.server.on("SUBSCRIBE").error("NOPERM this user has no permissions")
    refused, later = it.call(("SUBSCRIBE", "a")), it.call(echo(1))
    with pytest.raises(CommandError, match="NOPERM"):
        await refused
    assert await later == b"1"


async def test_confirmations_count_for_one_subscribe_alone() -> None:
    it = await start()
    gate = it.server.on("SUBSCRIBE").hold()
    refused = it.call(("SUBSCRIBE", "a", "b"))
    await settle()
    it.server.push(b"subscribe", b"a", 1)
    await settle()
    gate.release(CommandError("ERR no more"))
    with pytest.raises(CommandError):
        await refused
    again = await subscribe(it, "SUBSCRIBE", "a", "b")
    it.server.push(b"subscribe", b"a", 1)
    await settle()
    assert not again.done()


async def test_a_cancelled_subscribe_keeps_its_slot_until_confirmed() -> None:
    it = await start()
    future = await subscribe(it, "SUBSCRIBE", "a")
    future.cancel()
    it.server.push(b"subscribe", b"a", 1)
    assert await it.call(echo(1)) == b"1"


async def test_an_unasked_unsubscribe_takes_no_slot() -> None:
    it = await start()
    gate = it.server.on("SLOW").hold()
    future = it.call(("SLOW",))
    await settle()
    it.server.push(b"sunsubscribe", b"moved", 0)
    await settle()
    assert not future.done()
    gate.release(b"mine")
    assert await future == b"mine"


async def test_unsubscribe_from_everything_is_answered_at_once() -> None:
    it = await start()
    future = await subscribe(it, "UNSUBSCRIBE")
    it.server.push(b"unsubscribe", None, 0)
    assert await future == 0


async def test_in_resp2_an_array_is_a_reply_unless_we_subscribed() -> None:
    it = await start(protocol=2)
    it.server.on("LRANGE").reply([b"message", b"a", b"b"])
    it.server.on("SMEMBERS").reply([b"subscribe", b"a", 1])
    assert await it.call(("LRANGE", "k", "0", "-1")) == [b"message", b"a", b"b"]
    assert await it.call(("SMEMBERS", "k")) == [b"subscribe", b"a", 1]
    assert it.owner.pushes == []
    future = await subscribe(it, "SSUBSCRIBE", "s")
    it.server.push(b"ssubscribe", b"s", 1)
    it.server.push(b"smessage", b"s", b"text")
    assert await future == 1
    it.server.on("PING").reply([b"pong", b""])
    assert await it.call(("PING",)) == [b"pong", b""]
    future = await subscribe(it, "SUNSUBSCRIBE", "s")
    it.server.push(b"sunsubscribe", b"s", 0)
    await future
    assert await it.call(("LRANGE", "k", "0", "-1")) == [b"message", b"a", b"b"]
    assert [push[0] for push in it.owner.pushes] == [b"ssubscribe", b"smessage", b"sunsubscribe"]


async def test_monitor_lines_are_pushes() -> None:
    it = await start()
    it.server.on("MONITOR").reply(b"OK")
    assert await it.connection.monitor() == b"OK"
    replies = iter([b'1 [0 ::1] "GET" "k"', NO_MORE])
    it.connection.replies_ready(lambda: next(replies))
    assert it.owner.pushes == [[b"monitor", b'1 [0 ::1] "GET" "k"']]


# ------------------------------------------------------------------------------------------- bursts


def burst_of(*commands: tuple[Any, ...]) -> Burst:
    return Burst(asyncio.get_running_loop().create_future(), commands, is_harmless=False)


async def test_a_burst_is_answered_as_a_whole_errors_included() -> None:
    it = await start()
    it.server.on("BAD").error("ERR no")
    burst = burst_of(echo(1), ("BAD",), echo(3))
    it.connection.resume_all(burst.slots(0.0, 1))
    other = it.call(echo("other"))
    replies = await burst.future
    assert [str(reply) for reply in replies] == ["b'1'", "ERR no", "b'3'"]
    assert await other == b"other"
    assert it.owner.refused == []


async def test_a_burst_with_a_bad_argument_is_not_sent_at_all() -> None:
    it = await start()
    burst = burst_of(("MULTI",), ("SET", "k", None), ("EXEC",))
    it.connection.resume_all(burst.slots(0.0, 1))
    other = it.call(echo("other"))
    with pytest.raises(TypeError):
        await burst.future
    assert await other == b"other"
    assert it.sent == [(b"ECHO", b"other")]


async def test_a_cancelled_burst_is_not_sent_or_leaves_tombstones() -> None:
    it = await start()
    unsent = burst_of(echo(1), echo(2))
    it.connection.resume_all(unsent.slots(0.0, 1))
    unsent.future.cancel()
    await settle()
    assert it.sent == []
    written = burst_of(echo(1), echo(2))
    it.connection.resume_all(written.slots(0.0, 1))
    it.connection._flush()
    written.future.cancel()
    assert await it.call(echo("next")) == b"next"
    assert it.connection.discarded == 2
