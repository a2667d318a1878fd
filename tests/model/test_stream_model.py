"""Random calls on one stream, compared with a naive model, while the store is closed and opened again.

What is under test is how everything goes together: sealing and compaction and eviction under groups
whose messages are pending, policies in the background, producers. (``stream_model`` is the model; ordered
groups have their own one beside the unit tests.) After every call the reply must be the model's, and every
few calls all that can be asked for, and the store must hold together.

    PENSTOCK_STREAM_SEED   the random choices of an earlier run, which a failure prints
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine
from penstock.engine.check import check_store
from penstock.errors import CommandError
from tests.effort import scaled, seed_of
from tests.model.stream_model import ModelGroup, StreamModel, Wish

SEED = seed_of("PENSTOCK_STREAM_SEED")
_STEPS = 1_500
_TAGS = (b"", b"a", b"b", b"c", b"long" * 30)
_KEPT_TOMBSTONE_MS = 86_400_000
#: The background looks after streams once in so long.
_SLOW_TICK_MS = 1_000


class Both:
    """The engine and the model, told the same."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.model = StreamModel(self.clock.now_ms())
        self._path = path
        self._policy = {"RETAIN-COUNT": 0, "RETAIN-MS": 0, "RETAIN-ACKED": 0, "COMPACT": 0,
                        "MIN-LAG-MS": 0, "TOMBSTONE-MS": _KEPT_TOMBSTONE_MS}  # fmt: skip
        #: what the policies said with which a compaction may have begun that this process has not ended yet
        self._begun: set[tuple[int, int]] = set()
        self.reopenings = 0
        self.removed_by_compaction = 0
        self._open()

    def _open(self) -> None:
        self.engine = Engine.open(self._path, durability="relaxed", clock=self.clock)
        self._replies: list[Any] = []
        self._session = self.engine.session(self._replies.append)
        self._session.protocol = 3

    def do(self, *words: Any) -> Any:
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.engine.execute([(self._session, argv)])
        (reply,) = self._replies
        self._replies.clear()
        return reply

    def step(self) -> None:
        usual: list[Callable[[], None]] = [self.write, self.read, self.read_group, self.settle]
        rare = [self.evict, self.wait, self.compact, self.set_policy, self.set_group, self.produce, self.tick,
                self.drop]  # fmt: skip
        self.chance.choice(usual if self.chance.random() < 0.7 else rare)()
        if self.chance.random() < 0.01:
            self.reopen()

    # ----------------------------------------------------------------------- write

    def messages(self) -> list[tuple[bytes, bytes | None]]:
        chance = self.chance
        count = chance.choice([1, 1, 1, 2, 5, 20])
        is_tombstone = chance.random() < 0.15
        return [(chance.choice(_TAGS), None if is_tombstone else chance.randbytes(4)) for _ in range(count)]

    def words_of(self, messages: list[tuple[bytes, bytes | None]]) -> list[bytes]:
        if messages[0][1] is None:
            return [b"TOMBSTONES", *(tag for tag, _ in messages)]
        return [b"ENTRIES", *(word or b"" for message in messages for word in message)]

    def write(self) -> None:
        chance, model, messages = self.chance, self.model, self.messages()
        if len(messages) == 1 and messages[0][1] is not None and chance.random() < 0.5:
            assert self.do("TWRITE", "k", *messages[0]) == model.write(messages)
            return
        words: list[Any] = []
        if chance.random() < 0.2 or len(messages) == 1:  # a tombstone alone would be the simple form
            expected = model.last + chance.choice([0, 0, 1])
            words += ["IF", expected]
            if expected != model.last:
                reply = self.do("TWRITE", "k", *words, *self.words_of(messages))
                assert str(reply) == f"MISMATCH the last offset is {model.last}"
                return
        backlog = chance.choice([None, None, None, 10, 50])
        is_exact = chance.random() < 0.5
        if backlog is not None:
            words += ["BACKLOG", *(["="] if is_exact else []), backlog]
        assert self.do("TWRITE", "k", *words, *self.words_of(messages)) == model.write(messages)
        if backlog is not None and is_exact:
            model.evict(model.upto_to_keep(backlog))
            self.adopt_first(lambda _, gone: not gone, model.last + 1)
        elif backlog is not None:
            self.adopt_first(lambda left, _: left >= backlog, model.open_from)

    def produce(self) -> None:
        """Sometimes a call that was made before, which must not write again."""
        chance, model = self.chance, self.model
        producer = chance.choice([b"one", b"two"])
        calls = model.calls.setdefault(producer, {})
        messages = self.messages()
        number = max((start + count for start, (count, _) in calls.items()), default=0) + chance.choice(
            [0, 3]
        )
        if calls and chance.random() < 0.5:
            number = chance.choice(sorted(calls)[-50:])
            count, offset = calls[number]
            messages = [(b"again", b"x")] * count
            assert self.do("TWRITE", "k", "PRODUCER", producer, number, *self.words_of(messages)) == offset
            too_many = [*messages, (b"again", b"x")]
            reply = self.do("TWRITE", "k", "PRODUCER", producer, number, *self.words_of(too_many))
            assert isinstance(reply, CommandError)
            assert str(reply).startswith("SEQUENCE producer")
            return
        offset = self.do("TWRITE", "k", "PRODUCER", producer, number, *self.words_of(messages))
        assert offset == model.write(messages)
        calls[number] = (len(messages), offset)

    # ------------------------------------------------------------------------ read

    def read(self) -> None:
        chance, model = self.chance, self.model
        backward, skips = chance.random() < 0.4, chance.random() < 0.5
        offset = chance.choice([0, 1, chance.randint(0, model.last + 3)])
        count = chance.choice([1, 3, 10, 1000])
        words: list[Any] = ["REV"] if backward else []
        words += ["SKIPNULL"] if skips else []
        expected = model.read(offset, count, backward=backward, skips=skips)
        assert self.do("TREAD", "k", offset, count, "WITHTIME", *words) == expected, (offset, count, words)

    def read_group(self) -> None:
        chance, name = self.chance, self.group()
        wish = Wish(
            chance.choice([1, 2, 5, 20]),
            chance.choice([None, 1, 10, 10, 50]),
            chance.choice([0, 0, 15, 60]),
            chance.choice([b"", b"ann", b"bob"]),
        )
        words: list[Any] = ["TREAD", "k", 0, wish.count, "GROUP", name, "WITHTIME", "WITHCOUNT"]
        words += ["CONSUMER", wish.consumer] if wish.consumer else []
        words += ["RETRY", wish.retry_ms, wish.expire_ms] if wish.retry_ms is not None else []
        assert self.do(*words) == self.model.read_for(name, wish), words

    def group(self) -> bytes:
        """One that is there, or is made now."""
        chance, model = self.chance, self.model
        name = chance.choice([b"g", b"h"])
        if name not in model.groups:
            group = model.groups[name] = ModelGroup(
                model.first, chance.choice([3, 1000]), chance.choice([0, 0, 3]), chance.choice([(), (5, 20)])
            )
            assert self.do(
                "TGROUP", "CREATE", "k", name, 0, "MAXPENDING", group.max_pending, "DEADLETTER", "dead",
                "MAXDELIVERIES", group.max_deliveries, "BACKOFF", ",".join(map(str, group.backoff_ms)),
            ) == 1  # fmt: skip
        return name

    def settle(self) -> None:
        chance, name = self.chance, self.group()
        group = self.model.groups[name]
        what = chance.choice(["TACK", "TACK", "TACK", "TNACK", "TRENEW", "TDEAD"])
        ranges = []
        for _ in range(chance.choice([1, 1, 3])):
            start = chance.choice([*group.pending] or [chance.randint(0, self.model.last + 2)])
            ranges.append((start, start + chance.choice([0, 0, 1, 4, 30])))
        number = chance.choice([1, 5, 30])
        items = [f"{start}-{end}" for start, end in ranges]
        words: dict[str, list[Any]] = {"TDEAD": ["why"], "TRENEW": [number], "TNACK": [number], "TACK": []}
        expected = self.model.settle(what, name, ranges, number)
        assert self.do(what, "k", name, *words[what], *items) == expected

    def set_group(self) -> None:
        chance, model, name = self.chance, self.model, self.group()
        match chance.randrange(4):
            case 0:
                offset = chance.choice([None, 0, chance.randint(1, model.last + 3)])
                assert self.do("TGROUP", "SET", "k", name, "OFFSET", "$" if offset is None else offset) == 1
                model.set_offset(name, offset)
            case 1:
                model.groups[name].max_pending = limit = chance.choice([2, 5, 1000])
                assert self.do("TGROUP", "SET", "k", name, "MAXPENDING", limit) == 1
            case 2 if chance.random() < 0.3:
                assert self.do("TGROUP", "DESTROY", "k", name) == 1
                del model.groups[name]
            case _:
                assert self.do(
                    "TNACK", "k", name, "*" if model.groups[name].backoff_ms else 0, "0-9999999"
                ) == (
                    model.settle(
                        "TNACK", name, [(0, 9_999_999)], None if model.groups[name].backoff_ms else 0
                    )
                )

    # ----------------------------------------------------------------------- evict

    def evict(self) -> None:
        chance, model = self.chance, self.model
        is_sparing = chance.random() < 0.4
        match chance.randrange(3):
            case 0:
                upto = chance.randint(max(model.first - 2, 0), model.first + 15)
                words = [upto]
            case 1:
                count = chance.choice([0, 5, 30, 1000])
                upto, words = model.upto_to_keep(count), [f"-{count}"]
            case _:
                age_ms = chance.choice([50, 500, 5_000])
                upto, words = model.upto_older(age_ms), ["AGE", age_ms]
        if is_sparing:
            upto = min(upto, model.needed_from() - 1)
        reply = self.do("TEVICT", "k", *words, *(["ACKED"] if is_sparing else []))
        assert reply == model.evict(upto), (words, is_sparing)
        self.adopt_first(lambda _, gone: not gone, model.last + 1)

    def adopt_first(self, is_allowed: Callable[[int, list[int]], bool], limit: int) -> None:
        """Take over how much the engine has dropped, if what is left and what is gone is allowed.

        Holes behind the last message that had to go may have gone with it.
        """
        model = self.model
        [(first, last)] = self.do("TREAD", "k", 0, 0, "WITHINFO")
        assert last == model.last
        assert model.first <= first
        if first > model.first:
            gone = [offset for offset in model.log if offset < first]
            assert first <= limit
            assert is_allowed(len(model.log) - len(gone), gone), (first, gone)
            model.evict(first - 1)

    def drop(self) -> None:
        chance, model = self.chance, self.model
        ranges = []
        for _ in range(chance.choice([1, 1, 4])):
            start = chance.randint(max(model.first - 3, 0), model.last + 2)
            ranges.append((start, start + chance.choice([0, 0, 0, 1, 12])))
        items = [f"{start}-{end}" if end > start else start for start, end in ranges]
        assert self.do("TDROP", "k", *items) == model.drop(ranges), items

    # -------------------------------------------------------------------- policies

    def compact(self) -> None:
        must = self.model.must_compact() if not self._policy["MIN-LAG-MS"] else set()
        may = self.model.may_compact(self._policy["TOMBSTONE-MS"], self._policy["MIN-LAG-MS"])
        before = len(self.model.log)
        reply = self.do("TCOMPACT", "k")
        self._adopt_holes(must, may)
        assert reply == before - len(self.model.log)

    def _adopt_holes(self, must: set[int], may: set[int]) -> None:
        model = self.model
        there = {row[0] for row in self.do("TREAD", "k", 1, 1_000_000, "SKIPNULL")}
        gone = model.log.keys() - there
        assert must <= gone <= may, (must - gone, gone - may)
        for offset in gone:
            del model.log[offset]
        self.removed_by_compaction += len(gone)

    def set_policy(self) -> None:
        chance = self.chance
        options = {
            "RETAIN-COUNT": [0, 0, 0, 40],
            "RETAIN-MS": [0, 0, 0, 3_000],
            "RETAIN-ACKED": [0, 1],
            "COMPACT": [0, 1],
            "MIN-LAG-MS": [0, 0, 100],
            "TOMBSTONE-MS": [0, 1_000, _KEPT_TOMBSTONE_MS],
            "NODE-MESSAGES": [1, 2, 5, 10, 30],
        }
        name = chance.choice(list(options))
        value = chance.choice(options[name])
        shown = ("no", "yes")[value] if name in ("RETAIN-ACKED", "COMPACT") else str(value)
        assert self.do("TPOLICY", "k", name, shown)[name.lower().encode()] in (value, shown.encode())
        if name == "NODE-MESSAGES":
            self.model.node_messages = value
        else:
            self._policy[name] = value

    def tick(self) -> None:
        """The background does what is due, and nothing else."""
        model, policy = self.model, self._policy
        while self.engine.duties.tick():
            pass
        model.tick()
        needed_from = model.needed_from() if policy["RETAIN-ACKED"] else model.last + 1
        horizon_ms = model.now_ms - policy["RETAIN-MS"]

        def is_allowed(left: int, gone: list[int]) -> bool:
            is_old = policy["RETAIN-MS"] and all(model.log[offset].time_ms < horizon_ms for offset in gone)
            return bool(is_old) or 0 < policy["RETAIN-COUNT"] <= left

        self.adopt_first(is_allowed, needed_from)
        if policy["COMPACT"]:
            self._begun.add((policy["TOMBSTONE-MS"], policy["MIN-LAG-MS"]))
        self._adopt_holes(set(), set().union(*(model.may_compact(*times) for times in self._begun)))

    def wait(self) -> None:
        self.clock.advance_ms(self.chance.choice([1, 5, 10, 40, _SLOW_TICK_MS]))
        self.model.now_ms = self.clock.now_ms()

    def reopen(self) -> None:
        self.engine.close()
        self._open()
        self._begun.clear()
        self.reopenings += 1

    # --------------------------------------------------------------------- compare

    def compare(self) -> None:
        model = self.model
        for name in model.groups:
            assert self.do("TPENDING", "k", name, 0, 10**9, 10**6) == model.pending_rows(name)
        for found in self.do("TINFO", "GROUPS", "k"):
            expected = model.group_info(found[b"name"])
            assert {field: found[field] for field in expected} == expected
        info = self.do("TINFO", "STREAM", "k")
        assert (info[b"first"], info[b"last"], info[b"length"]) == (model.first, model.last, len(model.log))
        expected_rows = [model.row(offset) for offset in sorted(model.log)]
        assert self.do("TREAD", "k", 1, 1_000_000, "WITHTIME", "SKIPNULL") == expected_rows
        letters = self.do("TREAD", "dead", 1, 1_000_000)
        assert sorted(map(_parse_letter, letters)) == sorted(model.letters)
        assert check_store(self.engine) == []


def _parse_letter(row: list[Any]) -> tuple[int, bytes, int, bytes]:
    fields = dict(line.split(b": ", 1) for line in row[2].partition(b"\n\n")[0].split(b"\n"))
    return int(fields[b"offset"]), fields[b"group"], int(fields[b"deliveries"]), fields[b"reason"]


@pytest.mark.parametrize("number", range(scaled(6)))
def test_a_stream_does_what_the_model_does(tmp_path: Path, number: int) -> None:
    print(f"PENSTOCK_STREAM_SEED={SEED}")  # noqa: T201  (shown when it fails)
    both = Both(tmp_path / "store.pen", SEED + number)
    both.do("TPOLICY", "k", "NODE-MESSAGES", 10)
    both.model.node_messages = 10
    for step in range(_STEPS):
        both.step()
        if step % 10 == 0:
            both.compare()
    both.compare()
    assert both.reopenings > 0
    assert both.removed_by_compaction > 0
    both.engine.close()
