"""A signed token taken apart (RFC 7515, compact form): strictly, without believing any of it.

    base64url(header) . base64url(claims) . base64url(signature)

Rules: whatever the text is, the outcome is a ``CompactToken`` or ``AuthRejected``. There is one spelling
of a token: no padding, no stray bits, no key twice, no NaN, no halves of surrogate pairs. Of the header only
``alg`` is read, and ``crit`` refused; ``kid``, ``jku``, ``jwk`` and ``x5u`` choose nothing here. It must not
know keys or time.
"""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from penstock.gateway.auth.decisions import AuthRejected

#: Claims are facts about a caller; what is nested deeper than this is an attempt at something else.
_MAX_DEPTH: Final = 32
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class CompactToken:
    """The parts of a token that nobody has verified yet."""

    algorithm: str
    claims: dict[str, Any]
    #: the bytes that the signature covers
    signed: bytes
    signature: bytes


def parse_compact(token: str, max_bytes: int) -> CompactToken:
    """Take a token apart."""
    if len(token) > max_bytes:
        raise AuthRejected(f"the token is longer than {max_bytes} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise AuthRejected("the token does not have the three parts of a JWT")
    header = _object(_decode(parts[0], "header"), "header")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str):
        raise AuthRejected("the token's header names no algorithm")
    if "crit" in header:
        raise AuthRejected("the token's header demands extensions that are not supported")
    claims = _object(_decode(parts[1], "claims"), "claims")
    # Both parts have passed as base64, so they are ASCII.
    signed = f"{parts[0]}.{parts[1]}".encode("ascii")
    return CompactToken(algorithm, claims, signed, _decode(parts[2], "signature"))


def _decode(part: str, name: str) -> bytes:
    if _BASE64URL.fullmatch(part) is None or len(part) % 4 == 1:
        raise AuthRejected(f"the token's {name} is not base64url")
    decoded = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if base64.urlsafe_b64encode(decoded).rstrip(b"=") != part.encode("ascii"):
        raise AuthRejected(f"the token's {name} is not base64url")
    return decoded


def _object(encoded: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(
            encoded.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError):
        raise AuthRejected(f"the token's {name} is not acceptable JSON") from None
    if not isinstance(value, dict):
        raise AuthRejected(f"the token's {name} is not a JSON object")
    if not _is_sound(value, _MAX_DEPTH):
        raise AuthRejected(f"the token's {name} is nested too deeply or not Unicode")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")  # readers disagree on which one counts
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _is_sound(value: Any, depth: int) -> bool:
    """Whether all text can be encoded, and nothing is nested deeper than ``depth``."""
    if isinstance(value, str):
        # A lone half of a surrogate pair passes JSON as an escape and fails much later, as a key or in a log.
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return depth > 0 and all(
            _is_sound(name, depth) and _is_sound(item, depth - 1) for name, item in value.items()
        )
    if isinstance(value, list):
        return depth > 0 and all(_is_sound(item, depth - 1) for item in value)
    return True
