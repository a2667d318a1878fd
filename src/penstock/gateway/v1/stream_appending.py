"""What a request appends: one message of any kind, or a batch as JSON. Bytes stay what they are.

Pure: a body and headers in, pairs of tag and data out.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal
from penstock.gateway.v1.bodies import decoded
from penstock.gateway.v1.stream_documents import NewMessage
from penstock.gateway.v1.stream_requests import offset_of
from penstock.streams.writing import MAX_BYTES, MAX_MESSAGES, fits

NDJSON: Final = "application/x-ndjson"

_batch: Final = msgspec.json.Decoder(list[NewMessage])
_line: Final = msgspec.json.Decoder(NewMessage)


def pairs_of(request: Request, body: bytes) -> list[tuple[bytes, bytes | None]]:
    """Tags and data, at least one of them; data None is a tombstone."""
    media = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if media == "application/json":
        messages = decoded(_batch, body)
    elif media == NDJSON:
        lines = enumerate(body.split(b"\n"), 1)
        messages = [decoded(_line, line, f"line {at}: ") for at, line in lines if line.strip()]
    else:
        return [((request.header(b"stream-tag") or "").encode("latin-1"), body)]
    if not messages:
        raise Refusal(400, "invalid-body", "the body must have at least one message")
    pairs = [_pair(at, message) for at, message in enumerate(messages)]
    if not fits(len(pairs), sum(len(tag) + len(data or b"") for tag, data in pairs)):
        limit = f"{MAX_MESSAGES} messages and {MAX_BYTES >> 20} MiB"
        raise Refusal(413, "batch-too-large", f"a batch may have at most {limit}; send several")
    return pairs


def _pair(at: int, message: NewMessage) -> tuple[bytes, bytes | None]:
    if (message.data is UNSET) == (message.data_base64 is UNSET):
        raise Refusal(400, "invalid-body", f"messages[{at}] must have either data or data_base64")
    if message.tag and message.tag_base64 is not UNSET:
        raise Refusal(400, "invalid-body", f"messages[{at}] must not have both tag and tag_base64")
    tag = message.tag.encode() if message.tag_base64 is UNSET else message.tag_base64
    if isinstance(message.data_base64, bytes):
        return tag, message.data_base64
    assert not isinstance(message.data, msgspec.UnsetType)
    return tag, None if message.data is None else message.data.encode()


def expected_last_of(request: Request) -> int | None:
    text = request.header(b"stream-expected-last")
    return None if text is None else offset_of("Stream-Expected-Last", text)


def producer_of(request: Request) -> tuple[bytes, int] | None:
    """Who numbers these messages, and the number of the first."""
    name, number = request.header(b"producer-id"), request.header(b"producer-seq")
    if name is None and number is None:
        return None
    if not name or number is None:
        raise Refusal(400, "invalid-parameter", "Producer-Id and Producer-Seq go together; send both")
    return name.encode("latin-1"), offset_of("Producer-Seq", number)
