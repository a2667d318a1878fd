"""Blocks of a scan as record batches, compared with the same messages built one by one."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import UsageError
from penstock.spark.columns import BatchMaker
from penstock.spark.schemas import check_schema, default_schema
from penstock.streams.scanning import Columns


class Sample(NamedTuple):
    offset: int
    time_ms: int
    tag: bytes
    entry: bytes | None


def block_of(messages: list[Sample], *, dense: bool, wide: bool, base: int, first_ms: int) -> Columns:
    """One by one, as the layout of a block says."""
    offsets = [base, *(message.offset for message in messages)]
    times = [first_ms, *(message.time_ms for message in messages)]
    steps = [after - before for before, after in pairwise(offsets)]
    times_ms = [after - before for before, after in pairwise(times)]
    bits = sum((message.entry is not None) << place for place, message in enumerate(messages))
    count = len(messages)
    is_whole = all(message.entry is not None for message in messages)
    return Columns(
        base,
        count,
        first_ms,
        None if dense else struct.pack(f"<{count}I", *steps),
        struct.pack(f"<{count}{'Q' if wide else 'I'}", *times_ms),
        8 if wide else 4,
        struct.pack(f"<{count}I", *(len(message.tag) for message in messages)),
        struct.pack(f"<{count}I", *(len(message.entry or b"") for message in messages)),
        None if is_whole else bits.to_bytes((count + 7) // 8, "little"),
        b"".join(message.tag for message in messages),
        b"".join(message.entry or b"" for message in messages),
    )


def random_blocks(chance: random.Random) -> tuple[list[Sample], list[Columns]]:
    samples: list[Sample] = []
    blocks = []
    offset, time_ms = chance.randrange(1, 1 << 40), chance.randrange(1 << 41)
    for _ in range(chance.randrange(1, 6)):
        dense, wide, has_tombstones = (chance.random() < 0.5 for _ in range(3))
        base, first_ms = offset, time_ms
        messages = []
        for place in range(chance.randrange(0, 20)):
            if not dense:
                offset += chance.randrange(1, 1000) if place else chance.randrange(0, 1000)
            time_ms += chance.randrange(1 << 35 if wide else 1000)
            tag = chance.choice([b"", b"eu", "ü".encode(), b"a long tag"])
            entry = (
                None if has_tombstones and chance.random() < 0.3 else chance.randbytes(chance.randrange(9))
            )
            messages.append(Sample(offset, time_ms, tag, entry))
            offset += dense
        blocks.append(block_of(messages, dense=dense, wide=wide, base=base, first_ms=first_ms))
        samples += messages
        offset += chance.randrange(1, 100)
    return samples, blocks


def rows(batch: Any) -> list[Sample]:
    """Of a batch with the default columns."""
    times = batch["time"].cast(pa.int64()).to_pylist()
    assert all(time % 1000 == 0 for time in times)
    tags = [tag.encode() for tag in batch["tag"].to_pylist()]
    columns = (
        batch["offset"].to_pylist(),
        [time // 1000 for time in times],
        tags,
        batch["message"].to_pylist(),
    )
    return [Sample(*values) for values in zip(*columns, strict=True)]


@pytest.mark.parametrize("seed", range(60))
def test_random_blocks(seed: int) -> None:
    chance = random.Random(seed)
    samples, blocks = random_blocks(chance)
    batch = BatchMaker(default_schema(has_stream=False), "orders").make(blocks)
    assert (rows(batch) if batch else []) == samples
    if batch:
        batch.validate(full=True)
    wanted = BatchMaker(default_schema(has_stream=False), "orders", ["eu", "ü"]).make(blocks)
    assert (rows(wanted) if wanted else []) == [one for one in samples if one.tag in (b"eu", "ü".encode())]


def test_nothing_is_no_batch() -> None:
    empty = block_of([], dense=True, wide=False, base=7, first_ms=0)
    maker = BatchMaker(default_schema(has_stream=True), "orders")
    assert maker.make([]) is None
    assert maker.make([empty, empty]) is None


def test_a_schema_of_the_users() -> None:
    asked = StructType(
        [
            StructField("message", StringType()),
            StructField("stream", StringType(), nullable=False),
            StructField("tag", BinaryType()),
        ]
    )
    check_schema(asked)
    block = block_of(
        [Sample(3, 5, b"\xff", "grün".encode()), Sample(4, 5, b"", None)],
        dense=True,
        wide=False,
        base=3,
        first_ms=5,
    )
    batch = BatchMaker(asked, "orders").make([block])
    assert batch.to_pylist() == [
        {"message": "grün", "stream": "orders", "tag": b"\xff"},
        {"message": None, "stream": "orders", "tag": b""},
    ]
    assert [field.nullable for field in batch.schema] == [True, False, True]


def test_bytes_that_are_no_text_are_named() -> None:
    messages = [Sample(7, 0, b"eu", b"fine"), Sample(9, 0, b"us", b"\xc3"), Sample(12, 0, b"eu", b"\xa9\xff")]
    block = block_of(messages, dense=False, wide=False, base=7, first_ms=0)
    text = StructType([StructField("message", StringType())])
    with pytest.raises(
        UsageError, match="the message of message 9 of the stream orders is no UTF-8: ask for"
    ):
        BatchMaker(text, "orders").make([block])
    with pytest.raises(UsageError, match="message 12 of the stream orders"):
        BatchMaker(text, "orders", ["eu"]).make([block])
    tag = block_of([Sample(1, 0, b"\xff", b"")], dense=True, wide=False, base=1, first_ms=0)
    with pytest.raises(UsageError, match=r"the tag of message 1 .* schema\('offset BIGINT, tag BINARY'\)"):
        BatchMaker(default_schema(has_stream=False), "orders").make([tag])


def test_columns_that_a_stream_has_not_got() -> None:
    with pytest.raises(
        UsageError, match="no column 'key': ask in schema\\(\\) for some of stream, offset, time"
    ):
        check_schema(StructType([StructField("key", StringType())]))
    with pytest.raises(
        UsageError, match="the column offset cannot be INT: ask in schema\\(\\) for offset BIGINT"
    ):
        check_schema(StructType([StructField("offset", IntegerType())]))
    with pytest.raises(UsageError, match=r"tag cannot be TIMESTAMP: .* tag STRING or BINARY"):
        check_schema(StructType([StructField("tag", TimestampType())]))
    assert default_schema(has_stream=True).fieldNames() == ["stream", "offset", "time", "tag", "message"]
    assert default_schema(has_stream=False)["offset"].dataType == LongType()
