"""Values of requests for ``/v1``: each is checked here, and a bad one is named in the refusal."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, TypeVar

import msgspec

from penstock.configuration.durations import parse_duration_ms
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal

T = TypeVar("T")

DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1_000


def bad(name: str, expected: str, found: object) -> Refusal:
    """One value that is not what it should be."""
    detail = f"{name} must be {expected}, not {str(found)[:100]!r}"
    return Refusal(400, "invalid-parameter", detail, errors=[{"name": name, "detail": detail}])


async def read_json(request: Request, kind: type[T]) -> T:
    """The body as a value of this type."""
    body = await request.body()
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Refusal(400, "invalid-body", f"the body does not fit: {error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "content-malformed", f"the body is not JSON: {error}") from None


def whole_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A query parameter that is a number; above ``most`` it is ``most``."""
    text = request.query.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or int(text) < least:
        raise bad(name, f"a whole number of at least {least}", text)
    return min(int(text), most)


def wait_ms(request: Request, most_ms: int) -> int:
    """How long to wait: ``?wait=20s``, or ``Prefer: wait=20`` in seconds."""
    text = request.query.get("wait")
    if text is not None:
        try:
            return max(0, min(parse_duration_ms(text), most_ms))
        except ValueError as error:
            raise bad("wait", f"a duration ({error})", text) from None
    for preference in (request.header(b"prefer") or "").split(","):
        name, _, value = preference.strip().partition("=")
        if name.lower() == "wait" and value.isascii() and value.isdigit() and len(value) < 10:
            return min(int(value) * 1_000, most_ms)
    return 0


def cursor(request: Request, kind: type[T], default: T) -> T:
    """Where a page begins; what the last page gave, opaque to clients."""
    text = request.query.get("cursor")
    if not text:
        return default
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        raise bad("cursor", "the cursor of the page before", text) from None


def to_cursor(place: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).decode().rstrip("=")
