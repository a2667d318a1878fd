"""What groups have delivered: retries, expiry, acknowledgements, limits (16–23), with a clock of ours."""

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


def test_16_options_that_do_not_go_together_are_refused(do: Client) -> None:
    needs_group = "ERR RETRY, CONSUMER and WITHCOUNT need GROUP"
    assert do.fails("TREAD", "k", 1, 1, "RETRY", 1, 1) == needs_group
    assert do.fails("TREAD", "k", 1, 1, "CONSUMER", "c") == needs_group
    assert do.fails("TREAD", "k", 1, 1, "WITHCOUNT") == needs_group
    not_with_group = "ERR REV and SKIPNULL do not go with GROUP"
    assert do.fails("TREAD", "k", 1, 1, "REV", "GROUP", "g") == not_with_group
    assert do.fails("TREAD", "k", 1, 1, "GROUP", "g", "SKIPNULL") == not_with_group
    assert do.fails("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 0, 1) == "ERR retry-ms must be at least 1"
    assert do.fails("TREAD", "k", 1, 1, "GROUP", "") == "ERR the name of a group cannot be empty"
    assert do.fails("TGROUP", "CREATE", "k", "", 0) == "ERR the name of a group cannot be empty"
    for words in (["GROUP"], ["BLOCK"], ["GROUP", "g", "RETRY", "1"], ["WHAT"], ["GROUP", "g", "CONSUMER"]):
        assert do.fails("TREAD", "k", 1, 1, *words) == "ERR syntax error"
    assert do.fails("TREAD", "k", 1, 1, "GROUP", "g", "RETRY", 1, -1).startswith(
        "ERR value is not an integer"
    )
    assert do.fails("TREAD", "k", "x", 1, "GROUP", "g") == "ERR invalid offset"
    assert do("EXISTS", "k") == 0


def test_16_expiry_before_retry_means_a_single_try(do: Client, clock: ManualClock) -> None:
    write(do, 1)
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 100, 50)
    clock.advance_ms(49)
    assert pending(do) == [1]
    clock.advance_ms(1)
    assert pending(do) == []
    clock.advance_ms(100)
    assert do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 100, 50) == []
    assert info(do)["expired"] == 1


def test_16_readers_without_retry_get_new_messages_only(do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 0)
    clock.advance_ms(10)
    assert do("TREAD", "k", 0, 5, "GROUP", "g") == messages(2)
    assert pending(do) == [1]


def test_17_what_is_due_first_is_delivered_first(do: Client, clock: ManualClock) -> None:
    write(do, 4)
    for retry_ms in (40, 10, 30, 20):
        do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", retry_ms, 0)
    clock.advance_ms(30)
    assert offsets(do("TREAD", "k", 0, 5, "GROUP", "g", "RETRY", 100, 0)) == [2, 4, 3]
    clock.advance_ms(10)
    assert offsets(do("TREAD", "k", 0, 5, "GROUP", "g", "RETRY", 100, 0)) == [1]


def test_18_retries_come_before_new_messages_and_count(do: Client, clock: ManualClock) -> None:
    write(do, 4)
    read = ("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 10, 0, "WITHCOUNT")
    assert do(*read) == [message(1, b"t", 1), message(2, b"t", 1), message(3, b"t", 1)]
    do("TACK", "k", "g", 2)
    clock.advance_ms(9)
    assert do(*read) == [message(4, b"t", 1)]
    clock.advance_ms(1)
    assert do(*read) == [message(1, b"t", 2), message(3, b"t", 2)]
    clock.advance_ms(9)
    assert do(*read) == [message(4, b"t", 2)]
    clock.advance_ms(1)
    assert do(*read) == [message(1, b"t", 3), message(3, b"t", 3)]


def test_18_a_part_of_what_is_due_can_be_read(do: Client, clock: ManualClock) -> None:
    write(do, 6)
    do("TREAD", "k", 0, 6, "GROUP", "g", "RETRY", 10, 0)
    do("TACK", "k", "g", 3)
    clock.advance_ms(10)
    assert offsets(do("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 10, 0)) == [1, 2, 4]
    assert offsets(do("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 10, 0)) == [5, 6]
    assert do("TACK", "k", "g", "0-100") == 5


def test_18_expiry_counts_from_the_first_delivery(do: Client, clock: ManualClock) -> None:
    write(do, 1)
    for _ in range(3):
        assert offsets(do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 25)) == [1]
        clock.advance_ms(10)
    assert do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 25) == []
    assert info(do)["delivered"] == 3


def test_18_a_backoff_list_takes_the_place_of_the_retry_time(do: Client, clock: ManualClock) -> None:
    write(do, 1)
    do("TGROUP", "CREATE", "k", "g", 0, "BACKOFF", "10,20,40")
    for delay_ms in (10, 20, 40, 40):
        assert offsets(do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 1, 0)) == [1]
        assert do("TPENDING", "k", "g")[3] == delay_ms
        clock.advance_ms(delay_ms - 1)
        assert do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 1, 0) == []
        clock.advance_ms(1)


def test_19_expiry_comes_before_retry_and_frees_the_group_only(do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 10)
    clock.advance_ms(10)
    assert offsets(do("TREAD", "k", 0, 5, "GROUP", "g", "RETRY", 10, 10)) == [2]
    assert do("TREAD", "k", 1, 1) == messages(1)
    assert do("TACK", "k", "g", 1) == 0
    assert info(do)["expired"] == 1


def test_19_messages_expire_without_anybody_reading(engine: Engine, do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("TGROUP", "CREATE", "k", "g", 0, "DEADLETTER", "dead")
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 1000, 70, "CONSUMER", "c")
    clock.advance_ms(69)
    tick(engine)
    assert do("EXISTS", "dead") == 0
    clock.advance_ms(1)
    tick(engine)
    (first, second) = do("TREAD", "dead", 1, 9)
    assert first[2] == (
        b"stream: k\noffset: 1\ngroup: g\ndeliveries: 1\nreason: expired\ntime_ms: %d\n\ne1" % clock.now_ms()
    )
    assert first[1] == b"t"
    assert b"offset: 2\n" in second[2]


def test_19_max_deliveries_end_in_a_dead_letter(engine: Engine, do: Client, clock: ManualClock) -> None:
    write(do, 1)
    do("TGROUP", "CREATE", "k", "g", 0, "MAXDELIVERIES", 2, "DEADLETTER", "dead")
    for _ in range(2):
        assert offsets(do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 0)) == [1]
        clock.advance_ms(10)
    reader = Client(engine)
    assert reader("TREAD", "dead", 1, 1, "BLOCK", 0) == BLOCKED
    assert do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 0) == []
    assert b"deliveries: 2\nreason: deliveries\n" in reader.reply[0][2]
    assert (info(do)["dead"], info(do)["pending"]) == (1, 0)


def test_19_max_deliveries_need_no_reader(engine: Engine, do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("TGROUP", "CREATE", "k", "g", 0, "MAXDELIVERIES", 1, "DEADLETTER", "dead")
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 10, 0)
    clock.advance_ms(10)
    tick(engine)
    assert len(do("TREAD", "dead", 1, 9)) == 2


def test_19_a_dead_letter_that_cannot_be_written_is_dropped(do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("SET", "dead", "a string")
    do("TGROUP", "CREATE", "k", "g", 0, "MAXDELIVERIES", 1, "DEADLETTER", "dead")
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 0)
    clock.advance_ms(10)
    assert offsets(do("TREAD", "k", 0, 5, "GROUP", "g", "RETRY", 10, 0)) == [2]
    assert info(do)["dead"] == 1
    assert do("GET", "dead") == b"a string"


def test_19_tdead_gives_up_with_a_reason(do: Client) -> None:
    do("TWRITE", "k", "tag", "body\n\nand more")
    do("TGROUP", "CREATE", "k", "g", 0, "DEADLETTER", "k")
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10, 0)
    assert do("TDEAD", "k", "g", "bad\nformat", "1-5") == 1
    assert do("TDEAD", "k", "g", "again", 1) == 0
    ((_, tag, letter),) = do("TREAD", "k", 2, 9)
    assert tag == b"tag"
    head, _, entry = letter.partition(b"\n\n")
    assert b"reason: bad format" in head.split(b"\n")
    assert entry == b"body\n\nand more"


# --------------------------------------------------------------------- 20–23: acknowledging, limits


def test_20_tack_answers_how_many_it_found(do: Client) -> None:
    write(do, 10)
    do("TREAD", "k", 0, 10, "GROUP", "g", "RETRY", 1000, 0)
    assert do("TACK", "k", "g", 3) == 1
    assert do("TACK", "k", "g", 3, 3) == 0
    assert do("TACK", "k", "g", "2-4", 4, 9, 100, "18446744073709551615") == 3
    assert pending(do) == [1, 5, 6, 7, 8, 10]
    assert do("TACK", "k", "none", 1) == do("TACK", "none", "g", 1) == 0
    assert do("TACK", "k", "g", "0-18446744073709551615") == 6
    assert info(do)["acked"] == 10


@pytest.mark.parametrize("item", ["x", "", "-", "1-", "-1", "5-4", "1-2-3", "1 -2", "18446744073709551616"])
def test_20_one_bad_item_and_nothing_happens(do: Client, item: str) -> None:
    write(do, 2)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 1000, 0)
    for words in (
        ["TACK", "k", "g"],
        ["TNACK", "k", "g", 0],
        ["TRENEW", "k", "g", 9],
        ["TDEAD", "k", "g", "r"],
    ):
        assert do.fails(*words, 1, item) == "ERR invalid offset"
    assert do("TPENDING", "k", "g") == [2, 1, 2, 1000]


def test_20_a_nacked_message_comes_again_after_its_delay(do: Client, clock: ManualClock) -> None:
    write(do, 5)
    read = ("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 1000, 0, "WITHCOUNT")
    do(*read)
    assert do("TNACK", "k", "g", 0, 2, "4-9") == 3
    assert do("TNACK", "k", "g", 50, 3) == 1
    assert do(*read) == [message(2, b"t", 2), message(4, b"t", 2), message(5, b"t", 2)]
    clock.advance_ms(50)
    assert do(*read) == [message(3, b"t", 2)]
    assert do("TACK", "k", "g", "1-5") == 5


def test_20_a_nack_may_take_its_delay_from_the_backoff_list(do: Client) -> None:
    write(do, 1)
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 1000, 0)
    assert do.fails("TNACK", "k", "g", "*", 1) == "ERR value is not an integer or out of range"
    do("TGROUP", "SET", "k", "g", "BACKOFF", "70,80")
    assert do("TNACK", "k", "g", "*", 1) == 1
    assert do("TPENDING", "k", "g")[3] == 70


def test_20_a_renewed_message_is_left_alone(do: Client, clock: ManualClock) -> None:
    write(do, 3)
    do("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 100, 0)
    clock.advance_ms(99)
    assert do("TRENEW", "k", "g", 100, 2) == 1
    clock.advance_ms(1)
    assert offsets(do("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 100, 0)) == [1, 3]
    assert do.fails("TRENEW", "k", "g", 0, 2) == "ERR retry-ms must be at least 1"


def test_21_everything_below_the_ack_offset_is_acknowledged(do: Client) -> None:
    write(do, 6)
    do("TREAD", "k", 0, 5, "GROUP", "g", "RETRY", 1000, 0)
    assert info(do)["ack-offset"] == 1
    do("TACK", "k", "g", 1, 3)
    assert info(do)["ack-offset"] == 2
    do("TACK", "k", "g", 2)
    assert info(do)["ack-offset"] == 4
    do("TACK", "k", "g", "4-5")
    assert info(do)["ack-offset"] == info(do)["cursor"] == 6
    assert info(do)["lag"] == 1


def test_22_at_the_limit_only_retries_are_delivered(do: Client, clock: ManualClock) -> None:
    write(do, 6)
    do("TGROUP", "CREATE", "k", "g", 0, "MAXPENDING", 4)
    read = ("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 10, 0)
    assert offsets(do(*read)) == [1, 2, 3]
    assert offsets(do(*read)) == [4]
    assert do(*read) == []
    assert do("TREAD", "k", 0, 3, "GROUP", "g") == []
    clock.advance_ms(10)
    assert offsets(do(*read)) == [1, 2, 3]
    do("TACK", "k", "g", 2)
    assert offsets(do(*read)) == [4, 5]
    do("TGROUP", "SET", "k", "g", "MAXPENDING", 5)
    assert offsets(do(*read)) == [6]


def test_22_the_limit_is_1000_unless_told(do: Client) -> None:
    do("TWRITE", "k", "ENTRIES", *("t", "x") * 1500)
    assert len(do("TREAD", "k", 0, 2000, "GROUP", "g", "RETRY", 10, 0)) == 1000
    assert info(do)["maxpending"] == info(do)["pending"] == 1000


def test_23_at_the_limit_readers_wait_for_an_acknowledgement(engine: Engine, do: Client) -> None:
    write(do, 3)
    do("TGROUP", "CREATE", "k", "g", 0, "MAXPENDING", 2)
    read = ("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 1000, 0)
    do(*read)
    reader = Client(engine)
    assert reader(*read, "BLOCK", 0) == BLOCKED
    write(do, 1)
    assert reader.reply == BLOCKED
    do("TACK", "k", "g", 1)
    assert offsets(reader.reply) == [3]


def test_23_a_raised_limit_wakes_readers(engine: Engine, do: Client) -> None:
    write(do, 2)
    do("TGROUP", "CREATE", "k", "g", 0, "MAXPENDING", 0)
    reader = Client(engine)
    assert reader("TREAD", "k", 0, 3, "GROUP", "g", "RETRY", 1000, 0, "BLOCK", 0) == BLOCKED
    do("TGROUP", "SET", "k", "g", "MAXPENDING", 1)
    assert offsets(reader.reply) == [1]


def test_23_a_timer_wakes_readers_when_something_is_due(
    engine: Engine, do: Client, clock: ManualClock
) -> None:
    write(do, 2)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 100, 0)
    readers = [Client(engine), Client(engine)]
    for reader in readers:
        assert reader("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 100, 0, "BLOCK", 0, "WITHCOUNT") == BLOCKED
    clock.advance_ms(99)
    tick(engine)
    assert readers[0].reply == readers[1].reply == BLOCKED
    clock.advance_ms(1)
    tick(engine)
    assert [reader.reply for reader in readers] == [[message(1, b"t", 2)], [message(2, b"t", 2)]]


def test_23_a_timer_wakes_readers_when_expiry_makes_room(
    engine: Engine, do: Client, clock: ManualClock
) -> None:
    write(do, 2)
    do("TGROUP", "CREATE", "k", "g", 0, "MAXPENDING", 1)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 1000, 100)
    reader = Client(engine)
    assert reader("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 1000, 100, "BLOCK", 0) == BLOCKED
    clock.advance_ms(100)
    tick(engine)
    assert offsets(reader.reply) == [2]


@pytest.mark.parametrize("way", ["rename", "copy", "move", "swap", "restore"])
def test_23_timers_go_where_the_stream_goes(engine: Engine, do: Client, clock: ManualClock, way: str) -> None:
    write(do, 1)
    do("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 100, 0)
    reader = Client(engine)
    key = "k"
    if way == "rename":
        do("RENAME", "k", "new")
        key = "new"
    elif way in ("copy", "restore"):
        if way == "copy":
            do("COPY", "k", "new")
        else:
            do("RESTORE", "new", 0, do("DUMP", "k"))
        do("DEL", "k")
        key = "new"
    else:
        do("MOVE", "k", 1) if way == "move" else do("SWAPDB", 0, 1)
        reader("SELECT", 1)
    assert reader("TREAD", key, 0, 1, "GROUP", "g", "RETRY", 100, 0, "BLOCK", 0) == BLOCKED
    tick(engine)
    clock.advance_ms(100)
    tick(engine)
    assert offsets(reader.reply) == [1]


def test_23_a_nack_wakes_readers_at_once_or_later(engine: Engine, do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 10_000, 0)
    reader = Client(engine)
    read = ("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 10_000, 0, "BLOCK", 0)
    assert reader(*read) == BLOCKED
    do("TNACK", "k", "g", 0, 1)
    assert offsets(reader.reply) == [1]
    assert reader(*read) == BLOCKED
    do("TNACK", "k", "g", 50, 2)
    clock.advance_ms(50)
    tick(engine)
    assert offsets(reader.reply) == [2]


def test_23_an_idle_group_costs_no_ticks(engine: Engine, do: Client, clock: ManualClock) -> None:
    write(do, 2)
    do("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 100, 0)
    clock.advance_ms(100)
    tick(engine)
    counts: list[int] = []
    engine.run_task(lambda: counts.append(engine.unit.entries(engine.unit.tables["due"])), write=False)
    assert counts == [0], "nobody waits, and whoever reads finds what is due by himself"
