"""Commands that wait: nobody else waits for them, and nothing they take is lost."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock.client.events import OrphanedReply
from penstock.errors import BackpressureError, ClosedError, CommandError, CommandTimeoutError, PenstockError
from tests.client.conftest import OpenClient


async def waits(client: penstock.Client, key: str, others: int = 0) -> None:
    """Until somebody is blocked on the server of that key."""
    async with asyncio.timeout(10):
        while True:
            text = await client.execute("INFO", "clients", route=penstock.ByKey(key))
            if f"blocked_clients:{others + 1}".encode() in text:
                return
            await asyncio.sleep(0.002)


async def test_others_do_not_wait(client: penstock.Client) -> None:
    blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
    await waits(client, "list")
    assert await client.execute("ECHO", "meanwhile") == b"meanwhile"
    await client.rpush("list", "x")
    assert await blocked == (b"list", b"x")


async def test_its_own_timeout(client: penstock.Client) -> None:
    assert await client.blpop("list", timeout_s=0.05) is None


async def test_a_cancelled_call_takes_nothing(client: penstock.Client) -> None:
    for _ in range(20):
        blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
        await waits(client, "list")
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        await client.rpush("list", "x")
        assert await client.lpop("list") == b"x"


async def test_cancelled_at_the_same_moment_nothing_is_lost(client: penstock.Client) -> None:
    orphans: list[object] = []
    client.on_event(lambda event: orphans.append(event) if isinstance(event, OrphanedReply) else None)
    got = 0
    for number in range(50):
        blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
        await waits(client, "list")
        push = asyncio.create_task(client.rpush("list", number))
        await asyncio.sleep(0.0001 * (number % 7))
        blocked.cancel()
        await push
        outcome = (await asyncio.gather(blocked, return_exceptions=True))[0]
        got += not isinstance(outcome, BaseException)
        if await client.lpop("list") is not None:
            got += 1
    assert got + len(orphans) == 50


async def test_a_timeout_of_the_call(client: penstock.Client) -> None:
    with pytest.raises(CommandTimeoutError, match="BLPOP waited for 50 ms; it was taken back"):
        await client.execute("BLPOP", "list", 30, timeout_ms=50)
    await client.rpush("list", "x")
    assert await client.lpop("list") == b"x"


async def test_connections_are_used_again(client: penstock.Client) -> None:
    for _ in range(5):
        await client.blpop("list", timeout_s=0.01)
    assert client.statistics()["private_links"] == {"lent": 0, "idle": 1}


async def test_many_at_once_wait_for_room(open_client: OpenClient) -> None:
    client = await open_client(max_blocking_connections=3)
    blocked = [asyncio.create_task(client.blpop("list", timeout_s=30)) for _ in range(10)]
    await waits(client, "list", others=2)
    for number in range(10):
        await client.rpush("list", number)
    values = sorted([(await task)[1] for task in blocked])
    assert values == [str(number).encode() for number in range(10)]


async def test_close_ends_them(open_client: OpenClient) -> None:
    client = await open_client(max_blocking_connections=1)
    blocked = [asyncio.create_task(client.blpop("list", timeout_s=0)) for _ in range(3)]
    await waits(client, "list")
    await client.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*blocked, return_exceptions=True), 5)
    assert all(isinstance(outcome, PenstockError) for outcome in outcomes)
    assert any(isinstance(outcome, ClosedError) for outcome in outcomes)


# --------------------------------------------------------------- the other policies


async def test_policy_block(open_client: OpenClient) -> None:
    client, other = await open_client(blocking_policy="block"), await open_client()
    blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
    await waits(other, "list")
    behind = asyncio.create_task(client.execute("GET", "list:{list}"))
    await asyncio.sleep(0.02)
    assert not behind.done()
    await other.rpush("list", "x")
    assert await blocked == (b"list", b"x")
    assert await behind is None


async def test_policy_error(open_client: OpenClient) -> None:
    client, other = await open_client(blocking_policy="error"), await open_client()
    blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
    await waits(other, "list")
    with pytest.raises(BackpressureError, match="waits for BLPOP"):
        await client.ping()
    await other.rpush("list", "x")
    assert await blocked == (b"list", b"x")
    assert await client.execute("PING") == b"PONG"


async def test_policy_interrupt(open_client: OpenClient) -> None:
    client, other = await open_client(blocking_policy="interrupt"), await open_client()
    blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
    await waits(other, "list")
    assert await client.execute("ECHO", "now", route=None) == b"now"
    with pytest.raises(CommandError, match="UNBLOCKED"):
        await blocked
    assert await client.execute("PING") == b"PONG"


async def test_a_shared_wait_is_taken_back(open_client: OpenClient) -> None:
    client, other = await open_client(blocking_policy="block"), await open_client()
    blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
    await waits(other, "list")
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked
    assert await client.execute("PING") == b"PONG"
    await client.rpush("list", "x")
    assert await client.lpop("list") == b"x"
