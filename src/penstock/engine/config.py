"""Settings that CONFIG GET shows and CONFIG SET changes: one table, typed values behind it.

``notify-keyspace-events`` belongs to the store (all processes must agree on it) and is
kept in its ``system`` table; everything else belongs to this process. Parameters that
Redis has and that mean nothing here are not pretended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.engine.datatypes.numbers import parse_int
from penstock.engine.storage.environment import Durability
from penstock.engine.storage.layout import DATABASES
from penstock.errors import CommandError

_EVENT_LETTERS: Final = "KEg$lshzxetdmn"
#: what the letter A stands for
_ALL_EVENTS: Final = "g$lshzxetd"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One line of CONFIG: the attribute behind it, how to read it, how to show it."""

    attribute: str
    parse: Callable[[bytes], object] | None
    show: Callable[[object], bytes]


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
        self.notify_classes: frozenset[str] = frozenset()
        self._shared: bytes | None = None

    @property
    def slowlog_threshold_ns(self) -> int:
        """Above this a command is slow; a negative setting turns the log off."""
        if self.slowlog_slower_than_us < 0:
            return 1 << 62
        return self.slowlog_slower_than_us * 1000

    def get(self, name: bytes) -> bytes:
        parameter = PARAMETERS[name]
        return parameter.show(getattr(self, parameter.attribute))

    def load_shared(self, stored: bytes | None) -> None:
        """Take over what another process set; ``stored`` is the ``config`` row of the ``system`` table."""
        if stored != self._shared:
            self._shared = stored
            self.notify_classes = frozenset((stored or b"").decode())


# ------------------------------------------------------------------- reading and showing


def _number(low: int, high: int) -> Callable[[bytes], object]:
    def parse(text: bytes) -> object:
        value = parse_int(text)
        if value is None:
            raise CommandError("argument couldn't be parsed into an integer")
        if not low <= value <= high:
            raise CommandError(f"argument must be between {low} and {high} inclusive")
        return value

    return parse


def _text(text: bytes) -> object:
    return text.decode("utf-8", "surrogateescape")


def _events(text: bytes) -> object:
    letters: set[str] = set()
    for letter in text.decode("latin-1"):
        if letter == "A":
            letters |= set(_ALL_EVENTS)
        elif letter in _EVENT_LETTERS:
            letters.add(letter)
        else:
            raise CommandError("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
    return frozenset(letters)


def _show_events(value: object) -> bytes:
    """In Redis's order, with A for the usual ten."""
    assert isinstance(value, frozenset)
    text = ""
    if value >= set(_ALL_EVENTS):
        text = "A"
    else:
        text = "".join(letter for letter in _ALL_EVENTS if letter in value)
    return (text + "".join(letter for letter in "KEmn" if letter in value)).encode()


def _show(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogateescape")


_MAX: Final = (1 << 63) - 1
#: an attribute whose value the parameter does not look at
_CONSTANT: Final = "durability"

PARAMETERS: Final[dict[bytes, Parameter]] = {
    b"databases": Parameter("databases", None, _show),
    b"port": Parameter("port", None, _show),
    b"durability": Parameter("durability", None, _show),
    b"requirepass": Parameter("requirepass", _text, _show),
    b"maxclients": Parameter("max_clients", _number(1, 1_000_000), _show),
    b"slowlog-log-slower-than": Parameter("slowlog_slower_than_us", _number(-1, _MAX), _show),
    b"slowlog-max-len": Parameter("slowlog_max_len", _number(0, 100_000), _show),
    b"busy-reply-threshold": Parameter("script_time_limit_ms", _number(0, _MAX), _show),
    b"lua-time-limit": Parameter("script_time_limit_ms", _number(0, _MAX), _show),
    b"proto-max-bulk-len": Parameter("max_bulk_bytes", None, _show),
    b"notify-keyspace-events": Parameter("notify_classes", _events, _show_events),
    # What clients and benchmark tools ask for; true statements about this store.
    b"save": Parameter(_CONSTANT, None, lambda _: b""),
    b"appendonly": Parameter(_CONSTANT, None, lambda _: b"yes"),
    b"maxmemory": Parameter(_CONSTANT, None, lambda _: b"0"),
    b"maxmemory-policy": Parameter(_CONSTANT, None, lambda _: b"noeviction"),
}
