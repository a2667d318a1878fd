"""Splitting multi-key commands, against a plain dictionary; and which slot a command belongs to."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.facts import to_bytes
from penstock.client.router.splitting import (
    Split,
    Word,
    can_split,
    same_slot,
    split,
)
from penstock.errors import CommandError, NotSentError, OutcomeUnknownError, ProtocolError
from penstock.protocol.replies import OK
from penstock.protocol.slots import key_slot

COMMANDS = ["MGET", "MSET", "DEL", "UNLINK", "EXISTS", "TOUCH"]
COUNTS = ["DEL", "UNLINK", "EXISTS", "TOUCH"]


def execute(data: dict[bytes, bytes], args: tuple[Word, ...]) -> Any:
    """What a server with this data answers; the naive model."""
    name, words = to_bytes(args[0]).upper(), [to_bytes(word) for word in args[1:]]
    match name:
        case b"MGET":
            return [data.get(key) for key in words]
        case b"MSET":
            data.update(zip(words[::2], words[1::2], strict=True))
            return OK
        case b"EXISTS" | b"TOUCH":
            return sum(key in data for key in words)
        case b"DEL" | b"UNLINK":
            return sum(data.pop(key, None) is not None for key in words)
    raise AssertionError(name)


class Cluster:
    """One dictionary a slot, which refuses what a node would refuse."""

    def __init__(self, data: dict[bytes, bytes]) -> None:
        self.by_slot: dict[int, dict[bytes, bytes]] = {}
        for key, value in data.items():
            self.by_slot.setdefault(key_slot(key), {})[key] = value

    def execute(self, slot: int, args: tuple[Word, ...]) -> Any:
        keys = args[1::2] if to_bytes(args[0]).upper() == b"MSET" else args[1:]
        assert same_slot(keys) == slot
        return execute(self.by_slot.setdefault(slot, {}), args)

    def data(self) -> dict[bytes, bytes]:
        return {key: value for part in self.by_slot.values() for key, value in part.items()}


# Few keys, some of which share a slot, so that repetitions and large parts occur.
KEYS = st.sampled_from([b"a", b"b", b"c", b"{a}1", b"{a}2", b"{b}1", b"", b"{}", "ä", "a", 7, 1.5])
VALUES = st.sampled_from([b"", b"x", "y", 0, 2.5])
STORED = st.dictionaries(KEYS.map(to_bytes), VALUES.map(to_bytes))


def spelled(name: str) -> st.SearchStrategy[Word]:
    return st.sampled_from([name, name.lower(), name.encode(), name.title().encode()])


@st.composite
def commands(draw: st.DrawFn) -> tuple[Word, ...]:
    name = draw(st.sampled_from(COMMANDS))
    keys = draw(st.lists(KEYS, min_size=1, max_size=12))
    words = [word for key in keys for word in ([key, draw(VALUES)] if name == "MSET" else [key])]
    return (draw(spelled(name)), *words)


@settings(deadline=None)
@given(STORED, st.lists(commands(), max_size=6))
def test_split_commands_do_what_whole_ones_do(
    stored: dict[bytes, bytes], sequence: list[tuple[Word, ...]]
) -> None:
    model, cluster = dict(stored), Cluster(stored)
    for args in sequence:
        work = split(args, key_slot)
        replies = [cluster.execute(slot, part) for slot, part in work.parts]
        assert work.merge(replies) == execute(model, args)
        assert cluster.data() == model


@settings(deadline=None)
@given(commands(), st.randoms())
def test_parts_hold_every_argument_once_and_in_order(args: tuple[Word, ...], chance: Any) -> None:
    """For any assignment of keys to slots, not only for that of a cluster."""
    slots: dict[bytes, int] = {}
    work = split(args, lambda key: slots.setdefault(key, chance.randrange(4)))
    step = 2 if to_bytes(args[0]).upper() == b"MSET" else 1
    seen = [slot for slot, _ in work.parts]
    assert len(set(seen)) == len(seen)
    for slot, part in work.parts:
        pairs = [args[place : place + step] for place in range(1, len(args), step)]
        mine = [pair for pair in pairs if slots[to_bytes(pair[0])] == slot]
        assert part == (args[0], *itertools.chain.from_iterable(mine))
    assert seen == list(dict.fromkeys(slots[to_bytes(key)] for key in args[1::step]))


def test_values_come_back_in_the_order_of_the_keys() -> None:
    work = split([b"MGET", b"a", b"b", b"{a}1", b"b"])
    assert work.parts == [
        (key_slot(b"a"), (b"MGET", b"a", b"{a}1")),
        (key_slot(b"b"), (b"MGET", b"b", b"b")),
    ]
    assert work.merge([[b"1", b"3"], [b"2", None]]) == [b"1", b"2", b"3", None]


def test_arguments_are_passed_on_as_they_came() -> None:
    assert [part for _, part in split(["mset", "a", 1, 7, 2.5]).parts] == [("mset", "a", 1), ("mset", 7, 2.5)]


@pytest.mark.parametrize("name", COMMANDS)
def test_keys_of_one_slot_stay_one_command(name: str) -> None:
    args = (name, "{a}1", "{a}1", "{a}2", "{a}3")
    work = split(args)
    assert work.parts == [(key_slot(b"a"), args)]
    assert len(work.parts) == 1
    for reply in (object(), CommandError("ERR no"), None):
        assert work.merge([reply]) is reply


# ---------------------------------------------------------------- what can go wrong


def three_parts(name: str) -> Split:
    work = split([name, "a", "b", "c"] if name != "MSET" else [name, "a", 1, "b", 2, "c", 3])
    assert len(work.parts) == 3
    assert len(work.parts) > 1
    return work


def good_reply(name: str) -> Any:
    return {"MGET": [b"x"], "MSET": OK}.get(name, 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_error_in_a_part_is_the_reply(name: str) -> None:
    good, bad, worse = good_reply(name), CommandError("CLUSTERDOWN down"), OutcomeUnknownError("cut")
    merge = three_parts(name).merge
    assert merge([good, bad, good]) is bad
    assert merge([good, worse, bad]) is worse
    assert merge([NotSentError("full"), bad, good]) is bad


@pytest.mark.parametrize("name", COMMANDS)
def test_a_part_that_was_not_sent(name: str) -> None:
    """Nothing ran: safe to send again. Something was written: not any more."""
    good, unsent = good_reply(name), NotSentError("no connection")
    merge = three_parts(name).merge
    assert merge([unsent, unsent, unsent]) is unsent
    merged = merge([good, unsent, good])
    if name in ("MSET", "DEL", "UNLINK"):
        assert isinstance(merged, OutcomeUnknownError)
        assert str(merged) == f"2 of 3 parts of {name} were carried out, the others were not sent"
    else:
        assert merged is unsent


@pytest.mark.parametrize(
    ("name", "reply", "text"),
    [
        ("MGET", None, "a part of MGET should be answered by 1 values, not None"),
        ("MGET", [], "by 1 values, not []"),
        ("MGET", [b"x", b"y"], "by 1 values"),
        ("MSET", b"QUEUED", "a part of MSET should be answered by OK, not b'QUEUED'"),
        *((name, b"1", f"a part of {name} should be answered by a count, not b'1'") for name in COUNTS),
    ],
)
def test_replies_of_the_wrong_kind(name: str, reply: Any, text: str) -> None:
    good = good_reply(name)
    with pytest.raises(ProtocolError) as caught:
        three_parts(name).merge([good, reply, good])
    assert text in str(caught.value)


def test_a_reply_is_missing() -> None:
    with pytest.raises(ValueError, match="3 parts of DEL were given 2 replies"):
        three_parts("DEL").merge([1, 1])


def test_ok_may_be_text() -> None:
    assert three_parts("MSET").merge(["OK", "OK", "OK"]) == "OK"


@pytest.mark.parametrize(
    "args",
    [["MGET"], ["del"], ["MSET"], ["MSET", "a"], ["MSET", "a", 1, "b"], [b"exists"], [b"Touch"], ["UNLINK"]],
)
def test_a_wrong_number_of_arguments(args: list[Word]) -> None:
    with pytest.raises(CommandError) as caught:
        split(args)
    name = to_bytes(args[0]).decode().lower()
    assert str(caught.value) == f"ERR wrong number of arguments for '{name}' command"


@pytest.mark.parametrize("name", ["GET", "MSETNX", "SDIFF", "PING", b"nonsense\xff"])
def test_other_commands_are_not_split(name: Word) -> None:
    assert not can_split(name)
    with pytest.raises(ValueError, match="cannot be split"):
        split([name, "a", "b"])


@pytest.mark.parametrize("name", [*COMMANDS, *map(str.lower, COMMANDS), b"mGet"])
def test_what_can_be_split(name: Word) -> None:
    assert can_split(name)


# ---------------------------------------------------------------- slots


def test_same_slot() -> None:
    assert same_slot(["{user:7}.cart", b"{user:7}.name", "user:7"]) == key_slot(b"user:7")
    assert same_slot(iter([7])) == key_slot(b"7")
    with pytest.raises(CommandError) as caught:
        same_slot(["a", "b"])
    assert str(caught.value) == "CROSSSLOT Keys in request don't hash to the same slot"
    assert caught.value.code == "CROSSSLOT"
    with pytest.raises(ValueError, match="without a key"):
        same_slot([])
