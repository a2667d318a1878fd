"""Random calls on the groups of a stream, compared with a model that knows no runs, indexes and timers.

The model keeps a dictionary of pending messages and looks at all of them each time. After every
call the reply, and every few calls everything that can be asked for, must be the same; and the rows on
disk must keep their invariants.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.datatypes.stream import Stream, ordering
from penstock.engine.datatypes.stream.groups import Group, all_groups
from penstock.engine.datatypes.stream.timers import expired_timers

_LEAST_PASSED = 6
_TAGS = (b"", b"a", b"b", b"c")


@dataclass
class Pend:
    due: int
    expires: int
    first: int
    deliveries: int
    consumer: bytes
    #: the tag it holds, in an ordered group
    holds: bytes


@dataclass
class ModelGroup:
    cursor: int
    max_pending: int
    max_deliveries: int
    backoff: list[int]
    ordered: bool
    pending: dict[int, Pend] = field(default_factory=dict)
    passed: dict[int, bytes] = field(default_factory=dict)
    lost: int = 0
    delivered: int = 0
    acked: int = 0
    expired: int = 0
    dead: int = 0


class Model:
    """What the engine should do, as slowly as it is simple."""

    def __init__(self) -> None:
        self.now = 0
        self.first = 1
        self.log: dict[int, bytes] = {}
        self.last = 0
        self.groups: dict[bytes, ModelGroup] = {}
        self.letters: list[tuple[int, bytes, int, bytes]] = []

    def write(self, tags: list[bytes]) -> int:
        for tag in tags:
            self.last += 1
            self.log[self.last] = tag
        return self.last

    def evict(self, offset: int) -> int:
        gone = [each for each in self.log if each <= offset]
        for each in gone:
            del self.log[each]
        self.first = max(self.first, min(offset, self.last) + 1)
        return len(gone)

    # -------------------------------------------------------------------- give up

    def give_up(self, name: bytes, offset: int, reason: bytes) -> None:
        group = self.groups[name]
        pend = group.pending.pop(offset)
        self.letters.append((offset, name, pend.deliveries, reason))
        if reason == b"expired":
            group.expired += 1
        else:
            group.dead += 1

    def expire(self, name: bytes) -> None:
        group = self.groups[name]
        over = [(p.expires, offset) for offset, p in group.pending.items() if 0 < p.expires <= self.now]
        for _, offset in sorted(over):
            self.give_up(name, offset, b"expired")

    def is_worn_out(self, group: ModelGroup, offset: int) -> bool:
        return 0 < group.max_deliveries <= group.pending[offset].deliveries

    def due(self, group: ModelGroup) -> list[int]:
        return [o for _, o in sorted((p.due, o) for o, p in group.pending.items() if p.due <= self.now)]

    def tick(self) -> None:
        for name, group in self.groups.items():
            self.expire(name)
            for offset in self.due(group):
                if self.is_worn_out(group, offset):
                    self.give_up(name, offset, b"deliveries")

    # ----------------------------------------------------------------------- read

    def delay(self, group: ModelGroup, deliveries: int, retry: int) -> int:
        if not group.backoff:
            return retry
        return max(group.backoff[min(deliveries, len(group.backoff)) - 1], 1)

    def read(
        self, name: bytes, count: int, retry: int | None, expire: int, consumer: bytes
    ) -> list[list[Any]]:
        group = self.groups[name]
        self.expire(name)
        rows: list[list[Any]] = []
        if retry is not None:
            self._again(name, group, count, retry, consumer, rows)
        if len(group.pending) < group.max_pending:
            self._passed(group, count, retry, expire, consumer, rows)
            self._new(group, count, retry, expire, consumer, rows)
        return rows

    def _again(
        self, name: bytes, group: ModelGroup, count: int, retry: int, consumer: bytes, rows: list[list[Any]]
    ) -> None:
        for offset in self.due(group):
            if len(rows) >= count:
                return
            pend = group.pending[offset]
            if self.is_worn_out(group, offset):
                self.give_up(name, offset, b"deliveries")
            elif offset not in self.log:
                rows.append([offset, None, None, pend.deliveries + 1])
                self.give_up(name, offset, b"evicted")
            else:
                pend.deliveries += 1
                pend.consumer = consumer
                pend.due = self.now + self.delay(group, pend.deliveries, retry)
                group.delivered += 1
                rows.append([offset, self.log[offset], b"e%d" % offset, pend.deliveries])

    def _has_room(self, group: ModelGroup, count: int, retry: int | None, rows: list[list[Any]]) -> bool:
        return len(rows) < count and (retry is None or len(group.pending) < group.max_pending)

    def _is_taken(self, group: ModelGroup, tag: bytes) -> bool:
        return bool(tag) and any(pend.holds == tag for pend in group.pending.values())

    def _passed(
        self,
        group: ModelGroup,
        count: int,
        retry: int | None,
        expire: int,
        consumer: bytes,
        rows: list[list[Any]],
    ) -> None:
        while self._has_room(group, count, retry, rows):
            free = [o for o, tag in sorted(group.passed.items()) if not self._is_taken(group, tag)]
            if not free:
                return
            tag = group.passed.pop(free[0])
            if free[0] in self.log:
                self._hand_out(group, free[0], tag, retry, expire, consumer, rows)
            else:
                group.lost += 1

    def _new(
        self,
        group: ModelGroup,
        count: int,
        retry: int | None,
        expire: int,
        consumer: bytes,
        rows: list[list[Any]],
    ) -> None:
        if group.cursor < self.first:
            group.lost += self.first - group.cursor
            group.cursor = self.first
        most_passed = max(_LEAST_PASSED, group.max_pending)
        while group.cursor <= self.last and self._has_room(group, count, retry, rows):
            if group.ordered and len(group.passed) >= most_passed:
                return
            offset, tag = group.cursor, self.log[group.cursor]
            group.cursor += 1
            if offset in group.pending:
                continue
            if group.ordered and tag and (self._is_taken(group, tag) or tag in group.passed.values()):
                group.passed[offset] = tag
                continue
            self._hand_out(group, offset, tag, retry, expire, consumer, rows)

    def _hand_out(
        self,
        group: ModelGroup,
        offset: int,
        tag: bytes,
        retry: int | None,
        expire: int,
        consumer: bytes,
        rows: list[list[Any]],
    ) -> None:
        group.delivered += 1
        rows.append([offset, self.log[offset], b"e%d" % offset, 1])
        if retry is not None:
            due = self.now + self.delay(group, 1, retry)
            holds = tag if group.ordered else b""
            group.pending[offset] = Pend(due, expire and self.now + expire, self.now, 1, consumer, holds)

    # --------------------------------------------------------------------- settle

    def settle(self, name: bytes, ranges: list[tuple[int, int]], what: str, number: int) -> int:
        group = self.groups[name]
        self.expire(name)
        hits = [o for o in sorted(group.pending) if any(a <= o <= b for a, b in ranges)]
        for offset in hits:
            pend = group.pending[offset]
            if what == "TACK":
                del group.pending[offset]
                group.acked += 1
            elif what == "TDEAD":
                self.give_up(name, offset, b"why")
            elif what == "TNACK" and number < 0:
                pend.due = self.now + self.delay(group, pend.deliveries, 0)
            else:
                pend.due = self.now + number
        return len(hits)

    def set_offset(self, name: bytes, offset: int | None) -> None:
        group = self.groups[name]
        group.passed.clear()
        group.cursor = self.last + 1 if offset is None else offset or self.first

    def set_ordered(self, name: bytes, ordered: bool) -> None:
        group = self.groups[name]
        if group.ordered == ordered:
            return
        group.ordered = ordered
        for offset, pend in group.pending.items():
            pend.holds = self.log.get(offset, b"") if ordered else b""
        for offset in group.passed:
            group.passed[offset] = self.log.get(offset, b"") if ordered else b""

    # ----------------------------------------------------------------------- show

    def pending(self, name: bytes) -> list[list[Any]]:
        self.expire(name)
        return [
            [o, p.consumer, p.deliveries, self.now - p.first, max(p.due - self.now, 0),
             p.expires - self.now if p.expires else -1]
            for o, p in sorted(self.groups[name].pending.items())
        ]  # fmt: skip

    def info(self, name: bytes) -> list[int]:
        group = self.groups[name]
        cursor = max(group.cursor, self.first)
        lag = max(self.last + 1 - cursor, 0) + len(group.passed)
        ack = min([cursor, *group.pending, *group.passed])
        lost = group.lost + cursor - group.cursor
        counters = [group.delivered, group.acked, group.expired, group.dead]
        return [cursor, ack, len(group.pending), lag, lost, *counters]


_FIELDS = (b"cursor", b"ack-offset", b"pending", b"lag", b"lost", b"delivered", b"acked", b"expired", b"dead")


class Pair:
    """The engine and the model, told the same."""

    def __init__(self, engine: Engine, clock: ManualClock, seed: int) -> None:
        self.engine = engine
        self.clock = clock
        self.chance = random.Random(seed)
        self.session = LocalSession(engine)
        self.model = Model()
        self.model.now = clock.now_ms()

    def make_group(self, name: bytes, ordered: bool) -> None:
        chance = self.chance
        limit, deliveries = chance.choice([3, 8, 1000]), chance.choice([0, 0, 2, 3])
        backoff = chance.choice([[], [], [5, 10, 20], [0]])
        self.session.execute(
            "TGROUP", "CREATE", "k", name, 0, "MAXPENDING", limit, "MAXDELIVERIES", deliveries,
            "BACKOFF", ",".join(map(str, backoff)), "ORDERED", "yes" if ordered else "no",
            "DEADLETTER", "dead",
        )  # fmt: skip
        self.model.groups[name] = ModelGroup(self.model.first, limit, deliveries, backoff, ordered)

    def step(self) -> None:
        steps = [self.write, self.read, self.read, self.settle, self.settle, self.wait, self.rare]
        self.chance.choice(steps)()

    def name(self) -> bytes:
        return self.chance.choice(list(self.model.groups))

    def write(self) -> None:
        tags = self.chance.choices(_TAGS, k=self.chance.choice([1, 1, 2, 5, 12]))
        words = [word for at, tag in enumerate(tags, self.model.last + 1) for word in (tag, b"e%d" % at)]
        assert self.session.execute("TWRITE", "k", "ENTRIES", *words) == self.model.write(tags)

    def read(self) -> None:
        chance = self.chance
        name, count = self.name(), chance.choice([1, 2, 5, 20])
        retry = chance.choice([None, 1, 10, 10, 50])
        expire = chance.choice([0, 0, 15, 60])
        consumer = chance.choice([b"", b"one", b"two"])
        words: list[Any] = ["TREAD", "k", 0, count, "GROUP", name, "WITHCOUNT"]
        words += ["CONSUMER", consumer] if consumer else []
        words += ["RETRY", retry, expire] if retry is not None else []
        expected = self.model.read(name, count, retry, expire, consumer)
        assert self.session.execute(*words) == expected, words

    def settle(self) -> None:
        chance, last = self.chance, self.model.last
        name, what = self.name(), chance.choice(["TACK", "TACK", "TNACK", "TRENEW", "TDEAD"])
        ranges = []
        for _ in range(chance.choice([1, 1, 3])):
            near = [*self.model.groups[name].pending] if chance.random() < 0.8 else []
            start = chance.choice(near or [chance.randint(0, last + 2)])
            ranges.append((start, start + chance.choice([0, 0, 1, 4, 30])))
        items = [f"{a}-{b}" if a != b or chance.random() < 0.2 else a for a, b in ranges]
        number = chance.choice([0, 5, 30]) if what == "TNACK" else 25
        if what == "TNACK" and self.model.groups[name].backoff and chance.random() < 0.3:
            number = -1
        words = {"TACK": [], "TDEAD": ["why"], "TRENEW": [number], "TNACK": ["*" if number < 0 else number]}
        expected = self.model.settle(name, ranges, what, number)
        assert self.session.execute(what, "k", name, *words[what], *items) == expected

    def wait(self) -> None:
        self.clock.advance_ms(self.chance.choice([1, 5, 10, 40]))
        self.model.now = self.clock.now_ms()
        if self.chance.random() < 0.5:
            while self.engine.duties.tick():
                pass
            self.model.tick()

    def rare(self) -> None:
        chance, name = self.chance, self.name()
        match chance.randrange(4):
            case 0:
                offset = chance.randint(self.model.first - 1, self.model.first + 6)
                assert self.session.execute("TEVICT", "k", offset) == self.model.evict(offset)
            case 1:
                to = chance.choice([None, 0, chance.randint(1, self.model.last + 3)])
                self.session.execute("TGROUP", "SET", "k", name, "OFFSET", "$" if to is None else to)
                self.model.set_offset(name, to)
            case 2:
                ordered = chance.random() < 0.5
                self.session.execute("TGROUP", "SET", "k", name, "ORDERED", "yes" if ordered else "no")
                self.model.set_ordered(name, ordered)
            case _:
                limit = chance.choice([2, 5, 1000])
                self.session.execute("TGROUP", "SET", "k", name, "MAXPENDING", limit)
                self.model.groups[name].max_pending = limit

    # ---------------------------------------------------------------------- check

    def compare(self) -> None:
        for name in self.model.groups:
            expected = self.model.pending(name)
            assert self.session.execute("TPENDING", "k", name, 0, 10**9, 10**6) == expected
        for found in self.session.execute("TINFO", "GROUPS", "k"):
            assert [found[field] for field in _FIELDS] == self.model.info(found[b"name"]), found
        letters = self.session.execute("TREAD", "dead", 1, 10**6)
        assert sorted(map(_parse_letter, letters)) == sorted(self.model.letters)
        self.engine.run_task(self._check_rows, write=False)

    def _check_rows(self) -> None:
        stream = self.engine.keyspaces[0].load(b"k", Stream)
        assert stream is not None
        for group in all_groups(stream):
            check_group(group)
        due = expired_timers(stream.unit, 10)
        assert all(timer.due_ms <= self.model.now for timer in due)


def _parse_letter(row: list[Any]) -> tuple[int, bytes, int, bytes]:
    head, _, _ = row[2].partition(b"\n\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\n"))
    return int(fields[b"offset"]), fields[b"group"], int(fields[b"deliveries"]), fields[b"reason"]


def check_group(group: Group) -> None:
    """The numbered invariants of ``pending``, ``groups``, ``ordering`` and ``timers``."""
    runs = list(group.runs.all())
    assert all(run.mask for run in runs), "R1"
    assert all(one.last < two.base for one, two in pairwise(runs)), "R2"

    def rows(letter: bytes) -> list[tuple[bytes, bytes]]:
        return list(group.unit.rows(group.table, group.row(letter)))

    times = sorted((run.due_ms, run.base) for run in runs)
    expiries = sorted((run.expires_ms, run.base) for run in runs if run.expires_ms)
    for letter, expected in ((b"d", times), (b"x", expiries)):
        found = [(int.from_bytes(r[-16:-8], "big"), int.from_bytes(r[-8:], "big")) for r, _ in rows(letter)]
        assert found == expected, "R3"
    assert group.pending == sum(run.count for run in runs), "G1"
    assert group.passed == len(rows(b"w")) + len(rows(b"r")), "G1"
    assert {row[-16:-8] for row, _ in rows(b"w")} <= {row[-8:] for row, _ in rows(b"t")}, "O1"
    if not group.options.ordered:
        assert not rows(b"t") + rows(b"o") + rows(b"w"), "O3"
    upcoming = [time for time, _ in times + expiries if time > group.unit.now_ms]
    if upcoming:
        assert 0 < group.timer_ms <= min(upcoming), "T1"


@pytest.mark.parametrize("seed", range(12))
def test_groups_do_what_the_model_does(
    engine: Engine, clock: ManualClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "_LEAST_PASSED", _LEAST_PASSED)
    monkeypatch.setattr(engine.duties, "tick_lazily", lambda: None)  # ticks are steps of their own
    pair = Pair(engine, clock, seed)
    pair.session.execute("TPOLICY", "k", "NODE-MESSAGES", 7)
    pair.make_group(b"plain", ordered=False)
    pair.make_group(b"ordered", ordered=True)
    for number in range(600):
        pair.step()
        if number % 5 == 0:
            pair.compare()
    pair.compare()
    assert min(group.acked for group in pair.model.groups.values()) > 0
    assert pair.model.letters
