"""What came of the calls of a workload, and whether that may be: compared with what the servers have.

* counters (INCR, transactions, WATCH, scripts): acknowledged <= value <= acknowledged + unknown;
* elements: each that was pushed was received, told as orphaned, or is left, exactly once. Those
  that are nowhere must be explained (``lost``, which tests look into);
* messages: in order, never twice, and none is missing without a gap at its place.

``is_exact`` is off where servers forget what they have acknowledged (failover, a loss of
memory); upper bounds hold even then. Nor do the nodes of a cluster keep messages in order
then: what one publishes reaches another by a way of its own, earlier or later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import penstock
from tests.client.hearing import Channel

#: After these it may have run.
MAYBE = frozenset({"unknown", "timeout", "cancelled"})


@dataclass
class Tally:
    """A counter: what was acknowledged, what may have run besides."""

    base: int
    acknowledged: int = 0
    maybe: int = 0

    def since(self, value: int) -> int:
        """How far it has counted; from nothing, if its server has forgotten it."""
        return value - self.base if value >= self.base else value

    def note(self, outcome: str) -> None:
        self.acknowledged += outcome == "ok"
        self.maybe += outcome in MAYBE


@dataclass
class Elements:
    """The elements of one list."""

    #: by element, what came of its push
    pushed: dict[bytes, str] = field(default_factory=dict)
    received: Counter[bytes] = field(default_factory=Counter)
    orphaned: Counter[bytes] = field(default_factory=Counter)
    left: Counter[bytes] = field(default_factory=Counter)
    #: what came of the BLPOPs
    pops: Counter[str] = field(default_factory=Counter)

    @property
    def found(self) -> Counter[bytes]:
        return self.received + self.orphaned + self.left

    @property
    def lost(self) -> set[bytes]:
        """Pushed for sure, and nowhere."""
        return {element for element, outcome in self.pushed.items() if outcome == "ok"} - set(self.found)


class Books:
    """Everything that was begun and what came of it; ``wrong`` has every breach of a promise."""

    def __init__(self, *, is_exact: bool, is_sharded: bool) -> None:
        self.is_exact = is_exact
        self.is_sharded = is_sharded
        #: by way and outcome
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.started: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.tallies: dict[str, Tally] = {}
        self.lists: defaultdict[str, Elements] = defaultdict(Elements)
        self.channels: dict[str, Channel] = {}

    @property
    def succeeded(self) -> int:
        return sum(count for (_, outcome), count in self.outcomes.items() if outcome == "ok")

    def count(self, outcome: str, *ways: str) -> int:
        return sum(
            count
            for (way, each), count in self.outcomes.items()
            if each == outcome and (not ways or way in ways)
        )

    def counted(self, way: str, tally: Tally, outcome: str, reply: int | None) -> None:
        tally.note(outcome)
        if outcome == "ok" and reply is not None:
            most = tally.acknowledged + tally.maybe
            least = tally.acknowledged if self.is_exact else 1
            count = reply - tally.base if self.is_exact else tally.since(reply)
            if not least <= count <= most:
                self.wrong.append(f"{way}: {reply} is none of {tally}")

    async def settle(self, calm: penstock.Client) -> None:
        """Compare the books with what the servers have."""
        for key, tally in self.tallies.items():
            value = int(await calm.execute("GET", key) or 0)  # type: ignore[arg-type]
            count = value - tally.base if self.is_exact else tally.since(value)
            least = tally.acknowledged if self.is_exact else 0
            if not least <= count <= tally.acknowledged + tally.maybe:
                self.wrong.append(f"{key} counts {count}, the books say {tally}")
        await self.count_left(calm)

    async def count_left(self, calm: penstock.Client) -> None:
        for key, elements in self.lists.items():
            left: Any = await calm.execute("LRANGE", key, 0, -1)
            elements.left = Counter(left)

    def check(self, *, unexplained: Callable[[str, Elements], Sequence[object]] | None = None) -> None:
        """Raise for every promise that was not kept. ``unexplained`` answers which of the elements
        that are lost cannot be explained; without it none may be lost."""
        for key, elements in self.lists.items():
            if self.is_exact:
                twice = [element for element, times in elements.found.items() if times > 1]
                self.wrong += [f"{key}: {element!r} was given out twice" for element in twice]
                lost = sorted(elements.lost) if unexplained is None else unexplained(key, elements)
                self.wrong += [f"{key}: {each!r} is lost; BLPOPs ended in {elements.pops}" for each in lost]
            strange = set(elements.found) - set(elements.pushed)
            self.wrong += [f"{key}: {element!r} was never pushed" for element in strange]
            ran = {e for e, outcome in elements.pushed.items() if outcome == "ok" or outcome in MAYBE}
            self.wrong += [f"{key}: {e!r} was not sent, and is there" for e in set(elements.found) - ran]
        for name, channel in self.channels.items():
            is_ordered = self.is_exact or not self.is_sharded
            for breach in channel.strangers() + (
                channel.repetitions() + channel.breaches() if is_ordered else []
            ):
                self.wrong.append(f"{name}: {breach}; heard {channel.heard}, published {channel.published}")
        ended = Counter[str]()
        for (way, _), count in self.outcomes.items():
            ended[way] += count
        if ended != self.started:
            self.wrong.append(f"started {self.started}, ended {ended}")
        assert not self.wrong, f"{len(self.wrong)} breaches:\n" + "\n".join(self.wrong[:20])

    def summary(self) -> str:
        """What came of the calls, for people."""
        total = Counter[str]()
        for (_, outcome), count in self.outcomes.items():
            total[outcome] += count
        return ", ".join(f"{outcome} {count}" for outcome, count in total.most_common())
