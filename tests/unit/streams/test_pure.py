"""The parts that send nothing: ranges of offsets, batches of messages, replies as values."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.streams import GroupInfo, Policy, StreamInfo
from penstock.streams.arguments import items, whole
from penstock.streams.infos import parse_info, parse_pending, parse_summary
from penstock.streams.messages import parse_group_messages, parse_messages
from penstock.streams.writing import MAX_BYTES, MAX_MESSAGES, Batch, batches


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([], []),
        ([5], ["5"]),
        ([0, 1], ["0-1"]),
        ([3, 1, 2, 9, 11, 10, 7], ["1-3", "7", "9-11"]),
        ([4, 4, 5, 4], ["4-5"]),
    ],
)
def test_offsets_become_ranges(offsets: list[int], words: list[str]) -> None:
    assert items(offsets) == words


def test_ranges_name_exactly_the_offsets() -> None:
    chance = random.Random(3)
    for _ in range(200):
        offsets = {chance.randrange(40) for _ in range(chance.randrange(30))}
        named: set[int] = set()
        for word in items(offsets):
            first, _, last = word.partition("-")
            named |= set(range(int(first), int(last or first) + 1))
        assert named == offsets


def test_whole_numbers() -> None:
    assert whole("n", 3) == 3
    for bad in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match="n must be a whole number"):
            whole("n", bad)
    with pytest.raises(ValueError, match="n must be at most 5, not 6"):
        whole("n", 6, 0, 5)


def test_batches_end_at_their_limits() -> None:
    sizes = [len(batch) for batch in batches([("", "x")] * (MAX_MESSAGES + 1))]
    assert sizes == [MAX_MESSAGES, 1]
    half = b"x" * (MAX_BYTES // 2)
    assert [len(batch) for batch in batches([("", half), ("", half), ("", b"y")])] == [2, 1]
    huge = b"x" * (MAX_BYTES + 1)
    assert [len(batch) for batch in batches([("", "a"), ("", huge), ("", "b")])] == [1, 1, 1]


def test_batches_are_made_as_they_are_wanted() -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield ("", "x")

    assert len(next(batches(endless()))) == MAX_MESSAGES
    assert taken == MAX_MESSAGES + 1


def test_commands() -> None:
    one = Batch()
    one.add("t", "e")
    assert one.command("k", ()) == ("TWRITE", "k", "t", "e")
    assert one.command("k", ("IF", 3)) == ("TWRITE", "k", "IF", 3, "ENTRIES", "t", "e")
    over = Batch(is_tombstones=True)
    over.add("t", None)
    assert len(over.command("k", ())) > 4, "three arguments would be a message with the tag TOMBSTONES"
    assert over.command("k", ())[-2:] == ("TOMBSTONES", "t")


def test_messages() -> None:
    rows = [[5, b"t", b"e", 1_000], None, [7, b"t", None, 1_001], [8, None, None, 0]]
    assert [(message.offset, message.is_tombstone) for message in parse_messages("s", rows)] == [
        (5, False),
        (7, True),
    ]
    keeper: Any = object()
    messages, gone = parse_group_messages("s", [[5, b"t", b"e", 1_000, 2], [6, None, None]], keeper)
    assert [(message.offset, message.deliveries) for message in messages] == [(5, 2)]
    assert gone == [6]


def test_infos() -> None:
    info = parse_info(StreamInfo, {b"first": 3, b"raw-bytes": 10, b"something-new": 1})
    assert (info.first, info.raw_bytes, info.last) == (3, 10, 0)
    words = {
        "name": b"g",
        "maxpending": 7,
        "ttl": 5,
        "ordered": b"yes",
        "backoff": b"10,20",
        "deadletter": None,
    }
    group = parse_info(GroupInfo, words)
    assert (group.name, group.max_pending, group.ttl_ms, group.ordered) == ("g", 7, 5, True)
    assert (group.backoff_ms, group.dead_letter) == ((10, 20), "")
    assert parse_info(GroupInfo, {"backoff": b"", "ordered": b"no"}) == GroupInfo()
    assert parse_info(Policy, {"compact": b"yes", "retain-ms": b"5"}) == Policy(compact=True, retain_ms=5)
    assert parse_summary([0, 0, 0, -1]).next_ms is None
    assert parse_pending([5, b"w\xff", 2, 10, 20, -1]).expires_in_ms is None
