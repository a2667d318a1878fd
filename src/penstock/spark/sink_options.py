"""The options of ``df.write.format("penstock")`` and ``df.writeStream``, judged together with the columns.

    target = find_target({"url": "./shop.pen", "stream": "orders"}, schema)

============  =====================================================================================
option        means
============  =====================================================================================
``url``       where the store is; the path of ``save()`` and ``start()`` is the same
``stream``    the stream that gets all rows; without it a column ``stream`` tells for each row
``channel``   the channel that gets all rows; without it a column ``channel`` may tell
``tag``       the tag of all rows, where there is no column ``tag``
``expireMs``  how long the channel keeps the messages; default half an hour
``writer``    the name under which the store remembers which batches it has; default: the id of the
              query, which its checkpoint keeps
``batchId``   ``df.write`` only, with ``writer``: the number of this batch; a repetition is skipped
============  =====================================================================================

============  ==================  =========================================================================
column        type                means
============  ==================  =========================================================================
``message``   STRING or BINARY    the message; null is a tombstone. For a channel JSON text, never null
``tag``       STRING or BINARY    its tag; null is the empty one. Not for channels
``stream``    STRING              where it goes; also ``channel``
``offset``    any                 ignored, as is ``time``: what was read may be written as it is
============  ==================  =========================================================================

Rule: there is exactly one way to say where rows go. Nothing is opened here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.channels.keys import check_id
from penstock.channels.model import EXPIRE_MS
from penstock.errors import ConfigError, UsageError
from penstock.spark.options import filled, named, store_place, whole

Kind: TypeAlias = Literal["stream", "channel"]
KINDS: Final[tuple[Kind, ...]] = ("stream", "channel")

_TEXT: Final = (StringType,)
_BYTES: Final = (StringType, BinaryType)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "message": _BYTES,
    "tag": _BYTES,
    "stream": _TEXT,
    "channel": _TEXT,
}
#: Columns of a stream that was read. Who writes gives them anew.
_IGNORED: Final = frozenset({"offset", "time"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where rows go, and how."""

    url: str
    kind: Kind
    #: the one stream or channel; empty: a column tells
    name: str
    #: of all rows; None: a column tells, or there are no tags
    tag: str | None
    has_tag_column: bool
    expire_ms: int
    #: empty: not given
    writer: str
    batch: int | None


def find_target(given: Mapping[str, str], schema: StructType) -> Target:
    """What the user has set, or one sentence that tells what is wrong."""
    texts = named(given, "writing")
    _check_columns(schema)
    kind, name = _place(texts, schema.fieldNames())
    has_tag_column = "tag" in schema.fieldNames()
    if has_tag_column and "tag" in texts:
        raise ConfigError("the option tag and the column tag exclude one another: leave out one of them")
    if kind == "channel" and (has_tag_column or "tag" in texts):
        raise ConfigError("messages of a channel have no tag: leave out the option or the column tag")
    if kind == "stream" and "expireMs" in texts:
        raise ConfigError("the option expireMs is for channels: leave it out, or see the stream's policy")
    return Target(
        url=store_place(texts),
        kind=kind,
        name=check_id("the option channel", name) if name and kind == "channel" else name,
        tag=texts.get("tag"),
        has_tag_column=has_tag_column,
        expire_ms=whole(texts, "expireMs") or EXPIRE_MS,
        writer=filled("writer", texts["writer"]) if "writer" in texts else "",
        batch=_batch(texts),
    )


def _place(texts: Mapping[str, str], columns: list[str]) -> tuple[Kind, str]:
    options = [(kind, filled(kind, texts[kind])) for kind in KINDS if kind in texts]
    ways = [(f"the option {kind}", kind, name) for kind, name in options]
    ways += [(f"the column {kind}", kind, "") for kind in KINDS if kind in columns]
    match ways:
        case [(_, kind, name)]:
            return kind, name
        case []:
            raise ConfigError(
                "it is not told where rows go: set the option stream or channel, or add a column stream"
            )
    both = " and ".join(way for way, _, _ in ways)
    raise ConfigError(f"{both} exclude one another: leave out all but one")


def _check_columns(schema: StructType) -> None:
    for field in schema.fields:
        if field.name in _IGNORED:
            continue
        types = _TYPES.get(field.name)
        if types is None:
            raise UsageError(
                f"there is no place for the column {field.name!r}: drop it, or put it into the message;"
                f" rows have {', '.join(_TYPES)}"
            )
        if not isinstance(field.dataType, types):
            spelled = " or ".join(type_().simpleString().upper() for type_ in types)
            found = field.dataType.simpleString().upper()
            raise UsageError(f"the column {field.name} is {found}: cast it to {spelled}, or use to_json()")
    if "message" not in schema.fieldNames():
        raise UsageError("the column message is missing: select what is to be written as message")


def _batch(texts: Mapping[str, str]) -> int | None:
    text = texts.get("batchId")
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise ConfigError(f"batchId must be a whole number from 0 on, not {text!r:.60}")
    return int(text)
