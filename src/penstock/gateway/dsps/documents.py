"""What documentation says about the routes of the DSPS API, by method and template.

Apart from the handlers, since the API is somebody else's: here is what its clients rely on. Types are for
documentation alone; ``answers`` writes the JSON.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply

_TAG: Final = "DSPS"
_MESSAGE: Final = "/channel/{channelID}/message/{messageID}"
_POLLING: Final = "/channel/{channelID}/subscription/polling/{subscriberID}"


class DspsError(msgspec.Struct, omit_defaults=True):
    """``code`` is there where the API has one."""

    error: str
    code: str | None = None
    reason: str | None = None


class DspsPublished(msgspec.Struct, rename={"channel_id": "channelID", "message_id": "messageID"}):
    channel_id: str
    message_id: str


class DspsSubscription(msgspec.Struct, rename={"channel_id": "channelID", "subscriber_id": "subscriberID"}):
    channel_id: str
    subscriber_id: str


class DspsMessage(msgspec.Struct, rename={"message_id": "messageID"}):
    message_id: str
    content: Any


class DspsFetched(
    msgspec.Struct,
    omit_defaults=True,
    rename={"channel_id": "channelID", "more_messages": "moreMessages", "ack_handle": "ackHandle"},
):
    """``ackHandle`` is there if there are messages."""

    channel_id: str
    messages: list[DspsMessage]
    more_messages: bool
    ack_handle: str = ""


class DspsStorage(msgspec.Struct, omit_defaults=True):
    children: dict[str, Any] = {}


class DspsProbe(msgspec.Struct, omit_defaults=True):
    storage: DspsStorage
    error: str = ""


class DspsRevoked(msgspec.Struct):
    jti: str
    exp: int


_BAD: Final = {400: "A parameter is not valid, or no rule matches the channel."}
_INT64: Final = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}

DOCS: Final[dict[tuple[str, str], Doc]] = {
    ("PUT", _MESSAGE): Doc(
        _TAG,
        "Publish a message",
        {200: Reply("It is published, or was before.", DspsPublished)},
        body=Body(Any, description="The content: any JSON."),
        refusals=_BAD,
        scope="publish",
    ),
    ("PUT", _POLLING): Doc(
        _TAG,
        "Make a subscription",
        {200: Reply("It is there.", DspsSubscription)},
        refusals=_BAD,
        scope="subscribe",
    ),
    ("DELETE", _POLLING): Doc(
        _TAG,
        "Remove a subscription",
        {200: Reply("It is not there any more.", DspsSubscription)},
        refusals=_BAD,
        scope="subscribe",
    ),
    ("GET", _POLLING): Doc(
        _TAG,
        "Fetch messages",
        {200: Reply("Messages, oldest first; the same until they are acknowledged.", DspsFetched)},
        parameters=(
            Parameter("timeout", "How long to wait for the first message, such as 20s."),
            Parameter("max", "How many messages at most.", {"type": "integer", "minimum": 0}),
        ),
        refusals={**_BAD, 404: "The channel has no such subscriber."},
        scope="subscribe",
    ),
    ("DELETE", _POLLING + "/message"): Doc(
        _TAG,
        "Acknowledge messages",
        {204: Reply("They are done.")},
        parameters=(Parameter("ackHandle", "The handle that came with them.", is_required=True),),
        refusals={**_BAD, 404: "The channel has no such subscriber."},
        scope="subscribe",
    ),
    ("GET", "/probe/liveness"): Doc(
        _TAG, "Ask whether the process lives", {200: Reply("It does.", DspsProbe)}
    ),
    ("GET", "/probe/readiness"): Doc(
        _TAG,
        "Ask whether it can work",
        {
            200: Reply("It can.", DspsProbe),
            500: Reply("Storages do not answer.", DspsProbe),
            503: Reply("It starts or stops.", DspsProbe),
        },
    ),
    ("PUT", "/admin/jwt/revoke"): Doc(
        _TAG,
        "Revoke a JSON Web Token",
        {200: Reply("It is revoked until its time is over everywhere.", DspsRevoked)},
        parameters=(
            Parameter("jti", "The id of the token.", is_required=True),
            Parameter("exp", "When it expires, in seconds since 1970.", _INT64, is_required=True),
        ),
        refusals={**_BAD, 501: "No storage keeps revocations."},
        scope="admin",
    ),
    ("PUT", "/admin/log/level"): Doc(
        _TAG,
        "Change the level of a log",
        {204: Reply("All workers do.")},
        parameters=(
            Parameter("category", "Which log; `*` is for all others.", is_required=True),
            Parameter(
                "level",
                "From which level on lines are written.",
                {"type": "string", "enum": ["DEBUG", "INFO", "WARN", "ERROR", "FATAL"]},
                is_required=True,
            ),
        ),
        refusals=_BAD,
        scope="admin",
    ),
}
