"""Groups of a stream, requirement by requirement (12–15 and 26), with a clock that moves when told to."""

from __future__ import annotations

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine
from tests.unit.engine.stream_clients import (
    BLOCKED,
    Client,
    info,
    message,
    messages,
    offsets,
    pending,
    tick,
    write,
)


def test_12_each_reader_of_a_group_gets_other_messages(do: Client) -> None:
    write(do, 5)
    assert do("TREAD", "k", 0, 2, "GROUP", "g") == messages(1, 2)
    assert do("TREAD", "k", 0, 2, "GROUP", "g") == messages(3, 4)
    assert do("TREAD", "k", 0, 2, "GROUP", "h") == messages(1, 2)
    assert do("TREAD", "k", 0, 2, "GROUP", "g") == messages(5)
    assert do("TREAD", "k", 0, 2, "GROUP", "g") == []
    assert do("TGROUP", "LIST", "k") == [b"g", b"h"]
    assert info(do)["cursor"] == 6


def test_12_a_group_lives_and_moves_with_its_key(do: Client) -> None:
    write(do, 5)
    long_name = b"n" * 5000
    do("TREAD", "k", 0, 2, "GROUP", long_name, "RETRY", 1000, 0, "CONSUMER", b"c" * 5000)
    do("COPY", "k", "copy")
    do("RENAME", "k", "other")
    assert do("TGROUP", "LIST", "other") == do("TGROUP", "LIST", "copy") == [long_name]
    for key in ("other", "copy"):
        assert offsets(do("TPENDING", key, long_name, 0, 9, 9)) == [1, 2]
        assert do("TPENDING", key, long_name, 0, 9, 9)[0][1] == b"c" * 5000
        assert do("TACK", key, long_name, 1) == 1
        assert do("TINFO", "CONSUMERS", key, long_name)[0][b"pending"] == 1
    do("DEL", "other")
    write(do, 1, "other")
    assert do("TGROUP", "LIST", "other") == []


@pytest.mark.parametrize(
    ("offset", "first"), [("0", 3), ("$", 6), ("", 6), ("1", 3), ("4", 4), ("6", 6), ("8", 8)]
)
def test_13_the_offset_says_where_a_new_group_begins(do: Client, offset: str, first: int) -> None:
    write(do, 5)
    do("TEVICT", "k", 2)
    do("TREAD", "k", offset, 0, "GROUP", "read")
    do("TGROUP", "CREATE", "k", "made", offset)
    write(do, 5)
    for group in ("read", "made"):
        assert offsets(do("TREAD", "k", "0", 1, "GROUP", group)) == [first]
        assert info(do, group)["lost"] == (2 if offset == "1" else 0)


def test_13_a_group_can_begin_before_its_stream(engine: Engine, do: Client) -> None:
    assert do("TREAD", "k", "$", 1, "GROUP", "g") == []
    reader = Client(engine)
    assert reader("TREAD", "late", "$", 1, "GROUP", "g", "BLOCK", 0) == BLOCKED
    write(do, 1)
    write(do, 1, "late")
    assert do("TREAD", "k", "$", 1, "GROUP", "g") == messages(1)
    assert reader.reply == messages(1)


def test_13_the_offset_can_be_set_anew_and_keeps_what_is_pending(do: Client) -> None:
    write(do, 6)
    do("TREAD", "k", 0, 4, "GROUP", "g", "RETRY", 1000, 0)
    do("TACK", "k", "g", "2-3")
    assert do("TGROUP", "SET", "k", "g", "OFFSET", 1) == 1
    assert offsets(do("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 1000, 0)) == [2, 3, 5, 6]
    assert pending(do) == [1, 2, 3, 4, 5, 6]
    assert do("TACK", "k", "g", "1-6") == 6
    do("TGROUP", "SET", "k", "g", "OFFSET", "$")
    write(do, 1)
    assert offsets(do("TREAD", "k", 0, 9, "GROUP", "g")) == [7]
    assert do("TGROUP", "SET", "k", "none", "OFFSET", 1) == do("TGROUP", "SET", "none", "g", "OFFSET", 1) == 0


def test_13_an_unused_group_goes_after_its_time_to_live(
    engine: Engine, do: Client, clock: ManualClock
) -> None:
    write(do, 1)
    do("TGROUP", "CREATE", "k", "g", 0, "TTL", 1000)
    do("TGROUP", "CREATE", "k", "stays", 0)
    clock.advance_ms(900)
    do("TREAD", "k", 0, 1, "GROUP", "g")
    clock.advance_ms(900)
    tick(engine)
    assert do("TGROUP", "LIST", "k") == [b"g", b"stays"]
    clock.advance_ms(100)
    tick(engine)
    assert do("TGROUP", "LIST", "k") == [b"stays"]
    assert do("TINFO", "STREAM", "k")[b"groups"] == 1


def test_13_a_group_that_somebody_waits_in_is_in_use(engine: Engine, do: Client, clock: ManualClock) -> None:
    do("TGROUP", "CREATE", "k", "g", 0, "TTL", 1000)
    reader = Client(engine)
    reader("TREAD", "k", 0, 1, "GROUP", "g", "BLOCK", 0)
    clock.advance_ms(5000)
    tick(engine)
    write(do, 1)
    assert reader.reply == messages(1)
    clock.advance_ms(1000)
    tick(engine)
    assert do("TGROUP", "LIST", "k") == []


def test_14_without_retry_nothing_is_pending(do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("TREAD", "k", 0, 2, "GROUP", "g")
    assert do("TPENDING", "k", "g") == [0, 0, 0, -1]
    assert do("TACK", "k", "g", "1-2") == 0
    clock.advance_ms(10**9)
    assert do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 1, 0) == []


def test_15_who_was_served_goes_to_the_end_of_the_line(engine: Engine, do: Client) -> None:
    readers = [Client(engine) for _ in range(3)]
    ask = ("TREAD", "k", 0, 1, "GROUP", "g", "BLOCK", 0)
    for reader in readers:
        assert reader(*ask) == BLOCKED
    for number in range(1, 10):
        write(do, 1)
        served = readers[(number - 1) % 3]
        assert served.reply == messages(number)
        assert served(*ask) == BLOCKED


def test_15_nobody_gets_more_than_his_share(engine: Engine, do: Client) -> None:
    readers = [Client(engine) for _ in range(4)]
    for reader in readers:
        reader("TREAD", "k", 0, 100, "GROUP", "g", "BLOCK", 0, "RETRY", 1000, 0)
    bystander = Client(engine)
    bystander("TREAD", "k", 0, 100, "GROUP", "other", "BLOCK", 0)
    do("TWRITE", "k", "ENTRIES", *("t", "x") * 10)
    shares = [offsets(reader.reply) for reader in readers]
    assert [offset for share in shares for offset in share] == list(range(1, 11))
    assert [len(share) for share in shares] == [3, 3, 2, 2]
    assert offsets(bystander.reply) == list(range(1, 11))


def test_15_a_reader_that_left_has_no_share(engine: Engine, do: Client) -> None:
    readers = [Client(engine) for _ in range(3)]
    for reader in readers:
        reader("TREAD", "k", 0, 100, "GROUP", "g", "BLOCK", 0)
    engine.end_session(readers[0].session)
    do("TWRITE", "k", "ENTRIES", *("t", "x") * 4)
    assert [offsets(reader.reply) for reader in readers[1:]] == [[1, 2], [3, 4]]


# -------------------------------------------------------------------------- 26: eviction and groups


def test_26_new_messages_that_are_gone_are_skipped_and_counted(do: Client) -> None:
    write(do, 5)
    do("TREAD", "k", 0, 1, "GROUP", "g")
    do("TEVICT", "k", 3)
    assert (info(do)["cursor"], info(do)["lost"], info(do)["lag"]) == (4, 2, 2)
    assert do("TREAD", "k", 0, 9, "GROUP", "g") == messages(4, 5)
    assert info(do)["lost"] == 2


def test_26_holes_are_skipped_and_counted(do: Client) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 4)
    for tag in "aaab":
        do("TWRITE", "k", tag, "x")
    do("TGROUP", "CREATE", "k", "g", 0)
    assert do("TCOMPACT", "k") == 2
    assert offsets(do("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 10, 0)) == [3, 4]
    assert info(do)["lost"] == 2


def test_26_compaction_leaves_alone_what_is_pending(do: Client) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 4)
    for tag in "aaab":
        do("TWRITE", "k", tag, "x")
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 0)
    assert do("TCOMPACT", "k") == 1
    assert [row and row[0] for row in do("TREAD", "k", 1, 9)] == [1, None, 3, 4]


def test_26_pending_messages_that_are_gone_are_answered_once(do: Client, clock: ManualClock) -> None:
    write(do, 4)
    do("TGROUP", "CREATE", "k", "g", 0, "DEADLETTER", "dead")
    do("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 10, 0)
    do("TEVICT", "k", 2)
    assert pending(do) == [1, 2, 3]
    clock.advance_ms(10)
    reply = do("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 10, 0, "WITHTIME", "WITHCOUNT")
    time_ms = clock.now_ms() - 10
    assert reply == [
        [1, None, None, None, 2],
        [2, None, None, None, 2],
        message(3, b"t", time_ms, 2),
        message(4, b"t", time_ms, 1),
    ]
    assert pending(do) == [3, 4]
    assert (info(do)["dead"], info(do)["delivered"]) == (2, 5)
    assert [b"reason: evicted\n" in row[2] for row in do("TREAD", "dead", 1, 9)] == [True, True]


def test_26_acked_spares_what_a_group_needs(do: Client) -> None:
    write(do, 6)
    do("TREAD", "k", 0, 4, "GROUP", "g", "RETRY", 1000, 0)
    do("TREAD", "k", 0, 5, "GROUP", "h")
    do("TACK", "k", "g", 1, 3)
    assert do("TEVICT", "k", 6, "ACKED") == 1
    do("TACK", "k", "g", 2, 4)
    assert do("TEVICT", "k", 6, "ACKED") == 3
    do("TGROUP", "DESTROY", "k", "g")
    assert do("TEVICT", "k", 6, "ACKED") == 1
