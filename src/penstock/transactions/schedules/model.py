"""What a schedule is, and what the store knows of one. Nothing here sends anything or knows when it fires."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import msgspec

from penstock.errors import UsageError
from penstock.transactions import keys
from penstock.transactions.model import DAY_MS, DEFAULT_OWNER, PRIORITIES, to_json

MIN_EVERY_MS: Final = 1_000
MAX_EVERY_MS: Final = 366 * DAY_MS
#: JSON of input and of metadata: all schedules are read when somebody lists them.
MAX_INPUT_BYTES: Final = 65_536
#: Of "all", the latest that are made up for.
MAX_CATCH_UP: Final = 1_000
_LAST_MS: Final = 253_402_300_799_000  # the year 9999

CatchUp = Literal["skip", "one", "all"]


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transaction that is started again and again, or once: by ``cron``, ``every_ms`` or ``at_ms``."""

    name: str
    pipeline: str
    input: Any = None
    owner: str = DEFAULT_OWNER
    #: five fields, or six with seconds first; ``timing`` tells how they meet the change of clocks
    cron: str | None = None
    every_ms: int | None = None
    at_ms: int | None = None
    #: of ``cron``
    timezone: str = "UTC"
    #: fires that nobody was there for: none, the latest alone, each (up to 1,000)
    catch_up: CatchUp = "one"
    is_paused: bool = False
    #: None: the pipeline's
    priority: int | None = None
    metadata: Any = None

    def __post_init__(self) -> None:
        keys.check_name("name", self.name)
        keys.check_name("pipeline", self.pipeline)
        keys.check_name("owner", self.owner)
        if [self.cron, self.every_ms, self.at_ms].count(None) != 2:
            raise UsageError("give exactly one of cron, every_ms and at_ms")
        if self.every_ms is not None and not MIN_EVERY_MS <= self.every_ms <= MAX_EVERY_MS:
            raise UsageError(f"every_ms must be {MIN_EVERY_MS} to {MAX_EVERY_MS}, not {self.every_ms}")
        if self.at_ms is not None and not 0 < self.at_ms <= _LAST_MS:
            raise UsageError(f"at_ms must be milliseconds since 1970, not {self.at_ms}")
        if self.catch_up not in ("skip", "one", "all"):
            raise UsageError(f"catch_up must be skip, one or all, not {self.catch_up!r}")
        if self.priority is not None and self.priority not in PRIORITIES:
            raise UsageError(f"priority must be 0 to 9 (9 is the most urgent), not {self.priority}")

    @property
    def timing(self) -> tuple[Any, ...]:
        """What its fires depend on."""
        return self.cron, self.every_ms, self.at_ms, self.timezone if self.cron else None

    def text(self) -> bytes:
        """JSON for the store; ``UsageError`` for what is none."""
        to_json("input", self.input, MAX_INPUT_BYTES)
        to_json("metadata", self.metadata, MAX_INPUT_BYTES)
        return msgspec.json.encode(self)


class ScheduleInfo(NamedTuple):
    """A schedule, and how it is with it."""

    schedule: Schedule
    #: grows with each change; of use to nobody but the store
    revision: int
    #: the next fire; None if there is none, or it is paused
    next_ms: int | None
    #: from when an interval counts
    anchor_ms: int
    #: the last fire that was dealt with
    fired_ms: int | None
    #: transactions that it has started
    fires: int
    #: the last of them
    transaction: str | None
    #: why the last fire started none; empty if it did
    error: str


def schedule_from(text: bytes) -> Schedule:
    """Of the store; ``UsageError`` for what is no schedule."""
    try:
        return msgspec.json.decode(text, type=Schedule)
    except msgspec.MsgspecError as error:
        raise UsageError(f"the stored definition is not a schedule: put it again ({error})") from None
