"""The processes that get killed: what they do, and what they write down about it.

Each worker appends lines to a log of its own, one JSON array a line. A line is written
by one system call, so a kill leaves it whole or not at all:

    ["try", number, what, monotonic_ns]     before the command is sent
    ["ok", number, reply]                   after its reply arrived
    ["listening", monotonic_ns]             after the confirmation of SUBSCRIBE
    ["message", text]                       a message that arrived

So a *try* without *ok* may have happened or not; everything else is certain. What a
worker does follows from its name and the number of the try (:func:`commands_of`), so that
the judge (``ledger``) needs no more than the logs and the store.

Workers work until they are killed; only a listener ends by itself, at the message "end".
They must not import pytest: many of them are started.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import hiredis

from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError

#: Pushes of a publisher wait for the slowest of many processes on few cores.
QUEUE_LIMIT = 1_000_000
CHANNEL = "events"
#: emptied by poppers
QUEUES = ("jobs", "more-jobs")
#: emptied by movers, who keep what they took in a list of their own until they are done with it
SAFE_QUEUE = "safe-jobs"
END = "end"

_BIG = "x" * 60_000
#: what writers do, with its share
_MIX = {
    "set": 4, "incr": 2, "push": 3, "hash": 2, "zset": 2, "member": 2, "exec": 3, "big": 1,
    "expire": 1, "drop": 1, "job": 8, "safe-job": 4, "shift": 1, "publish": 6, "compare-and-set": 1,
}  # fmt: skip

Run = Callable[[list[list[Any]]], list[Any]]


class Log:
    """An append-only file; what was written survives the writer."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._number = 0

    def write(self, *values: Any) -> None:
        os.write(self._fd, json.dumps(values).encode() + b"\n")

    def attempt(self, what: str, at_ns: int | None = None) -> int:
        """``at_ns``: it may have begun as early as this, and not now."""
        self._number += 1
        self.write("try", self._number, what, time.monotonic_ns() if at_ns is None else at_ns)
        return self._number


# ---------------------------------------------------------------------------- two doors


class Embedded:
    """The store opened by this process."""

    def __init__(self, store: str, durability: Any, chance: random.Random) -> None:
        self._engine = Engine.open(store, durability=durability, queue_limit=QUEUE_LIMIT)
        self.session = LocalSession(self._engine)
        self._chance = chance

    def run(self, commands: list[list[Any]]) -> list[Any]:
        """In one transaction, or each command in its own."""
        if self._chance.random() < 0.5:
            return [_checked(self.session.execute(*command)) for command in commands]
        argvs = [[str(word).encode() for word in command] for command in commands]
        return [_checked(reply) for reply in self.session.execute_many(argvs)]

    def listen(self) -> None:
        self.session.execute("SUBSCRIBE", CHANNEL)
        assert self.session.wait(60_000) is not None

    def hear(self) -> list[Any] | None:
        return self.session.wait(1_000)

    def close(self) -> None:
        self._engine.close()


class Remote:
    """A connection to the server, whose port stands in a file; a new one when it breaks."""

    def __init__(self, port_file: str) -> None:
        self._port_file = Path(port_file)
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)

    def connect(self) -> None:
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", int(self._port_file.read_text())), 60)
            except (OSError, ValueError):
                time.sleep(0.02)  # no server at the moment
                continue
            self._reader = hiredis.Reader(notEnoughData=Ellipsis)
            return

    def run(self, commands: list[list[Any]]) -> list[Any]:
        """As one pipeline. ConnectionError: the server is gone, and who knows what it did."""
        self._send(commands)
        return [_checked(self._receive()) for _ in commands]

    def listen(self) -> None:
        self._send([["SUBSCRIBE", CHANNEL]])
        self._receive()

    def hear(self) -> list[Any] | None:
        reply: list[Any] = self._receive()
        return reply

    def _send(self, commands: list[list[Any]]) -> None:
        if self._socket is None:
            self.connect()
        assert self._socket is not None
        try:
            self._socket.sendall(b"".join(hiredis.pack_command(tuple(command)) for command in commands))
        except OSError as error:
            self._lose(error)

    def _receive(self) -> Any:
        assert self._socket is not None
        while (reply := self._reader.gets()) is Ellipsis:
            try:
                data = self._socket.recv(65536)
            except OSError as error:
                self._lose(error)
            if not data:
                self._lose(None)
            self._reader.feed(data)
        return reply

    def _lose(self, error: OSError | None) -> NoReturn:
        self.close()
        raise ConnectionError("the server is gone") from error

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


Door = Embedded | Remote


def _checked(reply: Any) -> Any:
    if isinstance(reply, CommandError | hiredis.ReplyError):
        raise AssertionError(f"a command of a worker was refused: {reply}")
    return reply


def open_door(store: str, durability: str, port_file: str | None, chance: random.Random) -> Door:
    return Embedded(store, durability, chance) if port_file is None else Remote(port_file)


# ------------------------------------------------------------------------------- writers


def commands_of(what: str, worker: str, number: int) -> list[list[Any]]:
    """What a writer sends for one try."""
    name = f"{worker}:{number}"
    match what:
        case "set":
            return [["SET", f"set:{name}", number]]
        case "incr":
            return [["INCR", "total"]]
        case "push":
            return [["RPUSH", f"list:{worker}", number]]
        case "hash":
            return [["HSET", "hash", name, number]]
        case "zset":
            return [["ZADD", "zset", number, name]]
        case "member":
            return [["SADD", "members", name]]
        case "exec":
            first, second, both = f"one:{worker}", f"two:{worker}", f"both:{worker}"
            body = [["SET", first, number], ["RPUSH", both, number], ["SET", second, number]]
            return [["MULTI"], *body, ["EXEC"]]
        case "big":
            return [["SET", f"big:{worker}", f"{number}:{_BIG}"]]
        case "expire":
            return [
                ["SET", f"gone:{name}", number, "PX", 20],
                ["HSET", f"gone-hash:{name}", "a", 1, "b", 2],
                ["PEXPIRE", f"gone-hash:{name}", 20],
            ]
        case "drop":
            return [["RPUSH", f"dropped:{worker}", *range(100)], ["DEL", f"dropped:{worker}"]]
        case "job":
            return [["LPUSH" if number % 3 == 0 else "RPUSH", QUEUES[number % 2], name]]
        case "safe-job":
            return [["RPUSH", SAFE_QUEUE, name]]
        case "shift":
            return [["LMOVE", QUEUES[number % 2], QUEUES[1 - number % 2], "LEFT", "RIGHT"]]
        case "publish":
            return [["PUBLISH", CHANNEL, name]]
    raise AssertionError(f"no such thing to do: {what}")


def write(store: str, durability: str, port_file: str | None, log: str, worker: str, seed: int) -> None:
    """Write, push and publish for ever."""
    chance = random.Random(seed)
    door = open_door(store, durability, port_file, chance)
    diary = Log(Path(log))
    choices, shares = list(_MIX), list(_MIX.values())
    while True:
        what = chance.choices(choices, shares)[0]
        number = diary.attempt(what)
        try:
            if what == "compare-and-set":
                diary.write("ok", number, _compare_and_set(door.run))
            else:
                reply = door.run(commands_of(what, worker, number))[-1]
                diary.write("ok", number, reply if isinstance(reply, int) else None)
        except ConnectionError:
            continue


def _compare_and_set(run: Run) -> bool:
    """Add one to a counter the optimistic way; whether nobody came in between."""
    run([["WATCH", "optimistic"]])
    (value,) = run([["GET", "optimistic"]])
    replies = run([["MULTI"], ["SET", "optimistic", int(value or 0) + 1], ["EXEC"]])
    return replies[-1] is not None


# ------------------------------------------------------------------- poppers, subscribers


def pop(store: str, durability: str, port_file: str | None, log: str, worker: str, seed: int) -> None:
    """Take jobs for ever, waiting for them."""
    chance = random.Random(seed)
    door = open_door(store, durability, port_file, chance)
    diary = Log(Path(log))
    while True:
        keys = chance.sample(QUEUES, k=chance.choice((1, 2)))
        timeout = chance.choice(("0.01", "0.1", "0"))
        count = chance.choice((1, 1, 3))
        end = chance.choice(("LEFT", "RIGHT"))
        if count == 1:
            command = ["BLPOP" if end == "LEFT" else "BRPOP", *keys, timeout]
        else:
            command = ["BLMPOP", timeout, len(keys), *keys, end, "COUNT", count]
        number = diary.attempt(str(count))
        try:
            reply = _wait_for(door, command)
        except ConnectionError:
            continue
        jobs = [] if reply is None else [reply[1]] if count == 1 else reply[1]
        diary.write("ok", number, [job.decode() for job in jobs])


def move(store: str, durability: str, port_file: str | None, log: str, worker: str, seed: int) -> None:
    """Take jobs for ever, each moved to a list of one's own until it is done."""
    chance = random.Random(seed)
    door = open_door(store, durability, port_file, chance)
    diary = Log(Path(log))
    own = f"taken:{worker}"
    while True:
        number = diary.attempt("take")
        try:
            job = _wait_for(door, ["BLMOVE", SAFE_QUEUE, own, "LEFT", "RIGHT", chance.choice(("0.05", "0"))])
            diary.write("ok", number, job and job.decode())
            if job:
                number = diary.attempt(f"finish {job.decode()}")
                diary.write("ok", number, door.run([["LREM", own, "1", job.decode()]])[0])
        except ConnectionError:
            continue


def _wait_for(door: Door, command: list[Any]) -> Any:
    if isinstance(door, Embedded):
        return _checked(door.session.execute(*command))
    return door.run([command])[0]


def listen(store: str, durability: str, port_file: str | None, log: str, worker: str, seed: int) -> None:
    """Write down every message until the last one."""
    door = open_door(store, durability, port_file, random.Random(seed))
    diary = Log(Path(log))
    while True:
        try:
            door.listen()
            diary.write("listening", time.monotonic_ns())
            while True:
                message = door.hear()
                if message is None:
                    continue
                text = message[-1].decode() if isinstance(message[-1], bytes) else str(message)
                diary.write("message", text)
                if text == END:
                    door.close()
                    return
        except ConnectionError:
            continue


# ---------------------------------------------------------------------------------- start

_ROLES: Final = {"writer": write, "popper": pop, "mover": move, "listener": listen}


def work(role: str, store: str, durability: str, port_file: str | None, log: str, seed: int) -> None:
    """The whole life of a worker process. What goes wrong stands beside its log."""
    path = Path(log)
    try:
        _ROLES[role](store, durability, port_file, log, path.stem, seed)
    except BaseException:
        path.with_suffix(".error").write_text(traceback.format_exc())
        raise
