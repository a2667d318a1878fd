"""Statistics: what scripts have counted, read again by level, name and time; and histograms."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.transactions import keys
from penstock.transactions.model import Record, Settlement
from penstock.transactions.statistics import Histogram, Series, Slot, Statistics, lower_ms
from penstock.transactions.store import TransactionStore
from tests.transactions.conftest import put_pipeline


async def take(store: TransactionStore, group: str) -> list[Record]:
    found: list[Record] = []
    for place in range(await store.partitions()):
        found += (await store.dequeue(place, "w", [group], limit=100, lease_ms=60_000)).records
    return found


async def settle(store: TransactionStore, record: Record, kind: str, *arguments: Any) -> None:
    settlement = Settlement(kind, record.id, record.token, 1, arguments=arguments)
    assert await store.settle(keys.partition_of(record.id), [settlement]) == ["ok"]


@pytest.fixture
async def busy(store: TransactionStore) -> TransactionStore:
    """Three of checkout by acme (a success, a failure, one tried again), two of report by zeta that wait."""
    await put_pipeline(store, "checkout", group="shop")
    await put_pipeline(store, "report", group="office")
    for _ in range(3):
        await store.start("checkout", b"{}", owner="acme")
    for _ in range(2):
        await store.start("report", b"{}", owner="zeta")
    success, failure, again = await take(store, "shop")
    await settle(store, success, "end", "success", 0)
    await settle(store, failure, "end", "failed", 0)
    await settle(store, again, "sleep", 600_000, 1)
    return store


def numbers(slot: Slot) -> tuple[int, int, int, int, dict[str, int]]:
    return slot.queued, slot.started, slot.retried, slot.lost, dict(slot.ended)


@pytest.mark.parametrize(
    ("level", "length_s", "count"), [("5s", 5, 61), ("60s", 60, 121), ("600s", 600, 145)]
)
async def test_every_level_has_the_same(
    busy: TransactionStore, level: Any, length_s: int, count: int
) -> None:
    series = await Statistics(busy).read(level)
    assert numbers(series.total) == (5, 3, 1, 0, {"success": 1, "failed": 1})
    assert (series.total.wait.count, series.total.latency.count) == (3, 2)
    assert len(series.slots) == count
    starts = [slot.start_s for slot in series.slots]
    assert starts == list(range(starts[0], starts[0] + length_s * count, length_s))
    assert starts[-1] <= series.now_ms / 1000 < starts[-1] + length_s


async def test_by_name(busy: TransactionStore) -> None:
    statistics = Statistics(busy)
    checkout = (5 - 2, 3, 1, 0, {"success": 1, "failed": 1})
    report = (2, 0, 0, 0, {})
    for by, first, second in [
        ("pipeline", "checkout", "report"),
        ("node_group", "shop", "office"),
        ("owner", "acme", "zeta"),
    ]:
        series = await statistics.read("600s", by=by)  # type: ignore[arg-type]
        parts = {name: numbers(part.total) for name, part in series.parts.items()}
        assert parts == {first: checkout, second: report}
        only = await statistics.read("600s", **{by: first})  # type: ignore[arg-type]
        assert numbers(only.total) == checkout
        assert only.parts == {}
    nothing = await statistics.read("600s", pipeline="checkout", owner="zeta")
    assert numbers(nothing.total) == (0, 0, 0, 0, {})


async def test_since(busy: TransactionStore) -> None:
    statistics = Statistics(busy)
    now_ms = (await statistics.read("60s")).now_ms
    series = await statistics.read("60s", since_ms=now_ms - 180_000)
    assert 3 <= len(series.slots) <= 5
    assert series.slots[0].start_s * 1000 <= now_ms - 180_000 < (series.slots[0].start_s + 60) * 1000


async def test_a_lost_lease_is_counted(store: TransactionStore) -> None:
    await put_pipeline(store, "checkout", group="shop")
    tx = (await store.start("checkout", b"{}", owner="acme")).id
    place = keys.partition_of(tx)
    await store.dequeue(place, "w", ["shop"], limit=1, lease_ms=60_000)
    await store.client.execute("ZADD", f"{keys.prefix_of(place)}leasesZ", 1, tx)
    await store.dequeue(place, "w", [], limit=1, lease_ms=60_000)
    assert (await Statistics(store).read("5s")).total.lost == 1


async def test_a_counter_that_makes_no_sense_is_left_out(busy: TransactionStore) -> None:
    now_ms = (await Statistics(busy).read("600s")).now_ms
    key = f"{{p0}}.stats3H:{now_ms // 600_000 * 600}"
    for field, value in [
        ("q", 7),
        ("s x a b c", 7),
        ("e success a b c", 7),
        ("z a b c", 7),
        ("q a b c", "-1"),
    ]:
        await busy.client.execute("HSET", key, field, value)
    assert (await Statistics(busy).read("600s")).total.queued == 5


async def test_totals(busy: TransactionStore) -> None:
    samples = await Statistics(busy).totals()
    labels = {"pipeline": "checkout", "node_group": "shop", "owner": "acme"}
    found = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)

    def value(name: str, **more: str) -> float:
        return found[name, *sorted({**labels, **more}.items())]

    assert value("transactions_queued") == 3
    assert value("transactions_started") == 3
    assert value("transactions_ended", status="failed") == 1
    assert 0 <= value("transactions_wait_seconds", quantile="0.5") < 60


async def test_what_makes_no_sense_is_refused(store: TransactionStore) -> None:
    with pytest.raises(UsageError, match="level must be one of 5s, 60s, 600s"):
        await Statistics(store).read("1h")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="by must be one of"):
        await Statistics(store).read("5s", by="version")  # type: ignore[arg-type]


class TestHistograms:
    def test_buckets_are_those_of_the_scripts(self) -> None:
        """b stands for 2^(b/2) - 1 ms."""
        assert [round(lower_ms(bucket), 3) for bucket in range(5)] == [0, 0.414, 1, 1.828, 3]

    def test_a_quantile_lies_in_its_bucket_as_far_as_its_rank(self) -> None:
        histogram = Histogram([(4, 10), (6, 10)])  # 3 to 4.66 ms, 7 to 10.3 ms
        assert histogram.quantile(0) == 3
        assert histogram.quantile(0.25) == pytest.approx((3 + lower_ms(5)) / 2)
        assert histogram.quantile(0.5) == pytest.approx(lower_ms(5))
        assert histogram.quantile(0.75) == pytest.approx((7 + lower_ms(7)) / 2)
        assert histogram.quantile(1) == pytest.approx(lower_ms(7))

    def test_nothing_has_no_quantile(self) -> None:
        assert Histogram().quantile(0.5) is None
        assert Histogram().mean_ms is None
        with pytest.raises(UsageError, match="q must be 0 to 1"):
            Histogram().quantile(1.5)

    def test_the_mean_is_that_of_the_middles(self) -> None:
        histogram = Histogram([(0, 1), (2, 3)])
        low, high = (lower_ms(0) + lower_ms(1)) / 2, (lower_ms(2) + lower_ms(3)) / 2
        assert histogram.mean_ms == pytest.approx((low + 3 * high) / 4)

    def test_rates_are_of_the_time_that_slots_cover(self) -> None:
        slots = [Slot(100), Slot(105)]
        slots[0].queued = 10
        slots[1].ended["success"] = 5
        series = Series("5s", slots, now_ms=107_500)
        assert series.seconds == 7.5
        assert series.rate("queued") == pytest.approx(10 / 7.5)
        assert series.rate("ended") == pytest.approx(5 / 7.5)
        assert Series("5s", [], 1).rate("queued") == 0
