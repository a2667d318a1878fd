"""Schedules in the store: put, look, pause, remove. ``lua/schedule.lua`` makes each change in one piece.

    schedules = Schedules(store)
    info = await schedules.put(Schedule("nightly", "close-books", cron="0 2 * * *"))

Rules: the time of the store decides, unless a clock is given (tests). Putting a schedule again with the same
timing changes no fire, so a program may put its schedules whenever it starts. What a pause has missed is not
made up for. What this module must not know: who starts what is due (``duty``).
"""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.clock import Clock
from penstock.errors import BackpressureError, UsageError
from penstock.transactions import keys
from penstock.transactions.model import DAY_MS, Started, to_json
from penstock.transactions.schedules import timing
from penstock.transactions.schedules.model import Schedule, ScheduleInfo, schedule_from
from penstock.transactions.store import TransactionStore

_LOG = logging.getLogger(__name__)

MAX_SCHEDULES: Final = 10_000
MAX_TIMES: Final = 1_000
#: How long a fire is recognised: whoever comes back later than this after a crash may start it again.
FIRE_ID_MS: Final = 7 * DAY_MS
_KEYS: Final = ("{tx}.schedulesH", "{tx}.schedulesZ")
_BATCH: Final = 100
#: How often a schedule may change under a change before that gives up.
_ATTEMPTS: Final = 20


class Entry(NamedTuple):
    """A schedule as it is stored; its definition may be none."""

    name: str
    definition: bytes
    revision: int
    next_ms: int | None
    anchor_ms: int
    fired_ms: int | None
    fires: int
    transaction: str | None
    error: str

    def info(self) -> ScheduleInfo:
        return ScheduleInfo(schedule_from(self.definition), *self[2:])


class Taken(NamedTuple):
    """What somebody took to see to."""

    now_ms: int
    #: until there is something again; None for never
    next_ms: int | None
    entries: list[Entry]


# The method ``list`` hides the type of that name from the annotations of its class.
Infos: TypeAlias = list[ScheduleInfo]
Times: TypeAlias = list[int]


class Schedules:
    """The schedules of one store."""

    def __init__(self, store: TransactionStore, clock: Clock | None = None) -> None:
        self.store = store
        self._clock = clock
        self._script = store.client.scripts("penstock.transactions").schedule

    # ---------------------------------------------------------------------------------------- changing

    async def put(self, schedule: Schedule) -> ScheduleInfo:
        """Save it, in place of one of the same name."""
        timing.check(schedule)
        for _ in range(_ATTEMPTS):
            now_ms, old = await self._read(schedule.name)
            if await self._save(schedule, old, now_ms):
                return await self._get(schedule.name)
        raise BackpressureError(f"schedule {schedule.name!r} changes all the time: try later")

    async def _save(self, schedule: Schedule, old: Entry | None, now_ms: int) -> bool:
        """False: somebody else has changed it since it was read."""
        before = _schedule_of(old)
        anchor_ms, next_ms = now_ms, schedule.at_ms
        if old is not None and before is not None and before.timing == schedule.timing:
            anchor_ms = old.anchor_ms
            # A single time that was dealt with stays so.
            next_ms = (
                None if schedule.at_ms is not None and old.fired_ms == schedule.at_ms else schedule.at_ms
            )
            if not before.is_paused:
                next_ms = old.next_ms
        if schedule.is_paused:
            next_ms = None
        elif next_ms is None and schedule.at_ms is None:
            next_ms = timing.next_fire(schedule, now_ms, anchor_ms)
        revision = 0 if old is None else old.revision
        reply = await self._run(
            "put", schedule.name, revision, schedule.text(), "" if next_ms is None else next_ms, anchor_ms,
            MAX_SCHEDULES,
        )  # fmt: skip
        if reply[0] == b"full":
            raise BackpressureError(f"there are {MAX_SCHEDULES} schedules already: remove some of them")
        return bool(reply[0] == b"ok")

    async def pause(self, name: str) -> ScheduleInfo:
        """It fires no more until it is resumed."""
        return await self.put(msgspec.structs.replace((await self._get(name)).schedule, is_paused=True))

    async def resume(self, name: str) -> ScheduleInfo:
        """It goes on with the next fire from now."""
        return await self.put(msgspec.structs.replace((await self._get(name)).schedule, is_paused=False))

    async def remove(self, name: str) -> bool:
        """What it has started goes on. False: there was none."""
        return bool(await self._run("remove", keys.check_name("name", name)))

    async def run_now(self, name: str) -> Started:
        """Start what it starts, now and besides, paused or not."""
        schedule = (await self._get(name)).schedule
        return await self.start(schedule, f"now-{await self._now_ms()}")

    # ----------------------------------------------------------------------------------------- looking

    async def get(self, name: str) -> ScheduleInfo | None:
        _, entry = await self._read(name)
        return None if entry is None else entry.info()

    async def list(self) -> Infos:
        """All of them by name; without those that nobody can read, which are logged."""
        names = sorted(name.decode() for name in await self._run("names"))
        found: list[ScheduleInfo] = []
        for at in range(0, len(names), _BATCH):
            _, *rows = await self._run("get", *names[at : at + _BATCH])
            for row in rows:
                try:
                    found.append(_entry_from(row).info())
                except UsageError as error:
                    _LOG.warning("schedule %s: %s", row[0], error)
        return found

    async def next_times(self, schedule: Schedule | str, count: int = 5) -> Times:
        """When it fires from now on (ms), paused or not; of one that is stored or of any other."""
        if not 1 <= count <= MAX_TIMES:
            raise UsageError(f"count must be 1 to {MAX_TIMES}, not {count}")
        if isinstance(schedule, str):
            info = await self._get(schedule)
            return timing.next_fires(info.schedule, await self._now_ms(), info.anchor_ms, count)
        timing.check(schedule)
        now_ms = await self._now_ms()
        return timing.next_fires(schedule, now_ms, now_ms, count)

    # ----------------------------------------------------------------------------------- for the duty

    async def take(self, limit: int, lease_ms: int) -> Taken:
        """What is due, for this caller alone until the lease ends."""
        now_ms, left_ms, *rows = await self._run("take", limit, lease_ms)
        return Taken(int(now_ms), None if left_ms < 0 else left_ms, [_entry_from(row) for row in rows])

    async def advance(
        self,
        entry: Entry,
        next_ms: int | None,
        *,
        fired_ms: int | None = None,
        fires: int = 0,
        transaction: str = "",
        error: str = "",
        lease_ms: int = 0,
    ) -> bool:
        """Say how far one that was taken has got; False: it has changed, or somebody else has it."""
        reply = await self._run(
            "advance", entry.name, entry.revision, "" if next_ms is None else next_ms,
            "" if fired_ms is None else fired_ms, fires, transaction, error, lease_ms,
        )  # fmt: skip
        return bool(reply[0] == b"ok")

    async def start(self, schedule: Schedule, fire: int | str) -> Started:
        """Start what a schedule starts; for each fire once."""
        fields = {} if schedule.metadata is None else {"metadata": to_json("metadata", schedule.metadata)}
        return await self.store.start(
            schedule.pipeline,
            to_json("input", schedule.input),
            owner=schedule.owner,
            external_id=f"schedule:{schedule.name}:{fire}",
            external_id_ms=FIRE_ID_MS,
            priority=schedule.priority,
            fields=fields,
        )

    # ------------------------------------------------------------------------------------------ inside

    async def _read(self, name: str) -> tuple[int, Entry | None]:
        now_ms, *rows = await self._run("get", keys.check_name("name", name))
        return int(now_ms), _entry_from(rows[0]) if rows else None

    async def _get(self, name: str) -> ScheduleInfo:
        _, entry = await self._read(name)
        if entry is None:
            raise UsageError(f"there is no schedule {name!r}: put it first")
        return entry.info()

    async def _now_ms(self) -> int:
        return int((await self._run("get"))[0])

    async def _run(self, *words: Any) -> Any:
        now_ms = "" if self._clock is None else self._clock.now_ms()
        return await self._script(_KEYS, (now_ms, *words))

    def __repr__(self) -> str:
        return f"<Schedules on {self.store!r}>"


def _schedule_of(entry: Entry | None) -> Schedule | None:
    try:
        return None if entry is None else schedule_from(entry.definition)
    except UsageError:
        return None  # to be replaced


def _entry_from(row: list[bytes]) -> Entry:
    name, definition, revision, next_ms, anchor_ms, fired_ms, fires, transaction, error = row
    return Entry(
        name.decode(),
        definition,
        int(revision),
        _moment(next_ms),
        _moment(anchor_ms) or 0,
        _moment(fired_ms),
        _moment(fires) or 0,
        transaction.decode() or None,
        error.decode("utf-8", "replace"),
    )


def _moment(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None
