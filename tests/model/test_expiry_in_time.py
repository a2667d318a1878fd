"""Expiry while time passes, against a model of a dozen lines: a dictionary and a clock.

The clock is ours, so that every deadline can be met to the millisecond, which no real
server would let us do. Keys go lazily, when somebody looks, or are swept; nobody must be
able to tell which, except by DBSIZE, which counts what is not removed yet. Each key that
expires is announced once.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from tests.effort import scaled
from tests.model.drawing import how_long, tries
from tests.model.pools import LONG_KEYS

_EXAMPLES: Final = scaled(40)

_KEYS: Final = (b"a", b"b", b"", LONG_KEYS[0], LONG_KEYS[1])
#: More than the engine deletes at once.
_MANY: Final = [b"%d" % number for number in range(100)]

keys = st.sampled_from(_KEYS)
lives_ms = st.sampled_from((1, 2, 999, 1000, 1001, 5000, 60_000))
#: Seconds, in which some commands count.
lives_s = st.sampled_from((1, 2, 5, 60))
options = st.sampled_from((b"EX", b"PX", b"EXAT", b"PXAT"))
makers = st.sampled_from((b"SET", b"RPUSH", b"SADD", b"APPEND", b"HSET", b"ZADD"))

_TYPES: Final = {
    b"SET": b"string",
    b"APPEND": b"string",
    b"RPUSH": b"list",
    b"SADD": b"set",
    b"HSET": b"hash",
    b"ZADD": b"zset",
}


class Entry(NamedTuple):
    type: bytes
    deadline_ms: int | None = None


class ExpiryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.directory = tempfile.TemporaryDirectory(prefix="penstock-model-")
        path = Path(self.directory.name, "store.pen")
        self.engine = Engine.open(path, durability="relaxed", clock=self.clock)
        # Sweeping is a step of its own here.
        self.engine.duties.active_expire = False
        self.session = LocalSession(self.engine)
        self.listener = LocalSession(self.engine)
        self.do(b"CONFIG", b"SET", b"notify-keyspace-events", b"Ex")
        self.listener.execute(b"PSUBSCRIBE", b"__keyevent@*")
        self.entries: dict[bytes, Entry] = {}
        #: (key, when) of everything that expired, announced or not
        self.expired: list[bytes] = []
        self.announced: list[bytes] = []

    def do(self, *argv: bytes | int) -> Any:
        return self.session.execute(*argv)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def remaining_ms(self, key: bytes) -> int:
        entry = self.entries.get(key)
        if entry is None:
            return -2
        return -1 if entry.deadline_ms is None else entry.deadline_ms - self.now_ms

    def set_deadline(self, key: bytes, deadline_ms: int | None) -> None:
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            del self.entries[key]
        else:
            self.entries[key] = self.entries[key]._replace(deadline_ms=deadline_ms)

    # ---------------------------------------------------------------------------- time

    @rule(delta_ms=st.sampled_from((1, 2, 10, 500, 999, 1000, 5000)))
    def time_passes(self, delta_ms: int) -> None:
        self.clock.advance_ms(delta_ms)
        gone = [
            key
            for key, entry in self.entries.items()
            if entry.deadline_ms is not None and entry.deadline_ms <= self.now_ms
        ]
        for key in gone:
            del self.entries[key]
        self.expired += gone

    @rule()
    def sweep(self) -> None:
        self.engine.duties.active_expire = True
        while self.engine.duties.tick():
            pass
        self.engine.duties.active_expire = False
        assert self.do(b"DBSIZE") == len(self.entries)
        assert check_store(self.engine) == []
        self.listen()
        assert sorted(self.announced) == sorted(self.expired)

    def listen(self) -> None:
        while (push := self.listener.poll()) is not None:
            if push[0] == b"pmessage":
                self.announced.append(push[3])

    # ------------------------------------------------------------------------- writing

    @rule(key=keys, maker=makers)
    def make(self, key: bytes, maker: bytes) -> None:
        """SET replaces; the others keep what lives, deadline included, or make it anew."""
        type_, old = _TYPES[maker], self.entries.get(key)
        if old is not None and old.type != type_ and maker != b"SET":
            return
        elements = {b"HSET": _MANY, b"ZADD": _MANY, b"SET": [b"v"], b"APPEND": [b"v"]}.get(maker, _MANY)
        self.do(maker, key, *elements)
        keeps = old is not None and maker != b"SET"
        self.entries[key] = Entry(type_, old.deadline_ms if keeps and old is not None else None)

    @rule(key=keys, option=options, life_ms=lives_ms, life_s=lives_s)
    def set_with_deadline(self, key: bytes, option: bytes, life_ms: int, life_s: int) -> None:
        number, deadline_ms = self.amount(option, life_ms, life_s)
        self.do(b"SET", key, b"v", option, number)
        self.entries[key] = Entry(b"string")
        self.set_deadline(key, deadline_ms)

    def amount(self, option: bytes, life_ms: int, life_s: int) -> tuple[int, int]:
        """The number to send, and the deadline that it means."""
        now_ms = self.now_ms
        at_s = now_ms // 1000 + life_s
        return {
            b"EX": (life_s, now_ms + life_s * 1000),
            b"PX": (life_ms, now_ms + life_ms),
            b"EXAT": (at_s, at_s * 1000),
            b"PXAT": (now_ms + life_ms, now_ms + life_ms),
        }[option]

    @rule(key=keys)
    def set_keeping_the_deadline(self, key: bytes) -> None:
        self.do(b"SET", key, b"w", b"KEEPTTL")
        old = self.entries.get(key)
        self.entries[key] = Entry(b"string", None if old is None else old.deadline_ms)

    @rule(key=keys, option=st.sampled_from((b"NX", b"XX")))
    def set_if(self, key: bytes, option: bytes) -> None:
        done = self.do(b"SET", key, b"v", option) is not None
        assert done == ((key in self.entries) == (option == b"XX"))
        if done:
            self.entries[key] = Entry(b"string")

    @rule(
        key=keys,
        option=options,
        life_ms=st.one_of(lives_ms, st.just(0), st.just(-1)),
        life_s=st.one_of(lives_s, st.just(0)),
        condition=st.sampled_from((b"", b"NX", b"XX", b"GT", b"LT")),
    )
    def expire(self, key: bytes, option: bytes, life_ms: int, life_s: int, condition: bytes) -> None:
        name = {b"EX": b"EXPIRE", b"PX": b"PEXPIRE", b"EXAT": b"EXPIREAT", b"PXAT": b"PEXPIREAT"}[option]
        number, deadline_ms = self.amount(option, life_ms, life_s)
        reply = self.do(name, key, number, *([condition] if condition else []))
        entry = self.entries.get(key)
        if entry is None:
            assert reply == 0
            return
        old_ms = entry.deadline_ms
        holds = {
            b"": True,
            b"NX": old_ms is None,
            b"XX": old_ms is not None,
            b"GT": old_ms is not None and deadline_ms > old_ms,
            b"LT": old_ms is None or deadline_ms < old_ms,
        }[condition]
        assert reply == int(holds)
        if holds:
            self.set_deadline(key, deadline_ms)

    @rule(key=keys)
    def persist(self, key: bytes) -> None:
        assert self.do(b"PERSIST", key) == (self.remaining_ms(key) > 0)
        if key in self.entries:
            self.set_deadline(key, None)

    @rule(
        key=keys,
        option=st.sampled_from((b"EX", b"PX", b"PXAT", b"PERSIST")),
        life_ms=lives_ms,
        life_s=lives_s,
    )
    def get_and_set_deadline(self, key: bytes, option: bytes, life_ms: int, life_s: int) -> None:
        if key in self.entries and self.entries[key].type != b"string":
            return
        if option == b"PERSIST":
            words, deadline_ms = [option], None
        else:
            number, deadline_ms = self.amount(option, life_ms, life_s)
            words = [option, b"%d" % number]
        assert (self.do(b"GETEX", key, *words) is not None) == (key in self.entries)
        if key in self.entries:
            self.set_deadline(key, deadline_ms)

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        assert self.do(b"DEL", key) == (self.entries.pop(key, None) is not None)

    @rule(key=keys, new=keys)
    def rename(self, key: bytes, new: bytes) -> None:
        """The deadline travels; that of what is replaced goes with it."""
        if key in self.entries:
            self.do(b"RENAME", key, new)
            self.entries[new] = self.entries.pop(key)

    @rule(key=keys, new=keys)
    def copy(self, key: bytes, new: bytes) -> None:
        if key != new:
            assert self.do(b"COPY", key, new, b"REPLACE") == (key in self.entries)
            if key in self.entries:
                self.entries[new] = self.entries[key]

    # ------------------------------------------------------------------------ watching

    @rule(key=keys, delta_ms=st.sampled_from((0, 1, 1000, 5000)))
    def watch_while_time_passes(self, key: bytes, delta_ms: int) -> None:
        """A watched key that expires has changed; one that had expired before has not."""
        lived = key in self.entries
        self.do(b"WATCH", key)
        self.time_passes(delta_ms)
        self.do(b"MULTI")
        self.do(b"PING")
        assert (self.do(b"EXEC") is None) == (lived and key not in self.entries)

    # ------------------------------------------------------------------------- reading

    @invariant()
    def keys_live_exactly_so_long(self) -> None:
        for key in _KEYS:
            remaining_ms = self.remaining_ms(key)
            entry = self.entries.get(key)
            assert self.do(b"PTTL", key) == remaining_ms
            assert self.do(b"TTL", key) == (
                remaining_ms if remaining_ms < 0 else (remaining_ms + 500) // 1000
            )
            assert self.do(b"EXISTS", key) == (entry is not None)
            assert self.do(b"TYPE", key) == (b"none" if entry is None else entry.type)
            deadline_ms = -2 if entry is None else entry.deadline_ms or -1
            assert self.do(b"PEXPIRETIME", key) == deadline_ms

    @invariant()
    def only_living_keys_are_seen(self) -> None:
        living = set(self.entries)
        assert set(self.do(b"KEYS", b"*")) == living
        assert set(self.do(b"SCAN", b"0", b"COUNT", 100)[1]) == living
        chosen = self.do(b"RANDOMKEY")
        assert chosen in living if living else chosen is None
        assert self.do(b"DBSIZE") >= len(living)

    def teardown(self) -> None:
        try:
            self.sweep()
        finally:
            self.engine.close()
            self.directory.cleanup()


@how_long
def test_keys_live_exactly_as_long_as_they_should(rounds: int) -> None:
    for _ in range(rounds):
        run_state_machine_as_test(ExpiryMachine, settings=tries(_EXAMPLES))
