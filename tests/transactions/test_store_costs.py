"""What a transaction costs: commands that scripts send, and how statistics are kept with few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.transactions.model import Record, Settlement
from tests.transactions.conftest import Desk, only_on

#: Enough that a slot of statistics that just began, or a new class of latencies, does not spoil all of them.
_TRIES = 8


async def commands(desk: Desk, act: Callable[[], Awaitable[Any]]) -> Counter[str]:
    """What the scripts of an action send."""
    await desk.client.execute("CONFIG", "RESETSTAT")
    await act()
    text = bytes(await desk.client.execute("INFO", "commandstats")).decode()
    found: Counter[str] = Counter()
    for line in text.splitlines():
        name, _, rest = line.removeprefix("cmdstat_").partition(":calls=")
        if rest and name not in (
            "evalsha",
            "eval",
            "info",
            "config|resetstat",
            "ping",
            "hello",
            "client|setinfo",
        ):
            found[name] = int(rest.partition(",")[0])
    return found


def statistics(found: Counter[str]) -> int:
    """Without limits and joins, only statistics count by HINCRBY; only they and external ids expire."""
    return found["hincrby"] + found["expire"]


@only_on("server", "redis")
async def test_a_simple_transaction_costs_few_commands(desk: Desk) -> None:
    await desk.ended()  # scripts are known
    starts, works, counts = [], [], []
    for _ in range(_TRIES):
        start = await commands(desk, lambda: desk.start(external_id=None))
        taken: list[Record] = []

        async def take(taken: list[Record] = taken) -> None:
            taken.extend(await desk.take())

        async def end(taken: list[Record] = taken) -> None:
            assert await desk.end(taken[0], fields=["d:1", b"{}", "data", 1]) == "ok"

        work = await commands(desk, take) + await commands(desk, end)
        assert len(taken) == 1
        starts.append(start.total())
        works.append(work.total())
        counts.append(statistics(start + work))
    assert min(starts) <= 16, starts
    assert min(works) <= 25, works
    assert min(counts) <= 9, counts
    # Also with a new slot or class it is far from fifty.
    assert max(starts) + max(works) < 55


@only_on("server", "redis")
async def test_an_external_id_costs_two_commands_more(desk: Desk) -> None:
    await desk.start()
    plain = min([(await commands(desk, desk.start)).total() for _ in range(_TRIES)])
    ids = iter(range(100))
    claimed = min(
        [
            (await commands(desk, lambda: desk.start(external_id=str(next(ids))))).total()
            for _ in range(_TRIES)
        ]
    )
    assert claimed - plain == 2


@only_on("server", "redis")
async def test_statistics_of_a_batch_cost_as_much_as_those_of_one(desk: Desk) -> None:
    for _ in range(200):
        await desk.start()
    records: list[Record] = []

    async def take() -> None:
        records.extend(await desk.take(200))

    async def end() -> None:
        settlements = [
            Settlement("end", record.id, record.token, 1, arguments=["success", 0]) for record in records
        ]
        assert await desk.store.settle(0, settlements) == ["ok"] * 200

    taking, ending = await commands(desk, take), await commands(desk, end)
    assert len(records) == 200
    # A field for each class of latency (there are two a doubling), in three slots, each begun once.
    assert statistics(taking) <= 6 * 40
    assert statistics(ending) <= 6 * 40
    # … and besides those, a handful a transaction.
    assert taking.total() - statistics(taking) < 200 * 3 + 60
    assert ending.total() - statistics(ending) < 200 * 6 + 60


@only_on("server", "redis")
async def test_looking_for_work_in_an_empty_store_costs_little(desk: Desk) -> None:
    await desk.take()
    assert (await commands(desk, desk.take)).total() <= 12


@only_on("server")
async def test_the_cost_does_not_grow_with_what_is_kept(desk: Desk) -> None:
    await desk.ended()

    async def one() -> None:
        await desk.ended()

    few = min([(await commands(desk, one)).total() for _ in range(_TRIES)])
    for _ in range(500):
        await desk.start(delay_ms=600_000)
        await desk.ended()
    many = min([(await commands(desk, one)).total() for _ in range(_TRIES)])
    assert many <= few


async def counters(desk: Desk, level: str) -> Counter[str]:
    """The counters of one level, latencies left out."""
    found: Counter[str] = Counter()
    for name, fields in (await desk.everything()).items():
        if name.startswith(level):
            for field, number in fields.items():
                what, *rest = field.split()
                words = [what, *[word for word in rest if not word.isdigit()]]
                found[" ".join(words)] += int(number)
    return found


async def test_every_level_counts_every_kind(desk: Desk) -> None:
    await desk.store.configure(max_losses=0)
    await desk.ended()
    await desk.ended("failed", owner="umbrella")
    retried = await desk.begun()
    assert await desk.settle(retried, "sleep", 600_000, 1) == "ok"
    await desk.start()
    await desk.take(lease_ms=1)
    await desk.pass_ms(2)
    await desk.dequeue()
    for level in ("stats1H:", "stats2H:", "stats3H:"):
        assert await counters(desk, level) == {
            "q noop shop acme": 3, "q noop shop umbrella": 1,
            "s noop shop acme": 3, "s noop shop umbrella": 1,
            "e success noop shop acme": 1, "e failed noop shop umbrella": 1,
            "e internal-error noop shop acme": 1,
            "r noop shop acme": 1, "l noop shop acme": 1,
        }  # fmt: skip
