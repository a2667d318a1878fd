"""What a server may send to our client: replies of any kind, in any number, cut anywhere.

A connection has commands in flight; a fake socket hands it the input. Another reader (hiredis, alone) says
what the bytes mean. Each caller must have the reply of its place, or an error of ours; nobody waits once the
connection has ended, nobody gets a reply from behind a place where the bytes stopped making sense.

Not tried: announcements of millions of elements. hiredis believes them and takes the memory; a client has to
trust its server that far (``docs/security.md``).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import hiredis

from penstock.client.connection import Connection, Slot
from penstock.client.transports.sockets import SocketTransport
from penstock.errors import (
    CommandError,
    ConnectionLostError,
    OutcomeUnknownError,
    PenstockError,
    ProtocolError,
)
from tests.fuzz.running import Target

_CALLERS: Final = 6
_SEEDS: Final = (
    b"+OK\r\n:1\r\n$5\r\nhello\r\n$-1\r\n*2\r\n$1\r\na\r\n:2\r\n-ERR no\r\n",
    b"_\r\n#t\r\n,3.14\r\n(12345678901234567890\r\n=7\r\ntxt:abc\r\n%1\r\n+k\r\n:1\r\n",
    b">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nhi\r\n$1\r\n0\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n$1\r\n5\r\n",
    b"~2\r\n:1\r\n:2\r\n|1\r\n+ttl\r\n:3\r\n:7\r\n*0\r\n*-1\r\n$0\r\n\r\n+\r\n",
    b"-MOVED 3999 127.0.0.1:6381\r\n-ASK 1 a:1\r\n-LOADING x\r\n-NOAUTH x\r\n-WRONGTYPE x\r\n-\r\n",
    b"*3\r\n*2\r\n*1\r\n:1\r\n:2\r\n:3\r\n+a\r\n+b\r\n+c\r\n+d\r\n+e\r\n+f\r\n+g\r\n",
    b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n>3\r\n+subscribe\r\n+ch\r\n:1\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
)
_WORDS: Final = (
    b"+", b"-", b":", b"$", b"*", b"%", b"~", b">", b"|", b"=", b"(", b"#", b"_", b",", b"\r\n", b"*1\r\n",
    b"$-1\r\n", b"%1\r\n", b"~1\r\n", b">0\r\n", b">1\r\n", b"|1\r\n", b"*-1\r\n", b"$1\r\n", b",nan\r\n",
    b",inf\r\n", b"#x\r\n", b"-ERR \xff\xfe\r\n", b"!5\r\nERR x\r\n", b":9223372036854775808\r\n",
    b"*1000000\r\n", b"$600000000\r\n",
)  # fmt: skip
_MORE: Final = object()
_find_big_announcement: Final = re.compile(rb"[*~>|%]0*[1-9][0-9]{6}").search


class _Owner:
    """Takes nothing over, keeps what it is told."""

    def __init__(self) -> None:
        self.pushes: list[Any] = []
        self.is_lost = False

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, connection: Connection, push: list[Any]) -> None:
        self.pushes.append(push)

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        self.is_lost = True
        refusal = error if isinstance(error, PenstockError) else OutcomeUnknownError("lost")
        for slot in (*unanswered, *unsent):
            if not slot[0].done():
                slot[0].set_exception(refusal)

    def on_room(self, connection: Connection) -> None:
        pass


class _Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class RespReplies(Target):
    name = "resp_replies"
    tries = 4_000

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._log = logging.getLogger("penstock.client")
        self._level = self._log.level
        self._log.setLevel(logging.CRITICAL)

    def close(self) -> None:
        self._log.setLevel(self._level)
        self._runner.close()

    def seeds(self) -> Sequence[bytes]:
        return _SEEDS

    def words(self) -> Sequence[bytes]:
        return _WORDS

    def check(self, data: bytes) -> None:
        if _find_big_announcement(data) is not None:
            return
        self._runner.run(self._exchange(data))

    async def _exchange(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        owner, wire = _Owner(), _Socket()
        connection = Connection(owner, loop, 100)
        transport = SocketTransport(connection, None)
        transport.connection_made(wire)
        connection.attach(transport)
        connection.speak(3)
        futures = [connection.call(("ECHO", str(number))) for number in range(_CALLERS)]
        await asyncio.sleep(0)
        for piece in _pieces(data):
            transport.data_received(piece)
        expected, is_sense = _meaning(data)
        outcomes = [_outcome(future) for future in futures]
        for place, (outcome, reply) in enumerate(zip(outcomes, expected, strict=False)):
            assert _is_same(outcome, reply), (
                f"caller {place} has {outcome!r:.100}, its reply is {reply!r:.100}"
            )
        if not is_sense:
            assert wire.closed, "bytes that make no sense did not end the connection"
        transport.connection_lost(None)
        left = [future for future in futures if not future.done()]
        assert not left, f"{len(left)} callers wait for ever"
        for future in futures[len(expected) :]:
            error = future.exception()
            assert isinstance(error, ConnectionLostError | ProtocolError), (
                f"a caller without a reply has {error!r}"
            )


def _outcome(future: asyncio.Future[Any]) -> Any:
    if not future.done():
        return _MORE
    return future.exception() or future.result()


def _is_same(outcome: Any, reply: Any) -> bool:
    if isinstance(reply, Exception):
        return isinstance(outcome, PenstockError)
    try:
        return repr(outcome) == repr(reply)
    except RecursionError:
        return True


def _meaning(data: bytes) -> tuple[list[Any], bool]:
    """The replies that come before the bytes stop making sense, without pushes; whether they never do."""
    reader = hiredis.Reader(notEnoughData=_MORE, replyError=CommandError)
    replies: list[Any] = []
    try:
        reader.feed(data)
        while (reply := reader.gets()) is not _MORE:
            if type(reply) is not hiredis.PushNotification:
                replies.append(reply)
    except Exception:  # noqa: BLE001 - whatever the parser says, it is no RESP
        return replies[:_CALLERS], False
    return replies[:_CALLERS], len(replies) <= _CALLERS


def _pieces(data: bytes) -> list[bytes]:
    dice = Random(len(data))
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 4))))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
