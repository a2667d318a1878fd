"""SORT and SORT_RO: the elements of a list, set or sorted set in another order.

Elements are weighed by themselves or by what a BY pattern finds for them, and replaced by
what GET patterns find. A pattern is ``#`` (the element itself) or a key with a ``*`` where
the element goes, behind which ``->field`` reads a field of a hash. A BY without ``*`` says
not to sort at all. ALPHA compares bytes, which is Redis in the C locale.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.engine.changes import EVENT_GENERIC, EVENT_LIST
from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes.hash import Hash
from penstock.engine.datatypes.list import List
from penstock.engine.datatypes.numbers import parse_float
from penstock.engine.datatypes.set import Set
from penstock.engine.datatypes.sorted_set import SortedSet, members_of
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import HASH, LIST, SET, STRING, TYPE_MASK, ZSET, decode_head
from penstock.errors import CommandError, WrongTypeError
from penstock.protocol.replies import Reply

_NOT_NUMBERS: Final = "ERR One or more scores can't be converted into double"
#: So many digits are an exact double and need no thorough parser.
_EXACT_DIGITS: Final = 15


class _Pattern(NamedTuple):
    """A compiled GET or BY pattern."""

    prefix: bytes
    suffix: bytes
    field: bytes | None
    is_element: bool = False
    finds_nothing: bool = False

    def find(self, ks: Keyspace, element: bytes) -> bytes | None:
        """What the pattern stands for; None if there is no such key or field, or it is of another type."""
        if self.is_element:
            return element
        if self.finds_nothing:
            return None
        key = self.prefix + element + self.suffix
        record = ks.find(key)
        if record is None:
            return None
        kind = record[0] & TYPE_MASK
        if self.field is not None:
            return Hash(ks, key, record).get(self.field) if kind == HASH else None
        return record[decode_head(record).body :] if kind == STRING else None


def _compile(text: bytes) -> _Pattern:
    if text == b"#":
        return _Pattern(b"", b"", None, is_element=True)
    prefix, star, rest = text.partition(b"*")
    if not star:
        return _Pattern(b"", b"", None, finds_nothing=True)
    suffix, _, name = rest.partition(b"->")
    # An arrow without a field behind it is part of the key.
    return _Pattern(prefix, suffix, name) if name else _Pattern(prefix, rest, None)


@dataclass(slots=True)
class _Options:
    descending: bool = False
    alpha: bool = False
    unsorted: bool = False
    start: int = 0
    count: int = -1
    by: _Pattern | None = None
    gets: list[_Pattern] = field(default_factory=list)
    store: bytes | None = None


@command("SORT")
def sort(s: Session, argv: Argv) -> Reply:
    options = _parse(argv, may_store=True)
    result = _sorted_values(s, argv[1], options)
    if options.store is None:
        return result
    return _store(s.ks, options.store, [value or b"" for value in result])


@command("SORT_RO")
def sort_ro(s: Session, argv: Argv) -> Reply:
    return _sorted_values(s, argv[1], _parse(argv, may_store=False))


def _parse(argv: Argv, *, may_store: bool) -> _Options:
    options = _Options()
    at = 2
    while at < len(argv):
        word, left = argv[at].upper(), len(argv) - at - 1
        if word == b"ASC":
            options.descending = False
        elif word == b"DESC":
            options.descending = True
        elif word == b"ALPHA":
            options.alpha = True
        elif word == b"LIMIT" and left >= 2:
            options.start, options.count = integer(argv[at + 1]), integer(argv[at + 2])
            at += 2
        elif word == b"STORE" and left >= 1 and may_store:
            at += 1
            options.store = argv[at]
        elif word == b"BY" and left >= 1:
            at += 1
            options.by = _compile(argv[at])
            if b"*" not in argv[at]:
                options.unsorted = True
        elif word == b"GET" and left >= 1:
            at += 1
            options.gets.append(_compile(argv[at]))
        else:
            raise syntax_error()
        at += 1
    return options


def _sorted_values(s: Session, key: bytes, options: _Options) -> list[bytes | None]:
    record = s.ks.find(key)
    if record is None:
        return []
    kind = record[0] & TYPE_MASK
    if kind == SET and options.unsorted and (options.store is not None or s.in_script):
        # The order of a set means nothing; what is stored or computed from it must be the same each time.
        options.unsorted, options.alpha, options.by = False, True, None
    if options.unsorted:
        elements = _in_own_order(s.ks, key, record, options)
    else:
        start, stop = _limits(_size(record), options)
        elements = _in_weight_order(s.ks, _elements(s.ks, key, record), options)[start:stop]
    if not options.gets:
        return list(elements)
    return [pattern.find(s.ks, element) for element in elements for pattern in options.gets]


def _size(record: bytes) -> int:
    body = decode_head(record).body
    return int.from_bytes(record[body + 8 : body + 16], "big")


def _limits(size: int, options: _Options) -> tuple[int, int]:
    """First position and the one behind the last."""
    start = min(max(options.start, 0), size)
    return start, size if options.count < 0 else min(start + options.count, size)


def _elements(ks: Keyspace, key: bytes, record: bytes) -> list[bytes]:
    kind = record[0] & TYPE_MASK
    if kind == LIST:
        items = List(ks, key, record)
        return items.slice(0, items.size)
    if kind == SET:
        return Set(ks, key, record).names()
    if kind == ZSET:
        return SortedSet(ks, key, record).names()
    raise WrongTypeError


def _in_own_order(ks: Keyspace, key: bytes, record: bytes, options: _Options) -> Sequence[bytes]:
    """The part that LIMIT asks for, of a list by position or a sorted set by rank; DESC from the end."""
    kind = record[0] & TYPE_MASK
    start, stop = _limits(_size(record), options)
    if kind == ZSET:
        return members_of(SortedSet(ks, key, record).rows_by_rank(start, stop, options.descending))
    if kind == LIST:
        items = List(ks, key, record)
        if not options.descending:
            return items.slice(start, stop)
        return items.slice(items.size - stop, items.size - start)[::-1]
    return _elements(ks, key, record)[start:stop]


def _in_weight_order(ks: Keyspace, elements: list[bytes], options: _Options) -> list[bytes]:
    by = options.by
    if options.alpha and by is None:
        return sorted(elements, reverse=options.descending)
    if options.alpha:
        assert by is not None
        found = [by.find(ks, element) for element in elements]
        # What has no weight comes first.
        weights: list[tuple[bool, bytes]] = [(weight is not None, weight or b"") for weight in found]
        order = sorted(range(len(elements)), key=weights.__getitem__, reverse=options.descending)
        return [elements[at] for at in order]
    texts = elements if by is None else [by.find(ks, element) for element in elements]
    numbers = [0.0 if text is None else _number(text) for text in texts]
    # Equal weights are ordered by element, so that the result does not depend on chance.
    return [element for _, element in sorted(zip(numbers, elements, strict=True), reverse=options.descending)]


def _number(text: bytes) -> float:
    """A weight as C's strtod reads it up to the first NUL: nothing is 0, blanks may stand before."""
    if text.isdigit() and len(text) <= _EXACT_DIGITS:
        return float(text)
    text = text.partition(b"\0")[0]
    if not text:
        return 0.0
    number = parse_float(text.lstrip(b" \t\n\v\f\r"))
    # A number too small for full precision is a range error to strtod.
    if number is None or 0 < abs(number) < sys.float_info.min:
        raise CommandError(_NOT_NUMBERS)
    return number


def _store(ks: Keyspace, key: bytes, values: list[bytes]) -> int:
    """Make the key a list of these values, whatever it was; nothing at all deletes it."""
    if values:
        result = List(ks, key, None)
        result.push_right(values)
        result.save()
        ks.changed(key, EVENT_LIST, b"sortstore")
        ks.ready(key)
    elif ks.delete(key):
        ks.changed(key, EVENT_GENERIC, b"del")
    return len(values)
