"""Bodies and answers of limits, node groups, workers and statistics as types, and what documentation says."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply
from penstock.gateway.v1.transaction_documents import BAD, OWNER
from penstock.transactions.workers_registry import MAX_CONCURRENCY, WorkerInfo

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]

# ------------------------------------------------------------------------- limits


class LimitWish(msgspec.Struct, forbid_unknown_fields=True):
    """0 is no limit."""

    is_paused: bool = False
    #: steps at a time
    concurrency: Count = 0
    #: taken up by workers in a second
    rate: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    #: … and how many at once after a quiet time
    burst: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1
    #: of a node group: starts are refused while so many wait
    max_queued: Count = 0


class LimitState(msgspec.Struct):
    """``kind``: pipelines, owners or node-groups."""

    kind: str
    name: str
    is_paused: bool
    concurrency: int
    rate: float
    burst: int
    max_queued: int


class LimitList(msgspec.Struct):
    limits: list[LimitState]


# ------------------------------------------------------------------------- groups and workers


class NodeGroupWish(msgspec.Struct):
    """How many transactions each worker should have at a time; null leaves it to them."""

    concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] | None


class NodeGroupWished(msgspec.Struct):
    name: str
    concurrency: int | None


class NodeGroupState(msgspec.Struct, kw_only=True):
    """Who waits (``admin``: people asked for it, ``out``: who goes on, ``in``: who begins), and who runs."""

    name: str
    admin: int
    out: int
    in_: int = msgspec.field(name="in")
    #: whom a limit holds back
    held: int
    running: int
    is_paused: bool
    #: since when the one waits who has waited for longest
    oldest_ms: int | None
    workers: int
    #: what is wished of each worker
    concurrency: int | None


class NodeGroupList(msgspec.Struct):
    node_groups: list[NodeGroupState]


class WorkerList(msgspec.Struct):
    workers: list[WorkerInfo]


# ------------------------------------------------------------------------- numbers


class TransactionOverview(msgspec.Struct):
    queued: int
    running: int
    sleeping: int
    dead: int
    to_archive: int
    #: not delivered yet
    webhooks: int
    #: messages on their way to streams and channels
    outbox: int
    total: int
    #: of those that sleep: waiting for a switch. Among very many sleepers some are overlooked.
    waiting: int


class DurationFigures(msgspec.Struct):
    count: int
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class SlotFigures(msgspec.Struct):
    """What happened in a stretch of time. ``wait``: from the queue to a worker; ``latency``: to the end."""

    start_ms: int
    queued: int
    started: int
    retried: int
    lost: int
    #: by status
    ended: dict[str, int]
    wait: DurationFigures | None
    latency: DurationFigures | None


class TransactionStatistics(msgspec.Struct, kw_only=True):
    level: str
    now_ms: int
    #: how much time the slots cover
    seconds: float
    total: SlotFigures
    #: oldest first; the last is not over yet
    slots: list[SlotFigures]
    #: totals by name, if they were asked for ``by`` something
    parts: dict[str, SlotFigures]


class WebhookSecret(msgspec.Struct):
    owner: str
    #: in the form of Standard Webhooks
    secret: str


# ------------------------------------------------------------------------- routes

_TAG: Final = "transaction operations"
_KIND: Final = {404: "There is no such kind of limits."}

LIMITS: Final = Doc(
    _TAG,
    "List limits",
    {200: Reply("Of pipelines, owners and node groups.", LimitList)},
    "Each partition of the store has its share, at least one: a small limit may allow more than it says.",
    scope="transactions:*",
)
PUT_LIMIT: Final = Doc(
    _TAG,
    "Set a limit",
    {200: Reply("It holds from now on.", LimitState)},
    body=Body(LimitWish),
    refusals={**BAD, **_KIND},
    scope="transactions:*",
)
DELETE_LIMIT: Final = Doc(
    _TAG,
    "Take a limit away",
    {204: Reply("There is none any more.")},
    refusals={**BAD, **_KIND},
    scope="transactions:*",
)
PAUSE: Final = Doc(
    _TAG,
    "Let nothing more of it begin",
    {200: Reply("What runs goes on to the end of its step.", LimitState)},
    refusals={**BAD, **_KIND},
    scope="transactions:*",
)
RESUME: Final = Doc(
    _TAG,
    "Let it go on",
    {200: Reply("The limit as it is then.", LimitState)},
    refusals={**BAD, **_KIND},
    scope="transactions:*",
)
GROUPS: Final = Doc(
    _TAG,
    "List node groups",
    {200: Reply("Who waits for their workers, and who runs.", NodeGroupList)},
    scope="transactions:*",
)
PUT_GROUP: Final = Doc(
    _TAG,
    "Wish how much workers of a node group do at a time",
    {200: Reply("Workers follow within seconds.", NodeGroupWished)},
    body=Body(NodeGroupWish),
    refusals=BAD,
    scope="transactions:*",
)
WORKERS: Final = Doc(
    _TAG, "List workers", {200: Reply("Those that are alive.", WorkerList)}, scope="transactions:*"
)
OVERVIEW: Final = Doc(
    _TAG,
    "Count transactions",
    {200: Reply("How much there is of everything.", TransactionOverview)},
    scope="transactions:*",
)
STATISTICS: Final = Doc(
    _TAG,
    "Read statistics",
    {200: Reply("What happened, by stretches of time.", TransactionStatistics)},
    "Of five minutes, two hours or a day. Who is no operator sees the numbers of their owner.",
    (
        Parameter(
            "level",
            "How long a slot is.",
            {"type": "string", "enum": ["5s", "60s", "600s"], "default": "60s"},
        ),
        Parameter(
            "by", "Totals for each of these.", {"type": "string", "enum": ["pipeline", "node_group", "owner"]}
        ),
        Parameter("pipeline", "Of this pipeline."),
        Parameter("node_group", "Of this node group."),
        OWNER,
        Parameter("since", "From this moment on, in milliseconds since 1970 or as RFC 3339 writes it."),
    ),
    refusals=BAD,
    scope="transactions:read",
)
SECRET: Final = Doc(
    _TAG,
    "Read the secret that signs webhooks of an owner",
    {200: Reply("It is made when it is first asked for.", WebhookSecret)},
    parameters=(OWNER,),
    refusals=BAD,
    scope="transactions:control",
)
ROTATE: Final = Doc(
    _TAG,
    "Make a new secret for webhooks of an owner",
    {200: Reply("Both the new one and the one before sign from now on.", WebhookSecret)},
    parameters=(OWNER,),
    refusals=BAD,
    scope="transactions:control",
)
