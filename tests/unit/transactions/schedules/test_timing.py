"""When schedules fire: cron in time zones, the change of clocks, intervals, and the last fires."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.transactions.schedules import timing
from penstock.transactions.schedules.model import Schedule

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = "UTC", *, fold: int = 0) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(moment.timestamp() * 1000)


def cron(expression: str, zone: str = BERLIN) -> Schedule:
    return Schedule("s", "p", cron=expression, timezone=zone)


def shown(schedule: Schedule, after_ms: int, count: int) -> list[str]:
    """Fires as clocks in UTC tell them."""
    fires = timing.next_fires(schedule, after_ms, 0, count)
    return [datetime.fromtimestamp(fire / 1000, ZoneInfo("UTC")).strftime("%m-%d %H:%M") for fire in fires]


class TestCron:
    def test_a_fire_is_after_the_moment_and_not_at_it(self) -> None:
        every_five = cron("*/5 * * * *", "UTC")
        at = ms("2026-01-01T12:05")
        assert timing.next_fire(every_five, at - 1, 0) == at
        assert timing.next_fire(every_five, at, 0) == at + 300_000
        assert timing.next_fire(every_five, at + 1, 0) == at + 300_000

    def test_it_is_read_in_its_time_zone(self) -> None:
        assert shown(cron("0 9 * * *"), ms("2026-01-01T00:00"), 1) == ["01-01 08:00"]
        assert shown(cron("0 9 * * *"), ms("2026-07-01T00:00"), 1) == ["07-01 07:00"]
        assert shown(cron("0 9 * * *", "Asia/Kolkata"), ms("2026-07-01T00:00"), 1) == ["07-01 03:30"]

    def test_seconds_come_first_if_there_are_six_fields(self) -> None:
        at = ms("2026-01-01T00:00")
        assert timing.next_fires(cron("*/20 * * * * *"), at, 0, 3) == [at + 20_000, at + 40_000, at + 60_000]

    def test_names_stand_for_expressions(self) -> None:
        assert shown(cron("@Daily", "UTC"), ms("2026-01-01T12:00"), 2) == ["01-02 00:00", "01-03 00:00"]

    @pytest.mark.parametrize(
        "expression",
        ["", "* * * *", "61 * * * *", "a b c d e", "* * * * MON#2/2", "* * * * * * *", "@reboot", "9" * 300],
    )
    def test_what_is_no_expression_is_refused(self, expression: str) -> None:
        with pytest.raises(UsageError, match=r"^cron must "):
            timing.check(cron(expression))

    def test_what_never_comes_true_is_refused(self) -> None:
        with pytest.raises(UsageError, match="cron"):
            timing.check(cron("0 0 30 2 *"))
        with pytest.raises(UsageError, match="never comes true"):
            # The first day of a month that is also its fifth Monday.
            timing.check(cron("0 0 */31 * 1#5"))

    @pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../etc/passwd", "Europe"])
    def test_an_unknown_time_zone_is_refused(self, zone: str) -> None:
        with pytest.raises(UsageError, match="timezone must be a name"):
            timing.check(cron("* * * * *", zone))


class TestTheHourThatIsLeftOut:
    """In Berlin clocks went from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC."""

    def test_a_fixed_time_in_it_fires_once_when_it_is_over(self) -> None:
        fires = shown(cron("30 2 * * *"), ms("2026-03-28T00:00"), 3)
        assert fires == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]

    def test_two_fixed_times_in_it_are_one_fire(self) -> None:
        fires = shown(cron("0,30 2 * * *"), ms("2026-03-28T12:00"), 2)
        assert fires == ["03-29 01:00", "03-30 00:00"]

    def test_a_fire_at_its_end_is_not_repeated(self) -> None:
        assert shown(cron("30 2 * * *"), ms("2026-03-29T01:00"), 1) == ["03-30 00:30"]

    def test_what_follows_time_as_it_passes_leaves_it_out(self) -> None:
        fires = shown(cron("*/30 * * * *"), ms("2026-03-29T00:00"), 4)
        assert fires == ["03-29 00:30", "03-29 01:00", "03-29 01:30", "03-29 02:00"]
        assert shown(cron("*/30 2 * * *"), ms("2026-03-29T00:00"), 1) == ["03-30 00:00"]


class TestTheHourThatComesTwice:
    """In Berlin clocks went from 03:00 back to 02:00 on 25 October 2026, at 01:00 UTC."""

    def test_a_fixed_time_in_it_fires_in_the_first(self) -> None:
        assert shown(cron("30 2 * * *"), ms("2026-10-24T12:00"), 2) == ["10-25 00:30", "10-26 01:30"]

    def test_nor_does_it_for_somebody_who_asks_within_the_second(self) -> None:
        within = ms("2026-10-25T02:10", BERLIN, fold=1)
        assert shown(cron("30 2 * * *"), within, 1) == ["10-26 01:30"]

    def test_what_follows_time_as_it_passes_fires_in_both(self) -> None:
        fires = shown(cron("30 * * * *"), ms("2026-10-25T00:00"), 3)
        assert fires == ["10-25 00:30", "10-25 01:30", "10-25 02:30"]
        assert shown(cron("*/30 2 * * *"), ms("2026-10-24T12:00"), 4) == [
            "10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30",
        ]  # fmt: skip


class TestIntervalsAndSingleTimes:
    def test_an_interval_counts_from_its_anchor(self) -> None:
        every = Schedule("s", "p", every_ms=10_000)
        assert timing.next_fires(every, 500, 500, 2) == [10_500, 20_500]
        assert timing.next_fire(every, 20_499, 500) == 20_500
        assert timing.next_fire(every, 20_500, 500) == 30_500
        # A clock that was set back does not make it fire before its first time.
        assert timing.next_fire(every, 0, 500) == 10_500

    def test_a_single_time_is_over_when_it_has_come(self) -> None:
        once = Schedule("s", "p", at_ms=1_000)
        assert timing.next_fires(once, 0, 0, 5) == [1_000]
        assert timing.next_fire(once, 1_000, 0) is None


class TestLastFires:
    def test_of_an_interval(self) -> None:
        every = Schedule("s", "p", every_ms=1_000)
        assert timing.last_fires(every, 5_000, 7_999, 0, 10) == [5_000, 6_000, 7_000]
        assert timing.last_fires(every, 5_000, 7_999, 0, 2) == [6_000, 7_000]
        assert timing.last_fires(every, 5_000, 5_000, 0, 2) == [5_000]

    def test_of_a_single_time(self) -> None:
        assert timing.last_fires(Schedule("s", "p", at_ms=9), 9, 10, 0, 5) == [9]

    def test_of_an_expression(self) -> None:
        hourly = cron("0 * * * *", "UTC")
        first = ms("2026-01-01T00:00")
        now = ms("2026-01-03T00:30")
        fires = timing.last_fires(hourly, first, now, 0, 1_000)
        assert fires == [first + hour * 3_600_000 for hour in range(49)]
        assert timing.last_fires(hourly, first, now, 0, 3) == fires[-3:]

    def test_a_year_of_seconds_is_not_counted_through(self) -> None:
        """It would be 31 million; the last thousand lie in the last hour."""
        first, now = ms("2025-01-01T00:00"), ms("2026-01-01T00:00")
        fires = timing.last_fires(cron("* * * * * *"), first, now, 0, 1_000)
        assert fires == list(range(now - 999_000, now + 1, 1_000))

    @settings(max_examples=60, deadline=None)
    @given(
        expression=st.sampled_from(
            [
                "30 2 * * *",
                "*/15 2,3 * * *",
                "0 */6 * * *",
                "0,30 1-3 * * *",
                "5 4 1 * *",
                "@weekly",
                "*/20 * * * *",
            ]
        ),
        start=st.integers(ms("2026-03-20T00:00") // 1000, ms("2026-11-01T00:00") // 1000),
        length_s=st.integers(0, 20 * 86_400),
        count=st.integers(1, 40),
    )
    def test_they_are_the_end_of_all_fires(
        self, expression: str, start: int, length_s: int, count: int
    ) -> None:
        schedule = cron(expression)
        first = timing.next_fire(schedule, start * 1000, 0)
        assert first is not None
        now = first + length_s * 1000
        every = []
        fire: int | None = first
        while fire is not None and fire <= now:
            every.append(fire)
            fire = timing.next_fire(schedule, fire, 0)
        assert timing.last_fires(schedule, first, now, 0, count) == every[-count:]
