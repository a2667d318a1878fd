"""What goes wrong around the DSPS API: endless bodies, stores that die or freeze, clients that go, crowds.

Stores are real servers that are killed (SIGKILL) or frozen (SIGSTOP). What was answered with 200 must be
there afterwards; what could not be done must be a 503 that says when to come again, in time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from penstock.testing.servers import RealServer
from tests.conftest import RealServers
from tests.gateway.conftest import Answer, Connection, Start, Worker, polling, storage_at
from tests.places import until

#: Of the gateway's commands in these tests.
COMMAND_TIMEOUT_S = 1.0
#: What a busy machine may add to it.
SLACK_S = 12.0
ADMIN = [("Authorization", "Bearer sesame")]
MIB = 1024 * 1024


# --------------------------------------------------------------------------------- bodies


async def test_a_body_that_announces_too_much_is_refused_before_it_is_read(gateway: Worker) -> None:
    async with asyncio.timeout(10), Connection.open(gateway.port) as connection:
        connection.send("PUT", "/channel/room/message/m-1", headers=[("Content-Length", str(10 * MIB))])
        answer = await connection.receive()
    assert (answer.status, answer.json) == (413, {"error": f"the body may have at most {MIB} bytes"})
    assert answer.headers["connection"] == "close"


async def test_a_body_without_length_is_read_up_to_the_limit(gateway: Worker) -> None:
    async with asyncio.timeout(10), Connection.open(gateway.port) as connection:
        connection.send("PUT", "/channel/room/message/m-1", headers=[("Transfer-Encoding", "chunked")])
        for _ in range(20):
            connection.write(b"10000\r\n" + b"1" * 0x10000 + b"\r\n")
        answer = await connection.receive()
    assert answer.status == 413
    assert (await gateway.publish("m-1")).status == 200


async def test_ten_megabytes_from_curl(gateway: Worker, tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    big.write_bytes(b'"' + b"x" * (10 * MIB) + b'"')
    process = await asyncio.create_subprocess_exec(
        "curl", "-s", "-T", str(big), f"http://127.0.0.1:{gateway.port}/channel/room/message/m-1",
        "-w", "%{http_code}", "-o", "/dev/null", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 30)
    assert said == b"413"
    assert await gateway.services.channels.names() == []


async def test_the_limit_is_exact(gateway: Worker) -> None:
    await gateway.subscribe()
    assert (await gateway.publish("m-1", b'"' + b"x" * (MIB - 2) + b'"')).status == 200
    assert (await gateway.publish("m-2", b'"' + b"x" * (MIB - 1) + b'"')).status == 413
    [message] = (await gateway.fetch()).json["messages"]
    assert len(message["content"]) == MIB - 2


async def test_many_large_messages_come_in_several_batches(gateway: Worker) -> None:
    await gateway.subscribe()
    for number in range(20):
        assert (await gateway.publish(f"m-{number}", b'"' + b"x" * 900_000 + b'"')).status == 200
    seen: list[str] = []
    while len(seen) < 20:
        fields = (await gateway.fetch()).json
        seen += [each["messageID"] for each in fields["messages"]]
        assert fields["moreMessages"] is (len(seen) < 20)
        await gateway.ack(fields["ackHandle"])
    assert seen == [f"m-{number}" for number in range(20)]


# ---------------------------------------------------------------------------- dying stores


@pytest.fixture
def server() -> Iterator[RealServer]:
    """A Valkey of its own that keeps what it confirmed."""
    with RealServer(options={"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


def storage_of(server: RealServer, timeout_s: float = COMMAND_TIMEOUT_S) -> dict[str, Any]:
    timeouts = {"connect": f"{timeout_s}s", "read": f"{timeout_s}s", "write": f"{timeout_s}s"}
    return {"redis": {"singleNode": f"127.0.0.1:{server.port}", "timeout": timeouts}}


@pytest.fixture
async def frail(starter: Start, server: RealServer) -> Worker:
    """A gateway whose store may be killed."""
    return await starter(storages={"default": storage_of(server)}, admin={"auth": {"bearer": ["sesame"]}})


def freeze(server: RealServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)


def thaw(server: RealServer) -> None:
    os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("death", ["killed", "frozen"])
async def test_a_store_that_is_gone_is_a_503_in_time(frail: Worker, server: RealServer, death: str) -> None:
    await frail.subscribe()
    await frail.publish("m-1")
    handle = (await frail.fetch()).json["ackHandle"]
    server.kill() if death == "killed" else freeze(server)
    try:
        began = monotonic()
        answers = await asyncio.gather(
            frail.publish("m-2"),
            frail.subscribe("bob"),
            frail.unsubscribe("bob"),
            frail.fetch(),
            frail.fetch("?timeout=500ms"),
            frail.ack(handle),
            frail.ask("PUT", "/admin/jwt/revoke?jti=a&exp=4000000000", headers=ADMIN),
        )
        assert monotonic() - began < 0.5 + 2 * COMMAND_TIMEOUT_S + SLACK_S
        for answer in answers:
            assert answer.status == 503, answer
            assert answer.json.keys() == {"error"}
            assert int(answer.headers["retry-after"]) >= 1
        assert (await frail.ask("GET", "/probe/liveness")).status == 200
        answer = await frail.ask("GET", "/probe/readiness")
        assert (answer.status, answer.json["storage"]) == (500, {})
    finally:
        server.restart() if death == "killed" else thaw(server)
    await until(lambda: _is_ready(frail))
    assert (await frail.ids())[0] == "m-1"
    assert (await frail.publish("m-3")).status == 200
    assert (await frail.ack(handle)).status == 204
    assert "m-3" in await frail.ids()


async def _is_ready(gateway: Worker) -> bool:
    return (await gateway.ask("GET", "/probe/readiness")).status == 200


async def test_nothing_confirmed_is_lost_when_the_store_is_killed(frail: Worker, server: RealServer) -> None:
    """Publishers do not stop; the store is killed twice under them, and comes back."""
    await frail.subscribe()
    confirmed: list[str] = []
    refused: list[int] = []
    is_over = False

    async def publish(name: str) -> None:
        number = 0
        while not is_over:
            number += 1
            answer = await frail.publish(f"{name}-{number}")
            if answer.status == 200:
                confirmed.append(f"{name}-{number}")
            else:
                refused.append(answer.status)

    publishers = [asyncio.create_task(publish(name)) for name in "abcd"]
    try:
        for _ in range(2):
            await _grown(confirmed, 50)
            server.kill()
            await _grown(refused, 1)
            await asyncio.to_thread(server.restart)
        await _grown(confirmed, 50)
    finally:
        is_over = True
        await asyncio.gather(*publishers)
    assert set(refused) == {503}
    seen: list[str] = []
    while (fields := (await frail.fetch("?max=1000")).json)["messages"]:
        seen += [each["messageID"] for each in fields["messages"]]
        assert (await frail.ack(fields["ackHandle"])).status == 204
    assert not set(confirmed) - set(seen)
    assert len(seen) == len(set(seen))
    for name in "abcd":
        numbers = [int(each[2:]) for each in seen if each.startswith(name)]
        assert numbers == sorted(numbers)


async def _grown(items: list[Any], by: int) -> None:
    before = len(items)
    await until(lambda: len(items) >= before + by)


async def test_a_poll_outlives_a_store_that_comes_back(starter: Start, server: RealServer) -> None:
    """In the time that a command may take: the client sees nothing of it."""
    gateway = await starter(storages={"default": storage_of(server, timeout_s=10)})
    await gateway.subscribe()
    await gateway.fetch()  # the store has its script now
    poll = asyncio.create_task(gateway.fetch("?timeout=25s"))
    await until(lambda: gateway.services.channels.waiting == 1)
    for number in range(3):  # when these are answered, so is its first look
        await gateway.publish(f"m-{number}", channel="another")
    server.kill()
    await asyncio.to_thread(server.restart)
    assert (await gateway.publish("m-1")).status == 200
    answer = await asyncio.wait_for(poll, 15)
    assert [each["messageID"] for each in answer.json["messages"]] == ["m-1"]


async def test_a_poll_over_a_store_that_stays_away_is_a_503(frail: Worker, server: RealServer) -> None:
    await frail.subscribe()
    poll = asyncio.create_task(frail.fetch("?timeout=2s"))
    await until(lambda: frail.services.channels.waiting == 1)
    began = monotonic()
    server.kill()
    answer = await poll
    assert (answer.status, "retry-after" in answer.headers) == (503, True), "an empty 200 would be a lie"
    assert monotonic() - began < 2 + COMMAND_TIMEOUT_S + SLACK_S
    assert (frail.services.waiting, frail.services.channels.waiting) == (0, 0)


async def test_a_gateway_starts_without_its_store(starter: Start, server: RealServer) -> None:
    server.kill()
    gateway = await starter(storages={"default": storage_of(server)})
    assert (await gateway.ask("GET", "/probe/liveness")).status == 200
    assert (await gateway.publish("m-1")).status == 503
    await asyncio.to_thread(server.restart)
    await until(lambda: _is_ready(gateway))
    assert (await gateway.publish("m-1")).status == 200


# ---------------------------------------------------------------------- two storages, one dead


@asynccontextmanager
async def two_storages(
    starter: Start, real_servers: RealServers, quorum: str
) -> AsyncIterator[tuple[Worker, RealServer]]:
    """A gateway on both, whose subscriber is known to both; and the one that may be killed."""
    first = real_servers.get("valkey")
    with RealServer() as second:
        storages = {"one": storage_of(first), "two": storage_of(second)}
        gateway = await starter(storages=storages, quorum=quorum)
        await gateway.subscribe()
        for each in (first, second):  # one of them may have been enough for the answer
            await until(lambda each=each: each.execute("EXISTS", "c.{room}.r.ann"))
        yield gateway, second


@pytest.mark.parametrize("death", ["killed", "frozen"])
async def test_one_of_two_storages_is_enough(starter: Start, real_servers: RealServers, death: str) -> None:
    async with two_storages(starter, real_servers, "any") as (gateway, second):
        await gateway.publish("m-1")
        second.kill() if death == "killed" else freeze(second)
        await gateway.publish("m-2")  # may find out
        began = monotonic()
        for number in range(3, 23):
            assert (await gateway.publish(f"m-{number}")).status == 200
        assert monotonic() - began < 15, "a dead storage must not cost every call its time limit"
        began = monotonic()
        fields = (await gateway.fetch()).json
        assert [each["messageID"] for each in fields["messages"]] == [
            f"m-{number}" for number in range(1, 23)
        ]
        assert (await gateway.ack(fields["ackHandle"])).status == 204
        assert await gateway.ids() == []
        poll = asyncio.create_task(gateway.fetch("?timeout=20s"))
        await until(lambda: gateway.services.waiting == 1)
        await gateway.publish("late")
        assert [each["messageID"] for each in (await poll).json["messages"]] == ["late"]
        assert monotonic() - began < 18


async def test_a_quorum_that_is_not_there_is_a_503(starter: Start, real_servers: RealServers) -> None:
    async with two_storages(starter, real_servers, "all") as (gateway, second):
        second.kill()
        began = monotonic()
        for _ in range(5):
            answer = await gateway.publish("m-1")
            assert (answer.status, "retry-after" in answer.headers) == (503, True)
        assert monotonic() - began < 5 * 2 * COMMAND_TIMEOUT_S + SLACK_S
        await asyncio.to_thread(second.restart)
        await until(lambda: _is_published(gateway, "m-1"), limit_s=40)


async def _is_published(gateway: Worker, message: str) -> bool:
    return (await gateway.publish(message)).status == 200


# --------------------------------------------------------------------------------- clients


async def test_a_client_that_goes_frees_its_place(gateway: Worker) -> None:
    await gateway.subscribe()
    async with Connection.open(gateway.port) as connection:
        connection.send("GET", polling() + "?timeout=30s")
        await until(lambda: gateway.services.channels.waiting == 1)
        assert gateway.services.waiting == 1
    await until(lambda: (gateway.services.waiting, gateway.services.channels.waiting) == (0, 0), limit_s=5)


async def test_places_are_bounded(start: Start) -> None:
    gateway = await start(http={"limits": {"idlePolls": 2}})
    await gateway.subscribe()
    async with Connection.open(gateway.port) as first, Connection.open(gateway.port) as second:
        first.send("GET", polling() + "?timeout=30s")
        second.send("GET", polling() + "?timeout=30s")
        await until(lambda: gateway.services.waiting == 2)
        answer = await gateway.fetch("?timeout=30s", limit_s=5)
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        assert (await gateway.fetch()).status == 200, "who does not wait needs no place"
    await until(lambda: gateway.services.waiting == 0)
    await gateway.publish("m-1")
    assert await gateway.ids("?timeout=30s") == ["m-1"]


async def test_a_client_that_goes_in_the_middle_of_its_body(gateway: Worker) -> None:
    async with Connection.open(gateway.port) as connection:
        connection.send("PUT", "/channel/room/message/m-1", headers=[("Content-Length", "100")])
        connection.write(b'{"half":')
        await asyncio.sleep(0)
    assert (await gateway.publish("m-2")).status == 200
    assert await gateway.services.channels.find("room", "m-1") is None


async def test_rates(start: Start) -> None:
    gateway = await start(http={"limits": {"publishPerSecond": 0.1, "burst": 3}})
    assert [(await gateway.publish(f"m-{number}")).status for number in range(5)] == [200, 200, 200, 429, 429]
    answer = await gateway.publish("m-9")
    assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert (await gateway.subscribe()).status == 200, "only publishing is counted"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["embedded", "valkey"])
async def test_two_thousand_polls_wait_and_all_are_answered(
    starter: Start, request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    gateway = await starter(storages={"default": storage_at(place, request, tmp_path)})
    crowd = 2_000
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection.open(gateway.port)) for _ in range(crowd)]

        async def join(number: int) -> None:
            path = polling(f"room-{number % 50}", f"s-{number}")
            assert (await connections[number].ask("PUT", path)).status == 200
            connections[number].send("GET", f"{path}?timeout=30s")

        for first in range(0, crowd, 200):
            await asyncio.gather(*map(join, range(first, first + 200)))
        await until(lambda: gateway.services.channels.waiting == crowd)
        began = monotonic()
        assert (await gateway.publish("other", channel="hall")).status == 200
        assert monotonic() - began < 5, "who waits costs nothing"
        for room in range(50):
            assert (await gateway.publish("m-1", b'"x"', f"room-{room}")).status == 200
        answers: list[Answer] = await asyncio.gather(*(each.receive() for each in connections))
    assert {answer.status for answer in answers} == {200}
    assert [each["messageID"] for answer in answers for each in answer.json["messages"]] == ["m-1"] * crowd
    await until(lambda: gateway.services.waiting == 0)
