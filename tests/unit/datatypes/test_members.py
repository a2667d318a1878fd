"""Hash and set against dict and set: random operations, long names, random picks, scans under change.

Every store here holds neighbours: a collection whose rows come just before those of the
one under test and another just behind, so that a walk that goes too far is seen.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import SystemClock
from penstock.engine.changes import Changes
from penstock.engine.datatypes import collection
from penstock.engine.datatypes.collection import Members
from penstock.engine.datatypes.hash import Hash
from penstock.engine.datatypes.set import Set
from penstock.engine.keyspace import Keyspace
from penstock.engine.storage.environment import open_environment
from penstock.engine.storage.layout import FIT_BYTES
from penstock.engine.storage.transaction import Unit

KEY = b"subject"
HEAD = b"n" * 440


@pytest.fixture(scope="module")
def ks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyspace]:
    """A keyspace over one store; tests open and abort units of their own."""
    env = open_environment(tmp_path_factory.mktemp("store"), "relaxed")
    yield Keyspace(Unit(env, SystemClock()), 0, Changes())
    env.close()


@contextmanager
def unit_with_neighbours(ks: Keyspace, kind: type[Any]) -> Iterator[Any]:
    """Inside a unit that is thrown away: an empty collection with rows before and behind it."""
    ks.unit.begin(write=True)
    try:
        before, subject, behind = (kind(ks, name, None) for name in (b"before", KEY, b"behind"))
        for neighbour in (before, behind):
            neighbour._add(b"neighbour", b"stranger")
            neighbour._add(HEAD + b"neighbour of a long name", b"stranger")
            neighbour.save()
        yield subject
        for name in (b"before", b"behind"):
            neighbour = ks.load(name, kind)
            assert sorted(neighbour.names()) == [b"neighbour", HEAD + b"neighbour of a long name"]
    finally:
        ks.unit.abort()


def reloaded(ks: Keyspace, kind: type[Any]) -> Any:
    return ks.load(KEY, kind)


def rows(ks: Keyspace, version: bytes) -> int:
    return sum(1 for _ in ks.unit.rows(ks.data, version))


# ------------------------------------------------------------------------------ model

#: Around the length from which a name does not fit an LMDB key; long ones differ behind what is kept.
NAMES = st.one_of(
    st.sampled_from([b"a", b"b", b"c", b"", b"\x00", b"\xff" * 8]),
    st.sampled_from([b"x" * length for length in (FIT_BYTES - 1, FIT_BYTES, FIT_BYTES + 1, 511, 4000)]),
    st.sampled_from([HEAD + b"tail %d" % n for n in range(20)]),
    st.binary(max_size=4),
)
VALUES = st.sampled_from([b"", b"v", b"w" * 600])
HASH_STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, VALUES),
    st.tuples(st.just("put_new"), NAMES, VALUES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("pop_random")),
    st.tuples(st.just("reload")),
)
SET_STEPS = st.one_of(
    st.tuples(st.just("add"), NAMES),
    st.tuples(st.just("add_all"), st.lists(NAMES, max_size=5)),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("remove_all"), st.lists(NAMES, max_size=5)),
    st.tuples(st.just("pop_random")),
    st.tuples(st.just("reload")),
)


def check(ks: Keyspace, subject: Members, model: dict[bytes, bytes]) -> None:
    """The collection is the model (I2), read in every way there is."""
    assert subject.size == len(model)
    assert dict(subject.items()) == model
    assert sorted(subject.names()) == sorted(model)
    assert Counter(subject.values()) == Counter(model.values())
    assert all(name in subject for name in model)
    assert rows(ks, subject._version) == len(model)


def apply_to_hash(step: tuple[Any, ...], hash_: Hash, model: dict[bytes, bytes]) -> None:
    match step:
        case "put", name, value:
            assert hash_.put(name, value) == (name not in model)
            model[name] = value
        case "put_new", name, value:
            assert hash_.put_new(name, value) == (name not in model)
            model.setdefault(name, value)
        case "remove", name:
            assert hash_.remove(name) == (model.pop(name, None) is not None)
        case ("pop_random",) if model:
            name, value = hash_.pop_random()
            assert model.pop(name) == value


@given(st.lists(HASH_STEPS, max_size=40), NAMES)
def test_hash_is_a_dict(ks: Keyspace, steps: list[tuple[Any, ...]], probe: bytes) -> None:
    with unit_with_neighbours(ks, Hash) as hash_:
        model: dict[bytes, bytes] = {}
        for step in steps:
            apply_to_hash(step, hash_, model)
            if step == ("reload",):
                hash_.save()
                hash_ = ks.load_or_new(KEY, Hash)
            assert hash_.get(probe) == model.get(probe)
            assert (probe in hash_) == (probe in model)
        check(ks, hash_, model)
        hash_.save()
        assert ks.exists(KEY) == bool(model)  # I1


@given(st.lists(SET_STEPS, max_size=40), NAMES)
def test_set_is_a_set(ks: Keyspace, steps: list[tuple[Any, ...]], probe: bytes) -> None:
    with unit_with_neighbours(ks, Set) as members:
        model: set[bytes] = set()
        for step in steps:
            match step:
                case "add", name:
                    assert members.add(name) == (name not in model)
                    model.add(name)
                case "add_all", names:
                    assert members.add_all(names) == len(set(names) - model)
                    model.update(names)
                case "remove", name:
                    assert members.remove(name) == (name in model)
                    model.discard(name)
                case "remove_all", names:
                    assert members.remove_all(names) == len(set(names) & model)
                    model.difference_update(names)
                case ("pop_random",) if model:
                    model.remove(members.pop_random()[0])
                case ("reload",):
                    members.save()
                    members = ks.load_or_new(KEY, Set)
            assert (probe in members) == (probe in model)
        check(ks, members, dict.fromkeys(model, b""))
        members.save()
        assert ks.exists(KEY) == bool(model)  # I1


def test_an_expiring_key_with_a_long_name_is_read_all_the_same(ks: Keyspace) -> None:
    key = b"k" * 600
    ks.unit.begin(write=True)
    try:
        hash_ = Hash(ks, key, None)
        hash_.put(b"f", b"v")
        hash_.save()
        ks.set_deadline(key, ks.unit.now_ms + 10_000)
        hash_ = ks.load(key, Hash)
        assert hash_ is not None
        assert hash_.deadline_ms == ks.unit.now_ms + 10_000
        assert hash_.put(b"g", b"w")
        hash_.save()
        again = ks.load(key, Hash)
        assert again is not None
        assert dict(again.items()) == {b"f": b"v", b"g": b"w"}
        assert again.deadline_ms == hash_.deadline_ms
    finally:
        ks.unit.abort()


# ----------------------------------------------------------------------- random picks

#: Both ways of picking: counting rows, and steps from a random place.
SIZES = [1, 2, 64, 128, 129, 300]


def filled(subject: Set, size: int) -> set[bytes]:
    names = {b"member:%d" % n for n in range(size - 1)} | {HEAD + b"a long one"}
    subject.add_all(names)
    return names


@pytest.mark.parametrize("size", SIZES)
def test_sample_gives_distinct_members(ks: Keyspace, size: int) -> None:
    with unit_with_neighbours(ks, Set) as members:
        names = filled(members, size)
        for count in {0, 1, size // 10, size // 2, size - 1}:
            picked = [name for name, _ in members.sample(count)]
            assert len(picked) == len(set(picked)) == count
            assert set(picked) <= names
        for count in (size, size + 1, 1 << 62):
            assert sorted(name for name, _ in members.sample(count)) == sorted(names)


@pytest.mark.parametrize("size", SIZES)
def test_draw_may_repeat_members(ks: Keyspace, size: int) -> None:
    with unit_with_neighbours(ks, Set) as members:
        names = filled(members, size)
        for count in (1, 7, size * 2):
            picked = [name for name, _ in members.draw(count)]
            assert len(picked) == count
            assert set(picked) <= names


@pytest.mark.parametrize("size", SIZES)
def test_pop_random_takes_every_member_once(ks: Keyspace, size: int) -> None:
    with unit_with_neighbours(ks, Set) as members:
        names = filled(members, size)
        popped = [members.pop_random()[0] for _ in range(size)]
        assert sorted(popped) == sorted(names)
        assert members.size == 0
        assert rows(ks, members._version) == 0


@pytest.mark.parametrize("kind", ["random_item", "pop_random"])
@pytest.mark.parametrize("size", [2, 50, 128])
def test_small_collections_are_picked_from_fairly(ks: Keyspace, size: int, kind: str) -> None:
    random.seed(20_240)
    with unit_with_neighbours(ks, Set) as members:
        names = filled(members, size)
        found: Counter[bytes] = Counter()
        for _ in range(size * 100):
            name = getattr(members, kind)()[0]
            found[name] += 1
            members.add(name)
    assert set(found) == names
    chi_square = sum((found[name] - 100) ** 2 / 100 for name in names)
    # Mean size - 1, standard deviation sqrt(2 (size - 1)): six of them is no accident.
    assert chi_square < size - 1 + 6 * (2 * (size - 1)) ** 0.5


def test_large_collections_are_picked_from_with_odds_that_stray_little(ks: Keyspace) -> None:
    """Without the steps some members would be ten times as likely as others."""
    random.seed(20_240)
    size = 1000
    with unit_with_neighbours(ks, Set) as members:
        names = filled(members, size)
        found = Counter(members.random_item()[0] for _ in range(size * 100))
    assert set(found) == names
    deviation = (sum((found[name] - 100) ** 2 for name in names) / size) ** 0.5
    assert deviation < 35  # 25 by the window, 10 by chance
    in_order = members_in_hash_order(names)
    ends = in_order[:16] + in_order[-16:]
    # Around the end the steps go on at the beginning: neither end is favoured.
    assert 80 < sum(found[name] for name in ends) / len(ends) < 120


def members_in_hash_order(names: set[bytes]) -> list[bytes]:
    return sorted(names, key=collection.hash64)


def test_the_members_at_both_ends_are_never_out_of_reach(ks: Keyspace, monkeypatch: Any) -> None:
    """Each place and each number of steps leads to the member that many further on, around the end."""
    with unit_with_neighbours(ks, Set) as members:
        names = members_in_hash_order(filled(members, 200))
        for first in (0, 1, 100, 184, 185, 199):
            for steps in (0, 1, 14, 15):
                chance = bytes((steps,)) + collection.hash64(names[first])
                monkeypatch.setattr(
                    random, "getrandbits", lambda bits, chance=chance: int.from_bytes(chance, "big")
                )
                assert members.random_item()[0] == names[(first + steps) % 200]
        monkeypatch.setattr(random, "getrandbits", lambda bits: (15 << 64) + (1 << 64) - 1)
        assert members.random_item()[0] == names[15]


# ------------------------------------------------------------------------------ scans


def pick_name(name: bytes, value: bytes) -> bytes:
    return name


@given(
    stable=st.sets(NAMES, max_size=30),
    changing=st.lists(st.tuples(st.sampled_from(["add", "remove"]), NAMES), max_size=60),
    count=st.integers(1, 12),
)
def test_scan_returns_what_was_there_all_the_time(
    ks: Keyspace, stable: set[bytes], changing: list[tuple[str, bytes]], count: int
) -> None:
    with unit_with_neighbours(ks, Set) as members:
        members.add_all(stable)
        seen_at_some_time = set(stable)
        found: list[bytes] = []
        changes = iter(changing)
        cursor = 0
        for _ in range(len(stable) + len(changing) + 2):
            cursor, names = members.scan(cursor, count, pick_name)
            found += names
            if cursor == 0:
                break
            for operation, name in (next(changes, ("remove", b"never there")) for _ in range(3)):
                if operation == "add":
                    members.add(name)
                    seen_at_some_time.add(name)
                elif name not in stable:
                    members.remove(name)
        else:
            pytest.fail("the scan does not end")
        assert stable <= set(found) <= seen_at_some_time
        assert all(times == 1 for name, times in Counter(found).items() if name in stable)


def test_scan_never_splits_names_of_equal_hash(ks: Keyspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cursor that is only a hash, the second half of such names would be lost or come for ever."""

    def poor_hash(name: bytes) -> bytes:
        return bytes(7) + name[:1]

    monkeypatch.setattr(collection, "hash64", poor_hash)
    with unit_with_neighbours(ks, Set) as members:
        names = {b"%c:%d" % (letter, n) for letter in b"abcd" for n in range(5)}
        members.add_all(names)
        found: list[bytes] = []
        cursor, steps = 0, 0
        while steps == 0 or cursor:
            cursor, batch = members.scan(cursor, 3, pick_name)
            assert len(batch) == 5
            found += batch
            steps += 1
        assert steps == 4
        assert sorted(found) == sorted(names)


def test_scan_leaves_out_what_pick_refuses_but_counts_it(ks: Keyspace) -> None:
    with unit_with_neighbours(ks, Hash) as hash_:
        for n in range(50):
            hash_.put(b"%d" % n, b"v")
        cursor, found = hash_.scan(0, 10, lambda name, value: None)
        assert found == []
        assert cursor != 0
        assert hash_.scan(0, 50, lambda name, value: (name, value))[0] == 0


@pytest.mark.parametrize("cursor", [(1 << 64) - 1, 1 << 64])
def test_scan_from_beyond_the_last_place_ends(ks: Keyspace, cursor: int) -> None:
    with unit_with_neighbours(ks, Set) as members:
        filled(members, 20)
        assert members.scan(cursor, 10, pick_name) == (0, [])
