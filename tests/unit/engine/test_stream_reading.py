"""Reading a stream, requirement by requirement (7–11), and what becomes of readers whose stream goes away."""

from __future__ import annotations

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine
from penstock.errors import CommandError
from tests.unit.engine.stream_clients import BLOCKED, Client, message, messages, offsets, pending, tick, write

# ---------------------------------------------------------------------- 7–11: plain reading


def test_07_a_read_begins_at_its_offset_and_answers_at_most_count(do: Client) -> None:
    write(do, 5)
    assert do("TREAD", "k", 2, 3) == messages(2, 3, 4)
    assert do("TREAD", "k", 4, 10) == messages(4, 5)
    assert do("TREAD", "k", 6, 10) == do("TREAD", "k", 2**64 - 1, 10) == []
    assert do("TREAD", "k", 0, 2) == messages(1, 2)
    assert do("TREAD", "missing", 1, 10) == []
    assert do("EXISTS", "missing") == 0


def test_07_a_read_goes_over_sealed_and_open_nodes(do: Client) -> None:
    words = [word for number in range(1, 2501) for word in ("t", f"e{number}")]
    do("TWRITE", "k", "ENTRIES", *words)
    write(do, 3)
    assert do("TREAD", "k", 1, 3000) == messages(*range(1, 2504))
    assert do("TREAD", "k", 999, 3) == messages(999, 1000, 1001)
    assert do("TREAD", "k", 2499, 100) == messages(*range(2499, 2504))
    assert do("TREAD", "k", 2501, 5, "REV") == messages(2501, 2500, 2499, 2498, 2497)


def test_07_an_answer_ends_at_64_megabytes_and_has_one_message_at_least(do: Client) -> None:
    large = b"x" * (30 << 20)
    for _ in range(3):
        do("TWRITE", "k", "t", large)
    do("TWRITE", "k", "t", b"y" * (65 << 20))
    assert offsets(do("TREAD", "k", 1, 10)) == [1, 2]
    assert offsets(do("TREAD", "k", 3, 10)) == [3]
    assert offsets(do("TREAD", "k", 4, 10)) == [4]
    assert offsets(do("TREAD", "k", "$", 10, "REV")) == [4]
    assert offsets(do("TREAD", "k", 0, 10, "GROUP", "g", "RETRY", 1, 0)) == [1, 2]
    assert pending(do) == [1, 2]
    assert offsets(do("TREAD", "k", 0, 10, "GROUP", "g", "RETRY", 1, 0)) == [3]


@pytest.mark.parametrize("count", ["-1", "x", "1.0", "", " 1", "9223372036854775808"])
def test_07_a_count_that_is_none_is_refused(do: Client, count: str) -> None:
    assert do.fails("TREAD", "k", 1, count) == "ERR value is not an integer or out of range"


@pytest.mark.parametrize("offset", ["-1", "+1", "1 ", "x", "", "$", "18446744073709551616", "1-2"])
def test_07_an_offset_that_is_none_is_refused(do: Client, offset: str) -> None:
    assert do.fails("TREAD", "k", offset, 1) == "ERR invalid offset"


def test_08_a_message_that_is_gone_is_null_in_its_place(do: Client) -> None:
    write(do, 6)
    do("TEVICT", "k", 3)
    assert do("TREAD", "k", 2, 4) == [None, None, message(4), message(5)]
    assert do("TREAD", "k", 1, 2) == [None, None]
    assert do("TREAD", "k", 2, 4, "SKIPNULL") == messages(4, 5, 6)
    assert do("TREAD", "k", 5, 4, "REV") == [message(5), message(4), None, None]
    assert do("TREAD", "k", 5, 4, "REV", "SKIPNULL") == messages(5, 4)
    assert do("TREAD", "k", 0, 1) == messages(4)
    do("TEVICT", "k", 6)
    assert do("TREAD", "k", 5, 9) == [None, None]
    assert do("TREAD", "k", 7, 9) == []


def test_08_a_hole_of_compaction_is_null_too(do: Client) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 4)
    for tag in "abab":
        do("TWRITE", "k", tag, "x")
    do("TWRITE", "k", "a", "open")
    assert do("TCOMPACT", "k") == 2
    assert do("TREAD", "k", 1, 5) == [None, None, [3, b"a", b"x"], [4, b"b", b"x"], [5, b"a", b"open"]]
    assert offsets(do("TREAD", "k", 1, 2, "SKIPNULL")) == [3, 4]
    assert do("TREAD", "k", 3, 9, "REV") == [[3, b"a", b"x"], None, None]


def test_08_the_entry_of_a_tombstone_is_null(do: Client) -> None:
    do("TWRITE", "k", "TOMBSTONES", "a", "b")
    do("TWRITE", "k", "IF", 2, "TOMBSTONES", "c")
    assert do("TREAD", "k", 1, 5) == [[1, b"a", None], [2, b"b", None], [3, b"c", None]]


def test_08_rev_begins_at_the_last_message_at_the_latest(do: Client) -> None:
    write(do, 3)
    assert do("TREAD", "k", "$", 2, "REV") == messages(3, 2)
    assert do("TREAD", "k", 100, 2, "REV") == messages(3, 2)
    assert do("TREAD", "k", 2, 9, "REV") == messages(2, 1)
    assert do("TREAD", "missing", "$", 2, "REV") == []


def test_09_info_comes_before_the_messages(do: Client) -> None:
    assert do("TREAD", "k", 1, 5, "WITHINFO") == [[1, 0]]
    write(do, 3)
    assert do("TREAD", "k", 3, 5, "WITHINFO") == [[1, 3], message(3)]
    assert do("TREAD", "k", 1, 0, "WITHINFO") == [[1, 3]]
    assert do("TREAD", "k", 1, 0) == []
    do("TEVICT", "k", 3)
    assert do("TREAD", "k", 4, 5, "WITHINFO") == [[4, 3]]


def test_09_a_count_of_0_never_blocks(do: Client) -> None:
    assert do("TREAD", "k", 1, 0, "BLOCK", 0) == []
    assert do("TREAD", "k", 1, 0, "BLOCK", 0, "GROUP", "g", "WITHINFO") == [[1, 0]]


def test_09_the_time_of_a_message_can_be_asked_for(do: Client, clock: ManualClock) -> None:
    start = clock.now_ms()
    write(do, 1)
    clock.advance_ms(7)
    write(do, 1)
    assert do("TREAD", "k", 1, 5, "WITHTIME") == [message(1, b"t", start), message(2, b"t", start + 7)]
    reply = do("TREAD", "k", 0, 5, "GROUP", "g", "RETRY", 5, 0, "WITHTIME", "WITHCOUNT")
    assert reply == [message(1, b"t", start, 1), message(2, b"t", start + 7, 1)]


def test_10_a_wait_ends_with_null_when_its_time_is_up(engine: Engine, do: Client, clock: ManualClock) -> None:
    write(do, 1)
    reader = Client(engine)
    assert reader("TREAD", "k", 2, 1, "BLOCK", 50) == BLOCKED
    clock.advance_ms(50)
    engine.time_out(reader.session)
    assert reader.reply is None
    assert do.fails("TREAD", "k", 2, 1, "BLOCK", -1) == "ERR value is not an integer or out of range"


def test_10_nothing_blocks_inside_multi_and_scripts(do: Client) -> None:
    do("MULTI")
    do("TREAD", "k", 1, 1, "BLOCK", 0)
    do("TREAD", "k", 0, 1, "BLOCK", 0, "GROUP", "g")
    assert do("EXEC") == [[], []]
    assert do("EVAL", "return #redis.call('TREAD', KEYS[1], 1, 1, 'BLOCK', 0)", 1, "k") == 0


def test_11_a_reader_wakes_for_its_offset_and_not_for_smaller_ones(engine: Engine, do: Client) -> None:
    reader, other = Client(engine), Client(engine)
    assert reader("TREAD", "k", 3, 5, "BLOCK", 0, "WITHINFO") == BLOCKED
    assert other("TREAD", "k", 0, 5, "BLOCK", 0) == BLOCKED
    write(do, 1)
    assert reader.reply == BLOCKED
    assert other.reply == messages(1)
    write(do, 1)
    assert reader.reply == BLOCKED
    write(do, 1)
    assert reader.reply == [[1, 3], message(3)]


def test_11_all_plain_readers_get_the_same(engine: Engine, do: Client) -> None:
    readers = [Client(engine) for _ in range(3)]
    for reader in readers:
        reader("TREAD", "k", 1, 1, "BLOCK", 0)
    write(do, 1)
    assert [reader.reply for reader in readers] == [messages(1)] * 3


def test_11_a_reader_waits_where_all_from_its_offset_on_is_gone(engine: Engine, do: Client) -> None:
    write(do, 3)
    do("TEVICT", "k", 3)
    reader = Client(engine)
    assert reader("TREAD", "k", 2, 3, "BLOCK", 0) == BLOCKED
    write(do, 1)
    assert reader.reply == [None, None, message(4)]


def test_11_a_reader_downwards_waits_for_its_offset_too(engine: Engine, do: Client) -> None:
    write(do, 2)
    reader = Client(engine)
    assert reader("TREAD", "k", "$", 1, "REV", "BLOCK", 0) == messages(2)
    assert reader("TREAD", "k", 3, 2, "REV", "BLOCK", 0) == BLOCKED
    write(do, 1)
    assert reader.reply == messages(3, 2)


def test_11_a_plain_read_needs_no_write_lock(
    engine: Engine, do: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(do, 1)

    def refuse() -> None:
        raise AssertionError("it wants to write")

    monkeypatch.setattr(engine, "require_write", refuse)
    assert do("TREAD", "k", 1, 1, "BLOCK", 0) == messages(1)
    assert do("TREAD", "k", 2, 1) == []


# ------------------------------------------------------------------- a stream that goes away


@pytest.mark.parametrize(
    "command",
    [
        "DEL k", "UNLINK k", "SET k v", "FLUSHDB", "FLUSHALL", "RENAME k other", "RENAME string k",
        "MOVE k 1", "SWAPDB 0 1", "PEXPIRE k 0", "COPY string k REPLACE", "COPY stream k REPLACE",
        "SADD k2 x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", [("2", "1"), ("0", "1", "GROUP", "g")])
def test_readers_learn_that_their_stream_is_gone(
    engine: Engine, do: Client, command: str, way: tuple[str, ...]
) -> None:
    write(do, 1)
    do("TREAD", "k", "0", 1, "GROUP", "g")
    write(do, 3, "stream")
    do("SET", "string", "x")
    reader = Client(engine)
    assert reader("TREAD", "k", *way, "BLOCK", 0) == BLOCKED
    do(*command.split())
    if command == "SADD k2 x":
        assert reader.reply == BLOCKED
        return
    reply = reader.reply
    assert isinstance(reply, CommandError)
    assert str(reply) == "UNBLOCKED the stream k is gone"
    assert reader.session.blocked is None


def test_readers_learn_of_a_stream_that_was_replaced_in_one_transaction(engine: Engine, do: Client) -> None:
    write(do, 1)
    reader = Client(engine)
    assert reader("TREAD", "k", 2, 1, "BLOCK", 0) == BLOCKED
    do("MULTI")
    do("TWRITE", "k", "t", "2")
    do("DEL", "k")
    do("TWRITE", "k", "t", "1")
    do("TWRITE", "k", "t", "2")
    do("EXEC")
    assert str(reader.reply) == "UNBLOCKED the stream k is gone"


def test_readers_learn_of_a_stream_that_expires(engine: Engine, do: Client, clock: ManualClock) -> None:
    write(do, 1)
    do("PEXPIRE", "k", 10)
    reader = Client(engine)
    assert reader("TREAD", "k", 2, 1, "BLOCK", 0) == BLOCKED
    clock.advance_ms(10)
    tick(engine)
    assert str(reader.reply) == "UNBLOCKED the stream k is gone"


def test_a_reader_of_a_missing_key_waits_for_a_stream(engine: Engine, do: Client) -> None:
    reader = Client(engine)
    assert reader("TREAD", "k", 1, 1, "BLOCK", 0) == BLOCKED
    do("RPUSH", "k", "x")
    assert reader.reply == BLOCKED
    do("DEL", "k")
    assert reader.reply == BLOCKED
    write(do, 1)
    assert reader.reply == messages(1)


def test_a_client_that_waits_for_a_list_is_no_reader(engine: Engine, do: Client) -> None:
    popper = Client(engine)
    assert popper("BLPOP", "k", 0) == BLOCKED
    write(do, 1)
    do("DEL", "k")
    assert popper.reply == BLOCKED
    do("RPUSH", "k", "x")
    assert popper.reply == [b"k", b"x"]


def test_readers_learn_that_their_group_is_gone(engine: Engine, do: Client) -> None:
    reader, plain = Client(engine), Client(engine)
    assert reader("TREAD", "k", 0, 1, "GROUP", "g", "BLOCK", 0) == BLOCKED
    assert plain("TREAD", "k", 1, 1, "BLOCK", 0) == BLOCKED
    assert do("TGROUP", "DESTROY", "k", "g") == 1
    assert str(reader.reply) == "UNBLOCKED the group g is gone"
    assert plain.reply == BLOCKED
