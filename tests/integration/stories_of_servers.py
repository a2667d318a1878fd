"""Helpers for streams, scripts and the server itself, each family as a story that holds in every protocol."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.commands.server_conversions import CommandInfo, LatencyEvent, SlotNode, SlotRange
from penstock.client.commands.stream_conversions import (
    AutoClaimed,
    AutoClaimedIds,
    PendingEntry,
    PendingSummary,
)
from penstock.client.router.sentinel_replies import PrimaryRole
from penstock.errors import CommandError
from tests.integration.comparing_client import OK, Comparing

# ------------------------------------------------------------------- streams


async def streams(c: Comparing) -> None:
    await c.gives(c.xadd("s", {"f": 1, "g": "two"}, id="1-1"), b"1-1")
    await c.gives(c.xadd("nope", {"f": 1}, nomkstream=True), None)
    await c.gives(c.xadd("s", {"f": 2}, id="2-1", maxlen=5), b"2-1")
    assert type(await c.xadd("t", {"f": 3}, minid="1", approximate=True)) is (str if c.is_decoding else bytes)
    first, second = (b"1-1", {b"f": b"1", b"g": b"two"}), (b"2-1", {b"f": b"2"})
    await c.gives(c.xlen("s"), 2)
    await c.gives(c.xrange("s"), [first, second])
    await c.gives(c.xrange("s", "(1-1", count=1), [second])
    await c.gives(c.xrevrange("s", count=1), [second])
    await c.gives(c.xread({"s": "1-1", "nope": "0"}, count=5), {b"s": [second]})
    await c.gives(c.xread({"s": "$"}), {})
    await c.gives(c.xread({"s": "$"}, block_ms=5), {})
    await c.gives(c.xdel("s", "1-1", "9-9"), 1)
    await c.gives(c.xsetid("s", "3-1", entriesadded=3, maxdeletedid="1-1"), OK)
    facts = await c.xinfo_stream("s")
    assert (facts["length"], facts["entries-added"]) == (1, 3)
    await c.gives(asyncio.sleep(0, facts["first-entry"]), second)
    await c.gives(c.xtrim("s", maxlen=0), 1)
    assert (await c.xinfo_stream("s"))["first-entry"] is None


async def stream_groups(c: Comparing) -> None:
    await c.gives(c.xgroup_create("s", "g", mkstream=True), OK)
    await c.gives(c.xgroup_createconsumer("s", "g", "c"), True)
    await c.gives(c.xgroup_createconsumer("s", "g", "c"), False)
    for number in range(1, 4):
        await c.xadd("s", {"n": number}, id=f"{number}-0")
    one, two, three = ((b"%d-0" % number, {b"n": b"%d" % number}) for number in range(1, 4))
    await c.gives(c.xreadgroup("g", "c", {"s": ">"}, count=2), {b"s": [one, two]})
    await c.gives(c.xreadgroup("g", "d", {"s": ">"}, block_ms=5), {b"s": [three]})
    await c.gives(c.xreadgroup("g", "d", {"s": ">"}, noack=True), {})
    await c.gives(c.xpending("s", "g"), PendingSummary(3, b"1-0", b"3-0", {b"c": 2, b"d": 1}))
    (entry,) = await c.xpending_range("s", "g", count=9, consumer="d")
    await c.gives(asyncio.sleep(0, entry._replace(idle_ms=0)), PendingEntry(b"3-0", b"d", 0, 1))
    await c.gives(c.xack("s", "g", "1-0", "9-9"), 1)
    await c.gives(c.xclaim("s", "g", "d", 0, "2-0", retrycount=7), [two])
    await c.gives(c.xclaim("s", "g", "d", 0, "2-0", justid=True), [b"2-0"])
    full = await c.xinfo_stream("s", full=True, count=1)
    await c.gives(asyncio.sleep(0, full["entries"]), [one])
    (group,) = full["groups"]
    await c.gives(asyncio.sleep(0, [consumer["name"] for consumer in group["consumers"]]), [b"c", b"d"])
    assert [len(item) for item in group["pending"]] == [4]
    (facts,) = await c.xinfo_groups("s")
    await c.gives(asyncio.sleep(0, (facts["name"], facts["consumers"], facts["pending"])), (b"g", 2, 2))
    consumers = await c.xinfo_consumers("s", "g")
    assert [facts["pending"] for facts in consumers] == [0, 2]
    await c.xdel("s", "2-0")
    await c.gives(c.xreadgroup("g", "d", {"s": "0"}), {b"s": [(b"2-0", None), three]})
    await c.gives(c.xautoclaim("s", "g", "c", 0), AutoClaimed(b"0-0", [three], [b"2-0"]))
    await c.gives(c.xautoclaim("s", "g", "c", 0, justid=True), AutoClaimedIds(b"0-0", [b"3-0"], []))
    await c.gives(c.xgroup_setid("s", "g", "0", entriesread=0), OK)
    await c.gives(c.xgroup_delconsumer("s", "g", "c"), 1)
    await c.gives(c.xpending("s", "g"), PendingSummary(0, None, None, {}))
    await c.gives(c.xgroup_destroy("s", "g"), True)
    await c.gives(c.xgroup_destroy("s", "g"), False)


# ------------------------------------------------------------------- scripts, channels


async def scripts(c: Comparing) -> None:
    await c.gives(c.eval("return {KEYS[1], ARGV[1], 7}", ["k"], ["v"]), [b"k", b"v", 7])
    await c.gives(c.eval_ro("return redis.call('GET', KEYS[1])", ["k"]), None)
    sha1 = await c.script_load("return ARGV[1]")
    assert type(sha1) is str
    await c.gives(c.evalsha(sha1, args=[b"x"]), b"x")
    await c.gives(c.evalsha_ro(sha1, args=[1]), b"1")
    await c.gives(c.script_exists(sha1, "0" * 40), [True, False])
    await c.gives(c.script_flush("SYNC"), OK)
    with pytest.raises(CommandError, match="NOTBUSY"):
        await c.script_kill()


async def functions(c: Comparing) -> None:
    code = "#!lua name=lib\nredis.register_function{function_name='f', callback=function(keys, args)" \
           " return {keys[1], args[1]} end, flags={'no-writes'}}"  # fmt: skip
    await c.gives(c.function_flush("SYNC"), OK)
    await c.gives(c.function_load(code), "lib")
    await c.gives(c.function_load(code, replace=True), "lib")
    await c.gives(c.fcall("f", ["k"], [5]), [b"k", b"5"])
    await c.gives(c.fcall_ro("f", ["k"], [5]), [b"k", b"5"])
    (library,) = await c.function_list(libraryname="l*", withcode=True)
    assert library["library_name"] == "lib"
    assert library["library_code"] == code
    assert library["functions"] == [{"name": "f", "description": None, "flags": frozenset({"no-writes"})}]
    assert (await c.function_stats())["engines"]["LUA"] == {"libraries_count": 1, "functions_count": 1}
    dump = await c.function_dump()
    assert type(dump) is bytes
    await c.gives(c.function_delete("lib"), OK)
    await c.gives(c.function_restore(dump), OK)
    await c.gives(c.function_restore(dump, "REPLACE"), OK)
    await c.function_flush()
    with pytest.raises(CommandError, match="NOTBUSY"):
        await c.function_kill()


async def channels(c: Comparing) -> None:
    await c.gives(c.publish("ch", "m"), 0)
    await c.gives(c.spublish("ch", "m"), 0)
    await c.gives(c.pubsub_channels(), [])
    await c.gives(c.pubsub_channels("*"), [])
    await c.gives(c.pubsub_numpat(), 0)
    await c.gives(c.pubsub_numsub("a", "b"), {b"a": 0, b"b": 0})
    await c.gives(c.pubsub_shardchannels(), [])
    await c.gives(c.pubsub_shardnumsub("a"), {b"a": 0})


# ------------------------------------------------------------------- the server


async def connections(c: Comparing) -> None:
    await c.gives(c.ping(), b"PONG")
    await c.gives(c.ping("x"), b"x")
    await c.gives(c.echo("x"), b"x")
    number = await c.client_id()
    facts = await c.client_info()
    assert facts["id"] == str(number)
    assert facts["cmd"] == "client|info"
    assert [each["id"] for each in await c.client_list(ids=[number])] == [str(number)]
    assert str(number) in {each["id"] for each in await c.client_list(type="normal")}
    assert await c.client_list(type="pubsub") == []
    await c.gives(c.client_getname(), b"tests")
    await c.gives(c.client_getredir(), -1)
    await c.gives(c.client_trackinginfo(), {"flags": frozenset({"off"}), "redirect": -1, "prefixes": []})
    await c.gives(c.client_kill(id=10**9), 0)
    await c.gives(c.client_kill(addr="1.2.3.4:5", skipme=True), 0)
    await c.gives(c.client_pause(1, "WRITE"), OK)
    await c.gives(c.client_unpause(), OK)
    await c.gives(c.client_unblock(10**9), False)
    await c.gives(c.client_unblock(number, "ERROR"), False)


async def users(c: Comparing) -> None:
    await c.gives(c.acl_whoami(), "default")
    await c.gives(c.acl_setuser("alice", "on", ">secret", "~a*", "+get", "(+set ~b*)"), OK)
    try:
        assert set(await c.acl_users()) == {"default", "alice"}
        assert any(line.startswith("user alice on ") for line in await c.acl_list())
        user = await c.acl_getuser("alice")
        assert user is not None
        assert user["flags"] >= {"on"}
        assert (user["keys"], [selector["keys"] for selector in user["selectors"]]) == ("~a*", ["~b*"])
        assert [len(password) for password in user["passwords"]] == [64]
        await c.gives(c.acl_getuser("nobody"), None)
        await c.gives(c.acl_dryrun("alice", "GET", "abc"), OK)
        refusal = await c.acl_dryrun("alice", "GET", "xyz")
        assert "permission" in str(refusal)
    finally:
        await c.gives(c.acl_deluser("alice", "nobody"), 1)
    assert "read" in await c.acl_cat()
    assert "get" in await c.acl_cat("read")
    assert len(await c.acl_genpass(64)) == 16
    await c.gives(c.acl_log_reset(), OK)
    with pytest.raises(CommandError, match="WRONGPASS"):
        await c.call(("AUTH", "bob", "wrong"))
    (refused,) = await c.acl_log(5)
    assert (refused["count"], refused["reason"], refused["username"]) == (1, "auth", "bob")
    assert type(refused["age-seconds"]) is float
    await c.acl_log_reset()
    await c.gives(c.acl_log(), [])


async def state(c: Comparing) -> None:
    await c.set("k", "v")
    info = await c.info()
    assert info["process_id"] > 0
    assert info["db0"]["keys"] == 1
    assert type(info["mem_fragmentation_ratio"]) is float
    assert type(info["redis_version"]) is str
    assert set(await c.info("keyspace")) == {"db0"}
    seconds, microseconds = await c.time()
    assert seconds > 1_700_000_000
    assert 0 <= microseconds < 1_000_000
    await c.gives(c.role(), PrimaryRole(0, ()))
    assert "ver" in await c.lolwut("VERSION", 5, 1, 1, 1)
    settings = await c.config_get("maxmemory*", "hz")
    assert settings["hz"] == "10"
    assert settings["maxmemory"] == "0"
    await c.gives(c.config_set({"hz": 11, "maxmemory-samples": 5}), OK)
    await c.gives(c.config_set({"hz": 10}), OK)
    with pytest.raises(CommandError, match="config file"):
        await c.config_rewrite()
    await c.gives(c.config_resetstat(), OK)
    await c.gives(c.dbsize(), 1)
    await c.gives(c.swapdb(0, 1), OK)
    await c.gives(c.dbsize(), 0)
    await c.gives(c.swapdb(0, 1), OK)
    await c.gives(c.flushdb("SYNC"), OK)
    await c.gives(c.flushall(), OK)
    await c.gives(c.save(), OK)
    assert type(await c.bgsave(schedule=True)) is (str if c.is_decoding else bytes)
    async with asyncio.timeout(10):
        while (await c.info("persistence"))["rdb_bgsave_in_progress"]:
            await asyncio.sleep(0.01)
    assert abs(await c.lastsave() - seconds) < 60


async def delays(c: Comparing) -> None:
    await c.gives(c.slowlog_reset(), OK)
    await c.gives(c.slowlog_get(), [])
    await c.gives(c.latency_latest(), [])
    await c.config_set({"slowlog-log-slower-than": 0})
    await c.set("k", b"\xc3\xa9")
    await c.config_set({"slowlog-log-slower-than": 10_000})
    slow = next(entry for entry in await c.slowlog_get(-1) if len(entry.arguments) == 3)
    await c.gives(asyncio.sleep(0, slow.arguments), [b"SET", b"k", b"\xc3\xa9"])
    assert slow.duration_us >= 0
    assert slow.client_address.startswith("127.0.0.1:")
    assert await c.slowlog_len() >= 1
    await c.slowlog_reset()
    histogram = await c.latency_histogram("set")
    assert histogram["set"]["calls"] >= 1
    assert all(
        type(bound) is type(count) is int for bound, count in histogram["set"]["histogram_usec"].items()
    )
    await c.config_set({"latency-monitor-threshold": 1})
    await c.eval("local n = 0; for i = 1, 1000000 do n = n + i end return n")
    await c.config_set({"latency-monitor-threshold": 0})
    event = next(event for event in await c.latency_latest() if event.event == "command")
    assert type(event) is LatencyEvent
    assert event.max_ms >= event.latest_ms >= 1
    assert (await c.latency_history("command"))[-1] == (event.at, event.latest_ms)
    await c.gives(c.latency_history("nope"), [])
    assert type(await c.latency_doctor()) is str
    assert await c.latency_reset("command") == 1
    await c.gives(c.latency_reset(), 0)


async def memory(c: Comparing) -> None:
    stats = await c.memory_stats()
    assert stats["peak.allocated"] > 0
    assert type(stats["peak.percentage"]) is float
    assert type(await c.memory_doctor()) is str
    await c.gives(c.memory_purge(), OK)


async def commands(c: Comparing) -> None:
    every = await c.command()
    assert len(every) == await c.command_count() == len({each.name for each in every})
    get, nothing, clients = await c.command_info("get", "nope", "client")
    assert nothing is None
    assert get in every
    assert get is not None
    assert clients is not None
    assert type(get) is CommandInfo
    assert (get.name, get.arity, get.first_key, get.key_step) == ("get", 2, 1, 1)
    assert get.flags == {"readonly", "fast"}
    assert get.acl_categories == {"@read", "@string", "@fast"}
    assert get.key_specifications[0]["begin_search"] == {"type": "index", "spec": {"index": 1}}
    assert "client|list" in {each.name for each in clients.subcommands}
    documentation = await c.command_docs("lmpop", "object")
    assert documentation["lmpop"]["group"] == "list"
    assert documentation["lmpop"]["arguments"][2]["arguments"][0]["token"] == "LEFT"
    assert documentation["lmpop"]["arguments"][3]["flags"] == {"optional"}
    assert "object|freq" in documentation["object"]["subcommands"]
    assert {"get", "client|list"} <= set(await c.command_list())
    assert await c.command_list(pattern="xgroup|setid") == ["xgroup|setid"]
    assert "sadd" in await c.command_list(aclcat="set")
    assert await c.command_list(module="nope") == []
    await c.gives(c.command_getkeys("MSET", "a", 1, "b", 2), [b"a", b"b"])
    keys_and_flags = [(b"a", frozenset({"OW", "update"}))]
    await c.gives(c.command_getkeysandflags("SET", "a", 1), keys_and_flags)


async def cluster(c: Comparing) -> None:
    number = await c.cluster_myid()
    assert len(number) == 40
    info = await c.cluster_info()
    assert (info["cluster_state"], info["cluster_slots_assigned"]) == ("ok", 16_384)
    (node,) = await c.cluster_nodes()
    assert (node.id, node.primary_id, node.link_state) == (number, None, "connected")
    assert node.flags == {"myself", "master"}
    assert node.slots == [(0, 16_383)]
    await c.gives(c.cluster_replicas(number), [])
    (shard,) = await c.cluster_shards()
    assert shard["slots"] == [(0, 16_383)]
    (member,) = shard["nodes"]
    assert (member["id"], member["role"], member["health"]) == (number, "master", "online")
    port = member["port"]
    (slots,) = await c.cluster_slots()
    assert type(slots) is SlotRange
    assert slots._replace(nodes=[]) == SlotRange(0, 16_383, [])
    assert slots.nodes[0]._replace(host=None) == SlotNode(None, port, number, {})
    await c.gives(c.cluster_links(), [])
    await c.set("foo", "bar")
    await c.gives(c.cluster_keyslot("foo"), 12_182)
    await c.gives(c.cluster_countkeysinslot(12_182), 1)
    await c.gives(c.cluster_getkeysinslot(12_182, 5), [b"foo"])


STORIES = (
    *(streams, stream_groups, scripts, functions, channels),
    *(connections, users, state, delays, memory, commands),
)
