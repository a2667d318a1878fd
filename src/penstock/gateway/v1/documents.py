"""What documentation says about a route. Values only; ``openapi`` makes the document of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Place: TypeAlias = Literal["query", "header", "path"]
#: What a token may need. Those of transactions and pipelines are for the owner that it stands for.
Scope: TypeAlias = Literal[
    "publish",
    "subscribe",
    "read",
    "admin",
    "observe",
    "transactions:start",
    "transactions:read",
    "transactions:control",
    "transactions:*",
    "pipelines:read",
    "pipelines:write",
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value of a request besides its body; those of the path are documented for every route by name."""

    name: str
    description: str
    #: JSON Schema
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: Place = "query"
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent. ``kind``: a type that msgspec has a schema for, or None for bytes of a media type."""

    kind: Any = None
    media: str = "application/json"
    description: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a route."""

    description: str
    kind: Any = None
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Doc:
    """One operation. Refusals that every route may give (401, 403, 413, 429, 500, 503) need not be listed."""

    tag: str
    summary: str
    replies: Mapping[int, Reply]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    #: statuses of refusals that this route may give, with what they mean
    refusals: Mapping[int, str] = field(default_factory=dict)
    #: what a token needs; None: nothing
    scope: Scope | None = None
