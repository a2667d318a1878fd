"""Clients that track keys, on every backend.

In RESP2 a connection cannot be told anything beside its replies: there another one, which
has subscribed, is told instead (REDIRECT). ``Tracker`` hides that, so that one test serves
both.
"""

from __future__ import annotations

from typing import Any

import pytest

CHANNEL = b"__redis__:invalidate"


class Tracker:
    """A client that tracks, and what it is told."""

    def __init__(self, db: Any, *options: Any) -> None:
        self._db = db
        self.client = db.client()
        self._ear = self.client
        redirect: tuple[Any, ...] = ()
        if db.resp == 2:
            self._ear = db.client()
            redirect = ("REDIRECT", self._ear.do("CLIENT", "ID"))
            assert self._ear.do("SUBSCRIBE", CHANNEL)[0] == b"subscribe"
        assert self.client.do("CLIENT", "TRACKING", "ON", *redirect, *options) == b"OK"

    def do(self, *words: Any) -> Any:
        return self.client.do(*words)

    def told(self) -> Any:
        """The keys of the next message, None for all."""
        message = self._ear.receive()
        assert message[:-1] == ([b"message", CHANNEL] if self._db.resp == 2 else [b"invalidate"])
        return message[-1]

    def is_told_nothing(self) -> bool:
        return self._ear.nothing_arrives()


def needs_socket(db: Any) -> None:
    if db.kind == "engine":
        pytest.skip("in process, replies and pushes are taken separately")


def needs_resp3(db: Any) -> None:
    if db.resp == 2:
        pytest.skip("RESP2 has no pushes")


def info(client: Any) -> dict[bytes, Any]:
    reply = client.do("CLIENT", "TRACKINGINFO")
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def flags(client: Any) -> list[bytes]:
    return list(info(client)[b"flags"])


def clients_of(db: Any) -> list[str]:
    return db.do("CLIENT", "LIST").decode().splitlines()
