"""Answers of ``/v1/server`` as types, and what documentation says of its routes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.gateway.store_figures import SlowCommand, StoreClient, StoreFigures
from penstock.gateway.v1.documents import Doc, Parameter, Reply

MAX_CLIENTS: Final = 1_000
MAX_SLOW: Final = 1_000
#: Entries of the slow log, unless somebody asks for more.
SLOW: Final = 50


class StoreDescription(StoreFigures, kw_only=True):
    """The store that the gateway works on."""

    #: without secrets
    url: str
    #: of an embedded store
    path: str | None
    version: str
    uptime_s: int


class NodeReport(msgspec.Struct):
    """One server of a cluster."""

    node: str
    info: dict[str, dict[str, Any]]


class ServerState(msgspec.Struct, kw_only=True):
    """``worker``: the number of the process that answers, from 0; ``workers``: how many serve the port."""

    version: str
    python: str
    pid: int
    uptime_s: int
    #: of the process that answers
    memory_bytes: int
    worker: int
    workers: int
    store: StoreDescription
    #: what the store says of itself, by section; on a cluster the first of the nodes
    info: dict[str, dict[str, Any]]
    #: of a cluster, else none
    nodes: list[NodeReport]


class ClientList(msgspec.Struct):
    """``total``: how many there are; the list has those that came last."""

    total: int
    clients: list[StoreClient]


class SlowLog(msgspec.Struct):
    entries: list[SlowCommand]


_TAG: Final = "server"
_NOT_TOLD: Final = {404: "The store does not tell this gateway."}

SERVER: Final = Doc(
    _TAG,
    "Look at the gateway and its store",
    {200: Reply("Versions, memory, and what the store says of itself.", ServerState)},
    "Figures of an embedded store that concern commands, clients and memory are those of the process that "
    "answers. On a cluster they are added up over its primaries.",
    scope="observe",
)
CLIENTS: Final = Doc(
    _TAG,
    "List connections to the store",
    {200: Reply("Those that came last are first.", ClientList)},
    "Of an embedded store those of the process that answers. `node` names the server on a cluster.",
    (
        Parameter(
            "limit",
            "How many at most.",
            {"type": "integer", "default": MAX_CLIENTS, "minimum": 1, "maximum": MAX_CLIENTS},
        ),
    ),
    refusals=_NOT_TOLD,
    scope="observe",
)
SLOW_LOG: Final = Doc(
    _TAG,
    "Read the slow log of the store",
    {200: Reply("Commands that took long, newest first.", SlowLog)},
    "What is slow is a setting of the store: `slowlog-log-slower-than`, in microseconds.",
    (
        Parameter(
            "limit",
            "How many at most.",
            {"type": "integer", "default": SLOW, "minimum": 1, "maximum": MAX_SLOW},
        ),
    ),
    refusals=_NOT_TOLD,
    scope="observe",
)
