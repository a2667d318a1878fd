"""The embedded transport by itself: what the port promises to a receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hiredis
import pytest

from penstock.client.transports.base import NO_MORE
from penstock.client.transports.embedded import EmbeddedTransport, connect_embedded
from penstock.errors import CommandError, ConnectionLostError
from penstock.host import Overflow, registry
from penstock.protocol.replies import Push


class Receiver:
    """Keeps what it is given; ``on_reply`` acts on each at once."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.losses: list[Exception | None] = []
        self.on_reply: Callable[[Any], None] = lambda reply: None

    def replies_ready(self, take: Callable[[], Any]) -> None:
        while (reply := take()) is not NO_MORE:
            self.replies.append(reply)
            self.on_reply(reply)

    def transport_lost(self, error: Exception | None) -> None:
        self.losses.append(error)

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class Store:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._transports: list[EmbeddedTransport] = []

    def connect(self, **options: Any) -> tuple[EmbeddedTransport, Receiver]:
        receiver = Receiver()
        transport = connect_embedded(receiver, self._path, durability="relaxed", **options)
        self._transports.append(transport)
        return transport, receiver

    async def close(self) -> None:
        for transport in self._transports:
            transport.abort()
        await settle()
        assert not registry._hosts


@pytest.fixture
async def store(tmp_path: Path):
    store = Store(tmp_path / "store.pen")
    yield store
    await store.close()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def send(transport: EmbeddedTransport, *lines: str) -> None:
    transport.write([transport.encode(tuple(line.split())) for line in lines])


# ------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    "argument",
    [b"x", "Grüße", 0, -5, 10**30, 1.5, 1e100, 0.1, float("inf"), -0.0, memoryview(b"abcd")],
)
def test_arguments_are_those_of_hiredis(argument):
    argv = EmbeddedTransport.encode(("ECHO", argument))
    assert hiredis.pack_command(tuple(argv)) == hiredis.pack_command(("ECHO", argument))


def test_subclasses_become_plain():
    class Text(str):
        __slots__ = ()

    class Data(bytes):
        __slots__ = ()

    argv = EmbeddedTransport.encode((Text("a"), Data(b"b")))
    assert argv == [b"a", b"b"]
    assert [type(item) for item in argv] == [bytes, bytes]


@pytest.mark.parametrize("argument", [True, None, bytearray(b"x"), [], {}, object(), 1j])
def test_anything_else_is_refused(argument):
    with pytest.raises(TypeError, match="an argument must be"):
        EmbeddedTransport.encode(("ECHO", argument))
    with pytest.raises(TypeError, match="needs at least its name"):
        EmbeddedTransport.encode(())


# ------------------------------------------------------------------------ replies


async def test_one_alone_is_answered_at_once_and_several_with_the_tick(store: Store) -> None:
    one, replies = store.connect()
    send(one, "SET k v", "GET k", "GET missing", "NOSUCH")
    assert replies.replies[:3] == [b"OK", b"v", None]
    assert isinstance(replies.replies[3], CommandError)
    two, others = store.connect()
    send(one, "PING")
    send(two, "PING")
    assert len(replies.replies) == 4
    await settle()
    assert (replies.replies[4:], others.replies) == ([b"PONG"], [b"PONG"])


async def test_what_is_written_while_replies_are_taken_is_answered_after_them(store: Store) -> None:
    transport, receiver = store.connect()
    receiver.on_reply = lambda reply: (
        send(transport, f"ECHO after-{reply.decode()}") if reply in b"abc" else None
    )
    send(transport, "ECHO a", "ECHO b", "ECHO c")
    await settle()
    assert receiver.replies == [b"a", b"b", b"c", b"after-a", b"after-b", b"after-c"]


async def test_what_is_written_before_a_slow_script_is_answered_after_it(store: Store) -> None:
    """What precedes the script is answered first, and must not let newer commands slip in."""
    transport, receiver = store.connect()
    receiver.on_reply = lambda reply: send(transport, "ECHO newer") if reply == b"before" else None
    script = transport.encode(("EVAL", "for i = 1, 1e7 do end return 'script'", 0))
    transport.write([transport.encode(("ECHO", "before")), script])
    async with asyncio.timeout(20):
        while len(receiver.replies) < 3:
            await asyncio.sleep(0.001)
    assert receiver.replies == [b"before", b"script", b"newer"]


async def test_what_is_written_while_told_busy_is_answered_in_order(store: Store) -> None:
    runaway, _ = store.connect()
    other, receiver = store.connect()
    send(other, "CONFIG SET busy-reply-threshold 20")
    await settle()
    runaway.write([runaway.encode(("EVAL", "while true do end", 0))])
    (host,) = registry._hosts.values()
    async with asyncio.timeout(20):
        while not host.executor.is_busy:
            await asyncio.sleep(0.001)
    receiver.replies.clear()
    receiver.on_reply = lambda reply: send(other, "HELLO") if len(receiver.replies) == 1 else None
    send(other, "GET a", "GET b")
    assert [type(reply) for reply in receiver.replies] == [CommandError, CommandError, list]
    async with asyncio.timeout(20):
        while host.executor.is_away:
            send(other, "SCRIPT KILL")  # again, since the script may not have begun
            await asyncio.sleep(0.001)


async def test_the_protocol_changes_between_two_replies(store: Store) -> None:
    transport, receiver = store.connect(encoding="utf-8")
    send(
        transport,
        "HSET h a 1",
        "HGETALL h",
        "HELLO 3",
        "HGETALL h",
        "SUBSCRIBE c",
        "PUBLISH c text",
        "HELLO 2",
    )
    assert receiver.replies[1] == ["a", "1"]
    assert receiver.replies[2]["proto"] == 3
    assert receiver.replies[3] == {"a": "1"}
    pushes = [reply for reply in receiver.replies if isinstance(reply, transport.push_type)]
    assert pushes == [["subscribe", "c", 1], ["message", "c", "text"]]
    assert isinstance(receiver.replies[-1], list)


async def test_replies_that_are_turned_off(store: Store) -> None:
    transport, receiver = store.connect()
    send(transport, "HELLO 3", "SUBSCRIBE c")
    receiver.replies.clear()
    send(transport, "CLIENT REPLY OFF", "PING", "NOSUCH", "PUBLISH c text")
    send(transport, "PING", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "ECHO skipped", "ECHO seen")
    assert receiver.replies == [Push([b"message", b"c", b"text"]), b"OK", b"seen"]


async def test_monitoring_shows_lines(store: Store) -> None:
    monitor, receiver = store.connect()
    other, _ = store.connect()
    send(monitor, "MONITOR")
    await settle()
    send(other, "GET k")
    await settle()
    assert receiver.replies[0] == b"OK"
    assert receiver.replies[1].endswith(b' [0 embedded] "GET" "k"')


async def test_a_reply_that_cannot_be_given_is_an_error_to_its_caller_alone(store: Store) -> None:
    transport, receiver = store.connect()
    send(transport, "PING")
    transport.session.sink(object())
    transport.session.sink(b"next")
    transport.flush()
    assert str(receiver.replies[1]) == "ERR internal error: the reply cannot be sent"
    assert receiver.replies[2] == b"next"


# ------------------------------------------------------------------------ the end


@pytest.mark.parametrize("end", ["close", "abort", "QUIT"])
async def test_the_end_is_told_once_and_later(store: Store, end: str) -> None:
    transport, receiver = store.connect()
    if end == "QUIT":
        send(transport, "QUIT")
        assert receiver.replies == [b"OK"]
    else:
        getattr(transport, end)()
    assert transport.is_closing()
    assert receiver.losses == []
    transport.close()
    transport.abort()
    assert receiver.losses == []
    await settle()
    transport.abort()
    transport.close()
    await settle()
    assert receiver.losses == [None]
    assert transport.session.closed


async def test_close_lets_what_was_written_run_and_abort_takes_it_back(store: Store) -> None:
    one, replies = store.connect()
    two, others = store.connect()
    send(one, "RPUSH l a b")
    send(two, "LPOP l")
    two.abort()
    send(one, "RPUSH l c")
    one.close()
    await settle()
    assert (replies.replies, replies.losses) == ([2, 3], [None])
    assert (others.replies, others.losses) == ([], [None])


async def test_a_receiver_that_fails_ends_the_transport(store: Store) -> None:
    transport, receiver = store.connect()
    failure = ValueError("whose reply is this?")

    def fail(reply: Any) -> None:
        raise failure

    receiver.on_reply = fail
    send(transport, "PING", "PING")
    assert transport.is_closing()
    assert receiver.losses == []
    await settle()
    assert receiver.losses == [failure]


async def test_dropped_messages_end_the_transport(store: Store) -> None:
    transport, receiver = store.connect()
    transport.session.sink(Overflow(7))
    transport.flush()
    await settle()
    (error,) = receiver.losses
    assert isinstance(error, ConnectionLostError)
    assert "7 messages" in str(error)


async def test_nothing_comes_after_the_end(store: Store) -> None:
    _, first = store.connect()
    transport, receiver = store.connect()
    session = transport.session
    session.sink(b"kept")
    transport.abort()
    await settle()
    session.sink(b"late")
    transport.flush()
    assert receiver.replies == []
    assert receiver.losses == [None]
    assert first.losses == []
