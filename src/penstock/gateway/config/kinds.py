"""Kinds of values that a configuration file holds, as annotations of the model's fields.

The model says *what* a field is (``DurationMs``, ``Annotated[int, Between(0, 65535)]``); the reader
(:mod:`penstock.gateway.config.reading`) and the writer (:mod:`penstock.gateway.config.dumping`) know
how each kind is spelled. :func:`setting` is for the few fields that are spelled in a way of their own.

Rules: no reading, no writing, no defaults of any key in here. Must not know the model.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.configuration.durations import MAX_MS
from penstock.gateway.auth import networks

#: What a dump shows instead of a secret.
MASK: Final = "***"

#: A token of RFC 9110.
HEADER_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}"
#: Nothing that could end the header and begin another.
HEADER_VALUE: Final = r"[^\x00-\x08\x0a-\x1f\x7f]*"


@dataclass(frozen=True, slots=True)
class Duration:
    """A Go duration or a number of seconds; milliseconds in Python. Its field ends in ``_ms``."""

    min_ms: int = 0
    max_ms: int = MAX_MS


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number, both allowed. ``None``: no bound."""

    lowest: float | None = None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class Matching:
    """Text of a form; ``expected`` completes the sentence "must be …"."""

    pattern: str
    expected: str


@dataclass(frozen=True, slots=True)
class Secret:
    """Text that neither messages nor dumps show."""

    #: A store's URL: a dump masks its password alone.
    is_url: bool = False


@dataclass(frozen=True, slots=True)
class AnyCase:
    """A choice that may be spelled in any case; Python sees the spelling of the ``Literal``."""


@dataclass(frozen=True, slots=True)
class OneOrMany:
    """A list that may be written as its only item."""


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A path that must be readable when the configuration is loaded."""


#: Zero allowed.
DurationMs: TypeAlias = Annotated[int, Duration()]
PositiveDurationMs: TypeAlias = Annotated[int, Duration(min_ms=1)]
Count: TypeAlias = Annotated[int, Between(0, (1 << 31) - 1)]
PositiveCount: TypeAlias = Annotated[int, Between(1, (1 << 31) - 1)]
Ratio: TypeAlias = Annotated[float, Between(0.0, 1.0)]
#: Per second; 0 means no limit.
Rate: TypeAlias = Annotated[float, Between(0.0, 1e9)]
SecretText: TypeAlias = Annotated[str, Secret()]
Name: TypeAlias = Annotated[
    str, Matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "1 to 63 letters, digits, '_', '.' or '-'")
]
HeaderName: TypeAlias = Annotated[str, Matching(HEADER_NAME, "the name of an HTTP header")]
HeaderValue: TypeAlias = Annotated[
    str, Matching(HEADER_VALUE, "text without line ends and control characters")
]
NonEmptyText: TypeAlias = Annotated[str, Matching(r"(?s).+", "text that is not empty")]
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Matched with ``fullmatch``.
Regex: TypeAlias = re.Pattern[str]
LogLevel: TypeAlias = Annotated[Literal["DEBUG", "INFO", "WARN", "ERROR", "FATAL"], AnyCase()]

#: Loopback, link-local and private addresses: who is near, unless the file says otherwise.
PRIVATE_NETWORKS: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(text) for text in networks.PRIVATE_NETWORKS.texts
)


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a field departs from the rule "the field's name in camelCase, without ``_ms``"."""

    key: str | None = None
    #: Other keys that mean the same; one of them at a time.
    aliases: tuple[str, ...] = ()
    #: An empty list or mapping in the file means the default.
    empty_is_default: bool = False
    #: A mapping in the file is laid over the default, names compared without case.
    is_merged: bool = False
    #: Understood for files written for others; a dump has it only if it was set.
    is_foreign: bool = False
    #: Not a key of the file at all.
    is_internal: bool = False


def setting(key: str | None = None, /, *aliases: str, **flags: bool) -> Mapping[str, Any]:
    """Metadata for ``dataclasses.field``: the field's :class:`Spelling`."""
    return {"spelling": Spelling(key, aliases, **flags)}
