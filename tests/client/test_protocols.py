"""RESP2 and RESP3, bytes and text: both at once on one place, and the same values from each."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock.client.pubsub import Message
from penstock.errors import CommandError, UsageError, WrongTypeError
from tests.client.conftest import OpenClient, Place


async def test_others_come_and_go_in_both_protocols(client: penstock.Client, open_client: OpenClient) -> None:
    is_over = False

    async def ping(number: int) -> int:
        count = 0
        while not is_over:
            assert await client.execute("ECHO", f"{number}.{count}") == f"{number}.{count}".encode()
            count += 1
        return count

    pinging = [asyncio.create_task(ping(number)) for number in range(10)]
    for number in range(20):
        async with open_client(protocol=2 + number % 2) as other:
            await other.hset("h", {"f": number})
            assert await other.hgetall("h") == {b"f": b"%d" % number}
    is_over = True
    assert all(count > 20 for count in await asyncio.gather(*pinging))


async def test_a_connection_that_changes_its_protocol(client: penstock.Client) -> None:
    is_over = False

    async def ping() -> int:
        count = 0
        while not is_over:
            assert await client.execute("PING") == b"PONG"
            count += 1
        return count

    pinging = asyncio.create_task(ping())
    await client.hset("{p}h", {"f": "v"})
    async with client.exclusive("{p}h") as own:
        for number in range(20):
            protocol = 2 + number % 2
            greeting = await own.execute("HELLO", protocol)
            raw = await own.execute("HGETALL", "{p}h")
            assert isinstance(greeting, dict if protocol == 3 else list)
            assert raw == ({b"f": b"v"} if protocol == 3 else [b"f", b"v"])
            assert await own.hgetall("{p}h") == {b"f": b"v"}
    is_over = True
    assert await pinging > 20
    async with client.exclusive("{p}h") as own:  # not the one that was changed
        assert isinstance(await own.execute("HGETALL", "{p}h"), dict if _speaks_3(client) else list)


def _speaks_3(client: penstock.Client) -> bool:
    return client._settings.protocol == 3


async def test_nobody_changes_the_protocol_of_all(client: penstock.Client) -> None:
    for command in (("HELLO", 2), ("hello", 3), ("HELLO",)):
        with pytest.raises(UsageError, match="protocol"):
            await client.execute(*command)
    with pytest.raises(UsageError, match="protocol"):
        client.pipeline().execute("HELLO", 3)


async def test_values_as_the_protocol_has_them(client: penstock.Client, place: Place) -> None:
    await client.hset("h", {"f": "v"})
    await client.sadd("s", "x")
    await client.zadd("z", {"m": 1.5})
    is_3 = place.protocol == 3
    assert await client.execute("HGETALL", "h") == ({b"f": b"v"} if is_3 else [b"f", b"v"])
    assert await client.execute("SMEMBERS", "s") == [b"x"]
    assert await client.execute("ZSCORE", "z", "m") == (1.5 if is_3 else b"1.5")
    assert await client.execute("GET", "none") is None
    assert await client.execute("LPOP", "none", 2) is None
    # The helpers' values are the same.
    assert await client.hgetall("h") == {b"f": b"v"}
    assert await client.smembers("s") == {b"x"}
    assert await client.zscore("z", "m") == 1.5


async def test_typed_replies_of_scripts(client: penstock.Client, place: Place) -> None:
    as_map = await client.execute("EVAL", "redis.setresp(3) return {map={a={double=1.5}}}", 1, "k")
    assert as_map == ({b"a": 1.5} if place.protocol == 3 else [b"a", b"1.5"])
    as_set = await client.execute("EVAL", "return {set={x=true}}", 1, "k")
    assert set(as_set) == {b"x"}


# ------------------------------------------------------------------------- text


async def test_text_everywhere(open_client: OpenClient) -> None:
    client = await open_client(decode_responses=True)
    await client.set("{ü}k", "ä")
    assert await client.execute("GET", "{ü}k") == "ä"
    assert await client.mget("{ü}k", "{ü}none") == ["ä", None]
    await client.zadd("{ü}z", {"ö": 1.5})
    assert await client.zrange("{ü}z", 0, -1, withscores=True) == [("ö", 1.5)]
    await client.rpush("{ü}l", "ß")
    assert await client.blpop("{ü}l", timeout_s=1) == ("{ü}l", "ß")
    pipe = client.pipeline()
    pipe.get("{ü}k")
    pipe.execute("ECHO", "é")
    assert await pipe.all() == ["ä", "é"]
    tx = client.transaction()
    tx.get("{ü}k")
    assert await tx.all() == ["ä"]
    async with client.exclusive("{ü}k") as own:
        assert await own.get("{ü}k") == "ä"
    assert await client.script("return {ARGV[1], 1}")(keys=["{ü}k"], args=["ñ"]) == ["ñ", 1]
    assert {key async for key in client.scan_iter()} == {"{ü}k", "{ü}z"}
    assert await client.type("{ü}k") == "string"
    assert set((await client.execute("PING", route=penstock.ToAll())).values()) == {"PONG"}
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("ö")
        await client.publish("ö", "ä")
        item = await subscriber.get(timeout_ms=5000)
        assert isinstance(item, Message)
        assert (item.channel, item.data) == ("ö", "ä")


async def test_what_is_no_text_survives(open_client: OpenClient) -> None:
    client, plain = await open_client(decode_responses=True), await open_client()
    await plain.set("k", b"\xff\x00\xfe")
    text = await client.get("k")
    assert isinstance(text, str)
    assert text.encode("utf-8", "surrogateescape") == b"\xff\x00\xfe"
    await client.set("copy", text.encode("utf-8", "surrogateescape"))
    assert await plain.get("copy") == b"\xff\x00\xfe"
    dump = await client.dump("k")
    assert isinstance(dump, bytes)
    assert dump == await plain.dump("k")


async def test_errors_are_the_same_in_all(open_client: OpenClient) -> None:
    said: set[str] = set()
    for protocol in (2, 3):
        for is_decoding in (False, True):
            client = await open_client(protocol=protocol, decode_responses=is_decoding)
            await client.set("k", "v")
            with pytest.raises(CommandError) as raised:
                await client.lpush("k", "v")
            said.add(str(raised.value))
            assert raised.value.code == "WRONGTYPE"
            with pytest.raises(CommandError):
                await client.execute("INCR", "k")
    assert said == {str(WrongTypeError())}


async def test_large_and_strange_values(client: penstock.Client) -> None:
    values = [b"", b"\r\n", b"*1\r\n$4\r\nPING\r\n", bytes(range(256)), b"x" * 5_000_000]
    for value in values:
        await client.set("k", value)
        assert await client.get("k") == value
    assert await client.execute("ECHO", memoryview(b"abc")[1:]) == b"bc"
    many = [b"%d" % number for number in range(20_000)]
    await client.rpush("l", *many)
    assert await client.lrange("l", 0, -1) == many
