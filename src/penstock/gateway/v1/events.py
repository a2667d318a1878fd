"""Server-sent events on the wire: the form of an event, headers, signs of life.

    event: message
    data: {"id":"msg-1","content":…}
    id: RECEIPT

Rules: every chunk is whole events, so that a stream which is cut has sent nothing by halves. JSON is one
line: line breaks between its tokens become spaces, inside strings there are none. Nothing here knows what
the events tell.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.gateway.http.responses import Headers

#: How often a stream says that it lives: below the minute after which many proxies give up.
HEARTBEAT_MS: Final = 15_000
#: After which time a client that lost its stream comes again.
RETRY_MS: Final = 2_000

HEADERS: Final[Headers] = (
    (b"content-type", b"text/event-stream"),
    # A proxy that compresses or collects holds events back.
    (b"cache-control", b"no-transform"),
    (b"x-accel-buffering", b"no"),
)
HEARTBEAT: Final = b":\n\n"
#: The first bytes: they also make a proxy send the headers on.
PREAMBLE: Final = b"retry: %d\n\n" % RETRY_MS

_encode: Final = msgspec.json.Encoder().encode


def event(name: str, data: bytes, event_id: str | None = None) -> bytes:
    """One event whose data is JSON."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    if event_id is None:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
    return b"event: %b\ndata: %b\nid: %b\n\n" % (name.encode(), data, event_id.encode())


def event_of(name: str, value: Any) -> bytes:
    return event(name, _encode(value))


def end(reason: str, detail: str) -> bytes:
    """The last event: nothing will come any more, and why."""
    return event_of("end", {"reason": reason, "detail": detail})
