"""What all requests about streams have in common: names, permission, messages as JSON, refusals of the store.

Rules: a rule is looked up before a credential, a credential before anything else of the request; what the
rule allows is the last word, whoever asks. Refusals of stream commands become answers here and nowhere
else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from msgspec import UNSET

from penstock.errors import CommandError
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.config.channels import StreamAccess
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal
from penstock.gateway.services import Services
from penstock.gateway.v1.reading import bad
from penstock.gateway.v1.stream_documents import MAX_NAME_CHARS, StreamMessage
from penstock.streams.arguments import MAX_OFFSET
from penstock.streams.keys import SIDE_KEYS

#: Actions that change the stream itself; all others read it, or move a group.
_WRITING: Final = frozenset({Action.PUBLISH, Action.ADMIN})
#: Keys that the gateway keeps itself: a stream in their place would stop channels, tokens, webhooks or
#: transactions.
_OURS: Final = re.compile(
    r"penstock\.|c\.\{|jwt\.\{|\{webhooks\}:"
    r"|tx\.|\{tx\}\.|\{tx\.hooks\}:|\{tx-webhooks\}:|\{pipelines\}\.|\{p\d+\}\."
    r"|(?:channels\.(?:outboxes|secret)|webhooks\.(?:channels|configured)|spark\.jobs)\Z"
)
#: What belongs to another stream where streams are kept by scripts; see ``streams.keys``.
_SIDE_KEY: Final = re.compile(rf"[}}:!]:(?:{'|'.join(name.decode() for name in SIDE_KEYS)})\Z")
#: Refusals about a number that passed our own checks.
_VALUES: Final = frozenset({"invalid offset", "value is not an integer or out of range"})


# ------------------------------------------------------------------------- names and permission


async def admit(services: Services, request: Request, action: Action) -> str:
    """The name of the stream, if whoever asks may do this to it."""
    stream = request.params["stream"]
    await admit_to(services, request, action, stream)
    return stream


async def admit_to(services: Services, request: Request, action: Action, stream: str) -> None:
    """The same for a stream that the body names."""
    rule = rule_of(services, stream)
    if rule is None:
        raise Refusal(404, "stream-not-configured", f"no rule of this gateway matches stream {stream!r}")
    await services.access.admit(request, action, Resource("stream", stream))
    if action in _WRITING and not rule.writable:
        raise Refusal(403, "stream-not-writable", "the gateway's rule for this stream does not allow writing")
    if action not in _WRITING and not rule.readable:
        raise Refusal(403, "stream-not-readable", "the gateway's rule for this stream does not allow reading")


def rule_of(services: Services, stream: str) -> StreamAccess | None:
    """What HTTP may do to a stream; None: to HTTP there is no such stream."""
    if not stream or _OURS.match(stream) or _SIDE_KEY.search(stream):
        return None
    return services.stream_rules.match(stream)


def group_of(request: Request) -> str:
    group = request.params["group"]
    if not 0 < len(group) <= MAX_NAME_CHARS:
        raise bad("group", f"1 to {MAX_NAME_CHARS} characters", group)
    return group


def offset_of(name: str, text: str) -> int:
    """A number of a query or a header."""
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > MAX_OFFSET:
        raise bad(name, f"a whole number from 0 to {MAX_OFFSET}", text)
    return int(text)


def location(request: Request, *segments: str) -> tuple[bytes, bytes]:
    """The header that names what was made."""
    path: bytes = request.scope["raw_path"]
    base = path[: path.find(b"/v1/streams") + len(b"/v1/streams")]
    return b"location", b"/".join([base, *(quote(segment, safe="").encode() for segment in segments)])


# ------------------------------------------------------------------------- messages


def message_of(row: list[Any]) -> StreamMessage:
    """One row of TREAD with WITHTIME, and WITHCOUNT if it is a group's."""
    offset, tag, entry, time_ms = row[:4]
    message = StreamMessage(offset=offset, time=time_ms)
    text = _text(tag)
    if text is None:
        message.tag_base64 = tag
    else:
        message.tag = text
    text = None if entry is None else _text(entry)
    if entry is None or text is not None:
        message.data = text
    else:
        message.data_base64 = entry
    message.deliveries = row[4] if len(row) > 4 else UNSET
    return message


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# ------------------------------------------------------------------------- refusals


@contextmanager
def refusals() -> Iterator[None]:
    """What stream commands, and the checks before them, refuse: as answers."""
    try:
        yield
    except ValueError as error:
        raise Refusal(400, "invalid-parameter", str(error)) from None
    except CommandError as error:
        refusal = _refusal_of(error)
        if refusal is None:
            raise
        raise refusal from None


def _refusal_of(error: CommandError) -> Refusal | None:
    text = str(error).partition(" ")[2]
    match error.code:
        case "MISMATCH":
            return Refusal(409, "offset-mismatch", text)
        case "SEQUENCE":
            return Refusal(409, "producer-sequence", text)
        case "UNBLOCKED":
            return not_found()
        case "CROSSSLOT":
            return Refusal(400, "invalid-parameter", "dead_letter must share the hash slot of the stream")
        case "ERR" if text == "no such key":
            return not_found()
        case "ERR" if text == "the stream is full":
            return Refusal(507, "store-full", text)
        case "ERR" if " must be " in text or text in _VALUES:
            return Refusal(400, "invalid-parameter", text)
    return None


def not_found() -> Refusal:
    return Refusal(404, "stream-not-found", "there is no such stream (any more)")
