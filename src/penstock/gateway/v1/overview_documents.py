"""The answer of ``/v1/overview`` as a type, and what documentation says of its routes."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.gateway.overview import JobFigures
from penstock.gateway.store_figures import StoreFigures
from penstock.gateway.v1.documents import Doc, Parameter, Reply
from penstock.gateway.v1.operation_documents import (
    NodeGroupState,
    TransactionOverview,
    TransactionStatistics,
)

DEFAULT_LEVEL: Final = "5s"


class OverviewState(msgspec.Struct, kw_only=True):
    """One look at everything. Transactions are null where they are not enabled; all is null or empty in an
    event while the store does not answer."""

    now_ms: int
    transactions: TransactionOverview | None = None
    statistics: TransactionStatistics | None = None
    node_groups: list[NodeGroupState] = []
    jobs: JobFigures | None = None
    store: StoreFigures | None = None


_TAG: Final = "overview"
_LEVEL: Final = Parameter(
    "level",
    "How long a slot of the statistics is: they cover five minutes, two hours or a day.",
    {"type": "string", "enum": ["5s", "60s", "600s"], "default": DEFAULT_LEVEL},
)
_BAD: Final = {400: "A value is not what it should be."}

OVERVIEW: Final = Doc(
    _TAG,
    "Look at everything at once",
    {200: Reply("Transactions, node groups, jobs, the store.", OverviewState)},
    parameters=(_LEVEL,),
    refusals=_BAD,
    scope="observe",
)
EVENTS: Final = Doc(
    _TAG,
    "Follow the overview",
    {200: Reply("Server-sent events.", media="text/event-stream")},
    "An event `overview` every second, each whole; `end` when nothing will come any more, with the reason: "
    "`time-over`, `shutdown`, `unauthorized`. While the store does not answer, events say so with nulls. "
    "However many follow, each worker reads the store once a second.",
    (_LEVEL, Parameter("for", "After which time the stream ends, such as 10m.")),
    refusals=_BAD,
    scope="observe",
)
