"""The sentinel router on real sentinels: it finds the primary, and follows it through failovers.

A failover by command leaves all servers running, and every test waits first until the sentinels
see them so. Whoever kills or demotes a server has sentinels of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from penstock.client.config import open_settings
from penstock.client.dialing import Dialer
from penstock.client.events import Connected, Event, TopologyChanged
from penstock.client.link import Link
from penstock.client.router.sentinel import SentinelRouter
from penstock.client.router.standalone import StandaloneRouter
from penstock.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    NotSentError,
    PenstockError,
)
from penstock.testing.sentinels import RealSentinels, start_sentinels
from penstock.testing.servers import RealServer, ServerBinary, ServerUnavailableError, find_server
from tests.places import until

pytestmark = pytest.mark.slow

#: Nothing here takes that long unless something hangs.
PATIENCE_S = 30


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_push(self, link: Link, push: list[Any]) -> None: ...

    def on_event(self, event: Event) -> None:
        self.events.append(event)


def binary_of(kind: Any) -> ServerBinary:
    try:
        return find_server(kind)
    except ServerUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=["valkey", "redis"])
def shared(request: pytest.FixtureRequest) -> Iterator[RealSentinels]:
    with start_sentinels(3, 2, binary_of(request.param)) as running:
        yield running


@pytest.fixture
def watched(shared: RealSentinels) -> RealSentinels:
    shared.wait_until_whole()
    shared.primary.reset()
    return shared


@asynccontextmanager
async def opened(
    url: str, listener: Listener | None = None, **overrides: Any
) -> AsyncIterator[SentinelRouter]:
    target, settings = open_settings(url, **overrides)
    dialer = Dialer(target, settings)
    router = SentinelRouter(dialer, target.addresses, target.service, settings, listener or Listener())
    try:
        await router.open()
        yield router
    finally:
        await router.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left behind: {left}"


async def is_watching(router: SentinelRouter) -> None:
    await until(lambda: "unwatched" not in repr(router))


def port_of(router: SentinelRouter) -> int:
    return int(router.primaries()[0].name.rpartition(":")[2])


class Load:
    """Tasks that write and read without a pause; each keeps count of what came of its commands."""

    def __init__(self, router: SentinelRouter, n_tasks: int = 20) -> None:
        self._router = router
        self._is_over = False
        self.outcomes: Counter[str] = Counter()
        #: by key: INCRs that were answered, and those of which nobody knows
        self.counts: dict[str, tuple[int, int]] = {}
        self.latest: dict[str, int] = {}
        self._tasks = [asyncio.create_task(self._run(f"counter:{n}")) for n in range(n_tasks)]

    async def _run(self, key: str) -> None:
        certain = unknown = 0
        while not self._is_over:
            try:
                self.latest[key] = int(await self._router.call(("INCR", key)))  # type: ignore[arg-type]
                certain += 1
                self.outcomes["ok"] += 1
            except ConnectionLostError as error:
                unknown += not isinstance(error, NotSentError)
                self.outcomes[type(error).__name__] += 1
            self.counts[key] = (certain, unknown)
            await self._router.call(("ECHO", key))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def end(self) -> None:
        """No call may hang, and none may end in anything but a value or a lost connection."""
        self._is_over = True
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)


# ------------------------------------------------------------------- finding the primary


@pytest.mark.parametrize("protocol", [2, 3])
async def test_commands_reach_the_primary(watched: RealSentinels, protocol: int) -> None:
    listener = Listener()
    async with opened(watched.url, listener, protocol=protocol, db=3, client_name="tests") as router:
        assert await router.call(("SET", "k", "v")) == b"OK"
        role = await router.call(("ROLE",))
        assert role[0] == b"master"  # type: ignore[index]
        address = f"127.0.0.1:{watched.primary.port}"
        assert list(router.statistics()) == [f"mymaster@{address}"]
        assert router.link_named(address) is router.link_for(("GET", "k")) is router.primaries()[0]
        with pytest.raises(ConfigError, match=address):
            router.link_named("127.0.0.1:1")
        assert listener.events == [Connected(f"mymaster@{address}", is_reconnection=False)]
        names = watched.sentinels[0].execute("CLIENT", "LIST") + watched.primary.execute("CLIENT", "LIST")
        assert b"name=tests" in names
    assert watched.primary.execute("EXISTS", "k") == 0, "the database of the URL was not selected"


async def test_dead_sentinels_are_passed_over_and_others_are_learnt(watched: RealSentinels) -> None:
    one = watched.sentinels[1].port
    url = f"redis-sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:{one}/mymaster"
    async with opened(url, fail_fast=True) as router:
        assert await router.call(("PING",)) == b"PONG"
        order = router._sentinels.order
        assert order[0].port == one
        assert {sentinel.port for sentinel in watched.sentinels} < {address.port for address in order}


async def test_a_service_that_nobody_watches_is_named_with_those_that_are(watched: RealSentinels) -> None:
    with pytest.raises(ConfigError, match=r"does not watch 'nobody', only 'mymaster'"):
        async with opened(watched.url.replace("mymaster", "nobody")):
            pass


async def test_sentinels_that_cannot_be_reached_are_all_named() -> None:
    with pytest.raises(NotSentError) as caught:
        async with opened("redis-sentinel://127.0.0.1:1,127.0.0.1:2/mymaster", fail_fast=True):
            pass
    assert "cannot connect to 127.0.0.1:1" in str(caught.value)
    assert "cannot connect to 127.0.0.1:2" in str(caught.value)


async def test_a_plain_server_is_not_taken_for_a_sentinel(watched: RealSentinels) -> None:
    url = f"redis-sentinel://127.0.0.1:{watched.primary.port}/mymaster"
    with pytest.raises(ConfigError, match="a plain server, not a sentinel: use redis://"):
        async with opened(url):
            pass


async def test_a_sentinel_is_not_taken_for_a_plain_server(watched: RealSentinels) -> None:
    target, settings = open_settings(watched.sentinels[0].url)
    router = StandaloneRouter(Dialer(target, settings), target.addresses[0], settings, Listener())
    with pytest.raises(ConfigError, match="is a sentinel: use redis-sentinel://"):
        await router.open()
    await router.close()


# ------------------------------------------------------------------- failovers


@pytest.mark.parametrize("how", [{"protocol": 2}, {"protocol": 3, "decode_responses": True}])
async def test_a_failover_by_command_is_followed_at_once(watched: RealSentinels, how: dict[str, Any]) -> None:
    listener = Listener()
    async with opened(watched.url, listener, **how) as router:
        await is_watching(router)
        old = port_of(router)
        async with Load(router) as load:
            await until(lambda: load.outcomes["ok"] > 100)
            new = await asyncio.to_thread(watched.fail_over)
            await until(lambda: port_of(router) == new.port)
            answered = load.outcomes["ok"]
            await until(lambda: load.outcomes["ok"] > answered + 100)
            await load.end()
        assert TopologyChanged((f"127.0.0.1:{new.port}",), (f"127.0.0.1:{old}",)) in listener.events
        for key, (_, unknown) in load.counts.items():
            assert unknown <= 2, f"{key}: a failover may cost each task one command, or two"


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_the_primary_killed_under_load(kind: str) -> None:
    with start_sentinels(3, 2, binary_of(kind)) as watched:
        async with opened(watched.url, command_timeout_ms=20_000) as router, Load(router) as load:
            await is_watching(router)
            await until(lambda: load.outcomes["ok"] > 1_000)
            dead = watched.kill_primary()
            await until(lambda: port_of(router) != dead.port)
            answered = load.outcomes["ok"]
            await until(lambda: load.outcomes["ok"] > answered + 1_000)
            dead.restart()
            await asyncio.to_thread(watched.wait_until_whole)
            assert dead.execute("ROLE")[0] == b"slave"
            assert port_of(router) == watched.primary.port
            await load.end()
            assert load.outcomes["OutcomeUnknownError"] <= 20, "at most the one in flight of each task"
            for key, latest in load.latest.items():
                certain, unknown = load.counts[key]
                # What the dead primary had not passed on is lost; nothing ran twice.
                assert latest <= certain + unknown


async def test_connections_of_ones_own_find_the_new_primary_too() -> None:
    with start_sentinels(1, 1) as watched:
        async with opened(watched.url) as router:
            dead = watched.kill_primary()
            new = watched.wait_for_failover(dead.port)
            link = Link("own", Owner(), router.place_for(("GET", "k")).dial, router._settings)
            await link.wait_open(PATIENCE_S)
            await link.call(("SET", "k", "v"))
            await link.close()
            assert new.execute("GET", "k") == b"v"


class Owner(Listener):
    def on_refused(self, *_: object) -> bool:
        return False

    def on_state(self, link: Link) -> None: ...


async def test_a_primary_that_hangs_is_left_when_the_sentinels_say_so() -> None:
    """No error tells it: the connection stays open and silent."""
    with start_sentinels(3, 1) as watched:
        async with opened(watched.url, command_timeout_ms=20_000) as router:
            await is_watching(router)
            old = watched.primary
            own = Link("own", Owner(), router.place_for(("BLPOP", "q", 0)).dial, router._settings)
            await own.wait_open(PATIENCE_S)
            blocked = own.call_blocking(("BLPOP", "q", 0), None)
            os.kill(old.pid, signal.SIGSTOP)
            try:
                held = router.call(("GET", "k"))
                await until(lambda: port_of(router) != old.port)
                assert await asyncio.wait_for(held, PATIENCE_S) is None, "a read is sent again"
                with pytest.raises(ConnectionLostError, match="mymaster has moved"):
                    await asyncio.wait_for(blocked, PATIENCE_S)
            finally:
                os.kill(old.pid, signal.SIGCONT)
                await own.close()


async def test_a_primary_that_was_demoted_behind_everybodys_back() -> None:
    """READONLY is the first that anybody hears of it; the sentinel repairs it."""
    with start_sentinels(1, 1) as watched:
        async with opened(watched.url, command_timeout_ms=20_000) as router:
            await router.call(("SET", "k", 1))
            (replica,) = watched.replicas
            watched.primary.execute("REPLICAOF", "127.0.0.1", replica.port)
            replies = await asyncio.gather(*(router.call(("SET", f"k{n}", n)) for n in range(50)))
            assert replies == [b"OK"] * 50
            assert (await router.call(("ROLE",)))[0] == b"master"  # type: ignore[index]
            assert port_of(router) == replica.port


# ------------------------------------------------------------------- credentials


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealSentinels]:
    with start_sentinels(2, 0, password="data", sentinel_password="watch") as running:
        yield running


async def test_sentinels_have_a_password_of_their_own(guarded: RealSentinels) -> None:
    url = guarded.url.replace("://", "://:data@")
    async with opened(url, sentinel_password="watch") as router:
        assert await router.call(("PING",)) == b"PONG"
        await is_watching(router)
    for wrong in ({}, {"sentinel_password": "data"}):
        with pytest.raises(AuthenticationError, match="set sentinel_username and sentinel_password"):
            async with opened(url, **wrong):
                pass
    with pytest.raises(AuthenticationError, match=str(guarded.primary.port)):
        async with opened(guarded.url, sentinel_password="watch"):
            pass


# ------------------------------------------------------------------- replicas


async def test_reads_go_to_replicas_in_turn_and_fall_back(watched: RealSentinels) -> None:
    async with opened(watched.url, read_from="prefer_replica") as router:
        assert await router.call(("SET", "k", "v")) == b"OK"
        await until(lambda: len(router.statistics()) == 3 and len(router._replicas._open) == 2)  # type: ignore[union-attr]
        await until(lambda: all(replica.execute("GET", "k") for replica in watched.replicas))
        before = [reads(server) for server in (watched.primary, *watched.replicas)]
        assert await asyncio.gather(*(router.call(("GET", "k")) for _ in range(100))) == [b"v"] * 100
        after = [reads(server) for server in (watched.primary, *watched.replicas)]
        assert [b - a for a, b in zip(before, after, strict=True)] == [0, 50, 50]
        name = f"127.0.0.1:{watched.replicas[0].port}"
        assert (await router.link_named(name).call(("ROLE",)))[0] == b"slave"  # type: ignore[index]


def reads(server: RealServer) -> int:
    line = server.info("commandstats").get("cmdstat_get", "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


async def test_a_replica_that_dies_passes_its_reads_on() -> None:
    with start_sentinels(1, 1) as watched:
        async with opened(watched.url, read_from="replica") as router:
            await router.call(("SET", "k", "v"))
            await until(lambda: len(router._replicas._open) == 1)  # type: ignore[union-attr]
            (replica,) = watched.replicas
            await until(lambda: replica.execute("GET", "k") == b"v")
            os.kill(replica.pid, signal.SIGSTOP)
            held = [router.call(("GET", "k")) for _ in range(10)]
            # The sentinel finds it down and says so.
            assert await asyncio.wait_for(asyncio.gather(*held), PATIENCE_S) == [b"v"] * 10
            assert len(router.statistics()) == 1
            os.kill(replica.pid, signal.SIGCONT)


async def test_errors_of_the_end_are_errors_of_ours(watched: RealSentinels) -> None:
    async with opened(watched.url) as router:
        last = router.call(("PING",))
    assert await last == b"PONG"
    with pytest.raises(PenstockError):
        await router.call(("PING",))
    await router.close()
