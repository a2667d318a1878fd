"""Schedules: kept, paused, taken under leases, started once a fire whatever dies, made up for by rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import penstock
from penstock.clock import ManualClock
from penstock.errors import BackpressureError, OutcomeUnknownError, UsageError
from penstock.transactions import keys
from penstock.transactions.looking import Looking
from penstock.transactions.model import Limit, Started
from penstock.transactions.schedules import Schedule, SchedulerDuty, Schedules
from penstock.transactions.schedules import schedules as schedules_module
from penstock.transactions.schedules.schedules import Entry
from penstock.transactions.store import TransactionStore
from tests.places import until
from tests.transactions.conftest import put_pipeline

#: 2026-01-01 00:00 UTC.
NEW_YEAR_MS = 1_767_225_600_000
MINUTE_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NEW_YEAR_MS)


@pytest.fixture
async def schedules(store: TransactionStore, clock: ManualClock) -> Schedules:
    await put_pipeline(store, "report", group="office")
    return Schedules(store, clock)


@pytest.fixture
def duty(schedules: Schedules) -> SchedulerDuty:
    return SchedulerDuty(schedules)


def every_minute(name: str = "tick", **more: Any) -> Schedule:
    return Schedule(name, "report", {"n": 1}, "acme", cron="* * * * *", **more)


async def fires(store: TransactionStore, name: str = "tick") -> list[int]:
    """Minutes after new year of the fires that started something."""
    page = await Looking(store).list(limit=1000)
    prefix = f"schedule:{name}:"
    found = [item.external_id.removeprefix(prefix) for item in page.items if item.external_id]
    return sorted((int(fire) - NEW_YEAR_MS) // MINUTE_MS for fire in found if fire.isdigit())


class TestKeeping:
    async def test_put_get_list_remove(self, schedules: Schedules) -> None:
        tick = every_minute(metadata={"k": 1}, priority=3)
        info = await schedules.put(tick)
        assert info.schedule == tick
        assert info.next_ms == NEW_YEAR_MS + MINUTE_MS
        assert (info.fired_ms, info.fires, info.transaction, info.error) == (None, 0, None, "")
        assert await schedules.get("tick") == info
        other = await schedules.put(Schedule("a", "report", at_ms=NEW_YEAR_MS + 5))
        assert await schedules.list() == [other, info]
        assert await schedules.remove("tick")
        assert not await schedules.remove("tick")
        assert await schedules.get("tick") is None
        assert await schedules.list() == [other]

    async def test_nothing_is_left_of_one_that_was_removed(
        self, ps: penstock.Penstock, schedules: Schedules
    ) -> None:
        await schedules.put(every_minute())
        await schedules.remove("tick")
        assert await ps.hkeys("{tx}.schedulesH") == [b"made"]
        assert await ps.zcard("{tx}.schedulesZ") == 0

    async def test_putting_it_again_changes_no_fire(self, schedules: Schedules, clock: ManualClock) -> None:
        first = await schedules.put(Schedule("s", "report", every_ms=10_000))
        clock.advance_ms(25_000)  # two fires are due, and nobody was there
        again = await schedules.put(Schedule("s", "report", {"new": "input"}, every_ms=10_000))
        assert (again.next_ms, again.anchor_ms) == (first.next_ms, first.anchor_ms)
        changed = await schedules.put(Schedule("s", "report", every_ms=20_000))
        assert changed.next_ms == NEW_YEAR_MS + 45_000

    async def test_what_makes_no_sense_is_refused_and_leaves_nothing(self, schedules: Schedules) -> None:
        with pytest.raises(UsageError, match="cron must be"):
            await schedules.put(Schedule("s", "report", cron="nonsense"))
        with pytest.raises(UsageError, match="timezone must be"):
            await schedules.put(Schedule("s", "report", cron="* * * * *", timezone="Nowhere"))
        assert await schedules.list() == []
        for call in (schedules.pause, schedules.resume, schedules.run_now, schedules.next_times):
            with pytest.raises(UsageError, match="there is no schedule 's'"):
                await call("s")

    async def test_there_is_an_end_to_how_many(
        self, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(schedules_module, "MAX_SCHEDULES", 1)
        await schedules.put(every_minute())
        await schedules.put(every_minute(priority=1))
        with pytest.raises(BackpressureError, match="1 schedules already"):
            await schedules.put(every_minute("other"))

    async def test_changes_at_the_same_time_all_count(self, schedules: Schedules) -> None:
        await asyncio.gather(*(schedules.put(every_minute(priority=n)) for n in range(5)))
        info = await schedules.get("tick")
        assert info is not None
        assert info.revision % 1_000_000 == 4

    async def test_next_times(self, schedules: Schedules, clock: ManualClock) -> None:
        await schedules.put(Schedule("s", "report", every_ms=10_000))
        clock.advance_ms(15_000)
        assert await schedules.next_times("s", 2) == [NEW_YEAR_MS + 20_000, NEW_YEAR_MS + 30_000]
        assert await schedules.next_times(every_minute(), 1) == [NEW_YEAR_MS + MINUTE_MS]
        with pytest.raises(UsageError, match="count must be"):
            await schedules.next_times("s", 0)


class TestFiring:
    async def test_a_fire_starts_a_transaction(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        await schedules.put(every_minute(metadata={"k": 1}, priority=3))
        assert await duty.run_once() == (0, MINUTE_MS)
        clock.advance_ms(MINUTE_MS)
        assert await duty.run_once() == (1, MINUTE_MS)
        assert await duty.run_once() == (0, MINUTE_MS)
        info = await schedules.get("tick")
        assert info is not None
        assert info.transaction is not None
        assert (info.fired_ms, info.next_ms, info.fires) == (
            NEW_YEAR_MS + MINUTE_MS,
            NEW_YEAR_MS + 2 * MINUTE_MS,
            1,
        )
        found = await store.get(info.transaction)
        assert found is not None
        record = found[0]
        assert (record.text(b"owner"), record.text(b"d:0")) == ("acme", '{"n":1}')
        assert (record.text(b"metadata"), record.number(b"priority")) == ('{"k":1}', 3)
        assert record.text(b"external_id") == f"schedule:tick:{NEW_YEAR_MS + MINUTE_MS}"

    async def test_a_single_time_fires_once(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        once = Schedule("tick", "report", at_ms=NEW_YEAR_MS + MINUTE_MS)
        await schedules.put(once)
        clock.advance_ms(10 * MINUTE_MS)
        assert await duty.run_once() == (1, None)
        assert (await schedules.put(once)).next_ms is None
        await schedules.pause("tick")
        assert (await schedules.resume("tick")).next_ms is None
        assert await duty.run_once() == (0, None)
        assert await fires(store) == [1]
        later = await schedules.put(Schedule("tick", "report", at_ms=NEW_YEAR_MS + 20 * MINUTE_MS))
        assert later.next_ms == NEW_YEAR_MS + 20 * MINUTE_MS

    @pytest.mark.parametrize(
        ("rule", "late", "wanted"),
        [
            ("skip", 5_000, [3]),
            ("one", 5_000, [3]),
            ("all", 5_000, [1, 2, 3]),
        ],
    )
    async def test_what_was_missed_is_made_up_for_by_rule(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock,
        rule: Any, late: int, wanted: list[int],
    ) -> None:  # fmt: skip
        await schedules.put(every_minute(catch_up=rule))
        clock.advance_ms(3 * MINUTE_MS + late)
        assert (await duty.run_once()).started == len(wanted)
        assert await fires(store) == wanted
        clock.advance_ms(MINUTE_MS)
        assert (await duty.run_once()).started == 1
        assert await fires(store) == [*wanted, 4]

    async def test_skip_leaves_out_what_is_late(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        await schedules.put(Schedule("tick", "report", cron="*/10 * * * *", catch_up="skip"))
        clock.advance_ms(11 * MINUTE_MS + 1)
        assert await duty.run_once() == (0, 9 * MINUTE_MS - 1)
        info = await schedules.get("tick")
        assert info is not None
        assert "missed" in info.error
        clock.advance_ms(9 * MINUTE_MS)
        assert (await duty.run_once()).started == 1
        info = await schedules.get("tick")
        assert info is not None
        assert info.error == ""
        assert await fires(store) == [20]

    async def test_all_are_the_last_thousand(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        await schedules.put(every_minute(catch_up="all"))
        clock.advance_ms(1_200 * MINUTE_MS)
        assert (await duty.run_once()).started == 1_000
        assert await fires(store) == list(range(201, 1_201))

    async def test_a_pause_is_not_made_up_for(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        await schedules.put(every_minute(catch_up="all"))
        assert (await schedules.pause("tick")).next_ms is None
        clock.advance_ms(5 * MINUTE_MS)
        assert await duty.run_once() == (0, None)
        assert (await schedules.resume("tick")).next_ms == NEW_YEAR_MS + 6 * MINUTE_MS
        clock.advance_ms(MINUTE_MS)
        await duty.run_once()
        assert await fires(store) == [6]

    async def test_now_and_besides(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        before = await schedules.put(every_minute(is_paused=True))
        started = await schedules.run_now("tick")
        assert started.is_new
        assert await schedules.get("tick") == before
        clock.advance_ms(1)
        assert (await schedules.run_now("tick")).id != started.id

    async def test_intervals_do_not_drift(
        self, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        await schedules.put(Schedule("s", "report", every_ms=10_000))
        clock.advance_ms(13_000)
        await duty.run_once()
        info = await schedules.get("s")
        assert info is not None
        assert (info.fired_ms, info.next_ms) == (NEW_YEAR_MS + 10_000, NEW_YEAR_MS + 20_000)


class TestFaults:
    async def test_who_dies_before_it_advances_starts_nothing_twice(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        await schedules.put(every_minute(catch_up="all"))
        clock.advance_ms(2 * MINUTE_MS)

        async def die(*_: Any, **__: Any) -> bool:
            raise OutcomeUnknownError("it died")

        with monkeypatch.context() as patch:
            patch.setattr(schedules, "advance", die)
            with pytest.raises(OutcomeUnknownError):
                await duty.run_once()
        assert await fires(store) == [1, 2]
        # Until the lease is over nobody else gets it.
        assert await duty.run_once() == (0, 30_000)
        clock.advance_ms(30_000)
        assert (await duty.run_once()).started == 0
        assert await fires(store) == [1, 2]
        info = await schedules.get("tick")
        assert info is not None
        assert info.next_ms == NEW_YEAR_MS + 3 * MINUTE_MS

    async def test_several_duties_start_each_fire_once(
        self, store: TransactionStore, schedules: Schedules, clock: ManualClock
    ) -> None:
        for number in range(20):
            await schedules.put(every_minute(f"s{number}"))
        clock.advance_ms(MINUTE_MS)
        rounds = await asyncio.gather(*(SchedulerDuty(schedules).run_once() for _ in range(4)))
        assert sum(done.started for done in rounds) == 20
        assert len((await Looking(store).list(limit=1000)).items) == 20

    async def test_who_took_an_older_revision_changes_nothing(
        self, schedules: Schedules, clock: ManualClock
    ) -> None:
        await schedules.put(every_minute())
        clock.advance_ms(MINUTE_MS)
        taken = await schedules.take(10, 30_000)
        changed = await schedules.put(Schedule("tick", "report", every_ms=5_000))
        assert not await schedules.advance(taken.entries[0], 1, fired_ms=1, fires=1, error="old")
        assert await schedules.get("tick") == changed

    async def test_nor_does_one_of_another_life(self, schedules: Schedules, clock: ManualClock) -> None:
        await schedules.put(every_minute())
        clock.advance_ms(MINUTE_MS)
        (old,) = (await schedules.take(10, 30_000)).entries
        await schedules.remove("tick")
        assert not await schedules.advance(old, 1)
        await schedules.put(every_minute())
        clock.advance_ms(MINUTE_MS)
        (new,) = (await schedules.take(10, 30_000)).entries
        assert not await schedules.advance(old, 1)
        assert await schedules.advance(new, NEW_YEAR_MS + 3 * MINUTE_MS)

    async def test_a_pipeline_that_is_not_there_is_told_and_holds_up_nobody(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        await schedules.put(Schedule("lost", "nowhere", cron="* * * * *"))
        await schedules.put(every_minute())
        clock.advance_ms(MINUTE_MS)
        assert await duty.run_once() == (1, MINUTE_MS)
        info = await schedules.get("lost")
        assert info is not None
        assert "there is no pipeline 'nowhere'" in info.error
        assert (info.fires, info.next_ms) == (0, NEW_YEAR_MS + 2 * MINUTE_MS)
        await put_pipeline(store, "nowhere")
        clock.advance_ms(MINUTE_MS)
        assert (await duty.run_once()).started == 2
        info = await schedules.get("lost")
        assert info is not None
        assert (info.error, info.fires) == ("", 1)

    async def test_a_full_queue_is_tried_again(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        partitions = await store.partitions()
        await store.set_limit("g:office", Limit(max_queued=partitions))
        fire = NEW_YEAR_MS + MINUTE_MS
        # The fire's own partition has room for one, and somebody is there already.
        home = keys.home_of("acme", f"schedule:tick:{fire}", partitions)
        blocker = next(
            name for name in map(str, range(10_000)) if keys.home_of("acme", name, partitions) == home
        )
        tx = (await store.start("report", b"{}", owner="acme", external_id=blocker)).id
        await schedules.put(every_minute())
        clock.advance_ms(MINUTE_MS)
        assert await duty.run_once() == (0, 5_000)
        info = await schedules.get("tick")
        assert info is not None
        assert "max_queued" in info.error
        assert (info.next_ms, info.fired_ms) == (fire, None)
        await store.control("cancel", tx, "test")
        clock.advance_ms(5_000)
        assert (await duty.run_once()).started == 1
        info = await schedules.get("tick")
        assert info is not None
        assert (info.error, info.fired_ms) == ("", fire)

    async def test_input_that_changed_after_a_crash_starts_no_second_one(
        self, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock
    ) -> None:
        old = every_minute()
        await schedules.put(old)
        started = await schedules.start(old, NEW_YEAR_MS + MINUTE_MS)
        await schedules.put(Schedule("tick", "report", {"n": 2}, "acme", cron="* * * * *"))
        clock.advance_ms(MINUTE_MS)
        assert (await duty.run_once()).started == 0
        info = await schedules.get("tick")
        assert info is not None
        assert (info.transaction, info.error) == (started.id, "")

    async def test_what_is_stored_and_no_schedule_holds_up_nobody(
        self, ps: penstock.Penstock, store: TransactionStore, schedules: Schedules, duty: SchedulerDuty,
        clock: ManualClock,
    ) -> None:  # fmt: skip
        for name in ("bad", "tick"):
            await schedules.put(every_minute(name))
        await ps.execute("HSET", "{tx}.schedulesH", "definition bad", "{")
        await ps.execute("ZADD", "{tx}.schedulesZ", 1, "ghost")
        clock.advance_ms(MINUTE_MS)
        assert await duty.run_once() == (1, MINUTE_MS)
        assert [info.schedule.name for info in await schedules.list()] == ["tick"]
        assert await ps.zscore("{tx}.schedulesZ", "bad") == float("inf")
        assert await ps.zscore("{tx}.schedulesZ", "ghost") is None
        assert (await schedules.put(every_minute("bad"))).next_ms == NEW_YEAR_MS + 2 * MINUTE_MS

    async def test_a_long_catching_up_keeps_its_lease_and_says_how_far_it_is(
        self, schedules: Schedules, duty: SchedulerDuty, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await schedules.put(every_minute(catch_up="all"))
        clock.advance_ms(120 * MINUTE_MS)
        real, calls = schedules.advance, 0

        async def die_in_the_middle(entry: Entry, *arguments: Any, **options: Any) -> bool:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise OutcomeUnknownError("it died")
            return await real(entry, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(schedules, "advance", die_in_the_middle)
            with pytest.raises(OutcomeUnknownError):
                await duty.run_once()
        info = await schedules.get("tick")
        assert info is not None
        assert (info.fires, info.next_ms) == (50, NEW_YEAR_MS + 51 * MINUTE_MS)
        clock.advance_ms(30_000)
        # Of the 70 that are left the 50 of the second batch were started before it died.
        assert (await duty.run_once()).started == 20


class TestRunning:
    @pytest.fixture
    async def running(self, store: TransactionStore) -> AsyncIterator[Schedules]:
        """By the store's own clock."""
        await put_pipeline(store, "report", group="office")
        schedules = Schedules(store)
        task = asyncio.create_task(SchedulerDuty(schedules).run())
        yield schedules
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_it_wakes_when_a_schedule_is_put_and_when_one_is_due(
        self, store: TransactionStore, running: Schedules
    ) -> None:
        # It sleeps for a minute if nobody wakes it.
        await until(lambda: self._is_listening(store))
        now_ms = (await running.next_times(Schedule("x", "report", every_ms=1_000), 1))[0]
        await running.put(Schedule("soon", "report", at_ms=now_ms - 700))

        async def is_started() -> bool:
            info = await running.get("soon")
            return info is not None and info.transaction is not None

        await until(is_started, limit_s=10)
        info = await running.get("soon")
        assert info is not None
        assert info.transaction is not None
        found = await store.get(info.transaction)
        assert found is not None
        assert found[0].number(b"created_ms") >= now_ms - 700

    async def _is_listening(self, store: TransactionStore) -> bool:
        reply: Any = await store.client.execute("PUBSUB", "CHANNELS", "tx.agenda")
        return b"tx.agenda" in reply

    async def test_it_ends_when_the_client_is_closed(self, url: str) -> None:
        async with penstock.open(url) as client:
            task = asyncio.create_task(SchedulerDuty(Schedules(TransactionStore(client))).run())
            await until(lambda: self._is_listening(TransactionStore(client)))
        async with asyncio.timeout(10):
            await task

    async def test_a_start_is_recognised_by_its_fire(self, running: Schedules) -> None:
        schedule = Schedule("s", "report", at_ms=NEW_YEAR_MS)
        first = await running.start(schedule, 7)
        assert await running.start(schedule, 7) == Started(first.id, False)
