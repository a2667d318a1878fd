"""Bodies and answers of ``/v1/transactions`` as types, and what documentation says of its routes.

Names end in their units: ``_ms`` is milliseconds, and of a moment those since 1970. What equals its
default (no output, step 0, priority 5, …) is left out of a transaction's JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply, Scope
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE
from penstock.transactions.listing import STATES, STATUSES
from penstock.transactions.model import MAX_DELAY_MS, MAX_SWITCH_VALUE, StepData, Transaction

NAME_PATTERN: Final = r"^[A-Za-z0-9_.@:/+-]{1,128}$"
MAX_REASON: Final = 500

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Delay = Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)]
Priority = Annotated[int, Meta(ge=0, le=9)]
Reason = Annotated[str, Meta(max_length=MAX_REASON)]

# ------------------------------------------------------------------------- bodies


def null() -> msgspec.Raw:
    """In place of JSON that is not there. (A schema cannot show it as a default, but it can as a factory.)"""
    return msgspec.Raw(b"null")


class StartWish(msgspec.Struct, forbid_unknown_fields=True):
    """``at`` is a moment in milliseconds, or as RFC 3339 writes it; ``owner`` is for operators."""

    pipeline: Name
    #: any JSON
    input: msgspec.Raw = msgspec.field(default_factory=null)
    #: unique among those of the owner for six hours
    external_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    webhook: Annotated[str, Meta(max_length=2048)] | None = None
    webhook_progress: bool = False
    #: whoever waits for the end and is told of it spares the webhook
    poll_cancels_webhook: bool = False
    metadata: msgspec.Raw = msgspec.field(default_factory=null)
    #: of the pipeline; null: the active one
    version: Annotated[str, Meta(max_length=128)] | None = None
    priority: Priority | None = None
    delay_ms: Delay = 0
    at: int | str | None = None
    deadline_ms: Delay | None = None
    owner: Name | None = None


class ControlWish(msgspec.Struct):
    """``reason`` is for the trail."""

    reason: Reason = ""


class ReplayWish(msgspec.Struct):
    """``step``: number of the step to go on from; 0 is the first."""

    step: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    reason: Reason = ""


class PriorityWish(msgspec.Struct):
    """9 is the most urgent."""

    priority: Priority


class SwitchWish(msgspec.Struct):
    """Numbers and booleans become text."""

    value: str | bool | int | float


# ------------------------------------------------------------------------- answers


class TransactionPage(msgspec.Struct):
    """Without inputs, outputs, switches and trails."""

    transactions: list[Transaction]
    cursor: str | None


class Children(msgspec.Struct):
    children: list[Transaction]


class ProgressReport(msgspec.Struct):
    """The last report. (Which step made it is not told: another one may be under way by now.)"""

    id: str
    progress: Any


class Switch(msgspec.Struct):
    name: str
    value: str


class SwitchSet(msgspec.Struct):
    """``outcome``: ``woken``, ``updated``, or ``nochange``."""

    name: str
    outcome: str


# ------------------------------------------------------------------------- parameters

_TAG: Final = "transactions"
_MOMENT: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]
}
_BOOLEAN: Final = {"type": "boolean", "default": False}
LIMIT: Final = Parameter(
    "limit",
    "How many at most.",
    {"type": "integer", "default": DEFAULT_PAGE, "minimum": 1, "maximum": MAX_PAGE},
)
CURSOR: Final = Parameter("cursor", "Where to go on: the cursor of the page before.")
NEXT_PAGE: Final = {"Link": "The next page, if there is one."}
OWNER: Final = Parameter(
    "owner", "Whose; only operators may name another owner than their own.", {"pattern": NAME_PATTERN}
)
BAD: Final = {400: "A value is not what it should be."}
_WAIT: Final = (
    Parameter("wait", "How long to wait for the end, such as 20s; a number is seconds."),
    Parameter("Prefer", "`wait=20` waits for so many seconds.", place="header"),
)
_LOOKING: Final = (
    *_WAIT,
    Parameter("trail", "With everything that happened to it.", _BOOLEAN),
    Parameter(
        "cancel_webhook",
        "Whether an end that is told to whoever waits spares the webhook, if its start agreed to that.",
        {"type": "boolean", "default": True},
    ),
    OWNER,
    Parameter("If-None-Match", "The ETag of what the client has.", place="header"),
)
_LOOKED: Final = {
    200: Reply(
        "As it is. With `wait`: when it has ended, or as it is when the time is over.",
        Transaction,
        headers={"ETag": "Changes when the transaction does.", "Retry-After": "When to ask again."},
    ),
    304: Reply("It is what the client has."),
}
MISSING: Final = {404: "There is no such transaction, or it is another owner's."}
_STATE: Final = {409: "The transaction is not in a state for this."}

# ------------------------------------------------------------------------- routes

START: Final = Doc(
    _TAG,
    "Start a transaction",
    {
        202: Reply(
            "It is started.",
            Transaction,
            headers={"Location": "The transaction.", "Retry-After": "When to ask how it is."},
        ),
        200: Reply("It has ended already.", Transaction, headers={"Location": "The transaction."}),
    },
    "When the answer comes it is in the store, and will be run whatever dies. An external id, or else an "
    "`Idempotency-Key`, makes repeating safe: the same pipeline and input are answered with the transaction "
    "that was started first (`Idempotent-Replayed: true`). `Prefer: wait=20` waits for the end.",
    (
        Parameter("Idempotency-Key", "The external id, if the body has none.", place="header"),
        *_WAIT,
    ),
    Body(StartWish),
    {
        **BAD,
        404: "There is no such pipeline, or no such version of it.",
        409: "The external id belongs to a transaction that was started with another body.",
        422: "The Idempotency-Key was used with another body.",
        429: "Too many wait already; `Retry-After` tells when to come again.",
        507: "The store is full; nothing was written.",
    },
    "transactions:start",
)
LIST: Final = Doc(
    _TAG,
    "List transactions",
    {200: Reply("Newest first.", TransactionPage, headers=NEXT_PAGE)},
    "A page may be short of `limit` and have a cursor all the same. `state=dead` lists those that were given "
    "up. `archived=true` searches those that left the store.",
    (
        LIMIT,
        CURSOR,
        OWNER,
        Parameter("state", "Where they are.", {"type": "string", "enum": [*STATES]}),
        Parameter("status", "`running`, or how they ended.", {"type": "string", "enum": [*STATUSES]}),
        Parameter("pipeline", "Of this pipeline."),
        Parameter("node_group", "Of this node group."),
        Parameter("external_id", "With this external id."),
        Parameter("since", "Started then or later.", _MOMENT),
        Parameter("until", "Started before.", _MOMENT),
        Parameter("roots", "Without those that steps of others have started.", _BOOLEAN),
        Parameter("archived", "In the archive.", _BOOLEAN),
    ),
    refusals={**BAD, 404: "The gateway has no archive."},
    scope="transactions:read",
)
LOOK: Final = Doc(
    _TAG,
    "Look at a transaction, or wait for its end",
    _LOOKED,
    parameters=_LOOKING,
    refusals={**BAD, **MISSING},
    scope="transactions:read",
)
FIND: Final = Doc(
    _TAG,
    "Look at a transaction by its external id",
    _LOOKED,
    "The one that has it, or had it last.",
    _LOOKING,
    refusals={**BAD, **MISSING},
    scope="transactions:read",
)
CHILDREN: Final = Doc(
    _TAG,
    "List what the steps of a transaction have started",
    {200: Reply("Those that the store still has.", Children)},
    parameters=(OWNER,),
    refusals={**BAD, **MISSING},
    scope="transactions:read",
)
STEP: Final = Doc(
    _TAG,
    "Look at what a step of a transaction got and gave",
    {200: Reply("As the store has it; a replay forgets what later steps got.", StepData)},
    parameters=(OWNER,),
    refusals={400: "There is no such step, or it was not reached.", **MISSING},
    scope="transactions:read",
)
EVENTS: Final = Doc(
    _TAG,
    "Follow a transaction",
    {
        200: Reply("Server-sent events.", media="text/event-stream"),
        204: Reply("It has ended, and the client knows (`Last-Event-ID`)."),
    },
    "Events `state` (the transaction, without its input), `progress` (a report of a step), and `end` when "
    "nothing will come any more, with the reason: `ended`, `time-over`, `shutdown`, `transaction-removed`, "
    "`unauthorized`.",
    (
        OWNER,
        Parameter("for", "After which time the stream ends, such as 10m."),
        Parameter("Last-Event-ID", "The id of the last event that the client has.", place="header"),
    ),
    refusals={**BAD, **MISSING},
    scope="transactions:read",
)


def _control(summary: str, description: str, kind: type, *, is_optional: bool = True) -> Doc:
    return Doc(
        _TAG,
        summary,
        {200: Reply("The transaction as it is then.", Transaction)},
        description,
        (OWNER,),
        Body(kind, description="May be empty." if is_optional else ""),
        {**BAD, **MISSING, **_STATE},
        "transactions:control",
    )


CANCEL: Final = _control(
    "Cancel a transaction",
    "One that runs ends as soon as its step lets go, and when what must be undone is undone. Its children "
    "are cancelled, too.",
    ControlWish,
)
RETRY: Final = _control(
    "Retry a transaction that has ended",
    "It goes on at the step where it failed; from the first if its steps were undone.",
    ControlWish,
)
REPLAY: Final = _control(
    "Run a transaction again from a step", "With what that step was given then.", ReplayWish
)
WAKE: Final = _control("Wake a transaction", "One that sleeps or waits goes on now.", ControlWish)
PRIORITY: Final = _control("Change the priority of a transaction", "", PriorityWish, is_optional=False)


def _switch(summary: str, replies: dict[int, Reply], scope: Scope, **more: Any) -> Doc:
    return Doc(_TAG, summary, replies, parameters=(OWNER,), scope=scope, **more)


GET_SWITCH: Final = _switch(
    "Read a switch",
    {200: Reply("Its value.", Switch)},
    "transactions:read",
    refusals={**BAD, 404: "There is no such transaction, or the switch is not set."},
)
PUT_SWITCH: Final = _switch(
    "Set a switch",
    {200: Reply("What came of it.", SwitchSet)},
    "transactions:control",
    description="A transaction that waits for it goes on. A value has at most "
    f"{MAX_SWITCH_VALUE:,} characters.",
    body=Body(SwitchWish),
    refusals={**BAD, **MISSING, **_STATE},
)
DELETE_SWITCH: Final = _switch(
    "Delete a switch",
    {204: Reply("It is not set any more.")},
    "transactions:control",
    refusals={**BAD, 404: "There is no such transaction, or the switch is not set.", **_STATE},
)
