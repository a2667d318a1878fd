"""The columns of a stream as Spark's types, and which of them a query may ask for.

========== ======================  ==============================================================
column     may be asked for as     holds
========== ======================  ==============================================================
stream     STRING                  the name of the stream
offset     BIGINT                  the offset
time       TIMESTAMP               when it was written
tag        STRING or BINARY        the tag; empty if it is about nothing
message    BINARY or STRING        the entry; null for a tombstone
========== ======================  ==============================================================

Pure, and cheap to import: Spark asks for a schema in a process that it starts for this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import UsageError

#: What each column may be asked for as, the default first.
_TYPES: Final[Mapping[str, tuple[DataType, ...]]] = {
    "stream": (StringType(),),
    "offset": (LongType(),),
    "time": (TimestampType(),),
    "tag": (StringType(), BinaryType()),
    "message": (BinaryType(), StringType()),
}


def default_schema(*, has_stream: bool) -> StructType:
    """Of a query that does not say which columns it wants."""
    names = [name for name in _TYPES if has_stream or name != "stream"]
    return StructType([StructField(name, _TYPES[name][0]) for name in names])


def check_schema(schema: StructType) -> None:
    """Refuse columns that a stream has not got."""
    for field in schema.fields:
        types = _TYPES.get(field.name)
        if types is None:
            raise UsageError(
                f"a stream has no column {field.name!r}: ask in schema() for some of {', '.join(_TYPES)}"
            )
        if field.dataType not in types:
            spelled = " or ".join(type_.simpleString().upper() for type_ in types)
            raise UsageError(
                f"the column {field.name} cannot be {field.dataType.simpleString().upper()}:"
                f" ask in schema() for {field.name} {spelled}"
            )
