"""What channels are made of, as values. Content is JSON text, kept as its publisher spelt it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from penstock.channels.keys import is_id
from penstock.errors import ContentError

#: How long a channel keeps messages unless told otherwise.
EXPIRE_MS: Final = 30 * 60 * 1_000
#: How many messages a fetch gives unless told otherwise, and at most.
FETCH_LIMIT: Final = 64
MAX_FETCH: Final = 1_000

_BEFORE_ID: Final = b'{"id":"'
_BEFORE_CONTENT: Final = b'","content":'
#: Every escape of a string, and those that are half of a surrogate pair.
_ESCAPE: Final = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class Message(NamedTuple):
    """One message. (A tuple: fetches are made of them.)"""

    id: str
    #: its JSON text
    raw: bytes
    #: where it lies in its channel, in one of the stores
    clock: int

    @property
    def content(self) -> Any:
        """What was published, parsed."""
        return json.loads(self.raw.decode("utf-8", "replace"))


class Batch(NamedTuple):
    """What a fetch found. The same comes again until the receipt is acknowledged."""

    messages: tuple[Message, ...] = ()
    #: whether there are others behind these
    more: bool = False
    #: acknowledges all of them; None without messages
    receipt: str | None = None


class Backlog(NamedTuple):
    """A page of what a subscriber has not acknowledged."""

    messages: tuple[Message, ...]
    #: go on behind this clock; None at the end
    after: int | None
    #: how many messages were published behind the cursor; some may have expired
    unread: int


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """A channel as it stands."""

    name: str
    clock: int
    #: until the channel is forgotten, unless somebody uses it
    ttl_ms: int
    #: subscribers and how many messages were published behind their cursors
    unread: Mapping[str, int]


def compact(text: bytes) -> bytes:
    """JSON text without needless white space, safe inside HTML; ContentError if it is not JSON.

    Spelling of numbers, order and repetition of keys stay as they are.
    """
    try:
        short = _format(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ContentError(f"the content of a message must be JSON ({error})") from None
    # These can only occur inside strings.
    if b"<" in short or b">" in short or b"&" in short:
        short = short.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if b"\xe2\x80" in short:
        short = short.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return short


def _format(text: bytes) -> bytes:
    try:
        return msgspec.json.format(text, indent=-1)
    except msgspec.MsgspecError:
        if _SURROGATE.search(text) is None:
            raise
    # JSON allows half of a surrogate pair, and msgspec does not: it sees another escape in its place.
    escapes = iter(_ESCAPE.findall(text))
    masked = _ESCAPE.sub(lambda found: b"\\n" if _SURROGATE.match(found[0]) else found[0], text)
    return _ESCAPE.sub(lambda _: next(escapes), msgspec.json.format(masked, indent=-1))


def to_json(content: object) -> bytes:
    """JSON text of any value that has one."""
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return compact(text.encode("utf-8"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ContentError(f"the content of a message must be JSON ({error})") from None


def parse_body(clock: int, body: bytes) -> Message | None:
    """A stored body; None when it is not one. (Another program may have written it, as it likes to.)"""
    try:
        parsed = _BODY.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # ValueError: an id that is not UTF-8
        return _parse_exotic(clock, body)
    return Message(parsed.id, bytes(parsed.content), clock) if is_id(parsed.id) else None


def _parse_exotic(clock: int, body: bytes) -> Message | None:
    """One of ours whose content was allowed, and yet msgspec cannot read it here."""
    end = body.find(b'"', len(_BEFORE_ID))
    if not (body.startswith(_BEFORE_ID) and body.startswith(_BEFORE_CONTENT, end) and body.endswith(b"}")):
        return None
    name = body[len(_BEFORE_ID) : end].decode("ascii", "replace")
    raw = body[end + len(_BEFORE_CONTENT) : -1]
    try:
        _format(raw)
    except RecursionError:
        pass  # so deep that it depends on who calls: its publisher could read it
    except msgspec.MsgspecError:
        return None
    return Message(name, raw, clock) if is_id(name) else None


class _Body(msgspec.Struct):
    id: str
    content: msgspec.Raw


_BODY: Final = msgspec.json.Decoder(_Body)
