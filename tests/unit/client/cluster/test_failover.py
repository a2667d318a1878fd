"""Nodes that die, go silent, leave or come back elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.events import Disconnected, TopologyChanged
from penstock.client.policies import Constant, NoReconnect
from penstock.client.router import cluster
from penstock.errors import (
    CommandError,
    CommandTimeoutError,
    ConnectionLostError,
    NotSentError,
    OutcomeUnknownError,
)
from penstock.protocol.replies import OK
from tests.places import until
from tests.unit.client.cluster.fake_cluster import KEYS, ONE_REPLACED, WITH_REPLICAS, FakeCluster
from tests.unit.client.waiting import outcome, settle


async def test_what_waits_for_a_dead_primary_goes_to_the_promoted_one(it: FakeCluster) -> None:
    it.draw(*WITH_REPLICAS)
    router = await it.open()
    gate = it.node(1).on("INCR").hold()
    written = router.call(("INCR", "b"))
    await until(lambda: gate.held)
    it.fail(1)
    waiting = [router.call(("INCRBY", "b", n)) for n in range(10)]
    burst = router.link_for(("GET", "b")).call_burst([("MULTI",), ("INCRBY", "b", 10), ("EXEC",)])
    waiting.append(router.call(("INCRBY", "b", 11)))
    gone = router.call(("INCRBY", "b", 12))
    gone.cancel()
    assert isinstance(await outcome(written), OutcomeUnknownError)
    it.node(4).on("INCRBY").reply(lambda words: int(words[2]))
    it.node(4).on("MULTI").reply(OK)
    it.node(4).on("EXEC").reply([10])
    it.draw((0, 5460, 4), *WITH_REPLICAS[1:])
    assert await asyncio.gather(*waiting) == [*range(10), 11]
    assert await burst == [OK, 10, [10]]
    assert it.sent(4) == [
        *(f"INCRBY b {n}" for n in range(10)),
        "MULTI",
        "INCRBY b 10",
        "EXEC",
        "INCRBY b 11",
    ]
    change = next(event for event in it.events if isinstance(event, TopologyChanged))
    assert change == TopologyChanged((), ("host:1",), 5461)


async def test_reads_that_were_written_are_sent_again_to_the_promoted_one(it: FakeCluster) -> None:
    it.draw(*WITH_REPLICAS)
    router = await it.open()
    gate = it.node(1).on("GET").hold()
    futures = [router.call(("GET", "b")) for _ in range(3)]
    await until(lambda: len(gate.held) == 3)
    it.fail(1)
    it.draw((0, 5460, 4), *WITH_REPLICAS[1:])
    assert await asyncio.gather(*futures) == [b"4"] * 3


async def test_a_node_that_answers_nonsense_does_not_end_the_search(it: FakeCluster) -> None:
    it.draw(*WITH_REPLICAS)
    router = await it.open()
    for port in (2, 3, 5):
        it.node(port).on("CLUSTER", "SLOTS").reply([])
    it.fail(1)
    future = router.call(("GET", "b"))
    it.draw((0, 5460, 4), *WITH_REPLICAS[1:])
    assert await future == b"4"


async def test_one_loss_of_many_links_asks_once_at_a_time(it: FakeCluster) -> None:
    router = await it.open()
    asked = it.asked()
    gates = [it.node(port).on("CLUSTER", "SLOTS").hold() for port in (1, 2, 3)]
    for port in (1, 2, 3):
        it.node(port).cut()
    await until(lambda: sum(len(gate.held) for gate in gates))
    await asyncio.sleep(0.05)
    assert it.asked() == asked + 1
    assert router.statistics()["refreshes"] == 1
    next(gate for gate in gates if gate.held).release(it.slots())


async def test_the_outcome_of_an_outage_and_a_return_elsewhere(it: FakeCluster) -> None:
    router = await it.open(1, 7)
    for port in (1, 2, 3):
        it.fail(port)
    futures = [router.call(("INCR", KEYS[node])) for node in (1, 2, 3)]
    await until(lambda: router.statistics()["refreshes"] >= 3)
    it.draw((0, 8000, 8), (8001, 16383, 9))
    it.node(7)  # the seed is back, and knows others
    assert await asyncio.gather(*futures) == [8, 8, 9]
    assert [link.name for link in router.primaries()] == ["host:8", "host:9"]
    await until(lambda: set(router.statistics()) == {"host:8", "host:9", "redirections", "refreshes"})


async def test_after_an_outage_nobody_waits_for_a_long_delay(it: FakeCluster) -> None:
    router = await it.open(reconnect=Constant(base_ms=60_000))
    for port in (1, 2, 3):
        it.fail(port)
    future = router.call(("INCR", "b"))
    await until(lambda: router.statistics()["refreshes"] >= 2)
    it.down.clear()
    assert await asyncio.wait_for(future, 10) == 1


async def test_a_node_that_leaves_may_answer_what_is_on_its_way(it: FakeCluster) -> None:
    router = await it.open(close_timeout_ms=5_000)
    gate = it.node(1).on("INCR").hold()
    future = router.call(("INCR", "b"))
    await until(lambda: gate.held)
    it.draw(*ONE_REPLACED)
    it.node(1).on("GET", "f").error("MOVED 3168 host:3")
    moved = router.call(("GET", "f"))
    router.follow(CommandError("MOVED 3300 host:3"))
    await until(lambda: "host:1" not in router.statistics())
    gate.release(41)
    assert await future == 41
    assert await moved == b"3"
    await until(lambda: Disconnected("host:1", None, is_final=True) in it.events)


async def test_a_node_that_went_silent_may_have_been_replaced(
    it: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_SILENCE_S", 0.02)
    router = await it.open()
    gate = it.node(1).on("INCR").hold()
    future = router.call(("INCR", "b"))
    await until(lambda: gate.held and router.statistics()["refreshes"])
    it.draw(*ONE_REPLACED)
    await until(lambda: router.link_for(("INCR", "b")).name == "host:3")
    assert await router.call(("INCR", "b")) == 3
    assert isinstance(await outcome(future), OutcomeUnknownError)
    refreshes = router.statistics()["refreshes"]
    await asyncio.sleep(0.1)
    assert router.statistics()["refreshes"] == refreshes, "nobody is silent any more"


async def test_a_node_without_a_way_back_is_told_by_its_error(it: FakeCluster) -> None:
    router = await it.open(reconnect=NoReconnect())
    it.fail(1)
    await settle()
    with pytest.raises(ConnectionLostError):
        await router.call(("INCR", "b"))
    assert await router.call(("INCR", "c")) == 2


async def test_fail_fast_refuses_while_a_node_is_away(it: FakeCluster) -> None:
    router = await it.open(fail_fast=True)
    it.fail(1)
    with pytest.raises(NotSentError, match="host:1 is not connected"):
        await router.call(("INCR", "b"))
    assert await router.call(("INCR", "c")) == 2


async def test_what_waits_too_long_is_told_so(it: FakeCluster) -> None:
    router = await it.open(command_timeout_ms=30)
    it.fail(1)
    with pytest.raises(CommandTimeoutError):
        await router.call(("INCR", "b"))
