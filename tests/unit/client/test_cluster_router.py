"""Where commands go in a cluster, and what becomes of them when it changes: on scripted servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.events import Disconnected, TopologyChanged
from penstock.client.policies import Constant, NoReconnect
from penstock.client.router import cluster
from penstock.client.router.backchannel import Backchannel, address_named
from penstock.client.router.cluster import ClusterRouter
from penstock.client.targets import Address
from penstock.errors import (
    AuthenticationError,
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    ConfigError,
    ConnectionLostError,
    NotSentError,
    OutcomeUnknownError,
)
from penstock.protocol.replies import OK
from penstock.protocol.slots import key_slot
from tests.unit.client.fake_cluster import KEYS, THIRDS, FakeCluster, until

#: Node 3 has taken the place of node 1.
ONE_REPLACED = ((0, 5460, 3), *THIRDS[1:])
#: Nodes 4, 5 and 6 follow 1, 2 and 3.
WITH_REPLICAS = ((0, 5460, 1, 4), (5461, 10922, 2, 5), (10923, 16383, 3, 6))


@pytest.fixture
async def it() -> AsyncIterator[FakeCluster]:
    fake = FakeCluster()
    yield fake
    await fake.close()


async def outcome(future: asyncio.Future[Any]) -> Any:
    """The value or the error, one of which must come."""
    async with asyncio.timeout(10):
        try:
            return await future
        except Exception as error:  # noqa: BLE001 - that is the point
            return error


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def figures(router: ClusterRouter) -> tuple[int, int]:
    statistics = router.statistics()
    return statistics["redirections"], statistics["refreshes"]


# ------------------------------------------------------------------------ routing


async def test_a_command_goes_to_the_node_of_its_key(it: FakeCluster) -> None:
    router = await it.open()
    replies = await asyncio.gather(*(router.call(("GET", KEYS[node])) for node in (1, 2, 3)))
    assert replies == [b"1", b"2", b"3"]
    assert figures(router) == (0, 0)


async def test_a_hash_tag_decides(it: FakeCluster) -> None:
    router = await it.open()
    assert await router.call(("GET", "{c}a")) == b"2"


async def test_commands_without_a_key_go_to_one_and_the_same(it: FakeCluster) -> None:
    router = await it.open()
    for _ in range(3):
        await router.call(("PING",))
    link = router.link_for(("PING",))
    assert link.statistics()["sent"] == 3
    it.fail(address_named(link.name).port)
    await until(lambda: link.statistics()["state"] != "open")
    assert router.link_for(("PING",)) is not link


async def test_an_unknown_command_is_taken_to_begin_with_its_key(it: FakeCluster) -> None:
    router = await it.open()
    it.node(2).on("FROB").reply(b"done")
    assert await router.call(("FROB", KEYS[2], "x")) == b"done"


async def test_an_empty_command_is_refused(it: FakeCluster) -> None:
    router = await it.open()
    with pytest.raises(TypeError, match="at least its name"):
        router.call(())


async def test_commands_before_the_map_wait_for_it(it: FakeCluster) -> None:
    router = it.router()
    futures = [router.call(("GET", KEYS[node])) for node in (1, 2, 3)]
    burst = router.link_for(("GET", KEYS[2])).call_burst([("ECHO", "x"), ("GET", KEYS[2])])
    assert list(router.statistics()) == ["host:1", "redirections", "refreshes"]
    assert await asyncio.gather(*futures) == [b"1", b"2", b"3"]
    assert await burst == [b"x", b"2"]
    assert it.asked() == 1
    assert it.events
    assert not any(isinstance(event, Disconnected) for event in it.events)


async def test_what_needs_the_nodes_says_that_they_are_not_known_yet(it: FakeCluster) -> None:
    router = it.router()
    with pytest.raises(NotSentError, match="not known yet"):
        router.primaries()
    place = router.place_for(("GET", KEYS[2]))
    assert place.name == "host:1"
    owner = Backchannel(it, Settings())  # type: ignore[arg-type]
    connection = Connection(owner, asyncio.get_running_loop(), 10)
    await place.dial(connection)
    assert await connection.call(("GET", KEYS[2])) == b"2"
    connection.abort()
    await settle()


async def test_a_slot_that_nobody_serves_is_asked_for_until_somebody_does(it: FakeCluster) -> None:
    it.draw(*THIRDS[1:])
    router = await it.open()
    for port in (2, 3):
        it.node(port).on("GET", KEYS[1]).error("CLUSTERDOWN Hash slot not served")
    future = router.call(("GET", KEYS[1]))
    await until(lambda: router.statistics()["refreshes"] >= 1)
    it.draw(*THIRDS)
    assert await future == b"1"


# ---------------------------------------------------------------------- many keys


async def test_keys_of_several_slots_are_refused_before_anything_is_sent(it: FakeCluster) -> None:
    router = await it.open()
    with pytest.raises(CommandError, match=r"^CROSSSLOT Keys in request don't hash to the same slot$"):
        await router.call(("MGET", "a", "b"))
    assert [it.sent(port) for port in (1, 2, 3)] == [[], [], []]


async def test_keys_of_one_slot_stay_one_command(it: FakeCluster) -> None:
    router = await it.open(split_multi_key=True)
    it.node(2).on("MGET").reply([b"x", b"y"])
    assert await router.call(("MGET", "{c}1", "{c}2")) == [b"x", b"y"]
    assert it.sent(2) == ["MGET {c}1 {c}2"]


async def test_a_split_command_has_one_reply(it: FakeCluster) -> None:
    router = await it.open(split_multi_key=True)
    for port in (1, 2, 3):
        it.node(port).on("MGET").reply(lambda words: [b"of " + word for word in words[1:]])
        it.node(port).on("MSET").reply(OK)
        it.node(port).on("DEL").reply(1)
    assert await router.call(("MGET", "a", "b", "c", "a")) == [b"of a", b"of b", b"of c", b"of a"]
    assert await router.call(("MSET", "a", 1, "b", 2)) == OK
    assert await router.call(("DEL", "a", "b", "c")) == 3
    assert it.sent(3) == ["MGET a a", "MSET a 1", "DEL a"]
    with pytest.raises(CommandError, match="wrong number of arguments"):
        await router.call(("MSET", "a", 1, "b"))
    with pytest.raises(CommandError, match="CROSSSLOT"):
        await router.call(("MSETNX", "a", 1, "b", 2))


async def test_a_part_that_fails_fails_the_whole(it: FakeCluster) -> None:
    router = await it.open(split_multi_key=True)
    it.node(1).on("DEL").reply(1)
    it.node(2).on("DEL").error("ERR no")
    with pytest.raises(CommandError, match="ERR no"):
        await router.call(("DEL", "b", "c"))


async def test_the_parts_of_a_caller_that_has_gone_are_not_sent(it: FakeCluster) -> None:
    router = await it.open(split_multi_key=True)
    future = router.call(("DEL", "b", "c"))
    future.cancel()
    await settle()
    assert (it.sent(1), it.sent(2)) == ([], [])


# -------------------------------------------------------------------------- MOVED


async def test_moved_is_followed_and_remembered(it: FakeCluster) -> None:
    router = await it.open(cluster_refresh_delay_ms=60_000)
    it.node(1).on("INCR").error("MOVED 3300 host:2")
    assert await router.call(("INCR", KEYS[1])) == 2
    assert await router.call(("INCR", KEYS[1])) == 2
    assert it.sent(1) == ["INCR b"]
    assert figures(router) == (1, 0)
    assert await router.call(("GET", "f")) == b"1", "one slot has moved, not its neighbours"


async def test_moved_without_a_host_means_the_host_that_said_so(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("MOVED 3300 :2")
    assert await router.call(("INCR", KEYS[1])) == 2


async def test_moved_to_a_node_that_was_not_known(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("MOVED 3300 host:9")
    it.node(9)
    it.draw((0, 5460, 1), (3300, 3300, 9), *THIRDS[1:])
    assert await router.call(("INCR", KEYS[1])) == 9
    await until(lambda: it.events[-1] == TopologyChanged(("host:9",), (), 1))


async def test_many_moves_make_one_refresh(it: FakeCluster) -> None:
    router = await it.open(cluster_refresh_delay_ms=20)
    it.node(1).on("INCR").reply(lambda words: CommandError(f"MOVED {key_slot(words[1])} host:3"))
    it.draw(*ONE_REPLACED)
    replies = await asyncio.gather(*(router.call(("INCR", f"{{b}}{n}")) for n in range(100)))
    replies += await asyncio.gather(*(router.call(("INCR", key)) for key in "bfjn"))
    assert replies == [3] * 104
    await until(lambda: router.statistics()["refreshes"] == 1)
    await until(lambda: "host:1" not in router.statistics())
    replies = await asyncio.gather(*(router.call(("INCR", key)) for key in "bfjn"))
    assert figures(router) == (103, 1)
    assert it.events[-2] == TopologyChanged((), ("host:1",), 5461)
    assert isinstance(it.events[-1], Disconnected)


async def test_a_fresh_redirection_outranks_a_map_that_has_not_heard_of_it(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("MOVED 3300 host:2")
    assert await router.call(("INCR", KEYS[1])) == 2
    await until(lambda: router.statistics()["refreshes"] >= 2)
    assert await router.call(("INCR", KEYS[1])) == 2
    assert it.sent(1) == ["INCR b"], "the slot went back to the node that does not have it"
    it.draw((0, 5460, 1), (3300, 3300, 2), *THIRDS[1:])
    await until(lambda: any(isinstance(event, TopologyChanged) for event in it.events))


async def test_circles_end(it: FakeCluster) -> None:
    router = await it.open(max_redirections=4)
    it.node(1).on("INCR").error("MOVED 3300 host:2")
    it.node(2).on("INCR").error("MOVED 3300 host:1")
    with pytest.raises(CommandError, match="MOVED 3300"):
        await router.call(("INCR", KEYS[1]))
    assert len(it.sent(1)) + len(it.sent(2)) == 5
    assert router.statistics()["redirections"] == 4


async def test_moves_keep_the_order_of_commands(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCRBY").error("MOVED 3300 host:2")
    it.node(2).on("INCRBY").reply(lambda words: int(words[2]))
    replies = await asyncio.gather(*(router.call(("INCRBY", "b", n)) for n in range(50)))
    assert replies == list(range(50))
    assert it.sent(2) == [f"INCRBY b {n}" for n in range(50)]


# ---------------------------------------------------------------------------- ASK


async def test_ask_is_followed_this_once(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).expect("INCR", "b").error("ASK 3300 host:2")
    it.node(2).on("ASKING").reply(OK)
    # Newer commands of the same tick must not come between ASKING and its command.
    futures = [router.call(("INCR", "b")), *(router.call(("GET", KEYS[2])) for _ in range(5))]
    assert await asyncio.gather(*futures) == [2, b"2", b"2", b"2", b"2", b"2"]
    sent = it.sent(2)
    assert sent[sent.index("ASKING") + 1] == "INCR b"
    assert await router.call(("INCR", "b")) == 1
    assert figures(router) == (1, 0)


async def test_what_the_asked_node_refuses_reaches_the_caller(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("ASK 3300 host:2")
    it.node(2).on("ASKING").reply(OK)
    it.node(2).on("INCR").error("ERR value is not an integer or out of range")
    with pytest.raises(CommandError, match="not an integer"):
        await router.call(("INCR", "b"))


async def test_the_asked_node_may_send_it_on_or_back(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).expect("INCR").error("ASK 3300 host:2")
    it.node(1).expect("INCR").error("ASK 3300 host:2")
    it.node(2).on("ASKING").reply(OK)
    it.node(2).expect("INCR").error("TRYAGAIN Multiple keys request during rehashing of slot")
    it.node(2).expect("INCR").error("MOVED 3300 host:3")
    assert await router.call(("INCR", "b")) == 3
    assert it.sent(1) == ["INCR b"] * 2
    assert it.sent(2) == ["ASKING", "INCR b"] * 2


async def test_an_asked_command_waits_for_its_connection_in_one_piece(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("ASK 3300 host:9")
    it.node(9).on("ASKING").reply(OK)
    it.down.add(9)
    kept, gone = router.call(("INCR", "b")), router.call(("INCR", "b"))
    await until(lambda: (9, False) in it.dialled)
    gone.cancel()
    it.down.clear()
    assert await kept == 9
    assert it.sent(9) == ["ASKING", "INCR b"]


async def test_an_asked_write_whose_connection_ends_has_an_unknown_outcome(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("ASK 3300 host:2")
    it.node(1).on("GET", "b").error("ASK 3300 host:2")
    it.node(2).on("ASKING").reply(OK)
    it.node(2).expect("INCR").drop()
    with pytest.raises(OutcomeUnknownError):
        await router.call(("INCR", "b"))
    it.node(2).expect("GET", "b").drop()
    assert await router.call(("GET", "b")) == b"2", "a read is sent again"


# ------------------------------------------------------------------------- retries


@pytest.mark.parametrize("code", ["TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY"])
async def test_what_passes_is_tried_again(it: FakeCluster, code: str) -> None:
    router = await it.open()
    for _ in range(3):
        it.node(1).expect("INCR").error(f"{code} for a while")
    assert await router.call(("INCR", "b")) == 1
    assert len(it.sent(1)) == 4
    redirections, refreshes = figures(router)
    assert redirections == 0
    assert (refreshes > 0) == (code != "TRYAGAIN")


async def test_retries_keep_their_order(it: FakeCluster) -> None:
    router = await it.open()
    for n in range(20):
        it.node(1).expect("INCRBY", "b", n).error("TRYAGAIN")
    it.node(1).on("INCRBY").reply(lambda words: int(words[2]))
    assert await asyncio.gather(*(router.call(("INCRBY", "b", n)) for n in range(20))) == list(range(20))
    assert it.sent(1)[20:] == [f"INCRBY b {n}" for n in range(20)]


async def test_the_deadline_covers_all_tries(it: FakeCluster) -> None:
    router = await it.open(command_timeout_ms=60)
    it.node(1).on("INCR").error("CLUSTERDOWN The cluster is down")
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(CommandError, match="CLUSTERDOWN"):
        await router.call(("INCR", "b"))
    assert asyncio.get_running_loop().time() - started_s < 5
    assert len(it.sent(1)) > 1


async def test_a_caller_that_has_gone_is_not_tried_again(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("TRYAGAIN")
    future = router.call(("INCR", "b"))
    await until(lambda: it.sent(1))
    await settle()
    future.cancel()
    sentinel = router.call(("INCR", "f"))
    await until(lambda: it.sent(1).count("INCR f") >= 3)
    sentinel.cancel()
    assert it.sent(1).count("INCR b") == 1


async def test_other_errors_reach_the_caller_at_once(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("NOPERM no")
    with pytest.raises(CommandError, match="NOPERM"):
        await router.call(("INCR", "b"))
    assert figures(router) == (0, 0)


# ------------------------------------------------------------------------ failover


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


# ------------------------------------------------------------------------ replicas


async def test_reads_take_turns_among_replicas(it: FakeCluster) -> None:
    it.draw((0, 16383, 1, 4, 5))
    router = await it.open(read_from="replica")
    assert it.dialled == [(1, False), (1, False)], "replicas are connected when they are needed"
    replies = [await router.call(("GET", "k")) for _ in range(4)]
    assert sorted(replies) == [b"4", b"4", b"5", b"5"]
    assert sorted(it.dialled[2:]) == [(4, True), (5, True)]
    it.node(1).on("SET").reply(OK)
    assert await router.call(("SET", "k", "v")) == OK
    assert figures(router) == (0, 0)


async def test_reads_of_a_lost_replica_go_to_the_primary(it: FakeCluster) -> None:
    it.draw((0, 16383, 1, 4))
    router = await it.open(read_from="replica")
    assert await router.call(("GET", "k")) == b"4"
    gate = it.node(4).on("GET").hold()
    future = router.call(("GET", "k"))
    await until(lambda: gate.held)
    it.fail(4)
    assert await future == b"1"
    assert await router.call(("GET", "k")) == b"1"
    it.down.clear()
    it.node(4).on("GET").reply(b"back")
    await until(lambda: router.link_named("host:4").statistics()["state"] == "open")
    assert await router.call(("GET", "k")) == b"back"


async def test_a_replica_that_was_never_there_is_not_waited_for(it: FakeCluster) -> None:
    it.draw((0, 16383, 1, 4))
    it.down.add(4)
    router = await it.open(read_from="replica")
    assert await router.call(("GET", "k")) == b"1"


async def test_preferring_replicas_means_not_waiting_for_them(it: FakeCluster) -> None:
    it.draw((0, 16383, 1, 4))
    it.silent.add(4)
    router = await it.open(read_from="prefer_replica")
    assert await router.call(("GET", "k")) == b"1"


async def test_what_a_replica_refuses_goes_to_the_primary(it: FakeCluster) -> None:
    it.draw((0, 16383, 1, 4))
    router = await it.open(read_from="replica")
    it.node(4).on("GET", "m").error("MASTERDOWN Link with MASTER is down")
    it.node(4).on("GET", "n").error("MOVED 3432 host:1")
    assert await router.call(("GET", "m")) == b"1"
    assert await router.call(("GET", "n")) == b"1"
    assert it.sent(4) == ["GET m", "GET n"]


async def test_a_promoted_replica_is_a_primary_like_others(it: FakeCluster) -> None:
    it.draw((0, 16383, 1, 4))
    router = await it.open(read_from="replica")
    assert await router.call(("GET", "k")) == b"4"
    it.draw((0, 16383, 4, 1))
    it.node(1).on("INCR").error("MOVED 7629 host:4")
    assert await router.call(("INCR", "k")) == 4
    await until(lambda: any(isinstance(event, TopologyChanged) for event in it.events))
    assert await router.call(("GET", "k")) == b"1"


# ------------------------------------------------------------------------- opening


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


# --------------------------------------------------------------------- for others


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


async def test_following_for_those_who_send_by_themselves(it: FakeCluster) -> None:
    router = await it.open()
    assert router.follow(CommandError("ERR no")) is None
    ask = router.follow(CommandError("ASK 3300 host:2"))
    assert ask is not None
    assert (ask.place.name, ask.link.name, ask.is_ask) == ("host:2", "host:2", True)
    assert router.place_for(("GET", "b")).name == "host:1"
    moved = router.follow(CommandError("MOVED 3300 :3"))
    assert moved is not None
    assert (moved.place.name, moved.link.name, moved.is_ask) == ("host:3", "host:3", False)
    assert router.place_for(("GET", "b")).name == "host:3"
    await until(lambda: router.statistics()["refreshes"])


async def test_a_command_that_goes_alone_does_so_wherever_it_goes(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("FROB").error("MOVED 3300 host:2")
    gate = it.node(2).on("FROB").hold()
    alone = router.link_for(("FROB", "b")).call_alone(("FROB", "b"))
    await until(lambda: gate.held)
    later = router.call(("GET", "c"))
    await settle()
    assert it.sent(2) == ["FROB b"]
    gate.release(OK)
    assert await alone == OK
    assert await later == b"2"


async def test_blocking_commands_are_redirected_too(it: FakeCluster) -> None:
    router = await it.open(command_timeout_ms=10)
    it.node(1).on("BLPOP").error("MOVED 3300 host:2")
    gate = it.node(2).on("BLPOP").hold()
    future = router.link_for(("BLPOP", "b", 0)).call_blocking(("BLPOP", "b", 0), None)
    await until(lambda: gate.held)
    await asyncio.sleep(0.05)
    assert not future.done(), "the command timeout does not count while it blocks"
    gate.release([b"b", b"x"])
    assert await future == [b"b", b"x"]


# --------------------------------------------------------------------- backchannel


def asked(router: ClusterRouter, port: int, arguments: tuple[str, ...]) -> Coroutine[Any, Any, Any]:
    """A question to one server."""
    return router.backchannel.ask([Address("host", port)], arguments, lambda _, reply: reply)


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


# --------------------------------------------------------------------------- end


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
