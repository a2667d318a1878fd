"""Keyspace notifications as tests want them, on any backend.

``Listener`` collects what was announced; ``announcer`` runs a command and answers what it announced::

    announced = announcer(db)
    assert announced("SADD", "s", "a") == [("sadd", "s")]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Event = tuple[int, str, bytes]
_END = b"end-of-events"


class Listener:
    """Collects events from now on; :meth:`take` answers those that came since the last time."""

    def __init__(self, db: Any, classes: str = "EA") -> None:
        self._db = db
        assert db.do("CONFIG", "SET", "notify-keyspace-events", classes) == b"OK"
        self._client = db.client()
        self._client.do("PSUBSCRIBE", "__keyevent@*", _END)

    def take(self) -> list[Event]:
        """(database, event, key) in order. A message of our own marks the end, so nothing sleeps."""
        self._db.do("PUBLISH", _END, "")
        events = []
        while True:
            message = self._client.receive()
            if message[0] != b"pmessage":
                continue  # a confirmation of PSUBSCRIBE
            if message[1] == _END:
                return events
            database, event = message[2].decode().removeprefix("__keyevent@").split("__:", 1)
            events.append((int(database), event, message[3]))


def announcer(db: Any, classes: str = "EA") -> Callable[..., list[tuple[str, str]]]:
    """A function that runs a command and answers its events and their keys, in order."""
    listener = Listener(db, classes)

    def announced(*words: Any) -> list[tuple[str, str]]:
        db.do(*words)
        return [(event, key.decode()) for _, event, key in listener.take()]

    return announced
