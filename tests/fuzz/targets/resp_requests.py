"""What a client may send to the RESP port: bytes of any kind, and commands with arguments of any kind.

Everything runs in this process: a server without a socket, connections over a transport that keeps what is
written. Whatever arrives, and however it is cut, the replies are whole RESP, each command has at most one, a
refusal of the parser is the last one and closes the connection, no reply tells of an internal error, memory
does not jump, and the next client is served.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import hiredis

from penstock.engine import Engine
from penstock.engine.table import CommandTable
from penstock.server import Server, ServerSettings
from penstock.server.connection import Connection
from tests.fuzz.mutating import NUMBERS
from tests.fuzz.running import Target

_MIB: Final = 1 << 20
#: What one input may add to the highest memory of the process.
_MAX_GROWTH_KIB: Final = 192 * 1024
_MAX_TICKS: Final = 20_000
#: They end the server, or stop it for as long as the client wants: who may send them is others' business.
_LEFT_OUT: Final = frozenset({b"SHUTDOWN", b"DEBUG", b"MONITOR", b"CONFIG"})
_KEYS: Final = (b"string", b"number", b"list", b"set", b"hash", b"zset", b"geo", b"hll", b"log", b"none", b"")
_CONTENT: Final = (
    b"SET string value", b"SET number 17", b"RPUSH list a b c", b"SADD set a b c", b"HSET hash f v g 2",
    b"ZADD zset 1 a 2 b", b"GEOADD geo 13.4 52.5 berlin", b"PFADD hll a b",
    b"TWRITE log ENTRIES t1 one t2 two", b"TGROUP CREATE log g 0",
)  # fmt: skip
_OPTIONS: Final = b"""
    EX PX NX XX GT LT CH INCR KEEPTTL COUNT MATCH TYPE LIMIT BY GET ASC DESC ALPHA STORE WITHSCORES
    BYSCORE BYLEX REV LEFT RIGHT BEFORE AFTER RANK MAXLEN WEIGHTS AGGREGATE SUM MAX WITHVALUES
    FROMMEMBER FROMLONLAT BYRADIUS BYBOX km AND OR XOR NOT OVERFLOW SAT u8 i64 u63 BIT BYTE SET INCRBY
    IDX LEN GROUP CONSUMER RETRY BLOCK CREATE LIST INFO DESTROY ENTRIES TOMBSTONES PRODUCER BACKLOG IF
    - + ( [ (1 [a * ? [a-z]* REPLACE ABSTTL IDLETIME FREQ REFCOUNT ENCODING USAGE DOCTOR LOAD EXISTS
    FLUSH KILL HELP NO TRACKING ON OFF REDIRECT BCAST PREFIX OPTIN CACHING GETNAME SETNAME ID REPLY
    SKIP
""".split()
_SEEDS: Final = (
    b"*1\r\n$4\r\nPING\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    b"PING\r\nSET a \"quoted \\x41\"\r\nGET a\r\n",
    b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n*2\r\n$7\r\nHGETALL\r\n$4\r\nhash\r\n",
    b"*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$6\r\nnumber\r\n*1\r\n$4\r\nEXEC\r\n",
    b"*2\r\n$9\r\nSUBSCRIBE\r\n$2\r\nch\r\n*1\r\n$4\r\nPING\r\n",
    b"*3\r\n$5\r\nBLPOP\r\n$4\r\nnone\r\n$1\r\n0\r\n*1\r\n$4\r\nPING\r\n",
    b"*4\r\n$4\r\nEVAL\r\n$29\r\nreturn redis.call('GET','number')\r\n$1\r\n0\r\n$1\r\nx\r\n",
    b"*5\r\n$6\r\nTWRITE\r\n$3\r\nlog\r\n$7\r\nENTRIES\r\n$2\r\nt1\r\n$0\r\n\r\n",
    b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a b\r\n",
)  # fmt: skip
_WORDS: Final = (
    b"*", b"$", b"\r\n", b"*1\r\n", b"*-1\r\n", b"*0\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"*1048577\r\n",
    b"*1048576\r\n", b"$536870913\r\n", b"$536870912\r\n", b"~3\r\n", b">2\r\n", b"|1\r\n", b"%1\r\n",
    b"+OK\r\n", b"_\r\n", b"\x00", b"'", b'"', b"\\x", b"*9999999999999999999\r\n", b"*3\r\n$3\r\nSET\r\n",
    b"(123\r\n", b"=5\r\ntxt:a\r\n",
)  # fmt: skip


class _Wire(asyncio.Transport):
    """A transport that keeps what is written, and never is full."""

    def __init__(self) -> None:
        super().__init__({"peername": "", "sockname": "/fuzz", "socket": _Socket()})
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed or not data, "something is written to a closed connection"
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class _Socket:
    def __init__(self) -> None:
        import socket

        self.family = socket.AF_UNIX


class RespRequests(Target):
    name = "resp_requests"
    tries = 800

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
        path = Path(self._folder.name) / "store.pen"
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._engine = Engine.open(path, durability="relaxed", max_size_bytes=64 * _MIB)
        self._server = self._runner.run(self._serve())
        self._names = sorted(
            name for name in CommandTable().entries if name.isupper() and name not in _LEFT_OUT
        )
        self._errors = Errors()

    async def _serve(self) -> Server:
        return Server(self._engine, ServerSettings(port=0, max_bulk_bytes=_MIB, ahead_limit_bytes=_MIB))

    def close(self) -> None:
        self._runner.run(self._server.stop())
        self._runner.close()
        self._engine.close()
        self._folder.cleanup()

    # ---------------------------------------------------------------- inputs

    def seeds(self) -> Sequence[bytes]:
        return _SEEDS

    def words(self) -> Sequence[bytes]:
        return _WORDS

    def make(self, dice: Random, seeds: Sequence[bytes]) -> bytes:
        if dice.random() < 0.4:
            return super().make(dice, seeds)
        return b"".join(self._command(dice) for _ in range(dice.choice((1, 1, 2, 5))))

    def _command(self, dice: Random) -> bytes:
        pools = (_KEYS, NUMBERS, _OPTIONS, (dice.randbytes(3), b"x" * 500))
        count = dice.choice((0, 1, 1, 2, 2, 3, 4, 6, 9))
        words = [dice.choice(self._names), *(dice.choice(dice.choice(pools)) for _ in range(count))]
        return hiredis.pack_command(tuple(words))

    # ----------------------------------------------------------------- check

    def check(self, data: bytes) -> None:
        with self._errors:
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self._prepare()
            written, refused = self._runner.run(self._talk(_chunks(data)))
            self._look(data, written, refused)
            growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
            assert growth_kib < _MAX_GROWTH_KIB, f"memory grew by {growth_kib} KiB"
            told, _ = self._runner.run(self._talk([b"*1\r\n$4\r\nPING\r\n"]))
            assert told == b"+PONG\r\n", f"the next client is answered {told!r:.100}"
        assert not self._errors.logged, f"logged: {self._errors.logged[0]}"

    def _prepare(self) -> None:
        """What an input may have left behind."""
        config = self._engine.config
        config.requirepass = ""
        config.max_clients = 100
        self._engine.set_pause(None)
        lines = (b"FLUSHALL", b"SCRIPT FLUSH", *_CONTENT)
        told, _ = self._runner.run(self._talk([line + b"\r\n" for line in lines]))
        assert b"-" not in told, f"the store cannot be filled: {told!r}"

    def _look(self, data: bytes, written: bytes, refusal: bytes | None) -> None:
        replies = _replies(written)
        for reply in replies:
            assert "internal error" not in str(reply), f"answered {reply}"
        if refusal and b"QUIT" not in data.upper():  # which closes before the refusal's turn comes
            assert written.endswith(refusal), f"refused with {refusal!r}, said {written[-100:]!r}"

    async def _talk(self, chunks: Sequence[bytes]) -> tuple[bytes, bytes | None]:
        """What a connection answers to these pieces, and the refusal of its parser."""
        wire, connection = _Wire(), Connection(self._server)
        connection.connection_made(wire)
        executor = self._server.executor
        for chunk in chunks:
            if wire.closed:
                break
            connection.data_received(chunk)
            for _ in range(_MAX_TICKS):
                await asyncio.sleep(0.001 if executor.is_away else 0)
                if executor.is_idle and not connection._pending:
                    break
            else:
                raise AssertionError(f"no end of it: {connection!r}, {executor!r}")
        error = connection._reader.error
        assert error is None or wire.closed or connection.is_blocked, f"refused ({error}) and not closed"
        connection.connection_lost(None)
        while not executor.is_idle:
            await asyncio.sleep(0)
        return bytes(wire.written), connection._reader.error_reply if error and wire.closed else None


_LOGS: Final = ("penstock", "asyncio", "uvicorn.error")


class Errors(logging.Handler):
    """What is logged as an error: nothing that a client sends may be one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.logged: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append(self.format(record))

    def __enter__(self) -> None:
        self.logged.clear()
        for name in _LOGS:
            logging.getLogger(name).addHandler(self)

    def __exit__(self, *_: object) -> None:
        for name in _LOGS:
            logging.getLogger(name).removeHandler(self)


def _chunks(data: bytes) -> list[bytes]:
    """Cut somewhere, always alike."""
    dice = Random(len(data))
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 0, 1, 3))))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _replies(written: bytes) -> list[Any]:
    reader = hiredis.Reader(notEnoughData=Ellipsis, replyError=lambda text: hiredis.ReplyError(text))
    reader.feed(written)
    replies = []
    while (reply := reader.gets()) is not Ellipsis:
        replies.append(reply)
    assert not reader.has_data(), f"half a reply at the end: {written[-100:]!r}"
    return replies
