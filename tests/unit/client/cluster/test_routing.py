"""Which node a command goes to; commands with keys of many nodes; reads from replicas."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.events import Disconnected, TopologyChanged
from penstock.client.router.backchannel import Backchannel, address_named
from penstock.errors import CommandError, NotSentError
from penstock.protocol.replies import OK
from tests.places import until
from tests.unit.client.cluster.fake_cluster import KEYS, THIRDS, FakeCluster, figures
from tests.unit.client.waiting import settle


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


# ---------------------------------------------------------------------------------------- many keys


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


# ----------------------------------------------------------------------------------------- replicas


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
