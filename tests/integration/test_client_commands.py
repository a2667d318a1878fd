"""Every command helper on real servers: RESP2 and RESP3, bytes and text, one and the same value."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.client.commands.scanning import hscan_iter, scan_iter, sscan_iter, zscan_iter
from penstock.testing.servers import RealServer
from tests.integration import stories_of_data, stories_of_servers
from tests.integration.comparing_client import HELPERS, Comparing, decoded, opened

#: Protocol, and whether the connection decodes.
MODES = [(2, False), (3, False), (2, True), (3, True)]
STORIES = [*stories_of_data.STORIES, *stories_of_servers.STORIES]


@pytest.mark.parametrize("story", STORIES)
async def test_every_protocol_gives_the_same_values(
    real_server: RealServer, story: Callable[[Comparing], Awaitable[None]]
) -> None:
    for protocol, is_decoding in MODES:
        async with opened(real_server.url, protocol, is_decoding) as client:
            await story(client)
            await client.flushall()


# ------------------------------------------------------------------- a cluster's node


async def test_a_node_tells_of_its_cluster(real_server: RealServer) -> None:
    with RealServer(real_server.binary, options={"cluster-enabled": "yes"}) as node:
        node.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        async with asyncio.timeout(10):
            while b"cluster_state:ok" not in node.execute("CLUSTER", "INFO"):
                await asyncio.sleep(0.01)
        for protocol, is_decoding in MODES:
            async with opened(node.url, protocol, is_decoding) as client:
                await stories_of_servers.cluster(client)
                assert {name for name in HELPERS if name.startswith("cluster_")} <= client.used


async def test_no_helper_was_forgotten(valkey_server: RealServer) -> None:
    async with opened(valkey_server.url, 3, False) as client:
        for story in STORIES:
            await story(client)
            await client.flushall()
        assert {name for name in HELPERS - client.used if not name.startswith("cluster_")} == set()


# ------------------------------------------------------------------- scans


@pytest.mark.parametrize(("protocol", "is_decoding"), MODES)
async def test_walks_find_everything(valkey_server: RealServer, protocol: int, is_decoding: bool) -> None:
    numbers = range(1000)
    async with opened(valkey_server.url, protocol, is_decoding) as c:
        await c.mset({f"key:{number}": number for number in numbers})
        await c.hset("h", {f"f{number}": number for number in numbers})
        await c.sadd("s", *(f"m{number}" for number in numbers))
        await c.zadd("z", {f"m{number}": number / 2 for number in numbers})
        call = c.call
        names = [name async for name in scan_iter([call], match="key:*", count=50)]
        expected = {b"key:%d" % number for number in numbers}
        assert set(names) == (decoded(expected) if is_decoding else expected)
        typed = [name async for name in scan_iter([call, call], type="hash")]
        assert typed == (["h", "h"] if is_decoding else [b"h", b"h"])
        fields = dict([item async for item in hscan_iter(call, "h", count=50)])
        assert fields == await c.hgetall("h")
        assert {item async for item in sscan_iter(call, "s")} == await c.smembers("s")
        members = dict([item async for item in zscan_iter(call, "z", match="m*")])
        assert members == dict(await c.zrange("z", 0, -1, withscores=True))
        assert [item async for item in sscan_iter(call, "nope")] == []
