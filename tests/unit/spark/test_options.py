"""Options of ``format("penstock")``: what is given comes out typed, what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark.options import Options, Use, parse_options
from penstock.spark.positions import EARLIEST, LATEST, Position, Positions

GIVEN = {"url": "redis://localhost", "stream": "orders"}


def parse(use: Use = "batch", **given: str) -> Options:
    return parse_options({**GIVEN, **given}, use)


def test_the_least_that_is_needed() -> None:
    assert parse() == Options(
        url="redis://localhost",
        streams=("orders",),
        starting=Positions(EARLIEST),
        ending=Positions(LATEST),
        has_stream_column=False,
        tags=(),
        min_partitions=1,
        messages_per_partition=1_000_000,
        fails_on_data_loss=True,
        max_messages_per_batch=None,
        group="",
    )


def test_all_of_them_in_any_case_beside_sparks_own() -> None:
    options = parse_options(
        {
            "PATH": "redis://localhost",
            "streams": ' ["a,b", " c"]',
            "startingoffset": '{"a,b": 7}',
            "TAGS": "eu, us",
            "minpartitions": "3",
            "messagesperpartition": "10",
            "failondataloss": "False",
            "maxmessagesperbatch": "1000",
            "Group": "lake",
            "checkpointLocation": "/tmp/x",
            "queryname": "q",
        },
        "streaming",
    )
    assert options == Options(
        url="redis://localhost",
        streams=("a,b", " c"),
        starting=Positions(EARLIEST, {"a,b": Position("offset", 7)}),
        ending=Positions(LATEST),
        has_stream_column=True,
        tags=("eu", "us"),
        min_partitions=3,
        messages_per_partition=10,
        fails_on_data_loss=False,
        max_messages_per_batch=1000,
        group="lake",
    )


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        (" Latest", LATEST),
        ("0", Position("offset", 0)),
        ("9223372036854775807", Position("offset", 2**63 - 1)),
        ("@1772362800000", Position("time", 1772362800000)),
        ("2026-03-01T11:00:00Z", Position("time", 1772362800000)),
        ("2026-03-01T12:00:00.5+01:00", Position("time", 1772362800500)),
        ("2026-03-01 11:00", Position("time", 1772362800000)),
        ("2026-03-01", Position("time", 1772323200000)),
        ("1969-12-31", Position("time", 0)),
    ],
)
def test_positions(text: str, position: Position) -> None:
    assert parse("streaming", startingOffset=text).starting.of("orders") == position


def test_positions_by_stream() -> None:
    options = parse_options(
        {
            "url": "x",
            "streams": "a,b,c",
            "startingOffset": '{"a": "@5", "b": 3}',
            "endingOffset": '{"c": "9"}',
        },
        "batch",
    )
    assert [options.starting.of(name) for name in "abc"] == [("time", 5), ("offset", 3), EARLIEST]
    assert [options.ending.of(name) for name in "abc"] == [LATEST, LATEST, ("offset", 9)]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"strem": "x"}, "there is no option 'strem': use one of url, stream, streams, startingOffset"),
        ({"group": "g"}, "the option group is not for batch: leave it out"),
        ({"maxMessagesPerBatch": "1"}, "the option maxMessagesPerBatch is not for batch"),
        ({"path": "x"}, "the option url and the path of load"),
        ({"url": ""}, "the option url is missing"),
        ({"url": "http://x"}, "unknown scheme 'http'"),
        ({"streams": "a"}, "stream and streams exclude one another"),
        ({"stream": ""}, "stream has an empty name"),
        ({"tags": "a,,b"}, "tags has an empty name"),
        ({"tags": "a,b,a"}, "tags has 'a' twice"),
        ({"tags": "[1]"}, "tags must be a JSON list of texts"),
        ({"tags": "[]"}, "tags is empty"),
        ({"tags": "[a"}, "tags is not a JSON list"),
        ({"minPartitions": "0"}, "minPartitions must be a whole number from 1 on, not '0'"),
        ({"messagesPerPartition": "many"}, "messagesPerPartition must be a whole number"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss must be true or false, not 'no'"),
        ({"startingOffset": "-2"}, "startingOffset must be an offset, earliest, latest, a time as"),
        ({"startingOffset": "9223372036854775808"}, "startingOffset must be an offset"),
        ({"startingOffset": "@x"}, "startingOffset must be an offset"),
        ({"startingOffset": "{'orders': 1}"}, "startingOffset is not JSON"),
        (
            {"startingOffset": '{"order": 1}'},
            "startingOffset names 'order', which is not read: name one of orders",
        ),
        ({"startingOffset": '{"orders": true}'}, "startingOffset of orders must be an offset"),
        ({"startingOffset": "latest"}, "a batch from latest, or to earliest, has no messages"),
        ({"endingOffset": '{"orders": "earliest"}'}, "a batch from latest, or to earliest, has no messages"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(**given)
    assert sentence in str(refused.value)


def test_what_belongs_elsewhere() -> None:
    with pytest.raises(ConfigError, match="endingOffset is not for streaming"):
        parse("streaming", endingOffset="9")
    with pytest.raises(ConfigError, match="startingOffset is not for writing"):
        parse("writing", startingOffset="9")
    with pytest.raises(ConfigError, match="the option stream is missing"):
        parse_options({"url": "x"}, "batch")
    both = parse("reading", endingOffset="9", group="g")
    assert (both.ending.of("orders"), both.group) == (("offset", 9), "g")


def test_a_relative_path_is_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(url="./shop.pen").url == f"{tmp_path}/shop.pen"
    assert (
        parse(url="embedded:a%20b?durability=relaxed").url == f"embedded:{tmp_path}/a%20b?durability=relaxed"
    )
    assert parse(url="/abs/shop.pen").url == "/abs/shop.pen"
    assert parse(url="embedded:///abs?db=1").url == "embedded:///abs?db=1"
