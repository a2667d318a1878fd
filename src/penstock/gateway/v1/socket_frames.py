"""The subprotocol ``penstock.v1``: JSON texts, each an object with a ``type``.

===========================================================  ===============================================
client                                                       server
===========================================================  ===============================================
``auth``     token (first where one is needed, later anew)   ``authenticated``
``ack``      receipt                                         ``acked``      receipt, moved
``nack``     receipt, delay_ms                               ``nacked``     receipt, returned
``publish``  content, id (a new one if there is none)        ``published``  id, duplicate
``ping``                                                     ``pong``
                                                             ``messages``   messages, receipt, more
                                                             ``heartbeat``  when nothing else was to say
                                                             ``error``      to, code, detail, retryable, id
===========================================================  ===============================================

A batch that is long comes in several ``messages``: the last has the receipt of all, the others null. How a
socket ends:

======  =====================================================================================
1001    the gateway stops
1003    a frame that is not text, or not JSON
1008    JSON that is no message of this protocol; no or a bad credential; the subscription is gone
1009    a frame that is too large
1011    a fault of ours
1013    the client does not read, or the store does not answer: come again later
======  =====================================================================================

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from penstock.channels.model import Batch
from penstock.gateway.http.responses import Refusal
from penstock.gateway.v1.channel_documents import MAX_DELAY_MS
from penstock.gateway.v1.channel_requests import message_json

GOING_AWAY: Final = 1001
UNSUPPORTED: Final = 1003
VIOLATION: Final = 1008
TOO_LARGE: Final = 1009
FAULT: Final = 1011
LATER: Final = 1013

HEARTBEAT: Final = '{"type":"heartbeat"}'
PONG: Final = '{"type":"pong"}'
AUTHENTICATED: Final = '{"type":"authenticated"}'

#: Clients limit frames as well, many of them to a mebibyte.
_FRAME_BYTES: Final = 512 * 1024
_MAX_REASON_BYTES: Final = 123


class Closing(Exception):  # noqa: N818 - the way a session ends, not a fault
    """The socket is to be closed."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore")


# ------------------------------------------------------------------------- from clients


class Auth(msgspec.Struct, tag="auth", tag_field="type"):
    token: str


class Ack(msgspec.Struct, tag="ack", tag_field="type"):
    receipt: str


class Nack(msgspec.Struct, tag="nack", tag_field="type"):
    receipt: str
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)] = 0


class Publish(msgspec.Struct, tag="publish", tag_field="type"):
    content: msgspec.Raw
    id: str | None = None


class Ping(msgspec.Struct, tag="ping", tag_field="type"):
    pass


Frame: TypeAlias = Auth | Ack | Nack | Publish | Ping

_FRAMES: Final = msgspec.json.Decoder(Frame)


def parse(text: bytes) -> Frame:
    """A text as a message of this protocol; Closing if it is none."""
    try:
        frame: Frame = _FRAMES.decode(text)
    except msgspec.ValidationError as error:
        raise Closing(VIOLATION, f"no message of penstock.v1: {error}") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise Closing(UNSUPPORTED, "a message must be JSON") from None
    return frame


# ------------------------------------------------------------------------- to clients


def to_text(kind: str, **fields: Any) -> str:
    return msgspec.json.encode({"type": kind, **fields}).decode()


def error_text(to: str, refusal: Refusal, message_id: str | None) -> str:
    """What became of a frame of type ``to``; a socket goes on."""
    fields = {"to": to, "code": refusal.code, "detail": refusal.detail, "retryable": refusal.status >= 429}
    if message_id is not None:
        fields["id"] = message_id
    return to_text("error", **fields)


def batch_texts(batch: Batch) -> Iterator[str]:
    """A batch in texts of a bearable size."""
    part: list[bytes] = []
    size_bytes = 0
    for message in batch.messages:
        spelt = message_json(message)
        if part and size_bytes + len(spelt) > _FRAME_BYTES:
            yield _messages(part, None, True)
            part, size_bytes = [], 0
        part.append(spelt)
        size_bytes += len(spelt)
    yield _messages(part, batch.receipt, batch.more)


def _messages(part: list[bytes], receipt: str | None, more: bool) -> str:
    head = b'{"type":"messages","messages":[%b],"receipt":' % b",".join(part)
    spelt = b"null" if receipt is None else b'"%b"' % receipt.encode()
    return (head + spelt + (b',"more":true}' if more else b',"more":false}')).decode("utf-8", "replace")
