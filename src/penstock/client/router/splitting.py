"""One multi-key command as one part a slot, and the slot that several keys share.

What is split
-------------
=======  ==================  ==========================================================
command  a part repeats      the merged reply
=======  ==================  ==========================================================
MGET     its keys            the values in the order of the caller's keys
MSET     its keys, values    OK
DEL      its keys            the sum
UNLINK   its keys            the sum
EXISTS   its keys            the sum
TOUCH    its keys            the sum
=======  ==================  ==========================================================

What it costs: each part is atomic, the whole is not. Others may see, and write, between two
parts; when a part fails the others may have run. Keys of one slot stay one command, in their
order and with their repetitions, and a command whose keys all share a slot is sent unchanged:
as atomic as ever. MSETNX is not split, since "all or nothing" is the point of it.

What a failed part becomes
--------------------------
An error among the replies is the merged reply; of several, the first that says that something
may have run. ``NotSentError`` promises that sending again is safe. For a write of which
another part was carried out this is no longer the truth, so it becomes
``OutcomeUnknownError``.

Rules: which arguments are keys is the catalogue's knowledge. Arguments are passed on as they
came. This module knows slots and not who serves them, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from penstock.client.facts import to_bytes
from penstock.errors import CommandError, NotSentError, OutcomeUnknownError, ProtocolError
from penstock.protocol.catalogue import arity_error
from penstock.protocol.replies import Reply
from penstock.protocol.slots import key_slot

#: An argument as callers give it.
Word: TypeAlias = bytes | str | int | float | memoryview
SlotOf: TypeAlias = Callable[[bytes], int]
Merge: TypeAlias = Callable[[Sequence[Reply]], Reply]

_CROSS_SLOT: Final = "CROSSSLOT Keys in request don't hash to the same slot"


@dataclass(frozen=True, slots=True)
class Split:
    """One command as parts. ``merge`` takes a reply, or an error, for each part in their order."""

    parts: list[tuple[int, tuple[Word, ...]]]
    merge: Merge


# ---------------------------------------------------------------- splitting


def can_split(name: Word) -> bool:
    """Whether ``split`` takes the command of this name."""
    return to_bytes(name).upper() in _RULES


def split(args: Sequence[Word], slot_of: SlotOf = key_slot) -> Split:
    """The parts of a command, in the order in which their slots first occur.

    Raises what the server would answer when the number of arguments is wrong, and
    ``ValueError`` for a command that cannot be split.
    """
    name = to_bytes(args[0]).upper()
    rule = _RULES.get(name)
    if rule is None:
        raise ValueError(f"{name.decode(errors='replace')} cannot be split")
    if len(args) == 1 or (len(args) - 1) % rule.step:
        raise arity_error(name)
    places: dict[int, list[int]] = {}
    for place in range(1, len(args), rule.step):
        places.setdefault(slot_of(to_bytes(args[place])), []).append(place)
    if len(places) == 1:
        return Split([(slot, tuple(args)) for slot in places], _only)
    parts = [
        (slot, (args[0], *chain.from_iterable(args[place : place + rule.step] for place in group)))
        for slot, group in places.items()
    ]
    return Split(parts, partial(_merge, name.decode(), rule, list(places.values())))


def _only(replies: Sequence[Reply]) -> Reply:
    (reply,) = replies
    return reply


def _merge(name: str, rule: _Rule, places: list[list[int]], replies: Sequence[Reply]) -> Reply:
    if len(replies) != len(places):
        raise ValueError(f"{len(places)} parts of {name} were given {len(replies)} replies")
    errors = [reply for reply in replies if isinstance(reply, Exception)]
    if errors:
        return _gravest(name, rule, errors, len(replies))
    return rule.join(name, places, replies)


def _gravest(name: str, rule: _Rule, errors: list[Exception], n_parts: int) -> Exception:
    for error in errors:
        if not isinstance(error, NotSentError):
            return error
    if rule.is_write and len(errors) < n_parts:
        return OutcomeUnknownError(
            f"{n_parts - len(errors)} of {n_parts} parts of {name} were carried out, the others were not sent"
        )
    return errors[0]


def _join_values(name: str, places: list[list[int]], replies: Sequence[Reply]) -> list[Reply]:
    values: list[Reply] = [None] * sum(map(len, places))
    for group, reply in zip(places, replies, strict=True):
        if not isinstance(reply, list) or len(reply) != len(group):
            raise ProtocolError(
                f"a part of {name} should be answered by {len(group)} values, not {reply!r:.120}"
            )
        for place, value in zip(group, reply, strict=True):
            values[place - 1] = value
    return values


def _join_counts(name: str, _: list[list[int]], replies: Sequence[Reply]) -> int:
    for reply in replies:
        if not isinstance(reply, int):
            raise ProtocolError(f"a part of {name} should be answered by a count, not {reply!r:.120}")
    return sum(replies)


def _join_statuses(name: str, _: list[list[int]], replies: Sequence[Reply]) -> Reply:
    for reply in replies:
        if reply != b"OK" and reply != "OK":  # text if the connection decodes
            raise ProtocolError(f"a part of {name} should be answered by OK, not {reply!r:.120}")
    return replies[0]


class _Rule(NamedTuple):
    #: Words a key brings: itself, or itself and its value.
    step: int
    join: Callable[[str, list[list[int]], Sequence[Reply]], Reply]
    is_write: bool


_RULES: Final = {
    b"MGET": _Rule(1, _join_values, False),
    b"MSET": _Rule(2, _join_statuses, True),
    b"DEL": _Rule(1, _join_counts, True),
    b"UNLINK": _Rule(1, _join_counts, True),
    b"EXISTS": _Rule(1, _join_counts, False),
    b"TOUCH": _Rule(1, _join_counts, False),
}


# ---------------------------------------------------------------- slots


def same_slot(keys: Iterable[Word]) -> int:
    """The slot that all keys share, or the error that a cluster would answer. At least one key."""
    slots = {key_slot(to_bytes(key)) for key in keys}
    if not slots:
        raise ValueError("without a key there is no slot")
    if len(slots) > 1:
        raise CommandError(_CROSS_SLOT)
    return slots.pop()
