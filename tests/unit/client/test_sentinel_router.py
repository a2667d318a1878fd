"""The sentinel router by script: what is hard to time on real sentinels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.events import Connected, Disconnected, TopologyChanged
from penstock.client.handshake import ServerFacts
from penstock.client.link import Dial, Link, LinkState
from penstock.client.policies import Constant
from penstock.client.router import racing
from penstock.client.router.sentinel import SentinelRouter
from penstock.client.targets import Address
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import (
    AuthenticationError,
    ClosedError,
    CommandError,
    ConfigError,
    NotSentError,
    OutcomeUnknownError,
)
from penstock.protocol.replies import Push, Reply
from tests.places import until
from tests.unit.client.waiting import nothing_left_behind, settle

A, B, C = Address("a", 6379), Address("b", 6379), Address("c", 6379)
S1, S2, S3 = Address("s1", 26379), Address("s2", 26379), Address("s3", 26379)
READONLY = "READONLY You can't write against a read only replica."
PRIMARY: Reply = [b"master", 0, []]
REPLICA: Reply = [b"slave", b"elsewhere", 6379, b"connected", 0]


class Machine(ScriptedServer):
    """A server that data is on."""

    def __init__(self, role: Reply = PRIMARY) -> None:
        super().__init__()
        self.role = role
        self.on("ROLE").reply(lambda _: self.role)
        self.on("GET").reply(b"v")
        self.on("SET").reply(lambda _: b"OK" if self.role is PRIMARY else CommandError(READONLY))

    @property
    def commands(self) -> list[str]:
        return [b" ".join(arguments).decode() for arguments in self.sent if arguments != (b"ROLE",)]


class Sentinel(ScriptedServer):
    def __init__(self, primary: Address | None, *peers: Address, replicas: tuple[Address, ...] = ()) -> None:
        super().__init__()
        self.primary = primary
        self.peers = list(peers)
        self.replicas = list(replicas)
        self.on("SENTINEL", "GET-MASTER-ADDR-BY-NAME").reply(
            lambda _: None if self.primary is None else [self.primary.host.encode(), b"6379"]
        )
        self.on("SENTINEL", "SENTINELS").reply(lambda _: [_entry(peer, b"sentinel") for peer in self.peers])
        self.on("SENTINEL", "REPLICAS").reply(lambda _: [_entry(each, b"slave") for each in self.replicas])
        self.on("SUBSCRIBE").reply(self._confirm)
        self.on("ROLE").reply([b"sentinel", [b"mymaster", b"other"]])

    def _confirm(self, arguments: tuple[bytes, ...]) -> Reply:
        *others, last = arguments[1:]
        for channel in others:
            self.connection.push(Push([b"subscribe", channel, 1]))
        return Push([b"subscribe", last, 1])

    def announce(self, old: Address, new: Address, name: str = "mymaster") -> None:
        self.primary = new
        payload = f"{name} {old.host} {old.port} {new.host} {new.port}".encode()
        self.push(b"message", b"+switch-master", payload)


def _entry(address: Address, flags: bytes) -> list[bytes]:
    words = [b"ip", address.host.encode(), b"port", b"%d" % address.port, b"flags", flags]
    return [*words, b"runid", b"x", b"master-link-status", b"ok"]


class World:
    """Servers by address, the router among them, and what it has told."""

    def __init__(self) -> None:
        self.servers: dict[Address, ScriptedServer] = {A: Machine(), B: Machine(REPLICA)}
        self.dialled: list[Address] = []
        #: dials to these never end
        self.silent: set[Address] = set()
        self.events: list[object] = []
        self.pushes: list[list[Any]] = []
        self._routers: list[SentinelRouter] = []

    def sentinels(self, *sentinels: Sentinel) -> tuple[Sentinel, ...]:
        self.servers |= dict(zip((S1, S2, S3), sentinels, strict=False))
        return sentinels

    # As a Dialer.

    def to(self, address: Address, *, reads_from_replica: bool = False, is_shared: bool = False) -> Dial:
        async def dial(connection: Connection) -> ServerFacts:
            self.dialled.append(address)
            if address in self.silent:
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.01)  # who is told to stop may take a moment
            if address not in self.servers:
                raise NotSentError(f"cannot connect to {address}: refused")
            return await self.servers[address].dial(connection)

        return dial

    to_sentinel = to

    # As an Observer.

    def on_push(self, link: Link, push: list[Any]) -> None:
        self.pushes.append(push)

    def on_event(self, event: object) -> None:
        self.events.append(event)

    # The router.

    def router(self, *sentinels: Address, **settings: Any) -> SentinelRouter:
        settings.setdefault("reconnect", Constant(base_ms=1))
        settings.setdefault("close_timeout_ms", 0)
        dialer: Any = self
        router = SentinelRouter(dialer, sentinels or (S1,), "mymaster", Settings(**settings), self)
        self._routers.append(router)
        return router

    async def open(self, *sentinels: Address, **settings: Any) -> SentinelRouter:
        router = self.router(*sentinels, **settings)
        await router.open()
        await until(lambda: "unwatched" not in repr(router))
        return router

    async def close(self) -> None:
        for router in self._routers:
            await router.close()
        nothing_left_behind()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.close()


def machine(world: World, address: Address) -> Machine:
    server = world.servers[address]
    assert isinstance(server, Machine)
    return server


# ------------------------------------------------------------------- asking


async def test_sentinels_are_asked_in_order_until_one_answers(world: World) -> None:
    world.sentinels(Sentinel(A), Sentinel(A))
    del world.servers[S1]
    router = await world.open(S1, S2)
    assert world.dialled[:3] == [S1, S2, A]
    assert router._sentinels.order == (S2, S1)


async def test_nobody_waits_for_a_sentinel_that_is_silent(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(racing, "_HEAD_START_S", 0.01)
    world.sentinels(Sentinel(A), Sentinel(A))
    world.silent.add(S1)
    router = await world.open(S1, S2)
    assert await router.call(("GET", "k")) == b"v"


async def test_all_sentinels_are_named_with_their_reasons(world: World) -> None:
    with pytest.raises(NotSentError) as caught:
        await world.router(S1, S2, fail_fast=True).open()
    assert "connect to s1:26379: refused; cannot connect to s2:26379: refused" in str(caught.value)


async def test_a_sentinel_that_knows_the_service_wins_over_one_that_does_not(world: World) -> None:
    world.sentinels(Sentinel(None), Sentinel(A))
    router = await world.open(S1, S2)
    assert await router.call(("GET", "k")) == b"v"


async def test_a_service_that_is_unknown_ends_it_at_once(world: World) -> None:
    world.sentinels(Sentinel(None))
    router = world.router(S1, S2)
    with pytest.raises(ConfigError, match="does not watch 'mymaster', only 'mymaster', 'other'"):
        await router.open()


async def test_credentials_that_are_refused_end_it_at_once(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))

    async def refuse(connection: Connection) -> ServerFacts:
        raise AuthenticationError("s1:26379 refused the credentials: WRONGPASS")

    sentinel.dial = refuse  # type: ignore[method-assign]
    with pytest.raises(AuthenticationError, match="set sentinel_username and sentinel_password"):
        await world.router(S1, S2).open()


async def test_other_sentinels_are_learnt_and_forgotten_but_not_the_configured(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A, S3))
    router = await world.open(S1, S2)
    assert router._sentinels.order == (S1, S2, S3)
    sentinel.peers.clear()
    await router._sentinels.find_primary()
    assert router._sentinels.order == (S1, S2)


async def test_a_sentinel_with_old_news_is_asked_last(world: World) -> None:
    world.sentinels(Sentinel(B), Sentinel(A))  # B is a replica
    router = await world.open(S1, S2)
    assert router.primaries()[0].name == "mymaster@a:6379"
    assert router._sentinels.order == (S2, S1)
    failed = next(event for event in world.events if isinstance(event, Disconnected))
    assert "b:6379 is not the primary of mymaster, as s1:26379 says" in str(failed.error)


async def test_a_user_who_may_not_ask_for_the_role_is_told(world: World) -> None:
    world.sentinels(Sentinel(A))
    machine(world, A).on("ROLE").error("NOPERM this user has no permissions to run the 'role' command")
    with pytest.raises(AuthenticationError, match="ROLE"):
        await world.router().open()


# ------------------------------------------------------------------- +switch-master


async def test_an_announced_failover_is_followed(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    gate = machine(world, A).on("INCR").hold()
    unanswered, read = router.call(("INCR", "n")), router.call(("GET", "k"))
    own = Link("own", router, router.place_for(("BLPOP", "q", 0)).dial, router._settings)
    await own.wait_open()
    await settle()
    assert gate.held
    machine(world, A).role, machine(world, B).role = REPLICA, PRIMARY
    sentinel.announce(A, B)
    with pytest.raises(OutcomeUnknownError, match=r"mymaster has moved to b:6379"):
        await unanswered
    assert await read == b"v", "a read is sent again"
    assert machine(world, B).commands == ["GET k"]
    assert router.primaries()[0].name == "mymaster@b:6379"
    assert world.events[-2:] == [
        Connected("mymaster@b:6379", is_reconnection=True),
        TopologyChanged(("b:6379",), ("a:6379",)),
    ]
    await until(lambda: own.reconnections == 1)
    await own.close()


async def test_an_announcement_of_another_service_or_of_no_news_changes_nothing(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    sentinel.announce(A, B, name="other")
    sentinel.announce(B, A)
    await settle()
    assert await router.call(("GET", "k")) == b"v"
    assert router.primaries()[0].reconnections == 0


async def test_an_attempt_to_reach_the_old_primary_ends_with_the_announcement(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    world.silent.add(A)
    machine(world, A).cut()
    await until(lambda: world.dialled.count(A) == 2)
    waiting = router.call(("SET", "k", "v"))
    machine(world, B).role = PRIMARY
    sentinel.announce(A, B)
    await settle()
    sentinel.announce(A, C)
    sentinel.announce(A, B)
    assert await asyncio.wait_for(waiting, 5) == b"OK"
    assert "cannot handle the push" not in caplog.text


async def test_what_was_announced_while_nobody_listened_is_asked_for(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    machine(world, B).role = PRIMARY
    sentinel.primary = B
    sentinel.cut()
    await until(lambda: router.primaries()[0].name == "mymaster@b:6379")


async def test_old_news_of_another_sentinel_do_not_end_a_good_connection(world: World) -> None:
    first, second = world.sentinels(Sentinel(A), Sentinel(B))  # B is a replica, the second is behind
    router = await world.open(S1, S2)
    router._sentinels.prefer(S2)
    first.cut()
    await until(lambda: any(command[0] == b"SUBSCRIBE" for command in second.sent))
    await until(lambda: "unwatched" not in repr(router))
    assert await router.call(("GET", "k")) == b"v"
    assert router.primaries()[0].reconnections == 0


# ------------------------------------------------------------------- refusals


async def test_commands_refused_by_a_demoted_primary_run_on_the_new_one(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    machine(world, A).role, machine(world, B).role = REPLICA, PRIMARY
    sentinel.primary = B
    writes = [router.call(("SET", "k", str(n))) for n in range(20)]
    read = router.call(("GET", "k"))
    assert await asyncio.gather(*writes) == [b"OK"] * 20
    assert await read == b"v", "what is in flight beside the refused is answered"
    assert machine(world, B).commands == [f"SET k {n}" for n in range(20)]
    assert router.primaries()[0].statistics()["waiting"] == 0


async def test_commands_are_held_back_while_the_role_is_unclear(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    old = machine(world, A)
    old.role, machine(world, B).role = REPLICA, PRIMARY
    gate = old.expect("ROLE").hold()
    sentinel.primary = B
    first = router.call(("SET", "k", "1"))
    await until(lambda: gate.held)
    count = len(old.commands)
    second = router.call(("SET", "k", "2"))
    await settle()
    assert len(old.commands) == count
    gate.release(REPLICA)
    assert await asyncio.gather(first, second) == [b"OK", b"OK"]
    assert machine(world, B).commands == ["SET k 1", "SET k 2"]


async def test_a_primary_that_says_readonly_is_believed_to_be_one(world: World) -> None:
    """A script may answer so; that must not cost everybody the connection."""
    world.sentinels(Sentinel(A))
    router = await world.open()
    rule = machine(world, A).on("EVAL").error("READONLY says the script")
    with pytest.raises(CommandError, match="says the script"):
        await router.call(("EVAL", "…", 0))
    assert rule.count == 2
    assert await router.call(("SET", "k", "v")) == b"OK"
    assert router.primaries()[0].reconnections == 0


async def test_a_refusal_elsewhere_points_to_the_primary(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    assert router.follow(CommandError("ERR no")) is None
    machine(world, A).role, machine(world, B).role = REPLICA, PRIMARY
    sentinel.primary = B
    redirection = router.follow(CommandError(READONLY))
    assert redirection is not None
    assert redirection.link is router.primaries()[0]
    assert not redirection.is_ask
    assert redirection.place.name != router.place_for(("GET", "k")).name
    assert await redirection.link.call_burst([("SET", "k", "v")]) == [b"OK"]
    assert machine(world, B).commands == ["SET k v"]


async def test_loading_is_waited_for(world: World) -> None:
    world.sentinels(Sentinel(A))
    router = await world.open()
    machine(world, A).expect("GET").error("LOADING the dataset")
    machine(world, A).expect("GET").error("LOADING the dataset")
    assert await router.call(("GET", "k")) == b"v"


async def test_loading_beyond_the_timeout_is_what_the_caller_learns(world: World) -> None:
    world.sentinels(Sentinel(A))
    router = await world.open(command_timeout_ms=250)
    rule = machine(world, A).on("GET").error("LOADING the dataset")
    with pytest.raises(CommandError, match="LOADING"):
        await router.call(("GET", "k"))
    assert 2 <= rule.count <= 3


async def test_nobody_is_left_waiting_by_close(world: World) -> None:
    (sentinel,) = world.sentinels(Sentinel(A))
    router = await world.open()
    machine(world, A).on("GET").error("LOADING the dataset")
    loading = router.call(("GET", "k"))
    await until(lambda: router._delayed)
    machine(world, A).role = REPLICA
    machine(world, A).expect("ROLE").hold()
    refused = router.call(("SET", "k", "v"))
    await until(lambda: router._check is not None)
    await router.close()
    with pytest.raises((ClosedError, CommandError)):
        await refused
    with pytest.raises(ClosedError):
        await loading
    with pytest.raises(ClosedError):
        await router.call(("GET", "k"))
    await router.close()
    assert router.primaries()[0].state is LinkState.CLOSED
    del sentinel


# ------------------------------------------------------------------- replicas


async def reading(world: World, **settings: Any) -> SentinelRouter:
    world.servers[C] = Machine(REPLICA)
    world.sentinels(Sentinel(A, replicas=(B, C)))
    router = await world.open(read_from="prefer_replica", **settings)
    await until(lambda: [state["state"] for state in router.statistics().values()] == ["open"] * 3)
    return router


async def test_reads_go_round_and_writes_to_the_primary(world: World) -> None:
    router = await reading(world)
    await asyncio.gather(*(router.call(("GET", "k")) for _ in range(4)), router.call(("SET", "k", "v")))
    assert [len(machine(world, each).commands) for each in (A, B, C)] == [1, 2, 2]
    assert set(router.statistics()) == {f"mymaster@{name}:6379" for name in "abc"}
    with pytest.raises(ConfigError, match="'a:6379', 'b:6379', 'c:6379'"):
        router.link_named("d:6379")


async def test_reads_of_a_lost_replica_go_to_the_primary(world: World) -> None:
    router = await reading(world)
    for each in (B, C):
        machine(world, each).on("GET").hold()
        machine(world, each).on("TIME").hold()
    reads = [router.call(("GET", "k")) for _ in range(4)]
    about_b = router.link_named("b:6379").call(("TIME",))
    await settle()
    for each in (B, C):
        machine(world, each).cut()
    assert await asyncio.gather(*reads) == [b"v"] * 4
    assert machine(world, A).commands == ["GET k"] * 4, "TIME was for that replica alone"
    about_b.cancel()


@pytest.mark.parametrize("error", ["LOADING the dataset", "MASTERDOWN Link with MASTER is down"])
async def test_a_replica_that_is_not_ready_passes_reads_on(world: World, error: str) -> None:
    router = await reading(world)
    for each in (B, C):
        machine(world, each).on("GET").error(error)
    assert await router.call(("GET", "k")) == b"v"
    assert machine(world, A).commands == ["GET k"]


async def test_a_replica_that_is_gone_is_left(world: World) -> None:
    router = await reading(world)
    sentinel = world.servers[S1]
    assert isinstance(sentinel, Sentinel)
    machine(world, B).on("GET").hold()
    held = [router.call(("GET", "k")) for _ in range(2)]
    await settle()
    sentinel.replicas.remove(B)
    sentinel.push(b"message", b"+sdown", b"slave b:6379 b 6379 @ mymaster a 6379")
    async with asyncio.timeout(5):  # sooner than the list would be asked for without that news
        assert await asyncio.gather(*held) == [b"v"] * 2
    await until(lambda: len(router.statistics()) == 2)
    lost = [event for event in world.events if isinstance(event, Disconnected)]
    assert [event.server for event in lost] == ["mymaster@b:6379"] * 2
    assert lost[-1].is_final
    assert "mymaster@b:6379 is no replica to read from" in str(lost[0].error)
