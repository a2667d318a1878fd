"""One line for each request: who asked for what, what came of it, and how long it took.

    {"time":"2026-01-31T12:00:00.123Z","method":"PUT","path":"/channel/a/message/1","ip":"10.0.0.7", …}

Rules: writing costs two microseconds and never waits (see ``outlet``). The query is not logged: it may hold
secrets; nor is any other header than those below. Names of fields are promises to whoever parses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.gateway.http.requests import Request
from penstock.gateway.observing.outlet import Outlet
from penstock.gateway.observing.timestamps import Timestamps

#: A line stays a line, whatever a client sends.
_LONGEST_VALUE: Final = 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Entry(msgspec.Struct, rename="camel"):
    """A line as JSON has it."""

    time: str
    method: str
    path: str
    ip: str
    ua: str
    referer: str
    #: bytes of the request's body, as far as it said so
    req_length: int
    status: int
    elapsed_ms: float
    #: bytes of the answer's body
    res_length: int
    principal: str


class AccessLog:
    """The access log of one worker."""

    def __init__(
        self,
        outlet: Outlet,
        *,
        format: Literal["json", "text"] = "json",
        attributes: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``attributes`` are part of every JSON line."""
        self._outlet = outlet
        self._is_json = format == "json"
        self._clock: Clock = clock or SystemClock()
        self._timestamps = Timestamps()
        self._encode = msgspec.json.Encoder().encode
        # The end of every line: what is the same in all of them was encoded once.
        extra = msgspec.json.encode(dict(attributes or {}))[1:-1]
        self._json_end = (b"," + extra if extra else b"") + b"}\n"

    @property
    def dropped(self) -> int:
        """Lines that were not written because nobody took them."""
        return self._outlet.dropped

    def write(self, request: Request, status: int, duration_s: float, sent_bytes: int) -> None:
        """A request was answered."""
        scope = request.scope
        agent = referer = length = b""
        for name, value in scope["headers"]:
            if name == b"user-agent":
                agent = value
            elif name == b"content-length":
                length = value
            elif name == b"referer":
                referer = value
        entry = Entry(
            self._timestamps.text(self._clock.now_ms()),
            scope["method"],
            scope["path"][:_LONGEST_VALUE],
            request.peer or _peer(scope),
            str(agent[:_LONGEST_VALUE], "latin-1"),
            str(referer[:_LONGEST_VALUE], "latin-1"),
            int(length) if length.isdigit() else 0,
            status,
            int(duration_s * 1e6) / 1e3,
            sent_bytes,
            getattr(request.principal, "name", ""),
        )
        self._outlet.put(self._json(entry) if self._is_json else _text(entry))

    def _json(self, entry: Entry) -> bytes:
        try:
            return self._encode(entry)[:-1] + self._json_end
        except UnicodeEncodeError:
            # Half a surrogate pair has no UTF-8. Paths are the only text that is not from ASCII or Latin-1.
            entry.path = entry.path.encode("utf-8", "backslashreplace").decode()
            return self._encode(entry)[:-1] + self._json_end

    def close(self, timeout_s: float = 1.0) -> None:
        self._outlet.close(timeout_s)


def _peer(scope: Mapping[str, object]) -> str:
    """For requests that were refused before anybody looked where they come from."""
    client = scope.get("client")
    return str(client[0]) if isinstance(client, (tuple, list)) and client else ""


def _text(entry: Entry) -> bytes:
    line = (
        f"{entry.time} {entry.ip or '-'} {entry.principal or '-'} {entry.method} {entry.path} {entry.status}"
        f' {entry.res_length}B {entry.elapsed_ms}ms "{entry.ua}"'
    )
    # Half a surrogate pair cannot be encoded, and paths may hold one.
    return _CONTROL.sub("?", line).encode("utf-8", "replace") + b"\n"
