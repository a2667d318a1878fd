"""Listening to keyspace events on any backend."""

from __future__ import annotations

from typing import Any

Event = tuple[int, str, bytes]


class Listener:
    """Collects events from now on; :meth:`take` answers those that came since the last time."""

    def __init__(self, db: Any, classes: str = "EA") -> None:
        self._db = db
        assert db.do("CONFIG", "SET", "notify-keyspace-events", classes) == b"OK"
        self._client = db.client()
        self._client.do("PSUBSCRIBE", "__keyevent@*", "end-of-events")

    def take(self) -> list[Event]:
        """(database, event, key) in order. A message of our own marks the end, so nothing sleeps."""
        self._db.do("PUBLISH", "end-of-events", "")
        events = []
        while True:
            message = self._client.receive()
            if message[0] != b"pmessage":
                continue  # a confirmation of PSUBSCRIBE
            if message[1] == b"end-of-events":
                return events
            database, event = message[2].decode().removeprefix("__keyevent@").split("__:")
            events.append((int(database), event, message[3]))
