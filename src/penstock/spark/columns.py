"""Columns of a stream's scan become one Arrow record batch, without a loop over messages.

    maker = BatchMaker(schema, "orders", tags=())
    batch = maker.make(blocks)

A block has the layout of Arrow but for two things: lengths are to become offsets and steps are to become
values. Both are running sums. Bytes are joined once and are the batch's buffers from then on.
``streams/scanning.py`` tabulates a block.

``schemas`` tells which columns there are. This module knows nothing of stores and options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import UsageError
from penstock.streams.scanning import Columns

_Ints = NDArray[np.int64]


class BatchMaker:
    """Makes the record batches of one stream that Spark expects for a schema."""

    def __init__(self, schema: StructType, stream: str, tags: Sequence[str] = ()) -> None:
        """``tags``: messages of other ones are left out."""
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._stream = stream
        self._tags = pa.array([tag.encode() for tag in tags], pa.binary()) if tags else None

    def make(self, blocks: Sequence[Columns]) -> Any:
        """A ``pyarrow.RecordBatch`` with the messages of all blocks; None if none of them is wanted."""
        filled = [block for block in blocks if block.count]
        if not filled:
            return None
        mask = self._wanted(filled)
        if mask is not None and not mask.true_count:
            return None
        arrays = []
        for field in self._schema:
            array = self._array(field.name, filled)
            chosen = array if mask is None else array.filter(mask)
            arrays.append(
                chosen if chosen.type == field.type else self._text(field.name, chosen, filled, mask)
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, blocks: Sequence[Columns]) -> Any:
        if name == "stream":
            return pa.repeat(pa.scalar(self._stream), sum(block.count for block in blocks))
        return _BUILDERS[name](blocks)

    def _wanted(self, blocks: Sequence[Columns]) -> Any:
        if self._tags is None:
            return None
        return pc.is_in(_tags(blocks), value_set=self._tags)

    def _text(self, name: str, array: Any, blocks: Sequence[Columns], mask: Any) -> Any:
        """Bytes as text, if they are: Spark itself would not look."""
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            offsets = _offsets(blocks)
            bad = _first_bad(array)
            offset = (offsets if mask is None else offsets.filter(mask))[bad].as_py()
            raise UsageError(
                f"the {name} of message {offset} of the stream {self._stream} is no UTF-8:"
                f" ask for bytes, as in schema('offset BIGINT, {name} BINARY')"
            ) from None


# ------------------------------------------------------------------------------ columns


def _offsets(blocks: Sequence[Columns]) -> Any:
    bases = [block.base for block in blocks]
    if all(block.offset_steps is None for block in blocks):
        counts, starts = _places(blocks)
        values = np.arange(counts.sum(), dtype=np.int64)
        values += np.repeat(np.array(bases, np.int64) - starts, counts)
    else:
        values = _rising(bases, np.concatenate([_offset_steps(block) for block in blocks]), blocks)
    return _numbers(pa.int64(), values)


def _offset_steps(block: Columns) -> NDArray[np.uint32]:
    if block.offset_steps is not None:
        return np.frombuffer(block.offset_steps, "<u4")
    steps = np.ones(block.count, np.uint32)
    steps[0] = 0
    return steps


def _times(blocks: Sequence[Columns]) -> Any:
    firsts = [block.first_ms for block in blocks]
    if all(block.time_width == 4 for block in blocks):
        steps: NDArray[Any] = np.frombuffer(b"".join([block.time_steps for block in blocks]), "<u4")
    else:
        steps = np.concatenate([np.frombuffer(block.time_steps, f"<u{block.time_width}") for block in blocks])
    values = _rising(firsts, steps, blocks)
    values *= 1_000
    return _numbers(pa.timestamp("us", tz="UTC"), values)


def _tags(blocks: Sequence[Columns]) -> Any:
    lengths = b"".join([block.tag_lengths for block in blocks])
    return _bytes(lengths, b"".join([block.tags for block in blocks]), None)


def _messages(blocks: Sequence[Columns]) -> Any:
    lengths = b"".join([block.entry_lengths for block in blocks])
    return _bytes(lengths, b"".join([block.entries for block in blocks]), _validity(blocks))


_BUILDERS: Final[Mapping[str, Callable[[Sequence[Columns]], Any]]] = {
    "offset": _offsets,
    "time": _times,
    "tag": _tags,
    "message": _messages,
}


# ------------------------------------------------------------------------------ buffers


def _places(blocks: Sequence[Columns]) -> tuple[_Ints, _Ints]:
    """How many messages each block has, and how many come before it."""
    counts = np.array([block.count for block in blocks], np.int64)
    return counts, np.cumsum(counts) - counts


def _rising(firsts: Sequence[int], steps: NDArray[Any], blocks: Sequence[Columns]) -> _Ints:
    """In each block: its first value, and the running sum of its own steps upon it."""
    counts, starts = _places(blocks)
    sums = np.cumsum(steps, dtype=np.int64)
    before = np.concatenate((np.zeros(1, np.int64), sums[starts[1:] - 1]))
    sums += np.repeat(np.array(firsts, np.int64) - before, counts)
    return sums


def _validity(blocks: Sequence[Columns]) -> bytes | None:
    if all(block.valid is None for block in blocks):
        return None
    bits = [
        np.ones(block.count, np.uint8)
        if block.valid is None
        else np.unpackbits(np.frombuffer(block.valid, np.uint8), count=block.count, bitorder="little")
        for block in blocks
    ]
    return np.packbits(np.concatenate(bits), bitorder="little").tobytes()


def _numbers(type_: Any, values: _Ints) -> Any:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _bytes(lengths: bytes, data: bytes, validity: bytes | None) -> Any:
    count = len(lengths) // 4
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.frombuffer(lengths, "<i4"), out=ends[1:], dtype=np.int32)
    bits = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(pa.binary(), count, [bits, pa.py_buffer(ends), pa.py_buffer(data)])


def _first_bad(array: Any) -> int:
    """The place of the first value that is no UTF-8."""
    for place, value in enumerate(array):
        try:
            (value.as_py() or b"").decode()
        except UnicodeDecodeError:
            return place
    return 0
