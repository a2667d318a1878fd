"""What to do when something fails: when to connect again, what may be sent again, what an error asks for.

==================  ==============================================================
``Constant`` …      how long to wait before the next attempt to connect
``decide``          what becomes of a command whose connection broke
``classify_error``  the errors of a server that a client can do something about
==================  ==============================================================

Rules: decisions only. Nothing here sleeps, sends or keeps state; chance and time are
handed in, so that tests can choose them. This module knows neither connections nor
the commands it decides about.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple, Protocol

from penstock.errors import ConfigError
from penstock.protocol.slots import SLOT_COUNT

# ------------------------------------------------------------------- connecting again

#: A number from 0 up to, not including, 1.
Random = Callable[[], float]


class ReconnectPolicy(Protocol):
    """How long to wait before connecting again. Users may bring their own."""

    def delay_ms(self, attempt: int, random: Random) -> int | None:
        """Milliseconds before attempt ``attempt`` (1 is the first); None: give up."""


@dataclass(frozen=True, slots=True)
class NoReconnect:
    """A lost connection stays lost; the client has to be opened anew."""

    def delay_ms(self, attempt: int, random: Random) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Constant:
    """The same delay before every attempt.

    ``jitter`` is the part of a delay left to chance: the wait is drawn evenly from
    ``(1 - jitter) * delay`` to ``delay``, so that clients which lost a server together do
    not come back together, and no wait exceeds what was configured.
    """

    base_ms: int = 1_000
    jitter: float = 0.5
    #: 0: for ever.
    max_attempts: int = 0

    def __post_init__(self) -> None:
        _check_policy(self.base_ms, self.jitter, self.max_attempts)

    def delay_ms(self, attempt: int, random: Random) -> int | None:
        if 0 < self.max_attempts < attempt:
            return None
        return _jittered(self.base_ms, self.jitter, random)


@dataclass(frozen=True, slots=True)
class Linear:
    """``base_ms`` at first, ``step_ms`` more each time, never above ``cap_ms``. Jitter as in ``Constant``."""

    base_ms: int = 100
    step_ms: int = 100
    cap_ms: int = 10_000
    jitter: float = 0.5
    #: 0: for ever.
    max_attempts: int = 0

    def __post_init__(self) -> None:
        _check_policy(self.base_ms, self.jitter, self.max_attempts)
        _check_cap(self.base_ms, self.cap_ms)
        if self.step_ms < 0:
            raise ConfigError(f"step_ms of a reconnect policy must be 0 or more, not {self.step_ms}")

    def delay_ms(self, attempt: int, random: Random) -> int | None:
        if 0 < self.max_attempts < attempt:
            return None
        delay_ms = min(self.base_ms + self.step_ms * (attempt - 1), self.cap_ms)
        return _jittered(delay_ms, self.jitter, random)


@dataclass(frozen=True, slots=True)
class Exponential:
    """``base_ms`` at first, ``factor`` times as long each time, never above ``cap_ms``.

    Jitter as in ``Constant``.
    """

    base_ms: int = 50
    factor: float = 2.0
    cap_ms: int = 10_000
    jitter: float = 0.5
    #: 0: for ever.
    max_attempts: int = 0

    def __post_init__(self) -> None:
        _check_policy(self.base_ms, self.jitter, self.max_attempts)
        _check_cap(self.base_ms, self.cap_ms)
        if not 1.0 <= self.factor < math.inf:
            raise ConfigError(f"factor of a reconnect policy must be 1 or more, not {self.factor}")

    def delay_ms(self, attempt: int, random: Random) -> int | None:
        if 0 < self.max_attempts < attempt:
            return None
        try:
            delay_ms = min(self.base_ms * self.factor ** (attempt - 1), self.cap_ms)
        except OverflowError:  # an outage of a thousand attempts
            delay_ms = self.cap_ms
        return _jittered(delay_ms, self.jitter, random)


def _jittered(delay_ms: float, jitter: float, random: Random) -> int:
    return round(delay_ms * (1.0 - jitter * random()))


def _check_policy(base_ms: int, jitter: float, max_attempts: int) -> None:
    if base_ms < 1:
        # Without any delay a client would spin on a server that is down.
        raise ConfigError(f"base_ms of a reconnect policy must be 1 or more, not {base_ms}")
    if not 0.0 <= jitter <= 1.0:
        raise ConfigError(f"jitter of a reconnect policy must be between 0 and 1, not {jitter}")
    if max_attempts < 0:
        raise ConfigError(
            f"max_attempts of a reconnect policy must be 0 (for ever) or more, not {max_attempts}"
        )


def _check_cap(base_ms: int, cap_ms: int) -> None:
    if cap_ms < base_ms:
        raise ConfigError(f"cap_ms of a reconnect policy must not be below its base_ms {base_ms}: {cap_ms}")


_POLICIES: Final[Mapping[str, type[NoReconnect | Constant | Linear | Exponential]]] = {
    "none": NoReconnect,
    "constant": Constant,
    "linear": Linear,
    "exponential": Exponential,
}


def parse_policy(text: str) -> ReconnectPolicy:
    """A policy as it is written in a URL: ``none``, ``exponential:base_ms=100,cap_ms=5000``."""
    name, _, arguments = text.partition(":")
    policy = _POLICIES.get(name)
    if policy is None:
        raise ConfigError(f"unknown reconnect policy {name!r}: use one of {', '.join(_POLICIES)}")
    known = [field.name for field in fields(policy)]
    values: dict[str, float] = {}
    for argument in arguments.split(",") if arguments else ():
        key, _, value = argument.partition("=")
        if key not in known:
            names = ", ".join(known) or "no arguments"
            raise ConfigError(f"unknown argument {key!r} of the reconnect policy {name!r}: it has {names}")
        try:
            values[key] = float(value) if key in ("factor", "jitter") else int(value)
        except ValueError:
            raise ConfigError(f"{key} of the reconnect policy {name!r} is not a number: {value!r}") from None
    # The keys were checked against the policy's own fields and the values fit their types.
    return policy(**values)  # type: ignore[arg-type]


# ------------------------------------------------------------------- sending again


class Decision(enum.Enum):
    """What becomes of a command whose connection broke before its reply came."""

    #: Send it again; nobody can be harmed.
    RESEND = "resend"
    #: Fail: it was written, and may or may not have run.
    OUTCOME_UNKNOWN = "outcome unknown"
    #: Fail: it was never written, so it did not run.
    NOT_SENT = "not sent"


def decide(
    *,
    was_sent: bool,
    is_readonly: bool,
    is_idempotent: bool,
    attempt: int,
    max_attempts: int,
    in_transaction: bool = False,
) -> Decision:
    """Whether a command may be sent again, first row that fits:

    ========  ===========  ==============  =============  ===================
    was sent  attempts     in transaction  harmless       decision
    ========  ===========  ==============  =============  ===================
    no        left         any             any            ``RESEND``
    no        used up      any             any            ``NOT_SENT``
    yes       any          yes             any            ``OUTCOME_UNKNOWN``
    yes       any          no              no             ``OUTCOME_UNKNOWN``
    yes       left         no              yes            ``RESEND``
    yes       used up      no              yes            ``OUTCOME_UNKNOWN``
    ========  ===========  ==============  =============  ===================

    ``was_sent``
        Whether any byte of it may have reached a server that has not answered it.
    ``is_readonly``, ``is_idempotent``
        Either makes it harmless. The caller passes ``is_idempotent`` only where the user
        opted in to repeated writes.
    ``attempt``
        The attempt that failed; 1 is the first. ``max_attempts`` 0: no limit but the deadline.
    ``in_transaction``
        Part of a MULTI … EXEC burst, which is never repeated once it was written.
    """
    attempts_left = max_attempts == 0 or attempt < max_attempts
    if not was_sent:
        return Decision.RESEND if attempts_left else Decision.NOT_SENT
    if in_transaction or not (is_readonly or is_idempotent) or not attempts_left:
        return Decision.OUTCOME_UNKNOWN
    return Decision.RESEND


# ------------------------------------------------------------------- errors of a server


class ErrorClass(enum.Enum):
    """The code words that a client knows.

    A server that answers with one of them did not run the command. (A script can return the
    same words of its own making; whoever writes one must know what they start.)
    """

    MOVED = "MOVED"
    ASK = "ASK"
    CLUSTERDOWN = "CLUSTERDOWN"
    LOADING = "LOADING"
    READONLY = "READONLY"
    MASTERDOWN = "MASTERDOWN"
    TRYAGAIN = "TRYAGAIN"
    NOREPLICAS = "NOREPLICAS"
    MISCONF = "MISCONF"
    BUSY = "BUSY"
    NOSCRIPT = "NOSCRIPT"
    NOAUTH = "NOAUTH"
    WRONGPASS = "WRONGPASS"
    NOPERM = "NOPERM"
    #: Anything else; whether it ran is the command's own business.
    OTHER = ""


class Remedy(enum.Enum):
    """What helps against an error."""

    #: Send it to the node that the error names.
    REDIRECT = "redirect"
    #: The node is not what it was taken for: find out who serves now, then send again.
    REDISCOVER = "rediscover"
    #: The same node will take it in a moment.
    WAIT = "wait"
    #: Load the script and send again.
    LOAD_SCRIPT = "load script"
    #: Nothing a client may do by itself.
    RAISE = "raise"


class Redirect(NamedTuple):
    slot: int
    #: Empty: the host that sent the error.
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClassifiedError:
    """What is known of one error line."""

    kind: ErrorClass
    remedy: Remedy
    #: Set exactly for MOVED and ASK.
    redirect: Redirect | None = None


_REMEDIES: Final[Mapping[ErrorClass, Remedy]] = {
    ErrorClass.MOVED: Remedy.REDIRECT,
    ErrorClass.ASK: Remedy.REDIRECT,
    ErrorClass.CLUSTERDOWN: Remedy.REDISCOVER,
    ErrorClass.LOADING: Remedy.REDISCOVER,
    ErrorClass.READONLY: Remedy.REDISCOVER,
    ErrorClass.MASTERDOWN: Remedy.REDISCOVER,
    ErrorClass.TRYAGAIN: Remedy.WAIT,
    ErrorClass.NOSCRIPT: Remedy.LOAD_SCRIPT,
    # Somebody has to repair, stop or permit something: a person, not a client.
    ErrorClass.NOREPLICAS: Remedy.RAISE,
    ErrorClass.MISCONF: Remedy.RAISE,
    ErrorClass.BUSY: Remedy.RAISE,
    ErrorClass.NOAUTH: Remedy.RAISE,
    ErrorClass.WRONGPASS: Remedy.RAISE,
    ErrorClass.NOPERM: Remedy.RAISE,
    ErrorClass.OTHER: Remedy.RAISE,
}

_CLASSES: Final[Mapping[str, ClassifiedError]] = {
    kind.value: ClassifiedError(kind, remedy)
    for kind, remedy in _REMEDIES.items()
    if remedy is not Remedy.REDIRECT and kind is not ErrorClass.OTHER
}
_REDIRECTS: Final[Mapping[str, ErrorClass]] = {
    kind.value: kind for kind in (ErrorClass.MOVED, ErrorClass.ASK)
}
_OTHER: Final = ClassifiedError(ErrorClass.OTHER, Remedy.RAISE)


def classify_error(text: str) -> ClassifiedError:
    """What an error line (without its dash) asks of the client.

    A redirection that does not say where to is ``OTHER``: it may come from a script, or
    from a cluster whose nodes do not know their own names (``?``), and following it would
    only hide that.
    """
    code, _, rest = text.partition(" ")
    if code in _REDIRECTS:
        redirect = _parse_redirect(rest)
        return ClassifiedError(_REDIRECTS[code], Remedy.REDIRECT, redirect) if redirect else _OTHER
    return _CLASSES.get(code, _OTHER)


def _parse_redirect(text: str) -> Redirect | None:
    """``3999 127.0.0.1:6381``, with an empty host or an IPv6 address, in brackets or not."""
    slot_text, _, address = text.strip().partition(" ")
    host, colon, port_text = address.rpartition(":")
    slot, port = _decimal(slot_text), _decimal(port_text)
    if not colon or slot is None or slot >= SLOT_COUNT or port is None or not 1 <= port <= 65535:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if host == "?" or " " in host:
        return None
    return Redirect(slot, host, port)


def _decimal(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else None
