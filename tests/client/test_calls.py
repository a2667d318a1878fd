"""Commands of many tasks on one client, wherever it runs."""

from __future__ import annotations

import asyncio
import os

import pytest

import penstock
from penstock.errors import ClosedError, CommandError, CommandTimeoutError, UsageError
from tests.client.conftest import SLOW, OpenClient, Place


async def test_execute(client: penstock.Client) -> None:
    assert await client.execute("SET", "k", "v") == b"OK"
    assert await client.execute(b"get", "k") == b"v"
    assert await client.execute("GET", "none") is None
    assert await client.execute("INCRBY", "n", 41) == 41
    assert await client.execute("ECHO", 1.5) == b"1.5"


async def test_replies_reach_their_callers(client: penstock.Client) -> None:
    async def echo(number: int) -> bool:
        return await client.execute("ECHO", f"value-{number}") == f"value-{number}".encode()

    assert all(await asyncio.gather(*(echo(number) for number in range(2_000))))


async def test_a_command_is_a_coroutine(client: penstock.Client) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client.incr("n")) for _ in range(20)]
    assert sorted(task.result() for task in tasks) == list(range(1, 21))


async def test_errors_are_raised(client: penstock.Client) -> None:
    await client.set("k", "text")
    with pytest.raises(CommandError, match="WRONGTYPE"):
        await client.lpush("k", "v")
    with pytest.raises(CommandError, match="ERR unknown command"):
        await client.execute("NONSENSE")
    with pytest.raises(TypeError):
        await client.execute()
    with pytest.raises((TypeError, CommandError)):
        await client.execute("SET", "k", None)  # type: ignore[arg-type]
    assert await client.get("k") == b"text"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("SUBSCRIBE", "c"), "pubsub"),
        (("MULTI",), "transaction"),
        (("WATCH", "k"), "exclusive"),
        (("SELECT", 1), "db"),
        (("auth", "secret"), "password"),
        (("CLIENT", "REPLY", "OFF"), "reply"),
        (("MONITOR",), "monitor"),
    ],
)
async def test_what_cannot_be_shared_says_what_to_use(
    client: penstock.Client, arguments: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(UsageError, match=hint):
        await client.execute(*arguments)
    assert await client.ping() in (b"PONG", True)


async def test_a_timeout_for_one_call(client: penstock.Client) -> None:
    with pytest.raises(CommandTimeoutError, match="EVAL within 50 ms"):
        await client.execute("EVAL", SLOW, 1, "k", timeout_ms=50)
    assert await client.execute("ECHO", "after", timeout_ms=20_000) == b"after"


async def test_cancelled_callers_do_not_disturb_others(client: penstock.Client) -> None:
    tasks = [asyncio.create_task(client.execute("ECHO", number)) for number in range(500)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert done[1::2] == [str(number).encode() for number in range(1, 500, 2)]
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done[::2])
    assert await client.execute("ECHO", "next") == b"next"


async def test_text_instead_of_bytes(open_client: OpenClient) -> None:
    async with open_client(decode_responses=True) as client:
        await client.hset("h", {"ä": "ö"})
        assert await client.hgetall("h") == {"ä": "ö"}
        assert await client.get("none") is None


async def test_the_end(open_client: OpenClient) -> None:
    client = open_client()
    await client.set("k", "v")
    await asyncio.gather(client.close(), client.close())
    await client.close()
    with pytest.raises(ClosedError):
        await client.get("k")
    with pytest.raises(ClosedError):
        await client.execute("GET", "k", timeout_ms=5)
    with pytest.raises(ClosedError):
        await client.connect()
    assert "closed" in repr(client)


async def test_close_lets_replies_arrive(client: penstock.Client) -> None:
    assert await client.incr("n") == 1  # there is a connection, hence what is called now is on its way
    tasks = [asyncio.create_task(client.incr("n")) for _ in range(100)]
    await asyncio.sleep(0)
    await client.close()
    assert sorted(await asyncio.gather(*tasks)) == list(range(2, 102))


async def test_it_connects_when_first_used(open_client: OpenClient) -> None:
    client = open_client()
    assert "new" in repr(client)
    assert await client.set("k", "v")
    assert "open" in repr(client)
    assert await client is client


def test_one_loop_each(place: Place) -> None:
    client = penstock.open(place.url, protocol=place.protocol)

    async def use() -> None:
        await client.execute("PING")

    async def use_and_close() -> None:
        await use()
        with pytest.raises(ClosedError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, client.execute("PING", timeout_ms=1000))
        await client.close()

    asyncio.run(use_and_close())


async def test_a_forked_child_is_told(client: penstock.Client) -> None:
    await client.set("k", "v")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        asyncio._set_running_loop(None)
        try:
            asyncio.run(client.execute("GET", "k", timeout_ms=1000))
            os.write(writer, b"no error")
        except ClosedError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        text = await asyncio.to_thread(said.read)
    os.waitpid(pid, 0)
    assert b"fork" in text
    assert await client.get("k") == b"v"


async def test_statistics(client: penstock.Client) -> None:
    await asyncio.gather(*(client.execute("ECHO", number) for number in range(10)))
    servers = client.statistics()["servers"]
    figures = [server for server in servers.values() if isinstance(server, dict) and "sent" in server]
    assert sum(server["sent"] for server in figures) >= 10
    assert all(server["in_flight"] == 0 for server in figures)


async def test_helpers_with_a_timeout_or_a_route(client: penstock.Client) -> None:
    await client.hset("h", {"f": "v"})
    assert await client.using(timeout_ms=5_000).hgetall("h") == {b"f": b"v"}
    assert await client.using(route=penstock.ByKey("h")).hgetall("h") == {b"f": b"v"}
    with pytest.raises(CommandTimeoutError, match="EVAL within 50 ms"):
        await client.using(timeout_ms=50).eval(SLOW, ["k"])
    with pytest.raises(UsageError, match="one answer"):
        client.using(route=penstock.ToAll())


async def test_a_running_script_can_be_killed_by_its_own_client(open_client: OpenClient) -> None:
    """SCRIPT KILL must not wait on the connection that waits for the script."""
    client = await open_client()
    await client.execute("CONFIG", "SET", "lua-time-limit", 20)
    try:
        running = asyncio.create_task(client.eval("while true do end", ["k"]))
        async with asyncio.timeout(20):
            while not running.done():
                try:
                    assert await client.script_kill() == b"OK"
                except CommandError as error:
                    if error.code != "NOTBUSY":  # the script has not begun
                        raise
        with pytest.raises(CommandError, match="killed"):
            await running
        with pytest.raises(CommandError, match="NOTBUSY"):
            await client.script_kill()
    finally:
        await client.execute("CONFIG", "SET", "lua-time-limit", 5_000)
