"""The judges of the crews, judged themselves: a good book has nothing wrong, a bent one has.

Each test bends one thing: a line dropped, doubled, foreign, or at another place. No store and no member is
needed. Judges that crash tests have in common with crews are bent there as well (``test_crash_streams``,
``test_crash_channels``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.transactions.model import TrailEntry, Transaction
from tests.chaos.crews import channels, pubsub, spark, streams
from tests.chaos.crews.spark import Book, recorded
from tests.client.hearing import Channel
from tests.crash import channel_ledger, stream_ledger, transaction_ledger
from tests.crash.spark_ledger import Record, judge_messages, judge_transactions
from tests.crash.stream_workers import Message, messages_of

Lines = list[list[Any]]


def _write_log(directory: Path, member: str, lines: Lines) -> None:
    (directory / f"{member}.log").write_text("".join(json.dumps(line) + "\n" for line in lines))


# ---------------------------------------------------------------------------------- streams


def _stream_logs() -> dict[str, Lines]:
    """A writer, a producer that was killed and repeats itself, a reader, of three messages and more."""
    batch = len(messages_of("plain producer", "p0", 1))
    return {
        "w0": [["try", 1, "plain one", 10], ["ok", 1, 1, 11], ["try", 2, "plain one", 12]],
        "p0": [
            ["try", 1, "plain producer", 20],
            ["try", 1, "plain producer", 21],
            ["ok", 1, 1 + batch, 22],
        ],
        "r0": [
            ["try", 1, "plain work read", 30],
            ["ok", 1, [[n, *_stream_there()[n], 1] for n in _stream_there()], 31],
            ["try", 2, f"plain work TACK {','.join(map(str, _stream_there()))}", 32],
            ["ok", 2, len(_stream_there()), 33],
        ],
    }


def _stream_there() -> dict[int, Message]:
    messages = [*messages_of("plain one", "w0", 1), *messages_of("plain producer", "p0", 1)]
    return dict(enumerate(messages, 1))


def _judge_streams(logs: dict[str, Lines], there: dict[int, Message], directory: Path) -> list[str]:
    for name, lines in logs.items():
        _write_log(directory, f"streams-{name}", lines)
    books = stream_ledger.Books.read(directory, f"{streams.NAME}-")
    last = max(there)
    return [
        *stream_ledger.judge_stream("plain", books, there, 1, last),
        *stream_ledger.judge_group("plain", "work", books, [], [], last),
        *streams.judge_delivered("plain", "work", books, there),
    ]


def test_a_good_run_of_streams_has_nothing_wrong(tmp_path: Path) -> None:
    assert _judge_streams(_stream_logs(), _stream_there(), tmp_path) == []
    assert stream_ledger.judge_ends("plain", "work", 5, 5, 0, 0) == []


def test_what_was_not_confirmed_may_be_there_once(tmp_path: Path) -> None:
    logs, there = _stream_logs(), _stream_there()
    there[max(there) + 1] = messages_of("plain one", "w0", 2)[0]
    logs["r0"] += [["try", 3, f"plain work TACK {max(there)}", 40], ["ok", 3, 1, 41]]
    assert _judge_streams(logs, there, tmp_path) == []
    there[max(there) + 1] = messages_of("plain one", "w0", 2)[0]
    assert any("more than once" in line for line in _judge_streams(logs, there, tmp_path))


def _lose_a_message(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    del there[1]


def _lose_the_last_message(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    del there[max(there)]


def _change_bytes(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    there[1] = (there[1][0], "other")


def _write_twice(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    there[max(there) + 1] = there[1]


def _write_foreign(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    there[max(there) + 1] = ("", "nobody's")


def _give_an_offset_twice(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    logs["w0"].append(["ok", 2, 1, 13])


def _answer_a_repetition_otherwise(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    logs["p0"].append(["ok", 1, 99, 23])


def _deliver_after_the_ack(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    logs["r1"] = [["try", 1, "plain work read", 50], ["ok", 1, [[1, *there[1], 2]], 51]]


def _deliver_twice_under_a_number(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    logs["r1"] = [["try", 1, "plain work read", 1], ["ok", 1, [[1, *there[1], 1]], 51]]


def _deliver_other_bytes(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    logs["r1"] = [["try", 1, "plain work read", 1], ["ok", 1, [[1, "", "other", 2]], 51]]


def _never_acknowledge(logs: dict[str, Lines], there: dict[int, Message]) -> None:
    del logs["r0"][2:]


@pytest.mark.parametrize(
    ("bend", "complaint"),
    [
        (_lose_a_message, "plain has holes"),
        (_lose_the_last_message, "was confirmed and is lost"),
        (_change_bytes, "was confirmed"),
        (_write_twice, "more than once"),
        (_write_foreign, "which nobody wrote"),
        (_give_an_offset_twice, "was given twice"),
        (_answer_a_repetition_otherwise, "was answered with"),
        (_deliver_after_the_ack, "was acknowledged and came again"),
        (_deliver_twice_under_a_number, "happened twice"),
        (_deliver_other_bytes, "was delivered as"),
        (_never_acknowledge, "was never acknowledged and never came again"),
    ],
)
def test_a_broken_promise_of_streams_is_seen(
    bend: Callable[[dict[str, Lines], dict[int, Message]], None], complaint: str, tmp_path: Path
) -> None:
    logs, there = _stream_logs(), _stream_there()
    bend(logs, there)
    broken = _judge_streams(logs, there, tmp_path)
    assert any(complaint in line for line in broken), broken


@pytest.mark.parametrize(("acked", "lost"), [(4, 0), (6, 0), (5, 1)])
def test_a_group_that_counts_otherwise_is_seen(acked: int, lost: int) -> None:
    assert stream_ledger.judge_ends("plain", "work", 5, acked, 0, lost) != []


# --------------------------------------------------------------------------------- channels


def _channel_logs() -> dict[str, Lines]:
    """Two subscribers of a channel; the acknowledgement of the second was not confirmed."""
    whole = ["got", [["p0-0", 1], ["p0-1", 2], ["p1-0", 3]]]
    return {
        "p0": [["publish", "one", ["p0-0", "p0-1"]], ["published", "one", ["p0-0", "p0-1"]]],
        "p1": [["publish", "one", ["p1-0"]]],
        "s0": [whole, ["ack", 3], ["acked", 3]],
        "s1": [whole, ["ack", 3], whole],
    }


def _judge_channels(logs: dict[str, Lines], directory: Path) -> list[str]:
    for name, lines in logs.items():
        _write_log(directory, f"channels-{name}", lines)
    return channel_ledger.judge(channel_ledger.Books.read(directory, f"{channels.NAME}-"))


def test_a_good_run_of_channels_has_nothing_wrong(tmp_path: Path) -> None:
    assert _judge_channels(_channel_logs(), tmp_path) == []


def test_an_acknowledgement_may_arrive_after_its_sender_has_died(tmp_path: Path) -> None:
    """It was on its way while the next life fetched."""
    logs = _channel_logs()
    logs["p1"].append(["publish", "one", ["p1-1"]])
    logs["s0"].append(["got", [["p1-1", 4]]])
    logs["s1"].append(["got", [["p1-1", 4]]])
    assert _judge_channels(logs, tmp_path) == []


@pytest.mark.parametrize(
    ("subscriber", "line", "complaint"),
    [
        ("s0", ["got", [["p0-1", 2]]], "s0 got 2 first, although it had acknowledged [3]"),
        ("s1", ["got", [["p0-1", 2]]], "s1 got 2 first"),
        ("s1", ["got", [["x-1", 4]]], "which nobody published"),
        ("s1", ["got", [["p0-0", 4]]], "at clocks 1 and 4"),
        ("s1", ["got", [["p1-0", 4], ["p0-0", 6]]], "gaps or out of order"),
    ],
)
def test_a_broken_promise_of_channels_is_seen(
    subscriber: str, line: list[Any], complaint: str, tmp_path: Path
) -> None:
    logs = _channel_logs()
    logs[subscriber].append(line)
    broken = _judge_channels(logs, tmp_path)
    assert any(complaint in each for each in broken), broken


def test_a_lost_message_of_a_channel_is_seen(tmp_path: Path) -> None:
    logs = _channel_logs()
    logs["s1"] = []
    assert _judge_channels(logs, tmp_path) == [
        f"s1 never got {name}, which was confirmed" for name in ("p0-0", "p0-1")
    ]


# ---------------------------------------------------------------------------------- pub/sub

_PUBLISHED = pubsub.published_by(
    [
        ["publish", 0], ["published", 0],
        ["publish", 1],
        ["publish", 2], ["published", 2],
        ["publish", 3], ["published", 3],
    ]
)  # fmt: skip


def _judge_heard(*heard: int | str, is_ordered: bool = True) -> list[str]:
    """Numbers of ``p0``, and words for lines without one."""
    lines = [["heard", "p0", each] if isinstance(each, int) else [each] for each in heard]
    return pubsub.judge_subscriber("s0", [["listening"], *lines], {"p0": _PUBLISHED}, is_ordered=is_ordered)


@pytest.mark.parametrize(
    "heard",
    [
        (0, 1, 2, 3),
        (0, 2, 3),
        (2, 3),
        (0, "gap", 3),
        (0, "listening", 3),
        (0, 2, 1, 3),
    ],
)
def test_good_hearing_has_nothing_wrong(heard: tuple[int | str, ...]) -> None:
    """Who comes later misses the beginning; what was not confirmed comes at any time, or never."""
    assert _judge_heard(*heard) == []


@pytest.mark.parametrize(
    ("heard", "complaint"),
    [
        ((0, 3), "messages [2] are missing before 3 without a gap"),
        ((0, 2, 2, 3), "message 2 came twice"),
        ((0, 3, 2), "another order"),
        ((0, 2, 3, 4), "message 4 was never sent"),
        ((0, 3, "gap"), "are missing before 3"),
    ],
)
def test_a_broken_promise_of_hearing_is_seen(heard: tuple[int | str, ...], complaint: str) -> None:
    broken = _judge_heard(*heard)
    assert any(complaint in line for line in broken), broken


def test_on_a_cluster_only_strangers_are_wrong() -> None:
    assert _judge_heard(0, 3, 2, 2, is_ordered=False) == []
    assert len(_judge_heard(0, 4, is_ordered=False)) == 1
    assert pubsub.judge_subscriber("s0", [["heard", "x", 1]], {}, is_ordered=False) == [
        "s0 heard x, who is nobody"
    ]


def test_a_channel_is_judged_in_one_pass() -> None:
    count = 200_000
    channel = Channel(dict.fromkeys(range(count), "ok"), list(range(0, count, 2)))
    assert len(channel.breaches()) == count // 2 - 1


# ----------------------------------------------------------------------------- transactions

_TX = "tx-0-1"


def _transaction_logs() -> Lines:
    return [
        ["start", 1, "s0-0", "flaky"],
        ["started", 2, "s0-0", _TX],
        ["effect", 3, f"{_TX}:0:0"],
        ["noted", 5, f"{_TX}:0:0"],
        ["webhook", _TX, "evt-1"],
    ]


def _archived(**changed: Any) -> Transaction:
    fields: dict[str, Any] = {
        "id": _TX, "owner": "", "pipeline": "flaky", "version": "1", "node_group": "storm", "state": "ended",
        "status": "success", "created_ms": 1, "external_id": "s0-0",
        "trail": [TrailEntry("step", step=0, name="stumble", status="success")],
    }  # fmt: skip
    return Transaction(**{**fields, **changed})


def _judge_transactions(
    directory: Path,
    lines: Lines,
    *archived: Transaction,
    told: tuple[str, ...] = (f"{_TX} 0",),
    happened: tuple[str, ...] = (f"{_TX}:0:0",),
    overtaken_ns: int = 0,
) -> list[str]:
    _write_log(directory, "transactions-x0", lines)
    books = transaction_ledger.Books(directory, "transactions-")
    books.archived = list(archived)
    books.told.update(told)
    books.happened = set(happened)
    return transaction_ledger.judge(books, overtaken_ns)


def test_a_good_run_of_transactions_has_nothing_wrong(tmp_path: Path) -> None:
    assert _judge_transactions(tmp_path, _transaction_logs(), _archived()) == []
    repeated = [*_transaction_logs(), ["effect", 4, f"{_TX}:0:0"], ["webhook", _TX, "evt-1"]]
    assert _judge_transactions(tmp_path, repeated, _archived()) == []


def test_an_effect_after_its_note_is_seen(tmp_path: Path) -> None:
    """Unless its worker can have stood still for so long."""
    lines = [*_transaction_logs(), ["effect", 9, f"{_TX}:0:0"]]
    assert _judge_transactions(tmp_path, lines, _archived()) == [f"{_TX}:0:0 acted after it was noted"]
    assert _judge_transactions(tmp_path, lines, _archived(), overtaken_ns=4) == []
    assert len(_judge_transactions(tmp_path, lines, _archived(), overtaken_ns=3)) == 1


_TWICE = [TrailEntry("step", step=0, name="stumble", status="success")] * 2


@pytest.mark.parametrize(
    ("archived", "complaint"),
    [
        ([], "s0-0 was confirmed and is nowhere"),
        ([_archived(), _archived()], "is in the archive 2 times"),
        ([_archived(), _archived(id="tx-0-2")], "s0-0 is 2 transactions"),
        ([_archived(), _archived(id="tx-0-2", external_id="x")], "which nobody started"),
        ([_archived(status="failed")], "ended as failed"),
        ([_archived(trail=_TWICE)], "succeeded 2 times"),
        ([_archived(pipeline="sad", status="failed")], "was not undone"),
    ],
)
def test_a_broken_promise_of_the_archive_is_seen(
    archived: list[Transaction], complaint: str, tmp_path: Path
) -> None:
    broken = _judge_transactions(tmp_path, _transaction_logs(), *archived)
    assert any(complaint in line for line in broken), broken


def test_effects_and_messages_that_are_missing_or_doubled_are_seen(tmp_path: Path) -> None:
    lines = _transaction_logs()
    assert _judge_transactions(tmp_path, lines, _archived(), happened=()) == [
        f"{_TX}:0:0 succeeded and did nothing"
    ]
    assert _judge_transactions(tmp_path, lines, _archived(), told=()) == [f"{_TX}:0:0 wrote 0 messages"]
    twice = (f"{_TX} 0", f"{_TX} 0")
    assert _judge_transactions(tmp_path, lines, _archived(), told=twice) == [f"{_TX}:0:0 wrote 2 messages"]


def test_webhooks_that_are_missing_or_under_two_ids_are_seen(tmp_path: Path) -> None:
    lines = _transaction_logs()
    assert _judge_transactions(tmp_path, lines[:-1], _archived()) == [f"{_TX} was not told of"]
    lines.append(["webhook", _TX, "evt-2"])
    assert _judge_transactions(tmp_path, lines, _archived()) == [f"{_TX} was told of under 2 ids"]


# ------------------------------------------------------------------------------------ Spark

_LOAD: Lines = [
    ["write", 1, 2], ["wrote", 1, 2, 2],
    ["write", 3, 1],
    ["start", 0], ["started", 0, "tx-a"], ["start", 1],
]  # fmt: skip


def test_what_nobody_confirmed_counts_if_it_is_there() -> None:
    record, wrong = recorded(Book.of(_LOAD), 2, {})
    assert (sorted(record.messages), record.transactions, wrong) == ([1, 2], {"tx-a": 0}, [])
    record, wrong = recorded(Book.of(_LOAD), 3, {1: "tx-b"})
    assert (sorted(record.messages), wrong) == ([1, 2, 3], [])
    assert record.transactions == {"tx-a": 0, "tx-b": 1}
    assert record.messages[3] == spark.pairs_of(3, 1)[0]


@pytest.mark.parametrize("last", [1, 4])
def test_a_stream_that_ends_elsewhere_is_seen(last: int) -> None:
    _, wrong = recorded(Book.of(_LOAD), last, {})
    assert any(f"ends at {last}" in line for line in wrong), wrong


def test_an_offset_that_was_confirmed_otherwise_is_seen() -> None:
    _, wrong = recorded(Book.of([["write", 1, 2], ["wrote", 1, 2, 7]]), 2, {})
    assert wrong == ["messages 1 were confirmed up to offset 7, not 2"]


def _rows() -> list[dict[str, Any]]:
    return [{"offset": n, "tag": b"t", "message": b"m%d" % n} for n in (1, 2)]


def test_rows_of_messages_are_compared_one_by_one() -> None:
    record = Record({1: (b"t", b"m1"), 2: (b"t", b"m2")})
    rows = _rows()
    assert judge_messages(record, rows) == []
    assert len(judge_messages(record, rows[:1])) == 1
    assert judge_messages(record, [*rows, rows[0]]) == ["offset 1 is in the lake 2 times"]
    assert len(judge_messages(record, [*rows, {"offset": 3, "tag": b"", "message": b""}])) == 1
    rows[1]["message"] = b"other"
    assert len(judge_messages(record, rows)) == 1


def test_rows_of_transactions_are_compared_one_by_one() -> None:
    record = Record(transactions={"tx-a": 4})
    step = {"kind": "step", "status": "success"}
    row = {"id": "tx-a", "status": "success", "output": '{"n": 4, "score": 8}', "trail": [step]}
    assert judge_transactions(record, [row]) == []
    assert judge_transactions(record, []) == ["tx-a was started and is not in the lake"]
    assert judge_transactions(record, [row, row]) == ["tx-a is in the lake 2 times"]
    assert judge_transactions(record, [row, {**row, "id": "x"}]) == [
        "x is in the lake, and nobody started it"
    ]
    for bent in ({"status": "failed"}, {"output": '{"n": 4, "score": 9}'}, {"trail": [step, step]}):
        assert len(judge_transactions(record, [{**row, **bent}])) == 1
