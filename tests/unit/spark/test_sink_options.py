"""Options and columns of a sink: one way to say where rows go; what is wrong is named."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from penstock.errors import ConfigError, PenstockError, UsageError
from penstock.spark.sink import batch_writer, stream_writer
from penstock.spark.sink_options import Target, find_target


def columns(**types: str) -> StructType:
    schema = StructType()
    for name, type_ in types.items():
        schema = schema.add(name, type_)
    return schema


def find(schema: StructType, **options: str) -> Target:
    return find_target({"url": "/shop.pen", **options}, schema)


def test_where_rows_go() -> None:
    plain = columns(message="string")
    assert find(plain, stream="orders", tag="eu") == Target(
        url="/shop.pen",
        kind="stream",
        name="orders",
        tag="eu",
        has_tag_column=False,
        expire_ms=1_800_000,
        writer="",
        batch=None,
    )
    many = find(columns(stream="string", tag="binary", message="binary"), writer="w", batchId="7")
    assert (many.kind, many.name, many.has_tag_column, many.writer, many.batch) == (
        "stream",
        "",
        True,
        "w",
        7,
    )
    room = find(plain, CHANNEL="room-7", expirems="5000")
    assert (room.kind, room.name, room.expire_ms) == ("channel", "room-7", 5_000)
    assert find(columns(channel="string", message="string")).kind == "channel"


def test_what_was_read_may_be_written_as_it_is() -> None:
    read = columns(offset="long", time="timestamp", tag="string", message="binary")
    assert find(read, stream="copy").name == "copy"


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        (columns(message="string"), {}, "it is not told where rows go: set the option stream or channel"),
        (
            columns(message="string"),
            {"stream": "a", "channel": "b"},
            "the option stream and the option channel",
        ),
        (
            columns(stream="string", message="string"),
            {"stream": "a"},
            "the option stream and the column stream",
        ),
        (columns(message="string"), {"stream": ""}, "stream has an empty name"),
        (columns(message="string"), {"channel": "No!"}, "the option channel must be 1 to 63 of"),
        (
            columns(message="string"),
            {"stream": "a", "strem": "b"},
            "there is no option 'strem': use one of url",
        ),
        (
            columns(message="string"),
            {"stream": "a", "startingOffset": "1"},
            "startingOffset is not for writing",
        ),
        (
            columns(message="string", tag="string"),
            {"stream": "a", "tag": "t"},
            "the option tag and the column",
        ),
        (columns(message="string", tag="string"), {"channel": "a"}, "messages of a channel have no tag"),
        (columns(message="string"), {"channel": "a", "tag": "t"}, "messages of a channel have no tag"),
        (columns(message="string"), {"stream": "a", "expireMs": "1"}, "the option expireMs is for channels"),
        (
            columns(message="string"),
            {"channel": "a", "expireMs": "x"},
            "expireMs must be a whole number from 1",
        ),
        (
            columns(message="string"),
            {"stream": "a", "batchId": "-1"},
            "batchId must be a whole number from 0 on",
        ),
        (columns(message="string"), {"stream": "a", "writer": ""}, "writer has an empty name"),
    ],
)
def test_options_that_are_wrong(schema: StructType, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PenstockError) as refused:
        find(schema, **options)
    assert isinstance(refused.value, ConfigError | UsageError)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (columns(tag="string"), "the column message is missing: select what is to be written as message"),
        (columns(message="long"), "the column message is BIGINT: cast it to STRING or BINARY"),
        (columns(message="string", tag="integer"), "the column tag is INT: cast it to STRING or BINARY"),
        (columns(message="string", stream="binary"), "the column stream is BINARY: cast it to STRING"),
        (columns(message="string", key="string"), "there is no place for the column 'key': drop it"),
    ],
)
def test_columns_that_are_wrong(schema: StructType, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        find(schema, stream="orders")
    assert sentence in str(refused.value)


def test_what_belongs_to_one_kind_of_query() -> None:
    schema = columns(message="string")
    options = {"url": "/shop.pen", "stream": "orders"}
    with pytest.raises(ConfigError, match="the options writer and batchId belong together"):
        batch_writer({**options, "writer": "w"}, schema, False)
    with pytest.raises(ConfigError, match="the options writer and batchId belong together"):
        batch_writer({**options, "batchId": "1"}, schema, False)
    with pytest.raises(ConfigError, match="batchId is not for streaming queries"):
        stream_writer({**options, "batchId": "1"}, schema, False)
    with pytest.raises(UsageError, match=r"messages cannot be overwritten: write with mode\('append'\)"):
        batch_writer(options, schema, True)
    with pytest.raises(UsageError, match="not complete"):
        stream_writer(options, schema, True)
    nameless = stream_writer(options, schema, False)
    with pytest.raises(ConfigError, match="the option writer is missing, and Spark does not tell the id"):
        nameless.write(iter([]))
