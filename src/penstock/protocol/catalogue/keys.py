"""Which arguments of a request are keys.

Two readings of the same specs:

``find_keys``
    for dispatch and the cluster router: what can be found, never an error. The
    command itself will refuse arguments that make no sense.
``key_positions``, ``keys_of``, ``keys_and_flags``
    for COMMAND GETKEYS and GETKEYSANDFLAGS: Redis's answers and errors.

Rules: places come from the specs. Only three commands need more than that: SORT,
whose STORE may be another option's argument, and SET and BITFIELD, whose use of the
key depends on their options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.errors import CommandError
from penstock.protocol.catalogue.lookup import check_arity, find_subcommand
from penstock.protocol.catalogue.spec import CommandSpec, KeySpec
from penstock.protocol.catalogue.table import ACCESS

_NOWHERE: Final = range(0)

#: A number at the start of an argument counts, whatever follows it, as in C's atoi.
_LEADING_INTEGER: Final = re.compile(rb"\s*([+-]?\d+)")


class KeyUse(NamedTuple):
    position: int
    #: Redis's words for it, such as ``("RO", "access")``.
    access: tuple[str, ...]


def find_keys(spec: CommandSpec, argv: Sequence[bytes], *, channels: bool = False) -> list[int]:
    """Positions of the keys, as far as the arguments tell; ``channels`` adds shard channels.

    ``spec`` must be the one that ``find_subcommand(argv)`` gives.
    """
    if not spec.has_keys and not channels:
        return []
    if not spec.movable_keys:  # most commands: the triple says it all
        argc, first, last = len(argv), spec.first_key, spec.last_key
        if first == last:  # most of those: one key, or none
            return [first] if 0 < first < argc else []
        if last < 0:
            last += argc
        return list(range(first, last + 1, spec.key_step)) if last < argc else []
    return [position for keys in spec.key_specs for position in _locate(spec, keys, argv) or _NOWHERE]


def key_positions(argv: Sequence[bytes]) -> list[int]:
    """Positions of the keys, or the CommandError of COMMAND GETKEYS."""
    return [use.position for use in keys_and_flags(argv)]


def keys_of(argv: Sequence[bytes]) -> list[bytes]:
    """The keys themselves, or the CommandError of COMMAND GETKEYS."""
    return [argv[use.position] for use in keys_and_flags(argv)]


def keys_and_flags(argv: Sequence[bytes]) -> list[KeyUse]:
    """The keys with what the command does to each, or the CommandError of COMMAND GETKEYS."""
    spec = find_subcommand(argv)
    if spec is None:
        raise CommandError("ERR Invalid command specified")
    if not spec.has_keys:
        raise CommandError("ERR The command has no key arguments")
    if not check_arity(spec, len(argv)):
        raise CommandError("ERR Invalid number of arguments specified for command")
    uses: list[KeyUse] = []
    for keys in spec.key_specs:
        positions = _locate(spec, keys, argv)
        if positions is None:
            # One place that does not fit spoils all: PFMERGE without a source has no keys.
            uses.clear()
            break
        access = _VARIABLE[spec.name](argv) if keys.is_variable else keys.access
        uses.extend(KeyUse(position, access) for position in positions)
    if not uses and not spec.no_mandatory_keys:
        raise CommandError("ERR Invalid arguments specified for command")
    return uses


def _locate(spec: CommandSpec, keys: KeySpec, argv: Sequence[bytes]) -> range | None:
    """Where the keys of one spec stand; None when the arguments do not fit it."""
    argc = len(argv)
    if keys.keyword:
        # The last argument cannot be the keyword: no key follows it.
        for position in range(keys.start, argc - 1):
            if argv[position].upper() == keys.keyword:
                return range(position + 1, position + 2)
        return _NOWHERE
    if keys.counted:
        number = _LEADING_INTEGER.match(argv[keys.start]) if keys.start < argc else None
        count = int(number[1]) if number else 0
        return range(keys.start + 1, keys.start + 1 + count) if 0 < count < argc - keys.start else None
    if keys.is_fixed:
        last = keys.last if keys.last > 0 else argc + keys.last
        return range(keys.start, last + 1, keys.step) if keys.start <= last < argc else None
    return _sort_destination(argv) if spec.name == b"SORT" and "OW" in keys.access else _NOWHERE


#: How many words to skip after an option of SORT. Redis does not skip after STORE, nor must we: what
#: it takes for the destination decides to which node of a cluster the command belongs.
_SORT_OPTION_ARGUMENTS: Final = {b"BY": 1, b"GET": 1, b"LIMIT": 2}


def _sort_destination(argv: Sequence[bytes]) -> range:
    """The key after SORT's last STORE that is not the argument of BY, GET or LIMIT."""
    destination, position = 0, 2
    while position < len(argv):
        option = argv[position].upper()
        if option == b"STORE" and position + 1 < len(argv):
            destination = position + 1
        position += 1 + _SORT_OPTION_ARGUMENTS.get(option, 0)
    return range(destination, destination + 1) if destination else _NOWHERE


def _set_access(argv: Sequence[bytes]) -> tuple[str, ...]:
    tells_old_value = any(argument.upper() == b"GET" for argument in argv[3:])
    return ACCESS["mod"] if tells_old_value else ACCESS["set"]


def _bitfield_access(argv: Sequence[bytes]) -> tuple[str, ...]:
    """Read-only as long as every operation is a complete GET (or OVERFLOW, which does nothing alone)."""
    operations = {b"GET": 2, b"OVERFLOW": 1}
    position = 2
    while position < len(argv):
        arguments = operations.get(argv[position].upper())
        if arguments is None or position + arguments >= len(argv):
            return ACCESS["mod"]
        position += 1 + arguments
    return ACCESS["get"]


_VARIABLE: Final[Mapping[bytes, Callable[[Sequence[bytes]], tuple[str, ...]]]] = {
    b"SET": _set_access,
    b"BITFIELD": _bitfield_access,
}
