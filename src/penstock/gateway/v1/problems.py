"""Refusals as RFC 9457 problem details, and JSON answers.

    {"type": "https://…", "title": …, "status": 404, "detail": …, "code": …, "retryable": false}

``code`` never changes; ``type`` is a stable name made of it. A fault of several values lists each in
``errors``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

from penstock.gateway.http.responses import JSON, Headers, Refusal, Response

_PROBLEM: Final = (b"content-type", b"application/problem+json")
_RETRYABLE: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_encode: Final = msgspec.json.Encoder().encode


class Problem(msgspec.Struct, omit_defaults=True, rename=None):
    """The body of every error."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    errors: tuple[dict[str, str], ...] = ()


def refuse(refusal: Refusal) -> Response:
    problem = Problem(
        type=f"urn:penstock:problem:{refusal.code}",
        title=HTTPStatus(refusal.status).phrase,
        status=refusal.status,
        detail=refusal.detail,
        code=refusal.code,
        retryable=refusal.status in _RETRYABLE,
        errors=tuple(refusal.errors),
    )
    return Response(refusal.status, _encode(problem), (_PROBLEM, *refusal.headers))


def answer(value: Any, status: int = 200, headers: Headers = ()) -> Response:
    """A JSON answer of a struct, dataclass, dictionary or list."""
    return Response(status, _encode(value), (JSON, *headers))
