"""JSON of bodies that ``reading`` does not cover: bodies that may be empty, and pieces of a body.

Rules: the same refusals as in ``reading``; what does not fit is told with its place.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal

T = TypeVar("T")


async def read_optional_json(request: Request, kind: type[T]) -> T:
    """The body as a value of this type; without a body its defaults."""
    body = await request.body()
    return decoded(msgspec.json.Decoder(kind), body) if body else kind()


def decoded(decoder: msgspec.json.Decoder[T], text: bytes, where: str = "") -> T:
    """``where`` goes before the sentence, such as ``line 3:``."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise Refusal(400, "invalid-body", f"{where}the body does not fit: {error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "content-malformed", f"{where}the body is not JSON: {error}") from None
