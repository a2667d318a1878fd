"""Bodies and answers of ``/v1/channels`` as types, and what documentation says of its routes.

Types of bodies check what comes; types of answers are for documentation alone, since answers with messages
are spliced from JSON text.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.channels.model import FETCH_LIMIT, MAX_FETCH
from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE

MAX_BATCH: Final = 1_000
MAX_DELAY_MS: Final = 24 * 3_600 * 1_000

# ------------------------------------------------------------------------- bodies


class BatchItem(msgspec.Struct):
    content: msgspec.Raw
    id: str | None = None


class PublishBatch(msgspec.Struct):
    messages: Annotated[list[BatchItem], Meta(min_length=1, max_length=MAX_BATCH)]


class Acknowledgement(msgspec.Struct):
    receipt: str


class Return(msgspec.Struct):
    receipt: str
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)] = 0


# ------------------------------------------------------------------------- answers


class Published(msgspec.Struct):
    id: str
    duplicate: bool


class PublishedBatch(msgspec.Struct):
    messages: list[Published]


class StoredMessage(msgspec.Struct):
    id: str
    content: Any
    clock: int


class Fetched(msgspec.Struct):
    messages: list[StoredMessage]
    more: bool
    receipt: str | None


class Unread(msgspec.Struct):
    messages: list[StoredMessage]
    unread: int
    cursor: str | None


class Subscription(msgspec.Struct):
    subscriber: str
    unread: int


class SubscriptionPage(msgspec.Struct):
    subscriptions: list[Subscription]
    cursor: str | None


class ChannelPage(msgspec.Struct):
    channels: list[str]
    cursor: str | None


class ChannelState(msgspec.Struct):
    name: str
    clock: int
    ttl_ms: int
    subscriptions: list[Subscription]


class Moved(msgspec.Struct):
    moved: bool


class Returned(msgspec.Struct):
    returned: bool


# ------------------------------------------------------------------------- parameters


def _number(name: str, description: str, default: int, least: int, most: int) -> Parameter:
    schema = {"type": "integer", "default": default, "minimum": least, "maximum": most}
    return Parameter(name, description, schema)


_PAGE: Final = _number("limit", "How many at most.", DEFAULT_PAGE, 1, MAX_PAGE)
_MESSAGES: Final = _number("limit", "How many messages at most.", FETCH_LIMIT, 1, MAX_FETCH)
_CURSOR: Final = Parameter("cursor", "Where to go on: the cursor of the page before.")
_CREATE: Final = Parameter("create", "Make the subscription if there is none.", {"type": "boolean"})
_NEXT: Final = {"Link": "The next page, if there is one."}
_NO_SUBSCRIPTION: Final = {404: "The channel has no such subscriber, or no rule matches it."}
_NO_CHANNEL: Final = {404: "No rule of the gateway matches the channel."}

# ------------------------------------------------------------------------- routes

LIST: Final = Doc(
    "channels",
    "List channels",
    {200: Reply("Names in order.", ChannelPage, headers=_NEXT)},
    "Only those that the caller may read. Looks through the whole store: for people, not for programs.",
    (_PAGE, _CURSOR, Parameter("match", "A glob over names, such as room-*.")),
    scope="read",
)
INFO: Final = Doc(
    "channels",
    "Look at a channel",
    {200: Reply("The channel and its subscribers.", ChannelState)},
    refusals={404: "Nobody uses the channel, or no rule matches it."},
    scope="read",
)
PUBLISH: Final = Doc(
    "channels",
    "Publish a message",
    {
        201: Reply("It is published.", Published, headers={"Location": "The message."}),
        200: Reply("A message of this id was published before; nothing changed.", Published),
    },
    "The body is the content. An id makes it safe to repeat: in `id`, or in the header `Message-Id` or "
    "`Idempotency-Key`. Without one the message gets a new id, and repeating it is a second message.",
    (
        Parameter("id", "The id of the message."),
        Parameter("Message-Id", "The same.", place="header"),
        Parameter("Idempotency-Key", "The same; any text.", place="header"),
    ),
    Body(Any, description="Any JSON."),
    {400: "The content is not JSON, or the id is none.", **_NO_CHANNEL},
    "publish",
)
PUBLISH_BATCH: Final = Doc(
    "channels",
    "Publish several messages",
    {200: Reply("For each message, in order, its id and whether it was published before.", PublishedBatch)},
    f"All or none, in this order, {MAX_BATCH:,} at most.",
    body=Body(PublishBatch),
    refusals={400: "The body does not fit, or an id is none; nothing was published.", **_NO_CHANNEL},
    scope="publish",
)
MESSAGE: Final = Doc(
    "channels",
    "Read a message by its id",
    {200: Reply("The message.", StoredMessage)},
    refusals={404: "There is no such message (any more)."},
    scope="subscribe",
)
SUBSCRIPTIONS: Final = Doc(
    "subscriptions",
    "List the subscriptions of a channel",
    {200: Reply("Subscribers in order.", SubscriptionPage, headers=_NEXT)},
    parameters=(_PAGE, _CURSOR),
    refusals=_NO_CHANNEL,
    scope="read",
)
SUBSCRIBE: Final = Doc(
    "subscriptions",
    "Make a subscription",
    {
        201: Reply("It is made, and starts with the next message.", Subscription),
        200: Reply("It existed, and stays where it is.", Subscription),
    },
    refusals=_NO_CHANNEL,
    scope="subscribe",
)
SUBSCRIPTION: Final = Doc(
    "subscriptions",
    "Look at a subscription",
    {200: Reply("The subscription.", Subscription)},
    refusals=_NO_SUBSCRIPTION,
    scope="read",
)
UNSUBSCRIBE: Final = Doc(
    "subscriptions",
    "Remove a subscription",
    {204: Reply("It is removed; whoever waits on it is told.")},
    refusals=_NO_SUBSCRIPTION,
    scope="subscribe",
)
FETCH: Final = Doc(
    "subscriptions",
    "Fetch messages",
    {200: Reply("Messages, oldest first; none if time is up.", Fetched)},
    "The same messages come until their receipt is acknowledged.",
    (
        _MESSAGES,
        Parameter("wait", "How long to wait for the first message, such as 20s."),
        Parameter("Prefer", "wait=SECONDS, the same.", place="header"),
        Parameter("after", "A receipt: read behind it, and acknowledge nothing."),
    ),
    refusals=_NO_SUBSCRIPTION,
    scope="subscribe",
)
ACK: Final = Doc(
    "subscriptions",
    "Acknowledge messages",
    {200: Reply("False: they were acknowledged before.", Moved)},
    "Everything up to the receipt is done.",
    body=Body(Acknowledgement),
    refusals={400: "The receipt was not issued for this subscriber.", **_NO_SUBSCRIPTION},
    scope="subscribe",
)
NACK: Final = Doc(
    "subscriptions",
    "Give messages back",
    {200: Reply("False: they were acknowledged before.", Returned)},
    "The subscriber gets nothing until the delay has passed, then the same again.",
    body=Body(Return),
    refusals={400: "The receipt was not issued for this subscriber.", **_NO_SUBSCRIPTION},
    scope="subscribe",
)
BACKLOG: Final = Doc(
    "subscriptions",
    "Look at unread messages",
    {200: Reply("Messages, oldest first.", Unread, headers=_NEXT)},
    "Changes nothing. `unread` counts all, also those that have expired since.",
    (_MESSAGES, _CURSOR, Parameter("after", "A clock: begin behind it.", {"type": "integer"})),
    refusals=_NO_SUBSCRIPTION,
    scope="subscribe",
)
EVENTS: Final = Doc(
    "subscriptions",
    "Follow a subscription",
    {200: Reply("Server-sent events.", media="text/event-stream")},
    "One event `message` for each message; the last of a batch has its receipt as id. A browser that comes "
    "again sends it back, which acknowledges everything up to it. The stream ends by itself after a time, "
    "and when too many messages are unacknowledged; it ends with an event `end` when nothing more will come.",
    (
        _CREATE,
        Parameter("ack", "`auto`: acknowledge each batch when the next is fetched.", {"enum": ["auto"]}),
        Parameter("for", "After which time the stream ends, such as 10m."),
        _number("window", "How many messages may be unacknowledged.", 1_000, 1, 10_000),
        Parameter("Last-Event-ID", "Acknowledge everything up to this event.", place="header"),
    ),
    refusals=_NO_SUBSCRIPTION,
    scope="subscribe",
)
