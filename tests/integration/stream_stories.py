"""Random lives of a stream: whatever its commands can make of it, to be copied afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import CommandError
from penstock.streams.commands import StreamCommands

KEY = "k"


async def live(commands: StreamCommands, dice: random.Random) -> None:
    """A stream ``k`` on which some dozen commands have run."""
    await commands.execute("TWRITE", KEY, "a", "first")
    for _ in range(dice.randint(10, 50)):
        name, *words = dice.choice(_ACTS)(dice)
        try:
            await commands.execute(name, *words)
        except CommandError as error:
            if error.code != "SEQUENCE":  # a producer that went backwards
                raise


def _group(dice: random.Random) -> str:
    return dice.choice("ghi")


def _items(dice: random.Random) -> str:
    first = dice.randint(1, 60)
    return f"{first}-{first + dice.randint(0, 8)}"


def _write(dice: random.Random) -> Iterator[Any]:
    yield from ("TWRITE", KEY, "ENTRIES")
    for _ in range(dice.randint(1, 30)):
        yield from (dice.choice(["", "a", "b", "c", b"\xff"]), str(dice.random()))


def _produce(dice: random.Random) -> Iterator[Any]:
    yield from ("TWRITE", KEY, "PRODUCER", dice.choice("pq"), dice.randint(1, 500))
    yield from dice.choice([(), ("KEEP",)])
    yield from ("ENTRIES", "a", "b")


def _read(dice: random.Random) -> Iterator[Any]:
    yield from ("TREAD", KEY, dice.choice([0, 1, 5, "$"]), dice.randint(1, 12), "GROUP", _group(dice))
    yield from dice.choice([(), ("CONSUMER", dice.choice("xy"))])
    yield from dice.choice([(), ("RETRY", dice.choice([1, 600_000]), dice.choice([0, 0, 900_000]))])


def _create(dice: random.Random) -> Iterator[Any]:
    yield from ("TGROUP", "CREATE", KEY, _group(dice), dice.choice([0, "$", 7]))
    yield from ("ORDERED", dice.choice(["yes", "no"]), "TTL", dice.choice([0, 10**7]))
    yield from ("DEADLETTER", dice.choice(["", "{k}dead"]))


_ACTS: list[Callable[[random.Random], Any]] = [
    _write,
    _write,
    _produce,
    _read,
    _read,
    _read,
    _create,
    lambda dice: ("TWRITE", KEY, "BACKLOG", 10**6, "TOMBSTONES", "a"),
    lambda dice: ("TACK", KEY, _group(dice), _items(dice)),
    lambda dice: ("TNACK", KEY, _group(dice), dice.choice([0, 600_000]), _items(dice)),
    lambda dice: ("TDEAD", KEY, _group(dice), "why", _items(dice)),
    lambda dice: ("TEVICT", KEY, dice.randint(1, 30)),
    lambda dice: ("TDROP", KEY, _items(dice)),
    lambda dice: ("TPOLICY", KEY, "NODE-MESSAGES", dice.choice([3, 7, 50]), "TOMBSTONE-MS", 0),
    lambda dice: ("TCOMPACT", KEY),
    lambda dice: ("TGROUP", "SET", KEY, _group(dice), "OFFSET", dice.choice([0, "$", 3, 20, 80])),
    lambda dice: ("TGROUP", "SET", KEY, _group(dice), "ORDERED", dice.choice(["yes", "no"])),
    lambda dice: ("TGROUP", "DESTROY", KEY, _group(dice)),
]
