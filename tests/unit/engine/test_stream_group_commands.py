"""Ordered groups, and the commands that make, change and show groups."""

from __future__ import annotations

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine
from tests.unit.engine.stream_clients import BLOCKED, Client, info, offsets, write

# ----------------------------------------------------------------------------- ordered groups


def ordered(do: Client, tags: str, **options: int) -> None:
    for number, tag in enumerate(tags, 1):
        do("TWRITE", "k", "" if tag == "-" else tag, f"e{number}")
    words = [word for option in options.items() for word in option]
    do("TGROUP", "CREATE", "k", "g", 0, "ORDERED", "yes", *words)


def test_ordered_a_tag_is_delivered_one_message_at_a_time(do: Client) -> None:
    ordered(do, "aabab")
    read = ("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 1000, 0)
    assert offsets(do(*read)) == [1, 3]
    assert do(*read) == []
    assert (info(do)["lag"], info(do)["cursor"], info(do)["ack-offset"]) == (3, 6, 1)
    do("TACK", "k", "g", 1)
    assert offsets(do(*read)) == [2]
    do("TACK", "k", "g", "1-3")
    assert offsets(do(*read)) == [4, 5]
    assert info(do)["lag"] == 0


def test_ordered_an_empty_tag_waits_for_nothing(do: Client) -> None:
    ordered(do, "-a-a-")
    assert offsets(do("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 1000, 0)) == [1, 2, 3, 5]


def test_ordered_a_tag_that_is_free_wakes_readers(engine: Engine, do: Client) -> None:
    ordered(do, "aa")
    read = ("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 1000, 0)
    do(*read)
    reader = Client(engine)
    assert reader(*read, "BLOCK", 0) == BLOCKED
    assert do("TACK", "k", "g", 1) == 1
    assert offsets(reader.reply) == [2]


def test_ordered_an_expired_or_dead_message_frees_its_tag(do: Client, clock: ManualClock) -> None:
    ordered(do, "aaa")
    read = ("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 10, 10)
    assert offsets(do(*read)) == [1]
    clock.advance_ms(10)
    assert offsets(do(*read)) == [2]
    do("TDEAD", "k", "g", "no", 2)
    assert offsets(do(*read)) == [3]


def test_ordered_a_tag_that_is_stuck_does_not_pull_in_the_whole_stream(do: Client) -> None:
    do("TWRITE", "k", "ENTRIES", *("a", "x") * 3000, "b", "x")
    do("TGROUP", "CREATE", "k", "g", 0, "ORDERED", "yes")
    assert offsets(do("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 1000, 0)) == [1]
    assert info(do)["cursor"] == 1002


def test_ordered_without_retry_holds_nothing(do: Client) -> None:
    ordered(do, "aaab")
    assert offsets(do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 1000, 0)) == [1]
    assert offsets(do("TREAD", "k", 0, 9, "GROUP", "g")) == [4]
    do("TACK", "k", "g", 1)
    assert offsets(do("TREAD", "k", 0, 9, "GROUP", "g")) == [2, 3]


def test_ordered_can_be_switched_on_and_off(do: Client) -> None:
    ordered(do, "aabab")
    read = ("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 1000, 0)
    assert offsets(do(*read)) == [1]
    assert offsets(do(*read)) == [3]
    assert do(*read) == []
    do("TGROUP", "SET", "k", "g", "ORDERED", "no")
    assert offsets(do(*read)) == [2]
    do("TGROUP", "SET", "k", "g", "ORDERED", "yes")
    assert do(*read) == []
    do("TACK", "k", "g", 1)
    assert do(*read) == []
    do("TACK", "k", "g", 2, 3)
    assert offsets(do(*read)) == [4]
    assert offsets(do(*read)) == [5]
    assert do("TACK", "k", "g", "1-9") == 2


def test_ordered_what_was_passed_over_and_evicted_is_lost(do: Client) -> None:
    ordered(do, "aaa")
    read = ("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 1000, 0)
    assert offsets(do(*read)) == [1]
    do("TEVICT", "k", 2)
    do("TACK", "k", "g", 1)
    assert offsets(do(*read)) == [3]
    assert info(do)["lost"] == 1


# ------------------------------------------------------------------------ TGROUP, TPENDING, TINFO


def test_groups_are_made_set_listed_and_destroyed(do: Client) -> None:
    assert do("TGROUP", "CREATE", "k", "g", "$", "TTL", 5, "BACKOFF", "1,2", "DEADLETTER", "d") == 1
    assert do("TYPE", "k") == b"stream"
    assert do("TGROUP", "CREATE", "k", "g", 0, "TTL", 6) == 0
    assert do("TGROUP", "SET", "k", "g", "ORDERED", "YES", "MAXDELIVERIES", 3) == 1
    found = info(do)
    options = ("maxpending", "ttl", "ordered", "maxdeliveries", "backoff", "deadletter")
    assert [found[option] for option in options] == [1000, 5, b"yes", 3, b"1,2", b"d"]
    do("TGROUP", "SET", "k", "g", "BACKOFF", "", "DEADLETTER", "")
    assert (info(do)["backoff"], info(do)["deadletter"]) == (b"", b"")
    assert do("TGROUP", "DESTROY", "k", "g") == 1
    assert do("TGROUP", "DESTROY", "k", "g") == do("TGROUP", "DESTROY", "none", "g") == 0
    assert do("TGROUP", "LIST", "k") == do("TGROUP", "LIST", "none") == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["MAXPENDING"], "ERR syntax error"),
        (["WHAT", "1"], "ERR syntax error"),
        (["ORDERED", "maybe"], "ERR syntax error"),
        (["TTL", "-1"], "ERR value is not an integer or out of range"),
        (["BACKOFF", "1,,2"], "ERR value is not an integer or out of range"),
        (["BACKOFF", "1,x"], "ERR value is not an integer or out of range"),
        (["TTL", "1", "MAXPENDING", "x"], "ERR value is not an integer or out of range"),
    ],
)
def test_bad_options_of_a_group_change_nothing(do: Client, words: list[str], error: str) -> None:
    assert do.fails("TGROUP", "CREATE", "k", "g", 0, *words) == error
    assert do("EXISTS", "k") == 0
    do("TGROUP", "CREATE", "k", "g", 0)
    before = info(do)
    assert do.fails("TGROUP", "SET", "k", "g", *words) == error
    assert info(do) == before


def test_another_type_is_refused_everywhere(do: Client) -> None:
    do("SET", "k", "x")
    for command in (
        "TREAD k 1 1", "TREAD k 1 1 GROUP g", "TACK k g 1", "TNACK k g 0 1", "TRENEW k g 1 1",
        "TDEAD k g r 1", "TGROUP CREATE k g 0", "TGROUP SET k g TTL 1", "TGROUP DESTROY k g", "TGROUP LIST k",
        "TPENDING k g", "TINFO GROUPS k", "TINFO CONSUMERS k g",
    ):  # fmt: skip
        assert do.fails(*command.split()).startswith("WRONGTYPE")
    assert do("GET", "k") == b"x"


def test_pending_messages_are_listed_by_offset(do: Client, clock: ManualClock) -> None:
    write(do, 4)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 100, 500, "CONSUMER", "one")
    clock.advance_ms(30)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 100, 0, "CONSUMER", "two")
    assert do("TPENDING", "k", "g") == [4, 1, 4, 70]
    assert do("TPENDING", "k", "g", 2, 3, 9) == [[2, b"one", 1, 30, 70, 470], [3, b"two", 1, 0, 100, -1]]
    assert offsets(do("TPENDING", "k", "g", 0, 9, 3)) == [1, 2, 3]
    assert offsets(do("TPENDING", "k", "g", 0, 9, 9, "CONSUMER", "two")) == [3, 4]
    assert do("TPENDING", "k", "g", 0, 9, 0) == []
    clock.advance_ms(100)
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 100, 0)
    assert do("TPENDING", "k", "g", 1, 1, 9) == [[1, b"", 2, 130, 100, 370]]
    assert do("TPENDING", "k", "none") == do("TPENDING", "none", "g") == [0, 0, 0, -1]
    assert do("TPENDING", "k", "none", 0, 1, 1) == []
    assert do.fails("TPENDING", "k", "g", 0, 1) == "ERR syntax error"
    assert do.fails("TPENDING", "k", "g", 0, 1, 1, "CONSUMER") == "ERR syntax error"
    assert do.fails("TPENDING", "k", "g", "-", 1, 1) == "ERR invalid offset"


def test_consumers_and_their_last_activity(do: Client, clock: ManualClock) -> None:
    write(do, 3)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 100, 0, "CONSUMER", "b")
    clock.advance_ms(40)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 100, 0, "CONSUMER", "a")
    clock.advance_ms(2)
    do("TACK", "k", "g", 1)
    assert do("TINFO", "CONSUMERS", "k", "g") == [
        {b"name": b"a", b"pending": 1, b"idle-ms": 2, b"delivered": 1},
        {b"name": b"b", b"pending": 1, b"idle-ms": 42, b"delivered": 2},
    ]
    assert do("TINFO", "CONSUMERS", "k", "x") == do("TINFO", "CONSUMERS", "x", "g") == []
    assert (info(do)["idle-ms"], info(do)["last-active-ms"]) == (0, clock.now_ms())
    assert do("TINFO", "GROUPS", "none") == []


def test_absent_consumers_are_forgotten_when_a_crowd_came(do: Client, clock: ManualClock) -> None:
    write(do, 1)
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10**12, 0, "CONSUMER", "busy")
    for number in range(999):
        do("TREAD", "k", 0, 1, "GROUP", "g", "CONSUMER", f"c{number}")
    clock.advance_ms(25 * 3_600_000)
    do("TREAD", "k", 0, 1, "GROUP", "g", "CONSUMER", "new")
    assert [row[b"name"] for row in do("TINFO", "CONSUMERS", "k", "g")] == [b"busy", b"new"]
    assert do("TPENDING", "k", "g", 0, 9, 9)[0][1] == b"busy"
