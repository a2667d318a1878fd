"""The vocabulary of permission: who asks, to do what, with which thing, and why not.

Rules: values only, nothing is decided here. ``AuthRejected`` says why in words for people and as a
``Rejection`` for programs; which HTTP status that is, and whether the words leave the house, is decided
by whoever answers. It must not know headers, stores or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from penstock.errors import PenstockError

ResourceKind: TypeAlias = Literal["channel", "stream", "pubsub", "transaction", "admin"]
PrincipalKind: TypeAlias = Literal["anonymous", "jwt", "token", "admin"]


class Action(StrEnum):
    """What somebody wants to do; also the scopes that a token can have."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    #: look at information: lengths, subscribers, positions
    READ = "read"
    ADMIN = "admin"
    #: see everything of everybody that the API shows, and change nothing
    OBSERVE = "observe"
    #: of transactions of the owner that a credential stands for
    START = "transactions:start"
    LOOK = "transactions:read"
    CONTROL = "transactions:control"
    #: everything about the transactions of all owners
    OPERATE = "transactions:*"
    READ_PIPELINES = "pipelines:read"
    WRITE_PIPELINES = "pipelines:write"


#: Never open to everybody, whatever they are asked of.
ALWAYS_ASKED: Final = frozenset({Action.ADMIN, Action.OBSERVE})


@dataclass(frozen=True, slots=True)
class Resource:
    """What it is done to. The administration as a whole has the kind ``admin`` and no name."""

    kind: ResourceKind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who was let in. ``name`` is for logs and limits, ``claims`` what the credential said."""

    kind: PrincipalKind
    name: str
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


ANONYMOUS = Principal("anonymous", "anonymous")


@dataclass(frozen=True, slots=True)
class Standing:
    """Who somebody is, and what they may do: of channels and streams to some at least, of the rest to all."""

    principal: Principal
    may: frozenset[Action]

    @property
    def may_operate(self) -> bool:
        return {Action.ADMIN, Action.OPERATE, Action.WRITE_PIPELINES} <= self.may


class Rejection(StrEnum):
    """The kinds of no."""

    #: no credential was shown, and one is needed
    MISSING = "missing"
    #: the credential is malformed, forged, expired, revoked or unknown
    INVALID = "invalid"
    #: the credential is good, and not for this
    FORBIDDEN = "forbidden"
    #: whether it is good could not be found out
    UNAVAILABLE = "unavailable"


class AuthRejected(PenstockError):  # noqa: N818 - a refusal is an answer, not a fault
    """The request is not allowed. ``reason`` is one sentence and never contains a secret."""

    def __init__(self, reason: str, kind: Rejection = Rejection.INVALID) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
