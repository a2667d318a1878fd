"""Bodies and replies of the DATP API as types, and what documentation says of its routes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply
from penstock.gateway.v1.transaction_documents import null

TAG: Final = "DATP"


class DatpStart(msgspec.Struct):
    """``metadata``: externalId, poll, webhook, progressReports, pollReplyCancelsWebhook, and others."""

    metadata: dict[str, Any] = {}
    #: the input: any JSON
    data: msgspec.Raw = msgspec.field(default_factory=null)


class DatpMetadata(msgspec.Struct, rename="camel"):
    """Times are as RFC 3339 writes them; ``status`` is running, or how it ended."""

    owner: str
    tx_id: str
    external_id: str | None
    transaction_type: str
    status: str
    completion_time: str | None
    last_updated: str | None
    notified_time: str | None


class DatpReply(msgspec.Struct, rename="camel"):
    """Unless the gateway was given a reply converter."""

    metadata: DatpMetadata
    progress_report: Any
    data: Any


class DatpError(msgspec.Struct):
    """``status`` is error."""

    status: str
    error: str
    code: str


_REPLY: Final = {200: Reply("How it is.", DatpReply)}
_POLL: Final = (
    Parameter(
        "reply",
        "`longpoll` waits for the end, up to 15 seconds.",
        {"type": "string", "enum": ["shortpoll", "longpoll", "short", "long"]},
    ),
)
_MISSING: Final = {400: "A value is not what it should be.", 404: "There is none, or it is another owner's."}

START: Final = Doc(
    TAG,
    "Start a transaction",
    _REPLY,
    "The type is the name of a pipeline. `metadata.poll: long` waits for the end, up to 15 seconds.",
    body=Body(DatpStart),
    refusals={
        400: "A value is not what it should be.",
        404: "There is no such pipeline.",
        409: "The external id belongs to a transaction that was started with another body.",
        507: "The store is full; nothing was written.",
    },
    scope="transactions:start",
)
STATUS: Final = Doc(
    TAG, "Ask how a transaction is", _REPLY, parameters=_POLL, refusals=_MISSING, scope="transactions:read"
)
FIND: Final = Doc(
    TAG,
    "Ask how a transaction is, by its external id",
    _REPLY,
    parameters=_POLL,
    refusals=_MISSING,
    scope="transactions:read",
)
