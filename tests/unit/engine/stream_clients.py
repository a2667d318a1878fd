"""Callers of stream commands for tests: their replies are collected, so that nothing sleeps."""

from __future__ import annotations

from typing import Any

from penstock.engine import Engine
from penstock.errors import CommandError
from penstock.protocol.replies import NULL_ARRAY

BLOCKED = "blocked"


class Client:
    """A session whose answers are values; a blocked one is served later (``reply``)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._replies: list[Any] = []
        self.session = engine.session(self._replies.append)
        self.session.protocol = 3

    def __call__(self, *argv: Any) -> Any:
        assert self.session.blocked is None
        words = [word if isinstance(word, bytes) else str(word).encode() for word in argv]
        self._engine.execute([(self.session, words)])
        return self.reply

    @property
    def reply(self) -> Any:
        """The answer that came, ``BLOCKED`` if none did."""
        if not self._replies:
            assert self.session.blocked is not None
            return BLOCKED
        (reply,) = self._replies
        self._replies.clear()
        return None if reply is NULL_ARRAY else reply

    def fails(self, *argv: Any) -> str:
        reply = self(*argv)
        assert isinstance(reply, CommandError), reply
        return str(reply)


def write(do: Client, count: int, key: str = "k", tag: str = "t") -> None:
    """Messages with the entries e1, e2, …, one a call."""
    start = do("TINFO", "STREAM", key)[b"last"] if do("EXISTS", key) else 0
    for number in range(start + 1, start + count + 1):
        assert do("TWRITE", key, tag, f"e{number}") == number


def message(offset: int, tag: bytes = b"t", *more: Any) -> list[Any]:
    return [offset, tag, b"e%d" % offset, *more]


def messages(*offsets: int) -> list[list[Any]]:
    return [message(offset) for offset in offsets]


def offsets(reply: Any) -> list[int]:
    return [row[0] for row in reply]


def info(do: Client, name: str = "g", key: str = "k") -> dict[str, Any]:
    (found,) = [group for group in do("TINFO", "GROUPS", key) if group[b"name"] == name.encode()]
    return {field.decode(): value for field, value in found.items()}


def pending(do: Client, name: str = "g") -> list[int]:
    return offsets(do("TPENDING", "k", name, 0, 2**64 - 1, 1_000_000))


def tick(engine: Engine) -> None:
    while engine.duties.tick():
        pass
