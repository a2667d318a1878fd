"""MOVED, ASK, and refusals that pass."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.events import Disconnected, TopologyChanged
from penstock.errors import CommandError, OutcomeUnknownError
from penstock.protocol.replies import OK
from penstock.protocol.slots import key_slot
from tests.places import until
from tests.unit.client.cluster.fake_cluster import KEYS, ONE_REPLACED, THIRDS, FakeCluster, figures
from tests.unit.client.waiting import settle


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


# ---------------------------------------------------------------------------------------------- ASK


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


# ------------------------------------------------------------------------------------------ retries


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
    tries = it.sent(1).count("INCR b")  # one, unless the machine is busy
    sentinel = router.call(("INCR", "f"))
    await until(lambda: it.sent(1).count("INCR f") >= 3)
    sentinel.cancel()
    assert it.sent(1).count("INCR b") == tries


async def test_other_errors_reach_the_caller_at_once(it: FakeCluster) -> None:
    router = await it.open()
    it.node(1).on("INCR").error("NOPERM no")
    with pytest.raises(CommandError, match="NOPERM"):
        await router.call(("INCR", "b"))
    assert figures(router) == (0, 0)


# --------------------------------------------------------------------------------------- for others


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
