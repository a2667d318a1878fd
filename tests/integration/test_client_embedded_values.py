"""The embedded transport answers what a socket to our own server answers: values and their types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client.config import open_settings
from penstock.client.dialing import Dialer
from penstock.client.link import Link
from penstock.engine import Engine
from penstock.errors import CommandError
from penstock.server import Server, ServerSettings
from tests.integration.test_client_sockets import Owner

#: In this order, on an empty store; every kind of reply that there is.
COMMANDS = """
PING
PING text
ECHO Grüße
SET s 12
GET s
GET missing
GETSET s 13
SET s v NX
SET s v GET
MSET a 1 b 2
MGET a b missing
INCR a
INCRBYFLOAT a 0.25
APPEND s more
STRLEN s
GETRANGE s 0 -2
SETBIT bits 7 1
BITFIELD bits SET u8 0 255 GET u4 0 INCRBY u2 100 1
BITFIELD bits OVERFLOW FAIL INCRBY u2 102 3 INCRBY u2 102 3
LCS a b IDX
EXISTS a b missing
TYPE a
TYPE missing
TTL a
PEXPIRE a 100000
OBJECT ENCODING a
OBJECT REFCOUNT missing
RPUSH l a b c d
LRANGE l 0 -1
LRANGE missing 0 -1
LPOP l
LPOP l 2
LPOP missing
LPOP missing 2
LPOS l d
LPOS l z
LPOS l d COUNT 0
LMPOP 1 missing LEFT
LMPOP 1 l LEFT COUNT 2
BLPOP missing 0.01
BLMPOP 0.01 1 missing LEFT
BLMOVE missing s LEFT LEFT 0.01
BRPOPLPUSH missing s 0.01
BZPOPMIN missing 0.01
HSET h f 1 g 2.5
HGETALL h
HGETALL missing
HMGET h f x
HKEYS h
HRANDFIELD h 1000 WITHVALUES
HRANDFIELD missing
HINCRBYFLOAT h g 1e20
HSCAN h 0
SADD set a
SMEMBERS set
SMEMBERS missing
SISMEMBER set a
SMISMEMBER set a b
SPOP set
SPOP missing 3
SRANDMEMBER missing
SINTER set missing
ZADD z 1 a 2.5 b inf c -inf d
ZADD z INCR 1.1 a
ZADD z NX INCR 1.1 a
ZSCORE z a
ZSCORE z c
ZSCORE z missing
ZMSCORE z a d missing
ZRANGE z 0 -1
ZRANGE z 0 -1 WITHSCORES
ZRANK z b
ZRANK z missing
ZPOPMIN z
ZPOPMAX z 2
ZMPOP 1 z MIN
ZMPOP 1 missing MIN
ZRANDMEMBER missing 2 WITHSCORES
ZINCRBY z 0.1 x
ZUNION 2 z missing WITHSCORES
ZDIFF 1 z
GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
GEOPOS g Palermo missing
GEODIST g Palermo Catania km
GEODIST g Palermo missing
GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHCOORD WITHDIST WITHHASH
PFADD p a b
PFCOUNT p
SORT missing
SCAN 0 COUNT 1000
DBSIZE
RENAME s t
COPY t u
DUMP missing
MULTI
GET t
INCR t
HGETALL h
EXEC
MULTI
NOSUCH
EXEC
DISCARD
WATCH t
SET t x
MULTI
PING
EXEC
NOSUCH
GET
INCR l l
LPUSH t x
CONFIG GET notify-keyspace-events
CONFIG GET max*
CLIENT GETNAME
CLIENT NO-EVICT on
CLIENT LIST ID 999
COMMAND COUNT
COMMAND INFO get nosuch
COMMAND DOCS get
COMMAND GETKEYS SET k v
COMMAND LIST FILTERBY PATTERN z*range
LATENCY HELP
OBJECT HELP
PUBSUB CHANNELS
PUBSUB NUMSUB a b
PUBSUB NUMPAT
PUBLISH nobody text
ACL WHOAMI
MEMORY USAGE missing
WAIT 0 0
SELECT 3
GET t
SELECT 99
""".strip().splitlines()

SCRIPTS = [
    "return 3.99",
    "return true",
    "return false",
    "return {1, 'a', {2, {3}}, false, 'never'}",
    "return {}",
    "return redis.status_reply('FINE')",
    "return redis.error_reply('MY error')",
    "return {1, redis.error_reply('NESTED error'), redis.status_reply('FINE')}",
    "redis.setresp(3) return {double = 3.5}",
    "redis.setresp(3) return true",
    "redis.setresp(3) return {map = {a = 1}}",
    "redis.setresp(3) return {set = {a = true}}",
    "redis.setresp(3) return {big_number = '1234567890123456789012345'}",
    "redis.setresp(3) return {verbatim_string = {format = 'txt', string = 'some text'}}",
    "redis.setresp(3) return redis.call('HGETALL', 'h')",
    "return redis.call('INCR', 'l')",
    "error('with\\na line break')",
    "local t = {} for i = 1, 60 do t = {t} end return t",
]

#: What a line of words cannot say.
OTHERS: list[tuple[Any, ...]] = [
    ("SET", "binary", bytes(range(256))),
    ("GET", "binary"),
    ("SET", memoryview(b"view"), 1.5),
    ("GET", "view"),
    ("SET", "number", 10**25),
    ("GET", "number"),
    ("ECHO", ""),
    ("NOSUCH\r\nCOMMAND", "a"),
    (b"\xffNOSUCH", b"\xfe\r\n"),
    ("HSET", "hb", b"\xff", b"\xfe"),
    ("HGETALL", "hb"),
    ("LPUSH", "view", "x"),
]


@asynccontextmanager
async def both(tmp_path: Path, owners: tuple[Owner, Owner], **settings: Any) -> AsyncIterator[list[Link]]:
    """A link to our server and one to an embedded store, both empty."""
    with Engine.open(tmp_path / "served.pen", durability="relaxed") as engine:
        server = Server(engine, ServerSettings(port=0))
        await server.start()
        links = []
        try:
            for url, owner in zip(
                (f"redis://127.0.0.1:{server.port}", str(tmp_path / "embedded.pen")), owners, strict=True
            ):
                target, checked = open_settings(url, durability="relaxed", **settings)
                address = target.addresses[0] if target.addresses else None
                dialer = Dialer(target, checked)
                links.append(Link(url, owner, dialer.to(address), checked))
                await links[-1].wait_open(timeout_s=20)
            yield links
        finally:
            for link in links:
                await link.close()
            await server.stop()


async def ask(link: Link, arguments: tuple[Any, ...]) -> Any:
    try:
        return await link.call(arguments)
    except CommandError as error:
        return error


def shape(value: Any) -> Any:
    """A value with the types of all that is in it."""
    if isinstance(value, CommandError):
        return type(value).__name__, str(value)
    if isinstance(value, dict):
        return "dict", {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return type(value).__name__, [shape(item) for item in value]
    return type(value).__name__, value


@pytest.mark.parametrize("decode_responses", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
async def test_values_equal_those_of_a_socket(tmp_path: Path, protocol: int, decode_responses: bool) -> None:
    commands: list[tuple[Any, ...]] = [
        *(tuple(line.split()) for line in COMMANDS),
        *(("EVAL", script, 0) for script in SCRIPTS),
        *OTHERS,
    ]
    settings = {"protocol": protocol, "decode_responses": decode_responses}
    async with both(tmp_path, (Owner(), Owner()), **settings) as (socket, embedded):
        assert socket.facts.protocol == embedded.facts.protocol == protocol
        kinds = set()
        for command in commands:
            expected = shape(await ask(socket, command))
            assert shape(await ask(embedded, command)) == expected, command
            kinds.add(expected[0])
        text = "str" if decode_responses else "bytes"
        assert kinds >= {text, "int", "list", "NoneType", "CommandError"}
        assert protocol == 2 or kinds >= {"float", "dict", "bool"}


async def test_arguments_are_refused_as_by_a_socket(tmp_path: Path) -> None:
    async with both(tmp_path, (Owner(), Owner())) as links:
        for argument in (True, None, bytearray(b"x"), ["x"], object(), "\ud800"):
            refusals = set()
            for link in links:
                answered = [link.call(("ECHO", "a")), link.call(("ECHO", argument)), link.call(("ECHO", "b"))]
                with pytest.raises((TypeError, UnicodeEncodeError)) as caught:
                    await answered[1]
                refusals.add(caught.type)
                assert [await answered[0], await answered[2]] == [b"a", b"b"]
            assert len(refusals) == 1, argument


@pytest.mark.parametrize("protocol", [2, 3])
async def test_pushes_equal_those_of_a_socket(tmp_path: Path, protocol: int) -> None:
    owners = (Owner(), Owner())
    async with both(tmp_path, owners, protocol=protocol) as links:
        pushes = []
        for link, owner in zip(links, owners, strict=True):
            assert await link.call(("SUBSCRIBE", "a", "b")) == 2
            assert await link.call(("PSUBSCRIBE", "a*")) == 1
            assert await link.call(("SSUBSCRIBE", "s")) == 1
            if protocol == 3:
                assert await link.call(("PUBLISH", "a", "text")) == 2
                assert await link.call(("SPUBLISH", "s", "text")) == 1
            else:
                assert await link.call(("PING",)) == [b"pong", b""]
                refusal = await ask(link, ("GET", "k"))
                assert "only (P|S)SUBSCRIBE" in str(refusal)
            assert await link.call(("UNSUBSCRIBE", "a", "b")) == 2
            pushes.append([await owner.pushes.get() for _ in range(owner.pushes.qsize())])
        assert pushes[0] == pushes[1]
        assert len(pushes[1]) == (9 if protocol == 3 else 6)
