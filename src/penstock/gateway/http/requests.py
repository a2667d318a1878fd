"""One request over ASGI. Everything is looked up when asked for: most requests need little of it.

Rules: text that does not decode is refused with 400, never passed on; a body is read up to its limit and
no further. The first of several query parameters with one name counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from penstock.gateway.http.responses import Refusal

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


#: Where our own server puts the connection of a request into its scope.
CONNECTION: Final = "penstock.connection"


class Connection(Protocol):
    """The connection of the request that is being served."""

    def on_gone(self, tell: Callable[[], None]) -> Callable[[], object] | None:
        """As :meth:`Request.on_gone`."""


class Disconnected(Exception):  # noqa: N818 - it happened; nobody is at fault
    """The client went away in the middle of its request; nobody is there to answer."""


class Request:
    """What a handler gets."""

    __slots__ = ("_query", "body_limit_bytes", "is_look", "params", "peer", "principal", "receive", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, params: Mapping[str, str], body_limit_bytes: int
    ) -> None:
        self.scope = scope
        self.receive = receive
        #: values of the path, decoded
        self.params = params
        self.body_limit_bytes = body_limit_bytes
        #: the address that it comes from, as far as proxies are trusted
        self.peer: str = ""
        #: who asks, once it was found out
        self.principal: object = None
        #: whether its route changes nothing and tells no secret
        self.is_look = False
        self._query: dict[str, str] | None = None

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    def header(self, name: bytes) -> str | None:
        """The first header of this name (in small letters)."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return None

    @property
    def query(self) -> Mapping[str, str]:
        if self._query is None:
            text = self.scope["query_string"]
            self._query = parse_query(text) if text else {}
        return self._query

    async def body(self) -> bytes:
        limit = self.body_limit_bytes
        length = self.header(b"content-length")
        if length is not None and length.isdigit() and int(length) > limit:
            raise too_large(limit)
        message = await self.receive()
        chunk: bytes = message.get("body", b"")
        if message["type"] == "http.request" and not message.get("more_body") and len(chunk) <= limit:
            return chunk  # nearly always
        chunks, size = [chunk], len(chunk)
        while True:
            if message["type"] != "http.request":
                raise Disconnected
            if size > limit:
                raise too_large(limit)
            if not message.get("more_body"):
                return b"".join(chunks)
            message = await self.receive()
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])

    async def disconnected(self) -> None:
        """Until the client has gone. Only after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def on_gone(self, tell: Callable[[], None]) -> Callable[[], object] | None:
        """Have ``tell`` called when the client goes; the answer takes that back, None: it has gone.

        Only after the body was read. Our own server calls back; any other has to be asked by a task.
        """
        connection: Connection | None = self.scope.get(CONNECTION)
        if connection is not None:
            return connection.on_gone(tell)
        watch = asyncio.ensure_future(self.disconnected())
        watch.add_done_callback(lambda done: None if done.cancelled() else tell())
        return watch.cancel


def too_large(limit_bytes: int) -> Refusal:
    return Refusal(
        413,
        "body-too-large",
        f"the body may have at most {limit_bytes} bytes",
        headers=[(b"connection", b"close")],
    )


def parse_query(text: bytes) -> dict[str, str]:
    """The parameters of a query string."""
    found: dict[str, str] = {}
    for pair in text.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            found.setdefault(_decoded(name.replace(b"+", b" ")), _decoded(value.replace(b"+", b" ")))
    return found


def decode_segment(segment: bytes) -> str:
    """A piece of the path as the text it stands for."""
    return _decoded(segment) if b"%" in segment else segment.decode("ascii", "replace")


def _decoded(text: bytes) -> str:
    try:
        if b"%" not in text:
            return text.decode("utf-8")
        decoded = unquote_to_bytes(text)
        # A stray percent sign stays one: then the text was not encoded properly.
        if decoded.count(b"%") > text.count(b"%25"):
            raise ValueError
        return decoded.decode("utf-8")
    except ValueError:
        raise Refusal(400, "bad-encoding", "the address is not percent-encoded UTF-8") from None
