"""Pipelines and transactions that are cancelled, out of time or refused, among the commands of others."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import penstock
from penstock.client.pipelines import Batch
from penstock.errors import ClosedError, CommandError, CommandTimeoutError, UsageError
from tests.client.conftest import CLUSTERS, SLOW, OpenClient, Place


async def test_a_transaction_out_of_time(client: penstock.Client) -> None:
    tx = client.transaction()
    tx.execute("EVAL", SLOW, 1, "{t}k")
    tx.incr("{t}n")
    with pytest.raises(CommandTimeoutError, match="2 commands were not all answered within 20 ms"):
        await tx.all(timeout_ms=20)
    assert await client.execute("GET", "{t}n", timeout_ms=20_000) == b"1"  # it was on its way, whole


async def test_the_clients_own_timeout(open_client: OpenClient) -> None:
    client = await open_client(command_timeout_ms=50)
    tx = client.transaction()
    tx.execute("EVAL", SLOW, 1, "{t}k")
    with pytest.raises(CommandTimeoutError):
        await tx.all()
    pipe = client.pipeline()
    pipe.execute("EVAL", SLOW, 1, "{t}k")
    (outcome,) = await pipe.try_all()
    assert isinstance(outcome, CommandTimeoutError)


async def test_cancelled_batches_disturb_nobody(client: penstock.Client) -> None:
    def batch(number: int) -> Batch:
        made = client.pipeline() if number % 2 else client.transaction()
        for _ in range(5):
            made.execute("ECHO", number)
            made.incr("{t}n")
        return made

    tasks = [asyncio.create_task(batch(number).all()) for number in range(200)]
    echoes = [asyncio.create_task(client.execute("ECHO", number)) for number in range(200)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.sleep(0)
    for task in tasks[1::30]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    n_cancelled = 0
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, asyncio.CancelledError):
            n_cancelled += 1
            continue
        assert isinstance(outcome, list)
        assert outcome[::2] == [b"%d" % number] * 5
        if number % 2 == 0:  # a transaction counts without anybody in between
            assert outcome[1::2] == list(range(outcome[1], outcome[1] + 5))
    assert n_cancelled >= len(tasks[::3])
    assert await asyncio.gather(*echoes) == [b"%d" % number for number in range(200)]


async def test_batches_of_a_closed_client(open_client: OpenClient) -> None:
    client = await open_client()
    pipe, tx = client.pipeline(), client.transaction()
    pipe.get("k")
    tx.get("k")
    await client.close()
    for batch in (pipe, tx):
        with pytest.raises(ClosedError):
            await batch.all()


async def test_what_a_transaction_refuses(client: penstock.Client) -> None:
    tx = client.transaction()
    for command in (("MULTI",), ("WATCH", "k"), ("SUBSCRIBE", "c"), ("SELECT", 1), ("MONITOR",)):
        with pytest.raises(UsageError, match="cannot be queued"):
            tx.execute(*command)
    tx.lpop("{t}none")
    tx.execute("BLPOP", "{t}none", 0)  # in a transaction it does not wait
    assert await tx.all() == [None, None]


# ------------------------------------------------------- connections of one's own


async def test_a_cancelled_wait_for_a_connection_leaks_nothing(open_client: OpenClient) -> None:
    client = await open_client(max_blocking_connections=1)

    async def use() -> None:
        async with client.exclusive("{w}k") as own:
            await own.get("{w}k")

    for turns in range(20):  # cancelled while it waits for room, connects, watches, gets, unwatches
        async with client.exclusive("{w}k") if turns % 2 else client.exclusive():
            waiting = asyncio.create_task(use())
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.wait_for(use(), 5)
    assert client.statistics()["private_links"]["lent"] == 0


@CLUSTERS
async def test_a_connection_of_ones_own_leads_to_one_server(client: penstock.Client) -> None:
    async with client.exclusive("a") as own:
        with pytest.raises(CommandError, match="MOVED") as raised:
            await own.get("b")
        assert "leads to" in raised.value.__notes__[0]
        tx = own.transaction()
        tx.get("b")
        with pytest.raises(CommandError, match="MOVED"):
            await tx.all()
        assert await own.get("a") is None
    with pytest.raises(CommandError, match="CROSSSLOT"):
        async with client.exclusive("a", "b"):
            pass
    assert client.statistics()["private_links"]["lent"] == 0


# ------------------------------------------- what goes another way is seen as well


async def test_spans_of_commands_that_go_another_way(open_client: OpenClient) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with open_client(tracer=provider.get_tracer("test")) as client:
        await client.execute("ECHO", "x", route=penstock.ByKey("k"))
        await client.execute("EXISTS", "k", timeout_ms=20_000)
        await client.execute("STRLEN", "k", route=penstock.ByKey("k"), timeout_ms=5_000)
    names = [span.name for span in exporter.get_finished_spans()]
    assert [name for name in names if name in ("ECHO", "EXISTS", "STRLEN")] == ["ECHO", "EXISTS", "STRLEN"]
    provider.shutdown()


async def test_a_cache_knows_of_writes_that_go_another_way(open_client: OpenClient, place: Place) -> None:
    if place.protocol == 2:
        pytest.skip("caching needs RESP3")
    client = await open_client(client_cache_entries=100)
    for number in range(100):
        await client.get("k")
        if number % 2:
            await client.execute("SET", "k", number, timeout_ms=20_000)
        else:
            await client.execute("SET", "k", number, route=penstock.ByKey("k"))
        assert await client.get("k") == b"%d" % number
