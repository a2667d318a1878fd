"""One reply for one command: the invariants C1 to C4 of a connection, its limits, other loops."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from penstock.client import connection as module
from penstock.client.connection import Connection
from penstock.client.transports.base import NO_MORE
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import (
    BackpressureError,
    ClosedError,
    CommandError,
    NotSentError,
    ProtocolError,
    WrongTypeError,
)
from tests.unit.client.connection.harness import Recorder, echo, start
from tests.unit.client.waiting import settle


async def test_commands_of_one_tick_leave_with_one_write_and_get_their_own_replies() -> None:
    it = await start()
    futures = [it.call(echo(number)) for number in range(5)]
    assert it.sent == []
    assert await asyncio.gather(*futures) == [b"0", b"1", b"2", b"3", b"4"]
    assert it.transport.writes == [5]


async def test_a_huge_tick_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BATCH", 4)
    it = await start()
    assert await asyncio.gather(*[it.call(echo(number)) for number in range(10)]) == [
        b"%d" % number for number in range(10)
    ]
    assert it.transport.writes == [4, 4, 2]


async def test_one_bad_argument_fails_its_caller_alone() -> None:
    it = await start()
    before, bad, after = it.call(echo(1)), it.call(("ECHO", None)), it.call(echo(2))  # type: ignore[arg-type]
    assert await before == b"1"
    assert await after == b"2"
    with pytest.raises(TypeError, match="NoneType"):
        await bad
    assert it.sent == [(b"ECHO", b"1"), (b"ECHO", b"2")]


@pytest.mark.parametrize("error", [CommandError("ERR no"), WrongTypeError()])
async def test_a_refused_command_raises_at_its_caller_alone(error: CommandError) -> None:
    it = await start()
    it.server.on("BAD").reply(error)
    bad, good = it.call(("BAD",)), it.call(echo(1))
    with pytest.raises(CommandError, match=str(error)):
        await bad
    assert await good == b"1"
    assert it.owner.refused == [str(error)]


async def test_the_owner_may_take_a_refused_command_over() -> None:
    it = await start()
    it.owner.takes_over = True
    it.server.on("GET").error("MOVED 1 127.0.0.1:7000")
    future = it.call(("GET", "k"))
    await settle()
    assert it.owner.refused == ["MOVED 1 127.0.0.1:7000"]
    assert not future.done()


async def test_an_owner_that_fails_leaves_the_error_to_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it = await start()

    def fail(*_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(it.owner, "on_refused", fail)
    monkeypatch.setattr(it.owner, "on_push", fail)
    it.server.on("BAD").error("ERR no")
    it.server.push(b"invalidate", None)
    with pytest.raises(CommandError, match="ERR no"):
        await it.call(("BAD",))
    assert await it.call(echo(1)) == b"1"
    assert "ZeroDivisionError" in caplog.text


# ------------------------------------------------------------------------ callers that go away (C1)


async def test_cancelled_before_the_write_is_never_sent() -> None:
    it = await start()
    gone, stays = it.call(echo("gone")), it.call(echo("stays"))
    gone.cancel()
    assert await stays == b"stays"
    assert it.sent == [(b"ECHO", b"stays")]
    assert it.connection.in_flight == 0


async def test_cancelled_after_the_write_leaves_a_tombstone() -> None:
    it = await start()
    orphans: list[tuple[Any, Any]] = []
    it.connection.on_orphan = lambda slot, reply: orphans.append((slot.arguments, reply))
    gate = it.server.on("BLPOP").hold()
    gone = asyncio.ensure_future(it.call(("BLPOP", "q", "0")))
    later = it.call(echo(1))
    await settle()
    gone.cancel()
    await settle()
    assert it.connection.tombstones == 1
    assert not later.done()
    gate.release([b"q", b"element"])
    assert await later == b"1"
    assert it.connection.discarded == 1
    assert orphans == [(("BLPOP", "q", "0"), [b"q", b"element"])]


async def test_a_tombstone_takes_an_error_as_well() -> None:
    it = await start()
    it.server.on("BAD").error("ERR no")
    gone, later = it.call(("BAD",)), it.call(echo(1))
    it.connection._flush()
    gone.cancel()
    assert await later == b"1"
    assert it.owner.refused == []


# -------------------------------------------------------------------------- no resynchronising (C2)


@pytest.mark.parametrize("stray", [b"nobody asked", CommandError("ERR nobody asked"), None, [1, 2]])
async def test_a_reply_without_a_slot_ends_the_connection(stray: Any) -> None:
    it = await start()
    assert await it.call(echo(1)) == b"1"
    replies = iter([stray, NO_MORE])
    with pytest.raises(ProtocolError, match="no command"):
        it.connection.replies_ready(lambda: next(replies))


async def test_the_transport_ends_and_later_commands_are_not_sent() -> None:
    it = await start()
    assert await it.call(echo(1)) == b"1"
    it.transport.push([b"plain list, not a push"])
    await settle()
    assert it.owner.lost is not None
    assert isinstance(it.owner.lost[0], ProtocolError)
    with pytest.raises(NotSentError):
        await it.call(echo(2))


# ------------------------------------------------------------------------------------- the end (C4)


async def test_at_the_end_every_slot_goes_to_the_owner() -> None:
    it = await start()
    it.server.on("SLOW").hold()
    written = [it.call(("SLOW", number)) for number in range(3)]
    await settle()
    written[1].cancel()
    unsent = [it.call(("SLOW", number)) for number in (3, 4)]
    unsent[0].cancel()
    it.server.cut()
    assert it.owner.lost is not None
    _, unanswered, never_sent = it.owner.lost
    assert [slot.arguments[1] for slot in unanswered] == [0, 2]
    assert [slot.arguments[1] for slot in never_sent] == [4]
    assert repr(it.connection) == "<Connection lost unanswered=0 unsent=0>"
    it.connection.transport_lost(None)  # says nothing twice


async def test_what_was_issued_after_abort_is_unsent() -> None:
    it = await start()
    future = it.call(echo(1))
    it.connection.abort()
    await settle()
    assert it.owner.lost is not None
    assert [slot.future for slot in it.owner.lost[2]] == [future]
    assert it.sent == []


async def test_nothing_is_written_to_a_transport_that_is_closing() -> None:
    it = await start()
    it.transport.close()
    future = it.call(echo(1))
    it.connection._flush()
    await settle()
    assert it.sent == []
    assert it.owner.lost is not None
    assert [slot.future for slot in it.owner.lost[2]] == [future]


async def test_close_writes_what_was_issued() -> None:
    it = await start()
    future = it.call(echo(1))
    it.connection.close()
    await settle()
    assert it.sent == [(b"ECHO", b"1")]
    assert it.owner.lost is not None
    assert [slot.future for slot in it.owner.lost[1]] == [future]


async def test_a_transport_that_ended_before_it_was_attached_is_refused() -> None:
    owner = Recorder()
    connection = Connection(owner, asyncio.get_running_loop(), 10)
    transport = await ScriptedServer().connect(connection)
    transport.cut()
    connection.attach(transport)
    assert not connection.is_open
    with pytest.raises(NotSentError):
        await connection.call(("PING",))


# ------------------------------------------------------------------------------------------- limits


async def test_full_means_full_and_room_is_told_once() -> None:
    it = await start(max_in_flight=2)
    gate = it.server.on("SLOW").hold()
    first, second = it.call(("SLOW",)), it.call(("SLOW",))
    with pytest.raises(BackpressureError, match="2 commands are unanswered"):
        await it.call(("SLOW",))
    await settle()
    assert not it.connection.has_room
    gate.release(b"1")
    assert await first == b"1"
    await settle()
    assert it.owner.rooms == 1
    gate.release(b"2")
    assert await second == b"2"
    assert it.owner.rooms == 1


async def test_room_comes_also_from_callers_that_left_before_the_write() -> None:
    it = await start(max_in_flight=2)
    futures = [it.call(echo(1)), it.call(echo(2))]
    assert not it.connection.has_room
    for future in futures:
        future.cancel()
    await settle()
    assert it.owner.rooms == 1
    assert it.sent == []


async def test_paused_writing_holds_commands_back_in_order() -> None:
    it = await start()
    early = it.call(echo(1))
    it.transport.pause()
    await settle()
    assert it.sent == []
    assert not it.connection.has_room
    with pytest.raises(BackpressureError):
        await it.call(echo(2))
    it.transport.resume()
    late = it.call(echo(3))
    assert await asyncio.gather(early, late) == [b"1", b"3"]
    assert it.owner.rooms == 1


async def test_unsent_while_paused_is_unsent_at_the_end() -> None:
    it = await start()
    future = it.call(echo(1))
    it.transport.pause()
    await settle()
    it.server.cut()
    assert it.owner.lost is not None
    assert [slot.future for slot in it.owner.lost[2]] == [future]


async def test_tell_when_empty() -> None:
    it = await start(max_in_flight=10)
    gate = it.server.on("SLOW").hold()
    futures = [it.call(("SLOW",)) for _ in range(3)]
    await settle()
    it.connection.tell_when_empty()
    for left in (2, 1, 0):
        assert it.owner.rooms == 0
        gate.release(b"x")
        await settle()
        assert it.connection.in_flight == left
    assert it.owner.rooms == 1
    await asyncio.gather(*futures)


# -------------------------------------------------------------------------------------- other loops


async def test_another_loop_gets_a_clear_error() -> None:
    it = await start()
    errors: list[BaseException] = []

    async def misuse() -> None:
        try:
            await it.call(echo(1))
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=asyncio.run, args=(misuse(),))
    thread.start()
    thread.join()
    assert "another event loop" in str(errors[0])
    assert await it.call(echo(2)) == b"2"
    assert it.sent == [(b"ECHO", b"2")]


# ---------------------------------------------------------------------------------------- by chance


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_nobody_gets_anothers_reply(seed: int) -> None:
    """Calls, cancellations, pauses, late replies, a cut: each future ends, with its own echo or none."""
    chance = random.Random(seed)
    it = await start(max_in_flight=chance.choice([3, 10, 1000]))
    gate = it.server.on("LATE").hold()
    calls: list[tuple[bytes, asyncio.Future[Any]]] = []
    for number in range(chance.randrange(20, 400)):
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                calls.append((b"%d" % number, it.call(echo(number))))
            case 4:
                calls.append((b"%d" % number, it.call(("LATE", number))))
            case 5 if calls:
                chance.choice(calls)[1].cancel()
            case 6 if gate.held:
                gate.release(gate.held[0].arguments[1])
            case 7:
                chance.choice([it.transport.pause, it.transport.resume])()
            case 8:
                it.server.push(b"invalidate", None)
            case _:
                await asyncio.sleep(0)
    if chance.random() < 0.5:
        it.server.cut()
        assert it.owner.lost is not None
        for slot in it.owner.lost[1] + it.owner.lost[2]:
            slot.future.set_exception(NotSentError("cut"))
    else:
        it.transport.resume()
        await settle()
        while gate.held:
            gate.release(gate.held[0].arguments[1])
    await settle()
    for value, future in calls:
        assert future.done()
        if not future.cancelled() and future.exception() is None:
            assert future.result() == value
