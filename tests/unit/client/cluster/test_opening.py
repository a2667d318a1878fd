"""Finding the cluster, asking single nodes, and the end."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.policies import NoReconnect
from penstock.client.router.backchannel import address_named
from penstock.client.targets import Address
from penstock.errors import (
    AuthenticationError,
    BackpressureError,
    ClosedError,
    ConfigError,
    NotSentError,
    OutcomeUnknownError,
)
from tests.places import until
from tests.unit.client.cluster.fake_cluster import KEYS, ONE_REPLACED, WITH_REPLICAS, FakeCluster, asked
from tests.unit.client.waiting import outcome


async def test_any_seed_will_do(it: FakeCluster) -> None:
    it.down.add(7)
    router = await it.open(7, 2)
    assert len(router.primaries()) == 3


async def test_a_silent_seed_costs_a_moment(it: FakeCluster) -> None:
    it.silent.add(7)
    started_s = asyncio.get_running_loop().time()
    await it.open(7, 2)
    assert asyncio.get_running_loop().time() - started_s < 3


async def test_seeds_that_cannot_be_reached_are_named(it: FakeCluster) -> None:
    with pytest.raises(NotSentError, match=r"host:7: cannot connect to host:7; host:8: cannot"):
        await it.router(7, 8, fail_fast=True).open()
    with pytest.raises(NotSentError, match=r"host:7: cannot connect to host:7"):
        await it.router(7, reconnect=NoReconnect()).open()
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(NotSentError, match=r"the cluster at host:7 cannot be reached: .*host:7"):
        await it.router(7, connect_timeout_ms=20, handshake_timeout_ms=20).open()
    assert asyncio.get_running_loop().time() - started_s >= 0.04


async def test_opening_waits_as_long_as_the_policy_tries(it: FakeCluster) -> None:
    it.down.add(1)
    router = it.router(1)
    opening = asyncio.create_task(router.open())
    await until(lambda: len(it.dialled) > 3)
    it.down.clear()
    await opening
    await router.open()
    assert await router.call(("INCR", "b")) == 1


@pytest.mark.parametrize("error", [ConfigError("it is a plain server"), AuthenticationError("wrong")])
async def test_what_a_user_must_repair_is_told_at_once(it: FakeCluster, error: Exception) -> None:
    it.refusing[1] = error
    router = it.router(1)
    with pytest.raises(type(error), match=str(error)):
        await router.open()
    with pytest.raises(type(error), match=str(error)):
        await router.call(("GET", "b"))


async def test_nodes_that_announce_addresses_nobody_can_reach(it: FakeCluster) -> None:
    it.node(7)
    it.down |= {1, 2, 3}
    with pytest.raises(NotSentError, match="is not connected: cannot connect"):
        await it.router(7, fail_fast=True).open()


async def test_the_lobby_is_bounded(it: FakeCluster) -> None:
    it.down.add(1)
    router = it.router(1, max_command_buffer_len=2)
    futures = [router.call(("GET", "b")) for _ in range(3)]
    assert isinstance(await outcome(futures[2]), BackpressureError)
    it.down.clear()
    assert await asyncio.gather(*futures[:2]) == [b"1", b"1"]


async def test_places_and_names(it: FakeCluster) -> None:
    it.draw(*WITH_REPLICAS)
    router = await it.open()
    assert router.place_for(("GET", "c")).name == "host:2"
    assert router.link_named("host:2") is router.link_for(("BLPOP", "c", 0))
    assert await router.link_named("host:5").call(("ECHO", "x")) == b"x"
    with pytest.raises(ConfigError, match=r"no server 'host:9'.*host:1, host:2, host:3, host:4"):
        router.link_named("host:9")
    assert [link.name for link in router.primaries()] == ["host:1", "host:2", "host:3"]
    assert "host:1" in repr(router)


# -------------------------------------------------------------------------------------- backchannel


async def test_the_backchannel_goes_where_it_is_sent(it: FakeCluster) -> None:
    router = await it.open()
    for port in (1, 2):
        it.node(port).on("ROLE").reply([b"master", port, []])
    assert await asked(router, 1, ("ROLE",)) == [b"master", 1, []]
    assert await asked(router, 2, ("ROLE",)) == [b"master", 2, []]
    dials = len(it.dialled)
    assert await asked(router, 2, ("ROLE",)) == [b"master", 2, []]
    assert len(it.dialled) == dials
    it.node(2).cut()
    assert await asked(router, 2, ("ROLE",)) == [b"master", 2, []]
    assert repr(router.backchannel) == "<Backchannel host:2>"
    it.node(1).on("FUNCTION", "KILL").error("NOTBUSY No scripts in execution right now.")
    with pytest.raises(NotSentError, match="host:1: NOTBUSY"):
        await asked(router, 1, ("FUNCTION", "KILL"))
    with pytest.raises(ConfigError, match="no server"):
        address_named("nonsense")


async def test_questions_are_asked_one_by_one(it: FakeCluster) -> None:
    router = await it.open()
    gate = it.node(1).on("ROLE").hold()
    questions = [asyncio.create_task(asked(router, 1, ("ROLE",))) for _ in range(3)]
    for n in range(3):
        await until(lambda: gate.held)
        assert len(gate.held) == 1
        gate.release(n)
    assert await asyncio.gather(*questions) == [0, 1, 2]


async def test_a_server_that_does_not_answer_the_backchannel(it: FakeCluster) -> None:
    router = await it.open(handshake_timeout_ms=30)
    it.node(1).on("ROLE").hold()
    with pytest.raises(NotSentError, match="host:1 did not answer"):
        await asked(router, 1, ("ROLE",))


async def test_a_node_that_does_not_answer_is_passed_over(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("CLUSTER", "SLOTS").hold()
    it.node(1).on("INCR").error("MOVED 3300 host:3")
    it.draw(*ONE_REPLACED)
    assert await router.call(("INCR", "b")) == 3
    await until(lambda: "host:1" not in router.statistics())
    assert router.backchannel.address != Address("host", 1)


def test_addresses_by_name() -> None:
    assert address_named("a:1") == Address("a", 1)
    assert address_named("[::1]:7000") == Address("::1", 7000)


# ------------------------------------------------------------------------------------------ the end


async def test_nothing_is_left_after_close(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("TRYAGAIN")
    gate = it.node(2).on("INCR").hold()
    it.down.add(9)
    it.node(3).on("INCR").error("ASK 15495 host:9")
    futures = [router.call(("INCR", KEYS[node])) for node in (1, 2, 3)]
    await until(lambda: gate.held and (9, False) in it.dialled)
    await asyncio.gather(router.close(), router.close())
    assert all(future.done() for future in futures)
    outcomes = [await outcome(future) for future in futures]
    assert [type(each) for each in outcomes] == [ClosedError, OutcomeUnknownError, ClosedError]
    with pytest.raises(ClosedError):
        await router.call(("GET", "b"))
    with pytest.raises(ClosedError):
        await asked(router, 1, ("ROLE",))
    await router.close()


async def test_closing_before_anybody_answered(it: FakeCluster) -> None:
    it.silent |= {1, 2}
    router = it.router(1, 2)
    opening = asyncio.create_task(router.open())
    future = router.call(("GET", "b"))
    await until(lambda: len(it.dialled) == 2)
    await router.close()
    assert isinstance(await outcome(future), ClosedError)
    assert isinstance(await outcome(opening), ClosedError)


async def test_closing_during_a_refresh(it: FakeCluster) -> None:
    router = await it.open()
    for port in (1, 2, 3):
        it.node(port).on("CLUSTER", "SLOTS").hold()
    it.node(1).on("INCR").error("MOVED 3300 host:2")
    await router.call(("INCR", "b"))
    await until(lambda: it.asked() > 1)
    await router.close()


async def test_a_router_that_was_never_used_closes(it: FakeCluster) -> None:
    await it.router().close()


async def test_another_loop_is_refused(it: FakeCluster) -> None:
    router = await it.open()

    async def elsewhere() -> None:
        with pytest.raises(ClosedError, match="another event loop"):
            await router.call(("GET", "b"))
        with pytest.raises(ClosedError, match="another event loop"):
            await asked(router, 1, ("ROLE",))
        with pytest.raises(ClosedError, match="another event loop"):
            await router.close()

    await asyncio.to_thread(asyncio.run, elsewhere())
