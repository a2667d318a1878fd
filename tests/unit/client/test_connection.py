"""One connection: the invariants C1 to C4 of its docstring, and what is not one reply for one command."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from penstock.client import connection as module
from penstock.client.connection import Burst, Connection, Slot
from penstock.client.transports.base import NO_MORE
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import (
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    NotSentError,
    ProtocolError,
    WrongTypeError,
)


class Recorder:
    """An owner that notes what it is told."""

    def __init__(self) -> None:
        self.pushes: list[list[Any]] = []
        self.refused: list[str] = []
        self.takes_over = False
        self.rooms = 0
        self.lost: tuple[Exception | None, list[Slot], list[Slot]] | None = None

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        self.refused.append(str(error))
        return self.takes_over

    def on_push(self, connection: Connection, push: list[Any]) -> None:
        self.pushes.append(list(push))

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        self.lost = error, unanswered, unsent

    def on_room(self, connection: Connection) -> None:
        self.rooms += 1


class Setting:
    """A connection to a scripted server that echoes."""

    def __init__(self, connection: Connection, owner: Recorder, server: ScriptedServer) -> None:
        self.connection = connection
        self.owner = owner
        self.server = server
        self.call = connection.call

    @property
    def transport(self) -> Any:
        return self.server.connection

    @property
    def sent(self) -> list[tuple[bytes, ...]]:
        return self.server.sent


async def start(max_in_flight: int = 100, protocol: int = 3) -> Setting:
    server = ScriptedServer(protocol)
    server.on("ECHO").reply(lambda arguments: arguments[1])
    owner = Recorder()
    connection = Connection(owner, asyncio.get_running_loop(), max_in_flight)
    connection.attach(await server.connect(connection))
    connection.speak(protocol)
    return Setting(connection, owner, server)


async def settle() -> None:
    """Until everything that is due has run; nothing scripted takes longer than a few ticks."""
    for _ in range(10):
        await asyncio.sleep(0)


def echo(value: int | str) -> tuple[str, str]:
    return "ECHO", str(value)


# ------------------------------------------------------------------ pipelining


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


# ------------------------------------------------------------ callers that go away (C1)


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


# ------------------------------------------------------------ no resynchronising (C2)


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


# ------------------------------------------------------------------- the end (C4)


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


# ------------------------------------------------------------------------ limits


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


# ------------------------------------------------------------------------ pushes


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


# ------------------------------------------------------------------------ bursts


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


# ------------------------------------------------------------------------- time


async def test_expired_commands_leave_tombstones() -> None:
    it = await start()
    gate = it.server.on("SLOW").hold()
    future = it.call(("SLOW",))
    await settle()
    it.connection.expire(asyncio.get_running_loop().time() + 1)
    with pytest.raises(CommandTimeoutError, match="no reply to SLOW"):
        await future
    later = it.call(echo(1))
    gate.release(b"too late")
    assert await later == b"1"
    assert it.connection.discarded == 1


async def test_what_expires_before_the_write_is_not_sent() -> None:
    it = await start()
    future = it.call(echo(1))
    it.connection.expire(asyncio.get_running_loop().time() + 1)
    with pytest.raises(CommandTimeoutError):
        await future
    await settle()
    assert it.sent == []


async def test_an_older_command_behind_a_newer_one_expires_in_time() -> None:
    it = await start()
    it.server.on("SLOW").hold()
    now_s = asyncio.get_running_loop().time()
    newer = it.call(("SLOW", "newer"))
    older: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    it.connection.resume(Slot(older, ("SLOW", "older"), now_s - 100, 1))
    await settle()
    it.connection.expire(now_s - 50)
    assert not newer.done()
    with pytest.raises(CommandTimeoutError):
        await older


async def test_silence_counts_from_the_oldest_unanswered_not_from_the_last_write() -> None:
    it = await start()
    it.server.on("SLOW").hold()
    it.call(("SLOW",))
    await settle()
    since_s = it.connection.silent_since_s
    for _ in range(3):
        it.call(("SLOW",))
        await asyncio.sleep(0.001)
    assert it.connection.silent_since_s == since_s


async def test_a_first_command_after_a_long_rest_does_not_inherit_its_silence() -> None:
    it = await start()
    await it.call(echo(1))
    await asyncio.sleep(0.002)
    it.server.on("SLOW").hold()
    issued_s = asyncio.get_running_loop().time()
    it.call(("SLOW",))
    await settle()
    assert it.connection._silent_since_s >= issued_s - 0.001


async def test_silence_ends_when_anything_is_heard() -> None:
    it = await start()
    gate = it.server.on("SLOW").hold()
    first = it.call(("SLOW",))
    it.call(("SLOW",))
    await asyncio.sleep(0.001)
    since_s = it.connection.silent_since_s
    gate.release(b"x")
    await first
    assert it.connection.silent_since_s > since_s


async def test_a_command_that_may_block_first_in_line_excuses_silence() -> None:
    it = await start()
    it.server.on("BLPOP").hold()
    until_s = asyncio.get_running_loop().time() + 60
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    it.connection.resume(Slot(future, ("BLPOP", "q", "60"), until_s, 1))
    await settle()
    assert it.connection.silent_since_s == until_s
    it.connection.expire(until_s - 1)
    assert not future.done()


# -------------------------------------------------------------------- other loops


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


# ------------------------------------------------------------------------ by chance


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
