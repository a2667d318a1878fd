"""Settings that CONFIG GET shows and CONFIG SET changes: one table, typed values behind it.

``notify-keyspace-events`` belongs to the store (all processes must agree on it) and is
kept in its ``system`` table; everything else belongs to this process. Parameters that
Redis has and that mean nothing here are not pretended.

Rules: a change is read and checked as a whole before any of it counts. This module
knows nothing of sessions or of what a setting does where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.datatypes.numbers import parse_int
from penstock.engine.storage.environment import Durability
from penstock.engine.storage.layout import DATABASES
from penstock.errors import CommandError

#: What the letter A of notify-keyspace-events stands for, in the order they are shown.
_USUAL_EVENTS: Final = "g$lshzxetd"
_EVENT_LETTERS: Final = frozenset(_USUAL_EVENTS + "nKEm")


class Config:
    """Current values, as attributes."""

    def __init__(self, durability: Durability) -> None:
        self.durability: str = durability
        self.databases = DATABASES
        self.port = 0
        self.requirepass = ""
        self.max_clients = 10_000
        self.slowlog_slower_than_us = 10_000
        self.slowlog_max_len = 128
        self.script_time_limit_ms = 5_000
        self.max_bulk_bytes = 512 * 1024 * 1024
        self.tracking_max_keys = 1_000_000
        self.notify_classes: frozenset[str] = frozenset()
        self._shared: bytes | None = None

    @property
    def slowlog_threshold_ns(self) -> int:
        """Above this a command is slow; a negative setting turns the log off."""
        if self.slowlog_slower_than_us < 0:
            return 1 << 62
        return self.slowlog_slower_than_us * 1000

    def get(self, name: bytes) -> bytes:
        """The value of a parameter as CONFIG GET shows it; ``name`` is a key of ``PARAMETERS``."""
        parameter = PARAMETERS[name]
        if parameter.attribute is None:
            return parameter.show(None)
        return parameter.show(getattr(self, parameter.attribute))

    def assign(self, values: dict[str, Any]) -> dict[str, Any]:
        """Give attributes new values (see :func:`read_settings`); answers the old ones."""
        before = {attribute: getattr(self, attribute) for attribute in values}
        for attribute, value in values.items():
            setattr(self, attribute, value)
        return before

    # ------------------------------------------------------------------ shared

    def load_shared(self, stored: bytes | None) -> None:
        """Take over what another process set; ``stored`` is the ``config`` row of the ``system`` table."""
        if stored != self._shared:
            self._shared = stored
            self.notify_classes = frozenset((stored or b"").decode())

    def dump_shared(self) -> bytes:
        """What to store for :meth:`load_shared`."""
        return "".join(sorted(self.notify_classes)).encode()


def read_settings(pairs: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    """New values by attribute, from the words of CONFIG SET; a CommandError names what is wrong."""
    names: list[bytes] = []
    for word, _ in pairs:
        name = word.lower()
        if name not in PARAMETERS:
            raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{_text(word)}'")
        if PARAMETERS[name].parse is None:
            raise _failure(name, "can't set immutable config")
        if name in names:
            raise _failure(name, "duplicate parameter")
        names.append(name)
    values: dict[str, Any] = {}
    for name, (_, text) in zip(names, pairs, strict=True):
        parameter = PARAMETERS[name]
        assert parameter.parse is not None
        try:
            value = parameter.parse(text)
        except ValueError as error:
            raise _failure(name, str(error)) from None
        if parameter.attribute is not None:
            values[parameter.attribute] = value
    return values


def _failure(name: bytes, reason: str) -> CommandError:
    return CommandError(f"ERR CONFIG SET failed (possibly related to argument '{name.decode()}') - {reason}")


# ------------------------------------------------------------------- reading and showing


@dataclass(frozen=True, slots=True)
class Parameter:
    """One line of CONFIG. A ``parse`` that refuses the text raises ValueError with the reason."""

    #: of :class:`Config`; None for a constant
    attribute: str | None
    #: None: cannot be changed while running
    parse: Callable[[bytes], Any] | None
    show: Callable[[Any], bytes]


def _number(low: int, high: int) -> Callable[[bytes], int]:
    def parse(text: bytes) -> int:
        value = parse_int(text)
        if value is None:
            raise ValueError("argument couldn't be parsed into an integer")
        if not low <= value <= high:
            raise ValueError(f"argument must be between {low} and {high} inclusive")
        return value

    return parse


def _events(text: bytes) -> frozenset[str]:
    letters: set[str] = set()
    for letter in text.decode("latin-1"):
        if letter == "A":
            letters.update(_USUAL_EVENTS)
        elif letter in _EVENT_LETTERS:
            letters.add(letter)
        else:
            raise ValueError("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
    return frozenset(letters)


def _show_events(letters: frozenset[str]) -> bytes:
    """In Redis's order, with A for the usual ones (and then without n, as Redis has it)."""
    usual = "A" if letters.issuperset(_USUAL_EVENTS) else _among(letters, _USUAL_EVENTS + "n")
    return (usual + _among(letters, "KEm")).encode()


def _among(letters: frozenset[str], order: str) -> str:
    return "".join(letter for letter in order if letter in letters)


def _text(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _show(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogateescape")


def _constant(value: bytes) -> Parameter:
    """A parameter with one possible value: setting it to that is fine, to anything else is not."""

    def parse(text: bytes) -> bytes:
        if text.lower() != value:
            raise ValueError("can't set immutable config")
        return value

    return Parameter(None, parse, lambda _: value)


_MAX_INT64: Final = (1 << 63) - 1
_MAX_UINT32: Final = (1 << 32) - 1

PARAMETERS: Final[dict[bytes, Parameter]] = {
    b"databases": Parameter("databases", None, _show),
    b"port": Parameter("port", None, _show),
    b"durability": Parameter("durability", None, _show),
    b"requirepass": Parameter("requirepass", _text, _show),
    b"maxclients": Parameter("max_clients", _number(1, _MAX_UINT32), _show),
    b"slowlog-log-slower-than": Parameter("slowlog_slower_than_us", _number(-1, _MAX_INT64), _show),
    b"slowlog-max-len": Parameter("slowlog_max_len", _number(0, _MAX_INT64), _show),
    b"busy-reply-threshold": Parameter("script_time_limit_ms", _number(0, _MAX_INT64), _show),
    b"lua-time-limit": Parameter("script_time_limit_ms", _number(0, _MAX_INT64), _show),
    b"proto-max-bulk-len": Parameter("max_bulk_bytes", None, _show),
    b"tracking-table-max-keys": Parameter("tracking_max_keys", _number(0, _MAX_INT64), _show),
    b"notify-keyspace-events": Parameter("notify_classes", _events, _show_events),
    # What clients and benchmark tools ask for; true statements about this store.
    b"save": _constant(b""),
    b"appendonly": _constant(b"yes"),
    b"maxmemory": _constant(b"0"),
    b"maxmemory-policy": _constant(b"noeviction"),
}
