"""Paths into data: ``order.items.0.price`` is a field of the first item of an array in an object.

================  ===========================================  ==========================================
on the way        reading                                      writing
================  ===========================================  ==========================================
an object         the field of that name                       the field, which is made if it is not there
an array          the item of that number, the first is 0      the item; the number behind the last appends
null, nothing     MISSING                                      an object is made
everything else   MISSING                                      UsageError: it would be lost
================  ===========================================  ==========================================

Rules: no argument is ever changed. What is written to is copied along the path, the rest is shared between
the old data and the new. A name with a dot in it cannot be reached. Knows JSON values, nothing of steps.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

from penstock.errors import UsageError


class Missing(Enum):
    """What is not there: null is a value, this is none."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return self.name


MISSING: Final = Missing.MISSING
#: One spelling for each item, and none that takes long to read.
_ITEM: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def split_path(path: str) -> list[str]:
    """The names in a path; UsageError if it is none."""
    parts = path.split(".")
    if not all(parts):
        raise UsageError(f"path must be names of fields with one dot between them, not {path!r:.150}")
    return parts


def get_path(data: Any, path: str) -> Any:
    """The value at a path, or MISSING."""
    value = data
    for part in split_path(path):
        value = _child(value, part)
        if value is MISSING:
            return MISSING
    return value


def set_path(data: Any, path: str, value: Any) -> Any:
    """New data with a value at a path; UsageError if something stands in the way."""
    parts = split_path(path)
    # From the outside inwards, so that depth costs no recursion: each copy holds the next one.
    holder: list[Any] = [data]
    container: Any = holder
    key: Any = 0
    for depth, part in enumerate(parts):
        container[key] = copied = _opened(container[key], parts, depth)
        container, key = copied, _place(copied, part, parts, depth)
    container[key] = value
    return holder[0]


def drop_path(data: Any, path: str) -> Any:
    """New data without what is at a path; the same data if nothing is. Later items of an array move up."""
    if get_path(data, path) is MISSING:
        return data
    parent, _, last = path.rpartition(".")
    holds = get_path(data, parent) if parent else data
    if isinstance(holds, list):
        index = int(last)
        left: Any = holds[:index] + holds[index + 1 :]
    else:
        left = {name: value for name, value in holds.items() if name != last}
    return put_into(data, parent or None, left)


def put_into(data: Any, into: str | None, value: Any) -> Any:
    """What follows from a step's answer: the answer alone, or the data with the answer at a path."""
    return value if into is None else set_path(data, into, value)


def _child(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part, MISSING)
    if isinstance(value, list) and _ITEM.fullmatch(part) and int(part) < len(value):
        return value[int(part)]
    return MISSING


def _opened(value: Any, parts: list[str], depth: int) -> dict[str, Any] | list[Any]:
    """A copy of what is there that can be written to."""
    if isinstance(value, dict | list):
        return value.copy()
    if value is None or value is MISSING:
        return {}
    way = ".".join(parts[:depth])
    where = f"{way!r:.150} is" if way else "the data is"
    raise UsageError(
        f"path {'.'.join(parts)!r:.150} cannot be written: {where} {kind_of(value)}, choose another"
    )


def _place(container: dict[str, Any] | list[Any], part: str, parts: list[str], depth: int) -> str | int:
    """Where a part of the path lies in a container; what is not there yet is MISSING by then."""
    if isinstance(container, dict):
        container.setdefault(part, MISSING)
        return part
    index = int(part) if _ITEM.fullmatch(part) else None
    if index is None or index > len(container):
        way = ".".join(parts[:depth]) or "the data"
        raise UsageError(
            f"path {'.'.join(parts)!r:.150} cannot be written: {way:.150} is an array of {len(container)},"
            f" give the number of an item or {len(container)} to append"
        )
    if index == len(container):
        container.append(MISSING)
    return index


def kind_of(value: Any) -> str:
    """What a value is, in the words of JSON."""
    if isinstance(value, bool):
        return "a boolean"
    kinds = {str: "a string", int: "an integer", float: "a number", dict: "an object", list: "an array"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
