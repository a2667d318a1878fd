"""Answers: complete (:class:`Response`), or as they come (:class:`Streaming`); and refusals.

A refusal is an exception with a status and a sentence; how it looks on the wire is decided by the API
that the route belongs to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

JSON: Final[tuple[bytes, bytes]] = (b"content-type", b"application/json")


class Response:
    """A whole answer."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int = 200, body: bytes = b"", headers: Headers = (JSON,)) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def __repr__(self) -> str:
        return f"<Response {self.status}, {len(self.body)} bytes>"


class Streaming:
    """An answer that is sent piece by piece; ``chunks`` is closed when the client goes."""

    __slots__ = ("chunks", "headers", "status")

    def __init__(self, chunks: AsyncIterator[bytes], headers: Headers, status: int = 200) -> None:
        self.status = status
        self.chunks = chunks
        self.headers = headers


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """A request that is not served, and why."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Headers = (),
        errors: Sequence[dict[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        #: stays the same when the sentence is improved
        self.code = code
        self.detail = detail
        self.headers = headers
        #: several faults of one request, each with its place
        self.errors = errors


def retry_after(seconds: float) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % max(1, -(-seconds // 1))
