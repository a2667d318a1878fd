"""Clients that block on lists and sorted sets: who is served, in what order, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given

from penstock.engine import Engine
from penstock.testing.servers import RealServer
from tests.effort import scaled
from tests.model.drawing import Step, how_long, sequences, tries
from tests.model.pools import LONG_KEYS, POOLS
from tests.model.templates import Argv, Chooser, Grammar, Pool, pick
from tests.model.waiting_room import WaitingRoom

_CLIENTS: Final = 4
_EXAMPLES: Final = scaled(80)

COMMANDS: Final = """
6 BLPOP key+ 0
3 BRPOP key+ 0
5 BLMOVE key key (LEFT|RIGHT) (LEFT|RIGHT) 0
BRPOPLPUSH key key 0
3 BLMPOP 0 #key (LEFT|RIGHT) [COUNT some]
4 BZPOPMIN key+ 0
2 BZPOPMAX key+ 0
3 BZMPOP 0 #key (MIN|MAX) [COUNT some]
6 RPUSH key member+
3 LPUSH key member+
6 ZADD key (score member)+
ZINCRBY key score member
LMOVE key key LEFT RIGHT
LPOP key
ZPOPMIN key
2 DEL key
SET key member
2 RENAME key key
2 COPY key key [DB db] [REPLACE]
MOVE key db
3 EVAL store
LINSERT key BEFORE member member
SELECT db
FLUSHALL
3 MULTI
5 EXEC
DISCARD
2 EVAL push_script #key member
2 @UNBLOCK [TIMEOUT|ERROR]
LLEN key
"""

_PUSH: Final = b"""
for _, key in ipairs(KEYS) do redis.pcall('RPUSH', key, ARGV[1]) end
return redis.pcall('LPOP', KEYS[1])
"""

_STORE: Final = b"redis.call('DEL', KEYS[1]) return redis.pcall(unpack(ARGV))"
_KEYS: Final = (b"k", b"other", LONG_KEYS[0])


def store(chooser: Chooser, words: Argv) -> None:
    """A script that stores a result under a key that is deleted first.

    Redis 7.0 forgets those who wait for a key if what is stored replaces a value of another
    type; we serve them (see ``comparing.DEVIATIONS``).
    """
    target, source = pick(chooser, _KEYS), pick(chooser, _KEYS)
    calls = (
        [b"SORT", source, b"ALPHA", b"STORE", target],
        [b"ZUNIONSTORE", target, b"1", source],
        [b"ZRANGESTORE", target, source, b"0", b"-1"],
    )
    words += [_STORE, b"1", target, *pick(chooser, calls)]


_POOLS: Final[dict[str, Pool]] = {
    **POOLS,
    "key": _KEYS,
    "store": store,
    "member": (b"a", b"b", b"c"),
    "score": (b"1", b"2"),
    "some": (b"1", b"2", b"5"),
    "db": (b"0", b"0", b"1"),
    "push_script": (_PUSH,),
}


pytestmark = pytest.mark.usefixtures("only_redis")


@pytest.fixture(scope="module", params=[2, 3])
def room(request: pytest.FixtureRequest, engine: Engine, peer_server: RealServer) -> Iterator[WaitingRoom]:
    opened = WaitingRoom(engine, peer_server, request.param, _CLIENTS, _KEYS)
    yield opened
    opened.close()


def try_out(room: WaitingRoom, rounds: int) -> None:
    @tries(_EXAMPLES)
    @given(sequences(Grammar(COMMANDS, _POOLS), _CLIENTS))
    def agree(sequence: list[Step | None]) -> None:
        room.reset()
        for step in filter(None, sequence):
            room.run(step.client, step.argv)

    for _ in range(rounds):
        agree()


@how_long
def test_everybody_gets_the_same(room: WaitingRoom, rounds: int) -> None:
    try_out(room, rounds)
