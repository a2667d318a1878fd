"""Pipelines, transactions, exclusive connections, scripts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import penstock
from penstock.client.exclusive import ExclusiveConnection
from penstock.client.pipelines import Transaction
from penstock.errors import CommandError, CommandTimeoutError, ConfigError, UsageError, WatchError
from tests.client.conftest import SLOW, OpenClient, Place

# ------------------------------------------------------------------- pipelines


async def test_a_pipeline_answers_all(client: penstock.Client) -> None:
    pipe = client.pipeline()
    pipe.set("a", 1)
    count = pipe.incr("b")
    pipe.execute("GET", "a")
    assert len(pipe) == 3
    with pytest.raises(UsageError, match="INCR was queued"):
        await count
    replies = await pipe.all()
    assert replies[1:] == [1, b"1"]
    assert await count == 1


async def test_a_pipeline_runs_again(client: penstock.Client) -> None:
    pipe = client.pipeline()
    pipe.incr("n")
    assert [await pipe.last(), await pipe.last()] == [1, 2]
    pipe.clear()
    assert await pipe.all() == []
    assert await pipe.last() is None


async def test_errors_in_a_pipeline(client: penstock.Client) -> None:
    await client.set("text", "x")
    pipe = client.pipeline()
    pipe.incr("n")
    failed = pipe.incr("text")
    pipe.incr("n")
    first, error, third = await pipe.try_all()
    assert (first, third) == (1, 2)
    assert "not an integer" in str(error)
    with pytest.raises(CommandError, match="not an integer") as raised:
        await pipe.all()
    assert "command 2 of 3" in raised.value.__notes__[0]
    with pytest.raises(CommandError, match="not an integer"):
        await failed
    with pytest.raises(CommandError, match="not an integer"):
        await pipe.last()
    assert await client.get("n") == b"6"


async def test_helpers_convert_in_pipelines(client: penstock.Client) -> None:
    pipe = client.pipeline()
    pipe.hset("h", {"f": "v"})
    pipe.hgetall("h")
    pipe.zadd("z", {"m": 1.5})
    pipe.zrange("z", 0, -1, withscores=True)
    replies = await pipe.all()
    assert replies[1] == {b"f": b"v"}
    assert replies[3] == [(b"m", 1.5)]


async def test_what_a_pipeline_refuses(client: penstock.Client) -> None:
    pipe = client.pipeline()
    with pytest.raises(UsageError, match="BLPOP would keep everybody"):
        pipe.blpop("k", timeout_s=1)
    with pytest.raises(UsageError, match="SUBSCRIBE cannot be queued"):
        pipe.execute("SUBSCRIBE", "c")
    with pytest.raises(UsageError, match="WATCH cannot be queued"):
        pipe.execute("WATCH", "k")
    with pytest.raises(TypeError):
        pipe.execute()
    assert len(pipe) == 0


async def test_a_pipeline_out_of_time(client: penstock.Client) -> None:
    pipe = client.pipeline()
    pipe.execute("EVAL", SLOW, 1, "k")
    with pytest.raises(CommandTimeoutError, match="1 commands were not all answered within 50 ms"):
        await pipe.all(timeout_ms=50)
    assert await client.execute("ECHO", "after", timeout_ms=20_000) == b"after"


async def test_a_large_pipeline(client: penstock.Client) -> None:
    pipe = client.pipeline()
    for number in range(5_000):
        pipe.set(f"key-{number}", number)
    assert len(await pipe.all()) == 5_000
    assert await client.get("key-4999") == b"4999"


# ----------------------------------------------------------------- transactions


async def test_a_transaction(client: penstock.Client) -> None:
    tx = client.transaction()
    tx.incr("{t}a")
    tx.rpush("{t}b", "x", "y")
    items = tx.lrange("{t}b", 0, -1)
    assert await tx.all() == [1, 2, [b"x", b"y"]]
    assert await items == [b"x", b"y"]
    assert await tx.last() == [b"x", b"y", b"x", b"y"]


async def test_a_refused_command_undoes_the_transaction(client: penstock.Client) -> None:
    tx = client.transaction()
    tx.incr("{t}a")
    tx.execute("INCR", "{t}a", "too", "many")
    with pytest.raises(CommandError, match="wrong number of arguments"):
        await tx.all()
    assert await client.get("{t}a") is None


async def test_an_error_while_it_runs(client: penstock.Client) -> None:
    await client.set("{t}text", "x")
    tx = client.transaction()
    tx.incr("{t}n")
    tx.incr("{t}text")
    outcomes = await tx.try_all()
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], CommandError)
    with pytest.raises(CommandError, match="not an integer"):
        await tx.all()


async def test_keys_of_a_transaction_belong_together(client: penstock.Client, place: Place) -> None:
    tx = client.transaction()
    tx.set("a", 1)
    tx.set("b", 2)
    if place.is_cluster:
        with pytest.raises(CommandError, match="CROSSSLOT"):
            await tx.all()
    else:
        assert len(await tx.all()) == 2


async def test_transactions_among_other_commands(client: penstock.Client) -> None:
    async def transact(number: int) -> bool:
        tx = client.transaction()
        tx.incr("{t}n")
        tx.execute("ECHO", number)
        return (await tx.all())[1] == str(number).encode()

    async def read(number: int) -> bool:
        return await client.execute("ECHO", f"plain-{number}") == f"plain-{number}".encode()

    outcomes = await asyncio.gather(*(work(number) for number in range(200) for work in (transact, read)))
    assert all(outcomes)
    assert await client.get("{t}n") == b"200"


# ------------------------------------------------------- exclusive connections


async def test_watching(client: penstock.Client) -> None:
    await client.set("{w}k", 1)
    async with client.exclusive("{w}k") as own:
        assert await own.get("{w}k") == b"1"
        tx = own.transaction()
        tx.incr("{w}k")
        assert await tx.all() == [2]
        await own.watch("{w}k")
        await client.set("{w}k", 10)
        with pytest.raises(WatchError, match="nothing ran"):
            await tx.all()
        await own.unwatch()
        assert await tx.all() == [11]


async def test_read_decide_write(client: penstock.Client) -> None:
    async def increment(own: ExclusiveConnection) -> Transaction:
        value = int(await own.get("{w}n") or 0)
        tx = own.transaction()
        tx.set("{w}n", value + 1)
        return tx

    await asyncio.gather(*(client.transact(increment, "{w}n") for _ in range(20)))
    assert await client.get("{w}n") == b"20"


async def test_a_changed_connection_is_not_used_again(client: penstock.Client, place: Place) -> None:
    if place.is_cluster:
        pytest.skip("a cluster has one database")
    async with client.exclusive() as own:
        await own.execute("SELECT", 3)
        await own.set("k", "three")
    async with client.exclusive() as own:
        assert await own.get("k") is None
        with pytest.raises(UsageError, match="pubsub"):
            await own.execute("SUBSCRIBE", "c")


async def test_a_clean_connection_is_used_again(client: penstock.Client) -> None:
    ids = set()
    for _ in range(3):
        async with client.exclusive("{w}k") as own:
            ids.add(await own.execute("CLIENT", "ID"))
    assert len(ids) == 1


# --------------------------------------------------------------------- scripts


async def test_a_script(client: penstock.Client) -> None:
    script = client.script("return {KEYS[1], ARGV[1], tonumber(ARGV[2]) * 2}")
    assert await script(keys=["k"], args=["a", 21]) == [b"k", b"a", 42]
    await client.execute("SCRIPT", "FLUSH", route=penstock.ToAll())
    assert await script(keys=["k"], args=["a", 21]) == [b"k", b"a", 42]
    assert await client.execute("EVALSHA", script.sha1, 1, "k", "a", 1) == [b"k", b"a", 2]
    with pytest.raises(CommandError, match="WRONG"):
        await client.script("return redis.error_reply('WRONG way')")(keys=["k"])


async def test_a_script_in_a_transaction(client: penstock.Client) -> None:
    script = client.script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    tx = client.transaction()
    tx.set("{s}n", 1)
    later = script.queue(tx, ["{s}n"], [41])
    await tx.all()
    assert await later == 42


async def test_a_library_of_scripts(client: penstock.Client, tmp_path: Path) -> None:
    (tmp_path / "add.lua").write_text("return ARGV[1] + ARGV[2]")
    (tmp_path / "one.lua").write_text("return 1")
    (tmp_path / "notes.txt").write_text("no script")
    scripts = client.scripts(tmp_path)
    assert list(scripts) == ["add", "one"]
    assert await scripts.add(keys=["k"], args=[1, 2]) == 3
    assert await scripts["one"](keys=["k"]) == 1
    with pytest.raises(AttributeError, match="no script 'two', only: add, one"):
        _ = scripts.two
    with pytest.raises(KeyError, match="no script 'two'"):
        _ = scripts["two"]
    with pytest.raises(ConfigError, match="neither a directory nor a package"):
        client.scripts("no.such.package")


# ---------------------------------------------------------------------- routes


async def test_routes(client: penstock.Client, place: Place) -> None:
    everywhere = await client.execute("PING", route=penstock.ToAll())
    assert len(everywhere) == (3 if place.is_cluster else 1)
    for name in everywhere:
        assert await client.execute("ECHO", name, route=penstock.ToServer(name)) == name.encode()
    await client.set("k", "v")
    assert await client.execute("EXISTS", "k", route=penstock.ByKey("k"), timeout_ms=1000) == 1
    assert await client.execute("PING", route=penstock.BySlot(0)) == b"PONG"
    assert await client.execute("PING", route=penstock.ToAny()) == b"PONG"
    with pytest.raises(ConfigError, match="no server 'nowhere:1'"):
        await client.execute("PING", route=penstock.ToServer("nowhere:1"))


async def test_scanning(client: penstock.Client) -> None:
    await client.pipeline().all()
    for number in range(200):
        await client.set(f"scan-{number}", 1)
    await client.set("other", 1)
    keys = {key async for key in client.scan_iter(match="scan-*", count=20)}
    assert keys == {f"scan-{number}".encode() for number in range(200)}


async def test_a_monitor(client: penstock.Client, open_client: OpenClient) -> None:
    async with client.monitor(route=penstock.ByKey("k")) as lines:
        await client.set("k", 'a "b"\n')
        async for line in lines:
            if line.arguments[0].upper() == b"SET":
                break
        assert line.arguments == (b"SET", b"k", b'a "b"\n')
        assert line.database == 0
