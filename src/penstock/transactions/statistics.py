"""Counters of transactions over time, as scripts keep them (``lua/statistics.lua``), read and summed.

    series = await Statistics(store).read("60s", pipeline="checkout")
    series.total.latency.quantile(0.99)       # ms
    series.rate("started")                    # a second

========  ===================  =================
level     a slot is            kept for
========  ===================  =================
``5s``    5 seconds            5 minutes
``60s``   1 minute             2 hours
``600s``  10 minutes           24 hours
========  ===================  =================

Rules: only reads. A counter that makes no sense is left out, not an error. Slots are of the store's time, and
the last one is not over yet. What this module must not know: who draws or scrapes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from penstock.errors import UsageError
from penstock.transactions import keys
from penstock.transactions.store import TransactionStore

Level = Literal["5s", "60s", "600s"]
By = Literal["pipeline", "node_group", "owner"]
What = Literal["queued", "started", "retried", "lost", "ended"]

#: Name of the keys, seconds of a slot, seconds that slots are kept.
_LEVELS: Final[dict[str, tuple[str, int, int]]] = {
    "5s": ("stats1H:", 5, 300),
    "60s": ("stats2H:", 60, 7_200),
    "600s": ("stats3H:", 600, 86_400),
}
_BY: Final = ("pipeline", "node_group", "owner")
#: Hashes that are asked for at once.
_BATCH: Final = 256


class Histogram:
    """How long things took: counts in buckets, each about 1.4 times as wide as the one before."""

    __slots__ = ("counts",)

    def __init__(self, counts: Iterable[tuple[int, int]] = ()) -> None:
        self.counts: Counter[int] = Counter(dict(counts))

    @property
    def count(self) -> int:
        return self.counts.total()

    def quantile(self, q: float) -> float | None:
        """In ms, by straight lines inside buckets; None if nothing was counted."""
        if not 0 <= q <= 1:
            raise UsageError(f"q must be 0 to 1, not {q}")
        left = q * self.count
        bucket = None
        for bucket in sorted(self.counts):
            here = self.counts[bucket]
            if left <= here:
                return lower_ms(bucket) + (lower_ms(bucket + 1) - lower_ms(bucket)) * left / here
            left -= here
        return None if bucket is None else lower_ms(bucket + 1)

    @property
    def mean_ms(self) -> float | None:
        """About: as if everything lay in the middle of its bucket."""
        if not self.count:
            return None
        middles = ((lower_ms(bucket) + lower_ms(bucket + 1)) / 2 * n for bucket, n in self.counts.items())
        return sum(middles) / self.count

    def add(self, other: Histogram) -> None:
        self.counts.update(other.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.counts == other.counts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"<Histogram {self.count}, p50={self.quantile(0.5)}, p99={self.quantile(0.99)}>"


def lower_ms(bucket: int) -> float:
    """Where a bucket begins; the next one begins where it ends."""
    return float(2 ** (bucket / 2) - 1)


class Slot:
    """What happened in one stretch of time."""

    __slots__ = ("ended", "latency", "lost", "queued", "retried", "start_s", "started", "wait")

    def __init__(self, start_s: int) -> None:
        self.start_s = start_s
        self.queued = 0
        self.started = 0
        self.retried = 0
        self.lost = 0
        #: by status
        self.ended: Counter[str] = Counter()
        #: from the queue to a worker
        self.wait = Histogram()
        #: from the creation to the end
        self.latency = Histogram()

    def count(self, what: Sequence[str], number: int) -> None:
        """Add a counter; what it counts is in the words before the names (``lua/statistics.lua``)."""
        match what:
            case ["q"]:
                self.queued += number
            case ["s", bucket]:
                self.started += number
                self.wait.counts[int(bucket)] += number
            case ["r"]:
                self.retried += number
            case ["l"]:
                self.lost += number
            case ["e", status, bucket]:
                self.ended[status] += number
                self.latency.counts[int(bucket)] += number

    def add(self, other: Slot) -> None:
        for name in ("queued", "started", "retried", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.ended.update(other.ended)
        self.wait.add(other.wait)
        self.latency.add(other.latency)

    def of(self, what: What) -> int:
        return self.ended.total() if what == "ended" else int(getattr(self, what))

    def __repr__(self) -> str:
        return (
            f"<Slot {self.start_s}: queued={self.queued} started={self.started} retried={self.retried}"
            f" lost={self.lost} ended={dict(self.ended)}>"
        )


class Series:
    """Slots of one level, oldest first, without holes."""

    def __init__(self, level: Level, slots: list[Slot], now_ms: int) -> None:
        self.level = level
        self.slots = slots
        self.now_ms = now_ms
        #: by name, if it was asked for ``by`` something
        self.parts: dict[str, Series] = {}

    @property
    def total(self) -> Slot:
        """The sum of all slots."""
        total = Slot(self.slots[0].start_s if self.slots else 0)
        for slot in self.slots:
            total.add(slot)
        return total

    @property
    def seconds(self) -> float:
        """How much time the slots cover, up to now."""
        return max(0.0, self.now_ms / 1000 - self.slots[0].start_s) if self.slots else 0.0

    def rate(self, what: What) -> float:
        """How many a second."""
        return self.total.of(what) / self.seconds if self.seconds else 0.0

    def __repr__(self) -> str:
        return f"<Series {self.level}, {len(self.slots)} slots, {self.total!r}>"


class Sample(NamedTuple):
    """A number with its labels."""

    name: str
    labels: dict[str, str]
    value: float


class _Filter(NamedTuple):
    pipeline: str | None
    node_group: str | None
    owner: str | None

    def passes(self, names: Sequence[str]) -> bool:
        return all(wanted is None or wanted == name for wanted, name in zip(self, names, strict=True))


class Statistics:
    """Reads the counters of one store."""

    def __init__(self, store: TransactionStore) -> None:
        self._store = store

    async def read(
        self,
        level: Level,
        *,
        pipeline: str | None = None,
        node_group: str | None = None,
        owner: str | None = None,
        by: By | None = None,
        since_ms: int | None = None,
    ) -> Series:
        """What is kept of a level, of these names alone; ``by`` fills ``parts``."""
        if level not in _LEVELS:
            raise UsageError(f"level must be one of {', '.join(_LEVELS)}, not {level!r}")
        if by is not None and by not in _BY:
            raise UsageError(f"by must be one of {', '.join(_BY)}, not {by!r}")
        now_ms = await self._now_ms()
        starts = _starts(level, now_ms, since_ms)
        whole = Series(level, [Slot(start) for start in starts], now_ms)
        wanted = _Filter(pipeline, node_group, owner)
        for place, words, number in await self._counters(level, starts):
            what, names = words[:-3], words[-3:]
            if not wanted.passes(names):
                continue
            whole.slots[place].count(what, number)
            if by is not None:
                name = names[_BY.index(by)]
                if name not in whole.parts:
                    whole.parts[name] = Series(level, [Slot(start) for start in starts], now_ms)
                whole.parts[name].slots[place].count(what, number)
        return whole

    async def totals(self) -> list[Sample]:
        """Numbers of the last day by pipeline, group and owner, to be scraped as gauges: they fall again."""
        starts = _starts("600s", await self._now_ms(), None)
        sums: dict[tuple[str, ...], Slot] = {}
        for _, words, number in await self._counters("600s", starts):
            sums.setdefault(tuple(words[-3:]), Slot(starts[0])).count(words[:-3], number)
        return [sample for names, slot in sorted(sums.items()) for sample in _samples(names, slot)]

    async def _counters(self, level: str, starts: Sequence[int]) -> list[tuple[int, list[str], int]]:
        """Of all partitions: which slot, the words of the field, the number."""
        prefix = _LEVELS[level][0]
        partitions = await self._store.partitions()
        wanted = [
            (place, f"{keys.prefix_of(partition)}{prefix}{start}")
            for partition in range(partitions)
            for place, start in enumerate(starts)
        ]
        found: list[tuple[int, list[str], int]] = []
        for at in range(0, len(wanted), _BATCH):
            batch = wanted[at : at + _BATCH]
            pipe = self._store.client.pipeline()
            for _, key in batch:
                pipe.hgetall(key)
            for (place, _), counters in zip(batch, await pipe.all(), strict=True):
                for field, value in counters.items():
                    words = field.decode("utf-8", "replace").split(" ")
                    if _is_counter(words) and value.isdigit():
                        found.append((place, words, int(value)))
        return found

    async def _now_ms(self) -> int:
        reply: Any = await self._store.client.execute("TIME")
        return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _starts(level: str, now_ms: int, since_ms: int | None) -> list[int]:
    """Where slots begin, in s: all that are kept, and not those that were over before ``since_ms``."""
    _, length_s, kept_s = _LEVELS[level]
    last = now_ms // 1000 // length_s * length_s
    starts = range(last - kept_s, last + length_s, length_s)
    return [start for start in starts if since_ms is None or (start + length_s) * 1000 > since_ms] or [last]


_LENGTHS: Final = {"q": 4, "s": 5, "r": 4, "l": 4, "e": 6}


def _is_counter(words: Sequence[str]) -> bool:
    if _LENGTHS.get(words[0]) != len(words):
        return False
    return words[0] not in ("s", "e") or words[-4].isdigit()


def _samples(names: Sequence[str], slot: Slot) -> Iterable[Sample]:
    labels = dict(zip(_BY, names, strict=True))
    for what in ("queued", "started", "retried", "lost"):
        yield Sample(f"transactions_{what}", labels, getattr(slot, what))
    for status, number in sorted(slot.ended.items()):
        yield Sample("transactions_ended", {**labels, "status": status}, number)
    for name, histogram in (("wait", slot.wait), ("latency", slot.latency)):
        for q in (0.5, 0.95, 0.99):
            value = histogram.quantile(q)
            if value is not None:
                yield Sample(f"transactions_{name}_seconds", {**labels, "quantile": str(q)}, value / 1000)
