"""Bodies and answers of ``/v1/streams`` as types, and what documentation says of its routes.

Data and tags are bytes. Where they are UTF-8 they travel as text (``data``, ``tag``), else as Base64
(``data_base64``, ``tag_base64``); a writer may use either. Data that is null is a tombstone.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.gateway.stream_figures import StreamFigures
from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE
from penstock.streams.infos import ConsumerInfo, GroupInfo, PendingMessage, Policy, StreamInfo
from penstock.streams.writing import MAX_MESSAGES

#: Offsets and ranges of one acknowledgement.
MAX_ITEMS: Final = 10_000
MAX_NAME_CHARS: Final = 256

Milliseconds = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
#: An offset, or the first and the last of several. Which numbers are offsets is judged later: msgspec 0.22
#: crashes over the union of an annotated type and a tuple (seen with Python 3.11).
Items = Annotated[list[int | tuple[int, int]], Meta(min_length=1, max_length=MAX_ITEMS)]

# ------------------------------------------------------------------------- bodies


class NewMessage(msgspec.Struct):
    """One message of a batch; ``data`` null says that its tag is over."""

    data: str | UnsetType | None = UNSET
    data_base64: bytes | UnsetType = UNSET
    tag: str = ""
    tag_base64: bytes | UnsetType = UNSET


class StreamPolicy(msgspec.Struct):
    """What to change; the rest stays as it is. 0 is no limit."""

    retain_ms: Milliseconds | None = None
    retain_count: Count | None = None
    retain_bytes: Count | None = None
    retain_acked: bool | None = None
    compact: bool | None = None
    dirty_ratio: Annotated[int, Meta(ge=0, le=100)] | None = None
    min_lag_ms: Milliseconds | None = None
    max_lag_ms: Milliseconds | None = None
    tombstone_ms: Milliseconds | None = None
    node_messages: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None
    node_bytes: Annotated[int, Meta(ge=1)] | None = None


class GroupOptions(msgspec.Struct):
    """What to change; the rest stays as it is. ``at`` counts only when the group is made."""

    at: int | str = 0
    max_pending: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    ttl_ms: Milliseconds | None = None
    ordered: bool | None = None
    max_deliveries: Count | None = None
    backoff_ms: Annotated[list[Milliseconds], Meta(max_length=100)] | None = None
    dead_letter: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None


class GroupRead(msgspec.Struct):
    """``retry_ms`` null: what is read is done with."""

    consumer: Name
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE
    wait: str = "0s"
    retry_ms: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = 30_000
    expire_ms: Milliseconds = 0


class Settlement(msgspec.Struct):
    offsets: Items


class Return(msgspec.Struct):
    """``delay_ms`` null: as the group's backoff says."""

    offsets: Items
    delay_ms: Milliseconds | None = 0


class Renewal(msgspec.Struct):
    offsets: Items
    retry_ms: Annotated[int, Meta(ge=1, le=2**53 - 1)] = 30_000


class EvictWish(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages go: one of ``before``, ``keep`` and ``age_ms``. ``acked`` spares what a group still
    needs; alone it lets everything go that no group needs."""

    #: those below this offset
    before: Annotated[int, Meta(ge=1)] | None = None
    #: all but the newest
    keep: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    #: those that are older
    age_ms: Milliseconds | None = None
    acked: bool = False


class Rejected(msgspec.Struct):
    offsets: Items
    reason: Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\r\n]*$")]


# ------------------------------------------------------------------------- answers


class StreamMessage(msgspec.Struct, omit_defaults=True):
    """``time`` is in milliseconds since 1970; ``deliveries`` is there for readers of a group."""

    offset: int
    time: int
    tag: str | UnsetType = UNSET
    tag_base64: bytes | UnsetType = UNSET
    data: str | UnsetType | None = UNSET
    data_base64: bytes | UnsetType = UNSET
    deliveries: int | UnsetType = UNSET


class MessagePage(msgspec.Struct):
    messages: list[StreamMessage]
    #: the offset to go on with
    next: int


class GroupPage(msgspec.Struct):
    messages: list[StreamMessage]
    #: offsets that had been delivered and were evicted before they were acknowledged
    gone: list[int]


class Appended(msgspec.Struct):
    first: int
    last: int


class StreamState(msgspec.Struct):
    name: str
    info: StreamInfo
    policy: Policy


class StreamPage(msgspec.Struct):
    """Names; with ``details`` what is known of each."""

    streams: list[str | StreamFigures]
    cursor: str | None


class Evicted(msgspec.Struct):
    evicted: int


class Compacted(msgspec.Struct):
    removed: int


class GroupState(msgspec.Struct):
    group: GroupInfo
    consumers: list[ConsumerInfo]


class GroupList(msgspec.Struct):
    groups: list[GroupInfo]


class Found(msgspec.Struct):
    """How many of them were pending; others are ignored."""

    found: int


class PendingPage(msgspec.Struct):
    count: int
    #: in how many milliseconds the next one is due; null if there are none
    next_ms: int | None
    messages: list[PendingMessage]
    cursor: str | None


# ------------------------------------------------------------------------- parameters

_OFFSETS: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
        {"type": "string", "enum": ["earliest", "latest", "now"]},
    ],
    "default": "earliest",
}
_MOMENT: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]
}
_SWITCH: Final = {"type": "boolean", "default": False}
_WHOLE: Final = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
_LIMIT: Final = Parameter(
    "limit",
    "How many at most.",
    {"type": "integer", "default": DEFAULT_PAGE, "minimum": 1, "maximum": MAX_PAGE},
)
_CURSOR: Final = Parameter("cursor", "Where to go on: the cursor of the page before.")
_NEXT_PAGE: Final = {"Link": "The next page, if there is one."}
_NEXT: Final = {"Stream-Next-Offset": "The offset to go on with."}
_UP_TO_DATE: Final = {**_NEXT, "Stream-Up-To-Date": "`true`, if nothing more is there now."}
_UNKNOWN: Final = {404: "No rule of the gateway matches the stream."}
_MISSING: Final = {404: "There is no such stream, or no rule matches it."}
_NO_GROUP: Final = {404: "There is no such group, or no rule matches the stream."}
_OTHER_TYPE: Final = {409: "Something else is stored under this name."}
_BAD: Final = {400: "A value is not what it should be; `errors` names it."}

# ------------------------------------------------------------------------- routes

LIST: Final = Doc(
    "streams",
    "List streams",
    {200: Reply("Names in order; with `details` what is known of each.", StreamPage, headers=_NEXT_PAGE)},
    "Only those that the caller may read. Looks through the whole store: for people, not for programs. The "
    "`rate` of details is appends in a second since the process that answers was asked last, null at first.",
    (
        _LIMIT,
        _CURSOR,
        Parameter("match", "A glob over names, such as orders-*."),
        Parameter("details", "Offsets, sizes and rates, not names alone.", _SWITCH),
    ),
    refusals=_BAD,
    scope="read",
)
PUT: Final = Doc(
    "streams",
    "Make a stream, or change how long it keeps what",
    {
        201: Reply("It is made.", StreamState, headers={"Location": "The stream."}),
        200: Reply("It existed, and has this policy now.", StreamState),
    },
    "Only what the body names is changed. A stream need not be made: the first message makes it.",
    body=Body(StreamPolicy, description="May be empty."),
    refusals={**_BAD, **_UNKNOWN, **_OTHER_TYPE},
    scope="admin",
)
INFO: Final = Doc(
    "streams",
    "Look at a stream",
    {200: Reply("Offsets, sizes, times and policy.", StreamState)},
    refusals={**_BAD, **_MISSING, **_OTHER_TYPE},
    scope="read",
)
DELETE: Final = Doc(
    "streams",
    "Delete a stream with its groups",
    {204: Reply("It is gone. A new one of this name begins at offset 1.")},
    refusals={**_BAD, **_MISSING, **_OTHER_TYPE},
    scope="admin",
)
EVICT: Final = Doc(
    "streams",
    "Remove old messages",
    {200: Reply("How many went.", Evicted)},
    "The stream stays, even empty, and so does its last offset.",
    body=Body(EvictWish),
    refusals={**_BAD, **_MISSING, **_OTHER_TYPE},
    scope="admin",
)
COMPACT: Final = Doc(
    "streams",
    "Keep only the newest message of each tag",
    {200: Reply("How many went.", Compacted)},
    "Now, whatever the policy says. Messages without a tag stay, and so does what a group has pending.",
    refusals={**_BAD, **_MISSING, **_OTHER_TYPE},
    scope="admin",
)
APPEND: Final = Doc(
    "streams",
    "Append messages",
    {201: Reply("They are written, at these offsets.", Appended, headers=_NEXT)},
    "The content type decides. `application/json`: an array of messages, up to "
    f"{MAX_MESSAGES:,}, all or none. `application/x-ndjson`: the same, one a line. Anything else: the body "
    "is one message, byte by byte. With `Producer-Id` and `Producer-Seq` repeating a request is safe: the "
    "same answer comes again, and nothing is written twice.",
    (
        Parameter("Stream-Tag", "What the message is about, where the body is one message.", place="header"),
        Parameter(
            "Stream-Expected-Last",
            "Write only if the last offset is this one, else 409.",
            _WHOLE,
            place="header",
        ),
        Parameter("Producer-Id", "Names whoever numbers these messages.", place="header"),
        Parameter("Producer-Seq", "The number of the first message, growing.", _WHOLE, place="header"),
    ),
    Body(list[NewMessage], description="Or lines of JSON, or one message of any content type."),
    {
        **_BAD,
        **_UNKNOWN,
        409: "`offset-mismatch`: the last offset is another one. `producer-sequence`: another request has "
        "used this number. `wrong-type`: something else is stored under this name.",
        507: "The store is full; nothing was written.",
    },
    "publish",
)
READ: Final = Doc(
    "streams",
    "Read messages",
    {
        200: Reply("Messages, oldest first.", MessagePage, headers=_UP_TO_DATE),
        204: Reply("Nothing came in time (`live=long-poll`).", headers=_UP_TO_DATE),
    },
    "Anybody may read from anywhere; a stream that was never written is empty. `live=long-poll` waits for "
    "the first message. `live=sse` follows: server-sent events `message` whose id is the offset, `gap` where "
    "messages were evicted before they could be sent, `end` when nothing will come any more.",
    (
        Parameter(
            "offset", "Where to begin. `latest` is the newest message, `now` what comes next.", _OFFSETS
        ),
        Parameter("at", "Begin with the first message that was written then or later.", _MOMENT),
        _LIMIT,
        Parameter("tag", "Only messages with this tag. A page may then be short of `limit`."),
        Parameter("live", "Wait, or follow.", {"type": "string", "enum": ["long-poll", "sse"]}),
        Parameter("wait", "How long to wait for the first message, such as 20s."),
        Parameter("for", "After which time a stream of events ends, such as 10m."),
        Parameter("Last-Event-ID", "Go on behind this offset (`live=sse`).", place="header"),
    ),
    refusals={
        **_BAD,
        **_MISSING,
        **_OTHER_TYPE,
        410: "The offset was evicted; `Stream-First-Offset` tells where the stream begins now.",
    },
    scope="subscribe",
)
GROUPS: Final = Doc(
    "stream groups",
    "List the groups of a stream",
    {200: Reply("Groups, how far each is, and their options.", GroupList)},
    refusals={**_BAD, **_UNKNOWN, **_OTHER_TYPE},
    scope="read",
)
PUT_GROUP: Final = Doc(
    "stream groups",
    "Make a group, or change its options",
    {
        201: Reply("It is made.", GroupState, headers={"Location": "The group."}),
        200: Reply("It existed, and has these options now.", GroupState),
    },
    "`at` is an offset, `earliest` or `now`. A group need not be made: whoever reads first makes it.",
    body=Body(GroupOptions, description="May be empty."),
    refusals={
        **_BAD,
        **_UNKNOWN,
        409: "Something else is stored under this name.",
    },
    scope="subscribe",
)
GROUP: Final = Doc(
    "stream groups",
    "Look at a group",
    {200: Reply("How far it is, and who reads.", GroupState)},
    refusals={**_BAD, **_NO_GROUP, **_OTHER_TYPE},
    scope="read",
)
DELETE_GROUP: Final = Doc(
    "stream groups",
    "Remove a group",
    {204: Reply("It is gone, with what was pending.")},
    refusals={**_BAD, **_NO_GROUP, **_OTHER_TYPE},
    scope="subscribe",
)
GROUP_READ: Final = Doc(
    "stream groups",
    "Read as one of a group",
    {200: Reply("Messages for this reader; none if time is up.", GroupPage)},
    "Each message goes to one reader, and after `retry_ms` without an acknowledgement to whoever reads next. "
    "A group that does not exist begins at the first message there is.",
    body=Body(GroupRead),
    refusals={**_BAD, **_MISSING, **_OTHER_TYPE},
    scope="subscribe",
)


def _settling(summary: str, description: str, kind: type) -> Doc:
    return Doc(
        "stream groups",
        summary,
        {200: Reply("How many of them were pending.", Found)},
        description + " An item is an offset, or the first and the last of several.",
        body=Body(kind),
        refusals={**_BAD, **_UNKNOWN, **_OTHER_TYPE},
        scope="subscribe",
    )


ACK: Final = _settling("Acknowledge messages", "They are done.", Settlement)
NACK: Final = _settling("Give messages back", "They come again after the delay, to anybody.", Return)
RENEW: Final = _settling("Keep messages for longer", "Their next delivery is put off.", Renewal)
REJECT: Final = _settling("Give messages up", "The group's dead letters get them, if it has any.", Rejected)
PENDING: Final = Doc(
    "stream groups",
    "Look at what is delivered and not acknowledged",
    {200: Reply("By offset.", PendingPage, headers=_NEXT_PAGE)},
    parameters=(_LIMIT, _CURSOR, Parameter("consumer", "Only those of this reader.")),
    refusals={**_BAD, **_UNKNOWN, **_OTHER_TYPE},
    scope="read",
)
