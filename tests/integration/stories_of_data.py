"""Helpers for keys and collections, each family as a story that holds in every protocol."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.client.commands.conversions import GeoMatch, Lcs, LcsMatch
from penstock.errors import CommandError
from tests.integration.comparing_client import OK, Comparing


async def in_order(call: Awaitable[list[Any]]) -> list[Any]:
    """What comes in any order."""
    return sorted(await call)


# ------------------------------------------------------------------- keys and strings


async def keys(c: Comparing) -> None:
    await c.mset({"a": 1, "b": 2})
    await c.gives(c.copy("a", "c"), True)
    await c.gives(c.copy("a", "c"), False)
    await c.gives(c.exists("a", "b", "nope", "a"), 3)
    await c.gives(c.touch("a", "nope"), 1)
    await c.gives(c.type("a"), "string")
    await c.gives(c.type("nope"), "none")
    assert sorted(await c.keys(c.names("[ab]"))) == (["a", "b"] if c.is_decoding else [b"a", b"b"])
    assert await c.randomkey() in {b"a", b"b", b"c", "a", "b", "c"}
    await c.gives(c.rename("c", "d"), OK)
    await c.gives(c.renamenx("d", "a"), False)
    await c.gives(c.renamenx("d", "e"), True)
    await c.gives(c.delete("e"), 1)
    await c.gives(c.scan(match=c.names("a"), count=100, type="string"), (0, [b"a"]))
    await c.gives(c.delete("a", "nope"), 1)
    await c.gives(c.unlink("b"), 1)
    await c.gives(c.randomkey(), None)


async def databases(c: Comparing) -> None:
    await c.set("a", 1)
    await c.gives(c.copy("a", "c", db=1), True)
    await c.gives(c.copy("a", "c", db=1), False)
    await c.gives(c.copy("a", "c", db=1, replace=True), True)
    await c.gives(c.move("a", 1), True)
    await c.gives(c.move("a", 1), False)


async def own_writes(c: Comparing) -> None:
    await c.gives(c.wait(0, 10), 0)
    if await c.has("waitaof"):
        await c.gives(c.waitaof(0, 0, 10), (0, 0))


async def deadlines(c: Comparing) -> None:
    await c.set("k", "v")
    await c.gives(c.ttl("k"), -1)
    await c.gives(c.pttl("nope"), -2)
    await c.gives(c.expire("nope", 10), False)
    await c.gives(c.expire("k", timedelta(seconds=99.5)), True)
    await c.gives(c.ttl("k"), 100)
    await c.gives(c.expire("k", 50, gt=True), False)
    await c.gives(c.pexpire("k", 200_000, gt=True, xx=True), True)
    assert 199_000 < await c.pttl("k") <= 200_000
    until = datetime(2040, 1, 1, tzinfo=UTC)
    await c.gives(c.expireat("k", until), True)
    await c.gives(c.expiretime("k"), int(until.timestamp()))
    await c.gives(c.pexpireat("k", until, lt=True), False)
    await c.gives(c.pexpiretime("k"), int(until.timestamp()) * 1000)
    await c.gives(c.persist("k"), True)
    await c.gives(c.persist("k"), False)
    await c.gives(c.set("k", "w", exat=until, get=True), b"v")
    await c.gives(c.getex("k", persist=True), b"w")
    await c.gives(c.expiretime("k"), -1)


async def inside(c: Comparing) -> None:
    await c.set("k", "12")
    dump = await c.dump("k")
    assert type(dump) is bytes
    await c.gives(c.dump("nope"), None)
    await c.gives(c.restore("copy", 0, dump), OK)
    await c.gives(c.restore("copy", datetime(2040, 1, 1, tzinfo=UTC), dump, replace=True, absttl=True), OK)
    await c.gives(c.get("copy"), b"12")
    await c.gives(c.object_encoding("k"), "int")
    await c.gives(c.object_encoding("nope"), None)
    assert type(await c.object_refcount("k")) is int
    await c.gives(c.object_idletime("k"), 0)
    with pytest.raises(CommandError, match="LFU"):
        await c.object_freq("k")
    usage = await c.memory_usage("k", samples=0)
    assert usage is not None
    assert usage > 0
    await c.gives(c.memory_usage("nope"), None)


async def sorting(c: Comparing) -> None:
    await c.rpush("l", 3, 1, 2)
    await c.mset({"w_1": 30, "w_2": 20, "w_3": 10, "n_1": "one", "n_2": "two"})
    await c.gives(c.sort("l"), [b"1", b"2", b"3"])
    weights, names = c.names("w_*"), c.names("n_*")
    await c.gives(c.sort("l", by=weights, limit=(0, 2), get=["#", names]), [b"3", None, b"2", b"two"])
    await c.gives(c.sort("l", desc=True, alpha=True, store="d"), 3)
    await c.gives(c.lrange("d", 0, -1), [b"3", b"2", b"1"])
    await c.gives(c.sort_ro("l", limit=(1, 1)), [b"2"])


async def strings(c: Comparing) -> None:
    await c.gives(c.set("k", "v"), OK)
    await c.gives(c.set("k", "w", nx=True), None)
    await c.gives(c.set("k", "w", xx=True, get=True, keepttl=True), b"v")
    await c.gives(c.get("k"), b"w")
    await c.gives(c.get("nope"), None)
    await c.gives(c.getset("k", "v"), b"w")
    await c.gives(c.append("k", "alue"), 5)
    await c.gives(c.getrange("k", 1, -2), b"alu")
    await c.gives(c.setrange("k", 1, "XX"), 5)
    await c.gives(c.strlen("k"), 5)
    await c.gives(c.getdel("k"), b"vXXue")
    await c.gives(c.setnx("k", "v"), True)
    await c.gives(c.setnx("k", "v"), False)
    await c.gives(c.setex("e", timedelta(seconds=10), "v"), OK)
    await c.gives(c.psetex("e", 10_000, "v"), OK)
    await c.gives(c.mset({b"x": "1", b"y": 2}), OK)
    await c.gives(c.msetnx({"x": 3, "z": 4}), False)
    await c.gives(c.mget("x", "nope", "y"), [b"1", None, b"2"])
    await c.gives(c.incr("n"), 1)
    await c.gives(c.incrby("n", 9), 10)
    await c.gives(c.decr("n"), 9)
    await c.gives(c.decrby("n", 10), -1)
    await c.gives(c.incrbyfloat("n", 0.5), -0.5)
    await c.mset({"p": "ohmytext", "q": "mynewtext"})
    await c.gives(c.lcs("p", "q"), b"mytext")
    await c.gives(c.lcs("p", "q", len=True), 6)
    matches = [LcsMatch((4, 7), (5, 8), 4), LcsMatch((2, 3), (0, 1), 2)]
    await c.gives(c.lcs("p", "q", idx=True, withmatchlen=True), Lcs(6, matches))
    await c.gives(c.lcs("p", "q", idx=True, minmatchlen=3), Lcs(6, [matches[0]._replace(length=None)]))


async def bits_and_logs(c: Comparing) -> None:
    await c.gives(c.setbit("b", 7, 1), 0)
    await c.gives(c.getbit("b", 7), 1)
    await c.set("s", "foobar")
    await c.gives(c.bitcount("s"), 26)
    await c.gives(c.bitcount("s", 5, 30, unit="BIT"), 17)
    await c.gives(c.bitpos("b", 1), 7)
    await c.gives(c.bitpos("s", 1, 1, 2, unit="BYTE"), 9)
    await c.gives(c.bitop("XOR", "x", "s", "s"), 6)
    operations = [("OVERFLOW", "FAIL"), ("INCRBY", "u2", 0, 3), ("INCRBY", "u2", 0, 1), ("GET", "u8", "#0")]
    await c.gives(c.bitfield("f", *operations), [3, None, 192])
    await c.gives(c.bitfield_ro("f", ("u2", 0), ("u4", "#0")), [3, 12])
    await c.gives(c.pfadd("h", "a", "b"), True)
    await c.gives(c.pfadd("h", "a"), False)
    await c.pfadd("i", "c")
    await c.gives(c.pfcount("h", "i"), 3)
    await c.gives(c.pfmerge("j", "h", "i"), OK)
    await c.gives(c.pfcount("j"), 3)


# ------------------------------------------------------------------- collections


async def hashes(c: Comparing) -> None:
    await c.gives(c.hset("h", {"a": 1, "b": "two"}), 2)
    await c.gives(c.hsetnx("h", "a", 5), False)
    await c.gives(c.hget("h", "a"), b"1")
    await c.gives(c.hget("h", "nope"), None)
    await c.gives(c.hmget("h", "b", "nope"), [b"two", None])
    await c.gives(c.hgetall("h"), {b"a": b"1", b"b": b"two"})
    await c.gives(c.hgetall("nope"), {})
    await c.gives(in_order(c.hkeys("h")), [b"a", b"b"])
    await c.gives(in_order(c.hvals("h")), [b"1", b"two"])
    await c.gives(c.hlen("h"), 2)
    await c.gives(c.hexists("h", "a"), True)
    await c.gives(c.hstrlen("h", "b"), 3)
    await c.gives(c.hincrby("h", "a", 4), 5)
    await c.gives(c.hincrbyfloat("h", "a", 0.25), 5.25)
    await c.gives(c.hdel("h", "b", "nope"), 1)
    await c.gives(c.hrandfield("h"), b"a")
    await c.gives(c.hrandfield("nope"), None)
    await c.gives(c.hrandfield("h", -2), [b"a", b"a"])
    await c.gives(c.hrandfield("h", 5, withvalues=True), [(b"a", b"5.25")])
    await c.gives(c.hrandfield("h", -2, withvalues=True), [(b"a", b"5.25")] * 2)
    await c.gives(c.hscan("h", match="a*", count=10), (0, {b"a": b"5.25"}))
    if await c.has("hexpire"):
        await c.gives(c.hscan("h", novalues=True), (0, [b"a"]))


async def hash_fields(c: Comparing) -> None:
    if not await c.has("hexpire"):
        return
    await c.hset("h", {"a": 1, "b": 2})
    until = datetime(2040, 1, 1, tzinfo=UTC)
    await c.gives(c.httl("h", "a", "nope"), [-1, -2])
    await c.gives(c.hexpire("h", timedelta(minutes=1), "a", "nope"), [1, -2])
    await c.gives(c.httl("h", "a"), [60])
    await c.gives(c.hpexpire("h", 50_000, "a", gt=True), [0])
    await c.gives(c.hexpireat("h", until, "a"), [1])
    await c.gives(c.hexpiretime("h", "a"), [int(until.timestamp())])
    await c.gives(c.hpexpireat("h", until, "b", nx=True), [1])
    await c.gives(c.hpexpiretime("h", "b"), [int(until.timestamp()) * 1000])
    assert (await c.hpttl("h", "b"))[0] > 10**11
    await c.gives(c.hpersist("h", "a", "a"), [1, -1])
    await c.gives(c.hgetex("h", "a", "nope", ex=100), [b"1", None])
    await c.gives(c.hsetex("h", {"a": 5, "c": 6}, fxx=True), False)
    await c.gives(c.hsetex("h", {"c": 6, "d": 7}, fnx=True, ex=100), True)
    await c.gives(c.httl("h", "c"), [100])
    await c.gives(c.hgetdel("h", "c", "nope"), [b"6", None])


async def lists(c: Comparing) -> None:
    await c.gives(c.lpushx("l", "x"), 0)
    await c.gives(c.rpushx("l", "x"), 0)
    await c.gives(c.rpush("l", "b", "c"), 2)
    await c.gives(c.lpush("l", "a"), 3)
    await c.gives(c.linsert("l", "AFTER", "c", "d"), 4)
    await c.gives(c.linsert("l", "BEFORE", "nope", "d"), -1)
    await c.gives(c.lindex("l", -1), b"d")
    await c.gives(c.lindex("l", 9), None)
    await c.gives(c.llen("l"), 4)
    await c.gives(c.lset("l", 0, "b"), OK)
    await c.gives(c.lrange("l", 0, -1), [b"b", b"b", b"c", b"d"])
    await c.gives(c.lpos("l", "b"), 0)
    await c.gives(c.lpos("l", "b", count=0), [0, 1])
    await c.gives(c.lpos("l", "nope"), None)
    await c.gives(c.lpos("l", "nope", count=1), [])
    await c.gives(c.lrem("l", 1, "b"), 1)
    await c.gives(c.ltrim("l", 0, 1), OK)
    await c.gives(c.lmove("l", "m", "LEFT", "RIGHT"), b"b")
    await c.gives(c.rpoplpush("l", "m"), b"c")
    await c.gives(c.lmove("l", "m", "LEFT", "RIGHT"), None)
    await c.gives(c.lpop("m"), b"c")
    await c.gives(c.rpop("nope"), None)
    await c.gives(c.lpop("nope", 2), None)
    await c.gives(c.rpop("m", 2), [b"b"])
    await c.rpush("l", *range(4))
    await c.gives(c.lmpop("nope", "l", where="RIGHT", count=2), (b"l", [b"3", b"2"]))
    await c.gives(c.lmpop("nope", where="LEFT"), None)


async def waiting(c: Comparing) -> None:
    await c.rpush("l", *range(6))
    await c.gives(c.blpop("nope", "l", timeout_s=1), (b"l", b"0"))
    await c.gives(c.brpop("l", timeout_s=0), (b"l", b"5"))
    await c.gives(c.blmove("l", "m", "LEFT", "LEFT", timeout_s=1), b"1")
    await c.gives(c.brpoplpush("l", "m", timeout_s=1), b"4")
    await c.gives(c.blmpop("nope", "l", timeout_s=1, where="LEFT", count=5), (b"l", [b"2", b"3"]))
    await c.zadd("z", {"a": 1, "b": 2.5, "c": 3})
    await c.gives(c.bzpopmin("nope", "z", timeout_s=1), (b"z", b"a", 1.0))
    await c.gives(c.bzpopmax("z", timeout_s=1), (b"z", b"c", 3.0))
    await c.gives(c.bzmpop("nope", "z", timeout_s=1, where="MIN", count=3), (b"z", [(b"b", 2.5)]))
    if c.is_decoding:
        return  # nothing is nothing in text too, and servers look at their timeouts ten times a second
    await c.gives(c.blpop("l", timeout_s=0.01), None)
    await c.gives(c.brpop("l", timeout_s=0.01), None)
    await c.gives(c.blmove("l", "m", "LEFT", "LEFT", timeout_s=0.01), None)
    await c.gives(c.brpoplpush("l", "m", timeout_s=0.01), None)
    await c.gives(c.blmpop("l", timeout_s=0.01, where="LEFT"), None)
    await c.gives(c.bzpopmin("z", timeout_s=0.01), None)
    await c.gives(c.bzpopmax("z", timeout_s=0.01), None)
    await c.gives(c.bzmpop("z", timeout_s=0.01, where="MIN"), None)


async def sets(c: Comparing) -> None:
    await c.gives(c.sadd("s", "a", "b", "c"), 3)
    await c.gives(c.sadd("t", "b", "c", "d"), 3)
    await c.gives(c.scard("s"), 3)
    await c.gives(c.smembers("s"), {b"a", b"b", b"c"})
    await c.gives(c.smembers("nope"), set())
    await c.gives(c.sismember("s", "a"), True)
    await c.gives(c.smismember("s", "a", "d"), [True, False])
    await c.gives(c.sdiff("s", "t"), {b"a"})
    await c.gives(c.sinter("s", "t"), {b"b", b"c"})
    await c.gives(c.sunion("s", "t"), {b"a", b"b", b"c", b"d"})
    await c.gives(c.sintercard("s", "t"), 2)
    await c.gives(c.sintercard("s", "t", limit=1), 1)
    await c.gives(c.sdiffstore("d", "s", "t"), 1)
    await c.gives(c.sinterstore("d", "s", "t"), 2)
    await c.gives(c.sunionstore("d", "s", "t"), 4)
    await c.gives(c.smove("s", "u", "a"), True)
    await c.gives(c.smove("s", "u", "a"), False)
    await c.gives(c.srandmember("u"), b"a")
    await c.gives(c.srandmember("u", -2), [b"a", b"a"])
    await c.gives(c.srandmember("nope"), None)
    await c.gives(c.sscan("u", match="*", count=5), (0, [b"a"]))
    await c.gives(c.spop("u"), b"a")
    await c.gives(c.spop("u"), None)
    await c.gives(c.spop("u", 2), set())
    await c.gives(c.spop("s", 5), {b"b", b"c"})
    await c.gives(c.srem("t", "b", "nope"), 1)


async def sorted_sets(c: Comparing) -> None:
    await c.gives(c.zadd("z", {"a": 1, "b": 2.5, "c": float("inf")}), 3)
    await c.gives(c.zadd("z", {"a": 2, "d": 4}, ch=True), 2)
    await c.gives(c.zadd("z", {"d": 1}, gt=True, ch=True), 0)
    await c.gives(c.zadd("z", {"a": 1.5}, incr=True), 3.5)
    await c.gives(c.zadd("z", {"a": 1.5}, incr=True, nx=True), None)
    await c.gives(c.zincrby("z", -0.5, "a"), 3.0)
    await c.gives(c.zcard("z"), 4)
    await c.gives(c.zscore("z", "c"), float("inf"))
    await c.gives(c.zscore("z", "nope"), None)
    await c.gives(c.zmscore("z", "a", "nope"), [3.0, None])
    await c.gives(c.zscan("z", match="[ab]"), (0, [(b"b", 2.5), (b"a", 3.0)]))
    await c.zadd("y", {"a": 1, "x": 7})
    await c.gives(c.zdiff("y", "z"), [b"x"])
    await c.gives(c.zdiff("y", "z", withscores=True), [(b"x", 7.0)])
    await c.gives(c.zinter("y", "z"), [b"a"])
    await c.gives(c.zinter("y", "z", weights=[2, 0.5], withscores=True), [(b"a", 3.5)])
    await c.gives(c.zunion("y", "nope"), [b"a", b"x"])
    await c.gives(c.zunion("y", "y", aggregate="MAX", withscores=True), [(b"a", 1.0), (b"x", 7.0)])
    await c.gives(c.zintercard("y", "z", limit=5), 1)
    await c.gives(c.zdiffstore("d", "z", "y"), 3)
    await c.gives(c.zinterstore("d", "z", "y", aggregate="MIN"), 1)
    await c.gives(c.zunionstore("d", "z", "y", weights=[1, 1]), 5)
    await c.gives(c.zrandmember("nope"), None)
    await c.zadd("one", {"m": 1.5})
    await c.gives(c.zrandmember("one"), b"m")
    await c.gives(c.zrandmember("one", -2), [b"m", b"m"])
    await c.gives(c.zrandmember("one", -2, withscores=True), [(b"m", 1.5)] * 2)
    await c.gives(c.zpopmin("z"), [(b"b", 2.5)])
    await c.gives(c.zpopmin("z", 2), [(b"a", 3.0), (b"d", 4.0)])
    await c.gives(c.zpopmax("z"), [(b"c", float("inf"))])
    await c.gives(c.zpopmax("z", 3), [])
    await c.gives(c.zpopmax("z"), [])
    await c.gives(c.zmpop("z", "y", where="MAX", count=1), (b"y", [(b"x", 7.0)]))
    await c.gives(c.zmpop("z", where="MIN"), None)
    await c.gives(c.zrem("y", "a", "nope"), 1)


async def sorted_set_ranges(c: Comparing) -> None:
    await c.zadd("z", {"a": 1, "b": 2, "c": 3, "d": 4})
    await c.gives(c.zrange("z", 0, 1), [b"a", b"b"])
    await c.gives(c.zrange("z", 0, 0, rev=True, withscores=True), [(b"d", 4.0)])
    await c.gives(c.zrange("z", "(1", "+inf", byscore=True, limit=(1, 1), withscores=True), [(b"c", 3.0)])
    await c.gives(c.zrange("nope", 0, -1, withscores=True), [])
    await c.gives(c.zrangestore("s", "z", 2, "(1", byscore=True), 0)
    await c.gives(c.zrangestore("s", "z", 2, "(1", byscore=True, rev=True), 1)
    await c.gives(c.zrevrange("z", 0, 0), [b"d"])
    await c.gives(c.zrevrange("z", 0, 0, withscores=True), [(b"d", 4.0)])
    await c.gives(c.zrangebyscore("z", 2, 3, limit=(1, -1)), [b"c"])
    await c.gives(c.zrangebyscore("z", 2, 3, withscores=True), [(b"b", 2.0), (b"c", 3.0)])
    await c.gives(c.zrevrangebyscore("z", 3, 2), [b"c", b"b"])
    await c.gives(c.zrevrangebyscore("z", 3, 3, withscores=True), [(b"c", 3.0)])
    await c.gives(c.zcount("z", "-inf", 2), 2)
    await c.gives(c.zrank("z", "b"), 1)
    await c.gives(c.zrevrank("z", "b"), 2)
    await c.gives(c.zrank("z", "nope"), None)
    if await c.has("hexpire"):
        await c.gives(c.zrank("z", "b", withscore=True), (1, 2.0))
        await c.gives(c.zrevrank("z", "b", withscore=True), (2, 2.0))
        await c.gives(c.zrank("z", "nope", withscore=True), None)
    await c.gives(c.zremrangebyrank("z", 0, 0), 1)
    await c.gives(c.zremrangebyscore("z", 4, 4), 1)
    await c.zadd("x", dict.fromkeys("abcd", 0))
    await c.gives(c.zrangebylex("x", "[b", "+", limit=(0, 2)), [b"b", b"c"])
    await c.gives(c.zrevrangebylex("x", "(c", "-"), [b"b", b"a"])
    await c.gives(c.zrange("x", "-", "(b", bylex=True), [b"a"])
    await c.gives(c.zlexcount("x", "-", "+"), 4)
    await c.gives(c.zremrangebylex("x", "[a", "[c"), 3)


async def geo(c: Comparing) -> None:
    places = {"Palermo": (13.361389, 38.115556), "Catania": (15.087269, 37.502669)}
    await c.gives(c.geoadd("g", places), 2)
    await c.gives(c.geoadd("g", places, xx=True, ch=True), 0)
    await c.gives(c.geodist("g", "Palermo", "Catania", unit="km"), 166.2742)
    await c.gives(c.geodist("g", "Palermo", "nope"), None)
    await c.gives(c.geohash("g", "Palermo", "nope"), [b"sqc8b49rny0", None])
    palermo = (13.361389338970184, 38.1155563954963)
    await c.gives(c.geopos("g", "Palermo", "nope"), [palermo, None])
    await c.gives(c.geosearch("g", frommember="Palermo", byradius=200, unit="km", sort="DESC"),
                  [b"Catania", b"Palermo"])  # fmt: skip
    near = c.geosearch(
        "g", fromlonlat=palermo, bybox=(9, 9), count=1, any=True, withcoord=True, withdist=True, withhash=True
    )
    await c.gives(near, [GeoMatch(b"Palermo", 0.0, 3479099956230698, palermo)])
    near = c.geosearch("g", fromlonlat=palermo, byradius=9, withcoord=True)
    await c.gives(near, [GeoMatch(b"Palermo", None, None, palermo)])
    await c.gives(c.geosearchstore("d", "g", frommember="Palermo", byradius=200_000, storedist=True), 2)
    await c.gives(c.zscore("d", "Palermo"), 0.0)


async def lfu(c: Comparing) -> None:
    await c.config_set({"maxmemory-policy": "allkeys-lfu"})
    try:
        await c.set("k", "v")
        assert type(await c.object_freq("k")) is int
    finally:
        await c.config_set({"maxmemory-policy": "noeviction"})


STORIES = (
    *(keys, databases, own_writes, deadlines, inside, sorting, strings, bits_and_logs, lfu),
    *(hashes, hash_fields, lists, waiting, sets, sorted_sets, sorted_set_ranges, geo),
)
