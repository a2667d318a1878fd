"""Keyspace notifications as tests want them: run a command, get what it announced.

announced = announcer(db)
assert announced("SADD", "s", "a") == [("sadd", "s")]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MARK = "__keyevent@0__:mark"


def announcer(db: Any, classes: str = "EA") -> Callable[..., list[tuple[str, str]]]:
    """A function that runs a command and answers its events and their keys, in order."""
    db.do("CONFIG", "SET", "notify-keyspace-events", classes)
    listener = db.client()
    listener.do("PSUBSCRIBE", "__keyevent@0__:*")

    def announced(*words: Any) -> list[tuple[str, str]]:
        db.do(*words)
        # Whatever the command announced comes before what we publish now.
        db.do("PUBLISH", _MARK, "end")
        seen = []
        while True:
            kind, *_, channel, key = listener.receive()
            if kind == b"psubscribe":
                continue
            if channel == _MARK.encode():
                return seen
            seen.append((channel.decode().partition(":")[2], key.decode()))

    return announced
