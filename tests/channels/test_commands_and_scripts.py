"""CHFETCH and CHACK beside the scripts that they stand for: any state, the same reply, the same keys after.

Both run on the engine, each on a channel of its own that is in the same state. (The rest of the suite sees
them through channels: there the engine uses the commands, and Redis the scripts.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.channels.clocks import MAX, MIN, following
from penstock.client.scripts import ScriptLibrary
from penstock.errors import CommandError
from tests.effort import IS_CI, scaled

TTL_S = 1_000
#: Lives before the call: one that is renewed, and one that is longer than what is asked for.
OLD_S, LONG_S = 500, 2_000
COUNT = 6
NATIVE, SCRIPT = "c.{native}.", "c.{script}."
KEYS = ["clock", "r.s", "nack.s"]


@dataclass(frozen=True)
class State:
    """A channel of COUNT messages with one subscriber. Clocks are given as numbers from its start on."""

    start: int
    cursor: int | None
    has_clock: bool
    #: the sizes of bodies; None: it has expired
    bodies: list[int | None]
    nack: int | None
    clock_life_s: int
    cursor_life_s: int

    @cached_property
    def clocks(self) -> list[int]:
        clocks = [self.start]
        while len(clocks) < COUNT + 2:
            clocks.append(following(clocks[-1]))
        return clocks

    async def make(self, ps: penstock.Penstock, prefix: str) -> None:
        if self.has_clock:
            await ps.execute("SET", prefix + "clock", self.clocks[COUNT], "EX", self.clock_life_s)
        if self.cursor is not None:
            await ps.execute("SET", prefix + "r.s", self.clocks[self.cursor], "EX", self.cursor_life_s)
        if self.nack is not None:
            await ps.execute("SET", prefix + "nack.s", self.clocks[self.nack], "EX", LONG_S)
        for number, size in enumerate(self.bodies, 1):
            if size is not None:
                await ps.execute("SET", f"{prefix}m.{self.clocks[number]}", "x" * size)
                await ps.execute("SET", f"{prefix}mid.m{number}", self.clocks[number])


NUMBERS = st.integers(0, COUNT + 1)
LIVES = st.sampled_from([OLD_S, LONG_S])
STATES = st.builds(
    State,
    start=st.sampled_from([0, 0, 41, MAX - 3, MAX - COUNT, MAX, MIN]),
    cursor=st.sampled_from([0] * 5 + [1, 2, 5, COUNT, None]),
    has_clock=st.sampled_from([True] * 9 + [False]),
    bodies=st.lists(st.sampled_from([1, 1, 5, None]), min_size=COUNT, max_size=COUNT),
    nack=st.sampled_from([None] * 8 + [0, 3, COUNT, COUNT + 1]),
    clock_life_s=LIVES,
    cursor_life_s=LIVES,
)


class Sides:
    """The command and the script, each with its own keys."""

    def __init__(self, ps: penstock.Penstock) -> None:
        self.ps = ps
        self._scripts = ScriptLibrary(ps, "penstock.channels")

    async def compare(
        self, state: State, name: str, words: Callable[[str], tuple[list[str], list[Any]]]
    ) -> None:
        """Run both, with the keys and arguments of their prefix."""
        await self.ps.execute("FLUSHALL")
        for prefix in (NATIVE, SCRIPT):
            await state.make(self.ps, prefix)
        names, arguments = words(NATIVE)
        reply: Any = await self.ps.execute(f"CH{name.upper()}", *names, *arguments)
        expected: Any = await self._scripts[name](*words(SCRIPT))
        if isinstance(reply, list) and isinstance(expected, list):
            assert abs(reply[1] - expected[1]) < 100_000  # how long a nack lasts, a moment later
            reply[1] = expected[1] = 0
        assert reply == expected
        assert await self._content(NATIVE) == await self._content(SCRIPT)

    async def _content(self, prefix: str) -> dict[str, tuple[Any, str]]:
        """Values and lives by key, without the prefix."""
        found = {}
        async for key in self.ps.scan_iter(match=prefix + "*", count=1_000):
            ttl_s: Any = await self.ps.execute("TTL", key)
            life = "none" if ttl_s < 0 else "old" if ttl_s <= OLD_S else "new" if ttl_s <= TTL_S else "long"
            value: Any = await self.ps.execute("GET", key)
            found[bytes(key).decode().removeprefix(prefix)] = (value, life)
        return found


def try_many(tmp_path: Path, examples: int, try_one: Callable[[Any, Sides], Any], cases: Any) -> None:
    with asyncio.Runner() as runner:
        ps = runner.run(_open(tmp_path))
        sides = Sides(ps)

        @settings(
            max_examples=scaled(examples),
            derandomize=IS_CI,
            print_blob=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def run(case: Any) -> None:
            runner.run(try_one(case, sides))

        try:
            run()
        finally:
            runner.run(ps.close())


async def _open(tmp_path: Path) -> penstock.Penstock:
    return await penstock.open(f"embedded:{tmp_path / 'store.pen'}?durability=relaxed")


@pytest.fixture
async def ps(tmp_path: Path) -> AsyncIterator[penstock.Penstock]:
    async with await _open(tmp_path) as client:
        yield client


# --------------------------------------------------------------------------------- any state


def test_fetches(tmp_path: Path) -> None:
    async def try_one(case: tuple[State, int, int, int, int | None, int | None], sides: Sides) -> None:
        state, limit, size_bytes, steps, unreadable, start = case
        edges = ["" if number is None else state.clocks[number] for number in (unreadable, start)]

        def words(prefix: str) -> tuple[list[str], list[Any]]:
            return [prefix + key for key in KEYS], [prefix, TTL_S, limit, size_bytes, steps, *edges]

        await sides.compare(state, "fetch", words)

    edges = st.none() | st.none() | NUMBERS
    cases = st.tuples(
        STATES,
        st.sampled_from([0, 1, 2, COUNT, 64]),
        st.sampled_from([0, 1, 6, 1_000]),
        st.sampled_from([1, 2, 1_000]),
        edges,
        edges,
    )
    try_many(tmp_path, 150, try_one, cases)


def test_acknowledgements(tmp_path: Path) -> None:
    async def try_one(case: tuple[State, int, int], sides: Sides) -> None:
        state, number, claimed = case
        clock = state.clocks[number]

        def words(prefix: str) -> tuple[list[str], list[Any]]:
            names = [*KEYS, f"mid.m{claimed or number}", f"m.{clock}"]
            return [prefix + key for key in names], [TTL_S, clock]

        await sides.compare(state, "ack", words)

    #: 0: the id belongs to the clock; 1, 2: to that of another message; 9: to none that is known
    claimed = st.sampled_from([0, 0, 0, 1, 2, 9])
    try_many(tmp_path, 100, try_one, st.tuples(STATES, NUMBERS, claimed))


# --------------------------------------------------------------------------- what differs


async def test_a_fetch_that_renews_nothing(ps: penstock.Penstock) -> None:
    state = State(0, 0, True, [1] * COUNT, None, OLD_S, OLD_S)
    await state.make(ps, NATIVE)
    names = [NATIVE + key for key in KEYS]
    reply: Any = await ps.execute("CHFETCH", *names, NATIVE, 0, 2, 100, 100, "", "")
    assert reply == [1, 0, b"3", b"1", b"x", b"2", b"x"]
    for key in names[:2]:
        assert await ps.execute("TTL", key) <= OLD_S


async def test_an_acknowledgement_leaves_a_life_that_was_just_renewed(ps: penstock.Penstock) -> None:
    kept_ms = TTL_S * 1_000 - 300
    while True:
        await State(0, 0, True, [1] * COUNT, None, TTL_S, TTL_S).make(ps, NATIVE)
        begin_s = time.monotonic()
        for key in KEYS[:2]:
            await ps.execute("PEXPIRE", NATIVE + key, kept_ms)
        names = [NATIVE + key for key in (*KEYS, "mid.m3", "m.3")]
        assert await ps.execute("CHACK", *names, TTL_S, 3) == 1
        lives: list[Any] = [await ps.execute("PTTL", NATIVE + key) for key in KEYS[:2]]
        if time.monotonic() - begin_s < 0.6:  # else a second has gone, and it was right to renew
            break
    assert await ps.execute("GET", NATIVE + "r.s") == b"3"
    assert all(ttl_ms <= kept_ms for ttl_ms in lives)


# ---------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("CHACK c r n i b 0 1", "invalid expire time in 'chack' command"),
        ("CHACK c r n i b 10 x", "not an integer"),
        ("CHACK c r n i b 10", "wrong number of arguments"),
        ("CHFETCH c r n p -1 1 1 1 1 1", "invalid expire time in 'chfetch' command"),
        ("CHFETCH c r n p 10 -1 1 1 1 1", "must be positive"),
        ("CHFETCH c r n p 10 1 1 1 x 1", "not an integer"),
        ("CHFETCH c r n p 10 1 1 1 1 x", "not an integer"),
    ],
)
async def test_refusals(ps: penstock.Penstock, command: str, message: str) -> None:
    await ps.execute("SET", "c", 2)
    await ps.execute("SET", "r", 0)
    with pytest.raises(CommandError, match=message):
        await ps.execute(*command.split())
    assert await ps.execute("MGET", "c", "r") == [b"2", b"0"]
    assert await ps.execute("TTL", "r") == -1


@pytest.mark.parametrize("key", ["c", "r", "n"])
async def test_what_is_no_clock_is_named(ps: penstock.Penstock, key: str) -> None:
    await ps.execute("MSET", "c", 2, "r", 0, "n", 1)
    await ps.execute("SET", key, "abc")
    with pytest.raises(CommandError, match=f"CORRUPTCLOCK the value of {key} is not a clock"):
        await ps.execute("CHFETCH", "c", "r", "n", "p.", 10, 1, 1, 1, "", "")
    assert await ps.execute("TTL", "r") == -1  # an error leaves nothing behind
