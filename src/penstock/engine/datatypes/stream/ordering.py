"""Ordered groups: while a message of a tag is pending, no other message of that tag is delivered.

What comes up while its tag is taken is *passed over*: the cursor goes on, so that other tags need not
wait, and a row remembers it. When its tag is free it is *ready*, and is delivered before new messages.
A tag is known by its hash (two tags that share one wait for each other, which is harmless). The empty
tag is about nothing, and never taken.

Rows (``G`` stands for the rows of the group):

===========================  ===============================================================
``G t hash(8)``              count(4): messages of this tag that are pending or ready
``G o offset(8)``            hash(8): the tag of a pending message
``G w hash(8) offset(8)``    empty: passed over, its tag is taken
``G r offset(8)``            hash(8): was passed over, and is ready
===========================  ===============================================================

Invariants
----------
O1  A tag with rows in ``w`` has one in ``t``. So a message may be delivered unless its tag has one.
O2  Of a tag at most one message is ready; none is, while one is pending. (Where the group was not
    always ordered, more may be.)
O3  In a group that is not ordered there are no rows in ``t``, ``o`` and ``w``. There may be in ``r``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.engine.storage.layout import U32, U64, hash64

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.groups import Group
    from penstock.engine.datatypes.stream.log import Stream

#: Messages that may be passed over, if the group may not have more pending anyway.
_LEAST_PASSED: Final = 1_000
_NO_TAG: Final = bytes(8)


def room_to_pass(group: Group) -> int:
    """How many more messages may be passed over: a tag that is stuck must not pull in the whole stream."""
    return max(_LEAST_PASSED, group.options.max_pending) - group.passed


def take_or_pass(group: Group, offset: int, tag: bytes, is_kept: bool) -> bool:
    """Whether a new message may be delivered; if not it is passed over. ``is_kept``: it will be pending."""
    if not tag:
        return True
    name = hash64(tag)
    if group.unit.get(group.row(b"t", name), None, group.table) is not None:
        group.unit.put(group.row(b"w", name + U64.pack(offset)), b"", db=group.table)
        group.passed += 1
        return False
    if is_kept:
        _hold(group, offset, name, 1)
    return True


def release(group: Group, offset: int) -> None:
    """A message is pending no longer."""
    name = group.unit.pop(group.row(b"o", U64.pack(offset)), db=group.table)
    if name is not None:
        _let_go(group, name)


def first_ready(group: Group) -> tuple[int, bytes] | None:
    """The first message that was passed over and is ready: its offset, and the name of its tag."""
    row = next(group.unit.rows(group.table, group.row(b"r")), None)
    return None if row is None else (int.from_bytes(row[0][-8:], "big"), row[1])


def count_ready(group: Group, enough: int) -> int:
    count = 0
    for count, _ in enumerate(group.unit.rows(group.table, group.row(b"r")), 1):
        if count >= enough:
            break
    return count


def take_ready(group: Group, offset: int, name: bytes, is_kept: bool) -> None:
    """A message that was ready is delivered, or gone."""
    group.unit.delete(group.row(b"r", U64.pack(offset)), db=group.table)
    group.passed -= 1
    if not group.options.ordered or name == _NO_TAG:
        return
    if is_kept:
        group.unit.put(group.row(b"o", U64.pack(offset)), name, db=group.table)
    else:
        _let_go(group, name)


def _hold(group: Group, offset: int, name: bytes, count: int) -> None:
    group.unit.put(group.row(b"t", name), U32.pack(count), db=group.table)
    group.unit.put(group.row(b"o", U64.pack(offset)), name, db=group.table)


def _let_go(group: Group, name: bytes) -> None:
    count = _count(group, name) - 1
    if count > 0:
        group.unit.put(group.row(b"t", name), U32.pack(count), db=group.table)
        return
    waiting = next(group.unit.rows(group.table, group.row(b"w", name)), None)
    if waiting is None:
        group.unit.delete(group.row(b"t", name), db=group.table)
        return
    group.unit.delete(waiting[0], db=group.table)
    group.unit.put(group.row(b"r", waiting[0][-8:]), name, db=group.table)
    group.unit.put(group.row(b"t", name), U32.pack(1), db=group.table)
    group.is_stirred = True


def _count(group: Group, name: bytes) -> int:
    return int.from_bytes(group.unit.get(group.row(b"t", name), b"", group.table) or b"", "big")


# --------------------------------------------------------------------- other changes


def forget_passed(group: Group) -> None:
    """What was passed over is not waited for any more, since the cursor is set anew."""
    _delete_rows(group, b"w")
    while (ready := first_ready(group)) is not None:
        take_ready(group, *ready, is_kept=False)
    group.passed = 0


def begin_order(stream: Stream, group: Group) -> None:
    """From now on the group is ordered: tags of what is pending are taken, the rest waits for them."""
    passed = sorted(int.from_bytes(row[-8:], "big") for row in group.passed_rows())
    end_order(group)
    for run in list(group.runs.all()):
        for offset in run.offsets():
            name = _tag_name(stream, offset)
            if name != _NO_TAG:
                _hold(group, offset, name, _count(group, name) + 1)
    _delete_rows(group, b"r")
    for offset in passed:
        name = _tag_name(stream, offset)
        if name != _NO_TAG and _count(group, name):
            group.unit.put(group.row(b"w", name + U64.pack(offset)), b"", db=group.table)
            continue
        group.unit.put(group.row(b"r", U64.pack(offset)), name, db=group.table)
        if name != _NO_TAG:
            group.unit.put(group.row(b"t", name), U32.pack(1), db=group.table)


def put_passed(stream: Stream, group: Group, offsets: Sequence[int]) -> None:
    """Add what a group has passed over, which is complete otherwise, and take the tags (``copying``)."""
    for offset in offsets:
        group.unit.put(group.row(b"r", U64.pack(offset)), _NO_TAG, db=group.table)
    group.passed = len(offsets)
    if group.options.ordered:
        begin_order(stream, group)


def end_order(group: Group) -> None:
    """From now on the group is not ordered: whatever waits for its tag is ready."""
    for row in group.passed_rows():
        group.unit.put(group.row(b"r", row[-8:]), _NO_TAG, db=group.table)
    for letter in (b"t", b"o", b"w"):
        _delete_rows(group, letter)


def _tag_name(stream: Stream, offset: int) -> bytes:
    message = stream.get(offset)
    return hash64(message.tag) if message is not None and message.tag else _NO_TAG


def _delete_rows(group: Group, letter: bytes) -> None:
    prefix = group.row(letter)
    cursor = group.unit.cursor(group.table)
    found = cursor.set_range(prefix)
    while found and cursor.key().startswith(prefix):
        found = cursor.delete()
