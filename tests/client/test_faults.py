"""A client whose network fails: every call ends in exactly one outcome, its own, and none hangs.

The workload and its books are in ``workload``, the network in ``proxy``. Whatever asyncio or the client
complain about meanwhile (an error that nobody retrieved, a task left behind) fails the test.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.client.events import OrphanedReply
from penstock.errors import ClosedError, CommandTimeoutError, NotSentError
from penstock.testing.control import HOST
from penstock.testing.servers import RealServer
from tests.client.books import MAYBE, Elements
from tests.client.quiet import LIMIT_S, closing, nothing_pending, peace
from tests.client.workload import EVERY_WAY, IMPATIENT, Workload
from tests.integration.proxy import Passage, Plan, Proxy
from tests.places import until

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)

PATIENT = ("connect_timeout_ms", "handshake_timeout_ms", "unresponsive_timeout_ms", "blocking_margin_ms")


@pytest.fixture(autouse=True)
async def in_peace(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    async with peace(caplog):
        yield


class Weather:
    """What a bad network does to the connections through a proxy, at random."""

    def __init__(self, proxy: Proxy, seed: int, *, is_mild: bool = False) -> None:
        self._proxy = proxy
        self._chance = random.Random(seed)
        self._faults = [self._drip]
        if not is_mild:
            self._faults += [self._cut_all, self._cut_one, self._cut_later, self._silence, self._vanish]

    async def rage(self, is_over: Callable[[], bool]) -> None:
        """Until the condition holds; then the sun shines."""
        while not is_over():
            await self._chance.choice(self._faults)()
            await asyncio.sleep(self._chance.random() * 0.15)
        self._proxy.usual = Plan()

    def _someone(self) -> Passage:
        return self._chance.choice(self._proxy.live or self._proxy.passages)

    async def _cut_all(self) -> None:
        self._proxy.cut()

    async def _cut_one(self) -> None:
        self._someone().cut()

    async def _cut_later(self) -> None:
        """The next connections, at any byte: in the handshake, in a command, in a reply."""
        chance = self._chance
        for _ in range(chance.randrange(1, 4)):
            way = chance.choice(["cut_up", "cut_down"])
            self._proxy.plan(Plan(chance=chance, **{way: chance.randrange(12_000)}))
        self._someone().cut()

    async def _silence(self) -> None:
        """Half-open: one that stands, or the next one."""
        if self._chance.random() < 0.3:
            self._proxy.plan(Plan(swallow=True))
        passage = self._someone()
        passage.is_swallowing = passage.is_harmed = True

    async def _drip(self) -> None:
        self._proxy.usual = Plan(drip=self._chance.randrange(1, 50), delay_s=0.0005)
        self._someone().plan = self._proxy.usual
        await asyncio.sleep(0.05)
        self._proxy.usual = Plan(chance=self._chance)

    async def _vanish(self) -> None:
        """Connections are refused."""
        await self._proxy.vanish()
        await asyncio.sleep(self._chance.random() * 0.1)
        await self._proxy.listen()


async def storm(server: RealServer, seed: int, protocol: int, **options: Any) -> Workload:
    """A client in bad weather, for some ``calls``, or until it ``is_enough`` and some ``seconds`` have gone;
    all its books are checked."""
    seconds, calls = options.pop("seconds", None), options.pop("calls", None)
    is_enough: Callable[[Workload], bool] = options.pop("is_enough", lambda _: True)
    workers, ways = options.pop("workers", 20), options.pop("ways", EVERY_WAY)
    is_mild = options.pop("is_mild", False)
    settings = {**IMPATIENT, "protocol": protocol, "client_cache_entries": 100 * (protocol == 3), **options}
    if is_mild:  # who is impatient takes a busy machine for a dead one
        settings |= dict.fromkeys(PATIENT, 10_000)
    loop = asyncio.get_running_loop()
    async with (
        Proxy(server.port, records=True) as proxy,
        closing(penstock.open(f"redis://{HOST}:{proxy.port}", **settings)) as client,
    ):
        await client
        async with Workload(client, seed=seed, ways=ways, workers=workers, calls=calls) as workload:
            ends_s = loop.time() + (seconds or 0)

            def is_over() -> bool:
                late_s = loop.time() - ends_s
                return late_s > 0 and (is_enough(workload) or late_s > LIMIT_S)

            await Weather(proxy, seed, is_mild=is_mild).rage(is_over if seconds else workload.is_through)
        await workload.hear_out()
        await workload.stop_listening()
        await nothing_pending(client)
        assert await client.execute("ECHO", "last") == b"last"
    async with closing(penstock.open(server.url)) as calm:
        await workload.settle(calm)
    workload.check(unexplained=None if is_mild else unexplained_by(proxy))
    return workload


def unexplained_by(proxy: Proxy) -> Callable[[str, Elements], list[bytes]]:
    """Elements that are lost though the network kept nothing back, or though every BLPOP of their list
    says that it took nothing."""

    def unexplained(_: str, elements: Elements) -> list[bytes]:
        lost = sorted(elements.lost)
        if len(lost) > sum(elements.pops[outcome] for outcome in MAYBE):
            return lost
        return [
            element
            for element in lost
            if not any(b"\r\n" + element + b"\r\n" in each.heard for each in proxy.passages if each.is_harmed)
        ]

    return unexplained


@pytest.mark.parametrize(
    ("protocol", "policy", "seconds"),
    [(3, "dedicated", 2), (2, "dedicated", 1), (3, "interrupt", 1), (2, "block", 1), (3, "error", 1)],
)
async def test_every_way_of_calling_through_a_bad_network(
    valkey_server: RealServer, protocol: int, policy: str, seconds: float
) -> None:
    def is_enough(workload: Workload) -> bool:
        failed = workload.count("unknown") + workload.count("not_sent")
        return workload.succeeded > 100 and workload.count("cancelled") > 20 and failed > 20

    workload = await storm(
        valkey_server, 7 + protocol, protocol, blocking_policy=policy, seconds=seconds, is_enough=is_enough
    )
    assert is_enough(workload), f"the weather was too fine: {workload.summary()}"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_million_calls_in_every_way(real_server: RealServer, protocol: int) -> None:
    ways = (*("echo",) * 60, *EVERY_WAY)
    workload = await storm(real_server, protocol, protocol, calls=1_000_000, workers=300, ways=ways)
    log.info("%s; orphans %d", workload.summary(), workload.orphans)
    assert sum(workload.started.values()) == 1_000_000
    assert workload.count("ok", "echo") > 400_000


# --------------------------------------------------------------------- elements of lists


@pytest.mark.parametrize("policy", ["dedicated", "block", "interrupt"])
@pytest.mark.parametrize("is_mild", [True, False], ids=["slow", "cut"])
async def test_every_element_is_accounted_for(valkey_server: RealServer, policy: str, is_mild: bool) -> None:
    """Received, told as orphaned, or left; on a network that is only slow none is lost."""

    def pushed_by(workload: Workload) -> int:
        return sum(outcome == "ok" for each in workload.lists.values() for outcome in each.pushed.values())

    def is_enough(workload: Workload) -> bool:
        return pushed_by(workload) > 20 and workload.count("cancelled", "pop") > 3

    workload = await storm(
        valkey_server,
        seed=1,
        protocol=3,
        ways=("push", "pop"),
        workers=30,
        blocking_policy=policy,
        is_mild=is_mild,
        seconds=0.6,
        is_enough=is_enough,
    )
    assert is_enough(workload), workload.summary()
    lists = workload.lists.values()
    pushed = pushed_by(workload)
    found = {element for each in lists for element in each.found if each.pushed[element] == "ok"}
    lost = sum(len(each.lost) for each in lists)
    assert pushed == len(found) + lost
    assert lost == 0 or not is_mild


async def test_who_is_cancelled_twice_loses_nothing(valkey_server: RealServer) -> None:
    """The command is taken back though nobody waits for that, and what it got meanwhile is told."""
    async with closing(penstock.open(valkey_server.url)) as client:
        orphans: list[Any] = []
        client.on_event(lambda event: orphans.append(event) if isinstance(event, OrphanedReply) else None)
        popped = 0
        for number in range(100):
            blocked = asyncio.create_task(client.blpop("l", timeout_s=30))
            await asyncio.sleep(0.0005 * (number % 5))
            push = asyncio.create_task(client.rpush("l", number))
            blocked.cancel()
            await asyncio.sleep(0)
            blocked.cancel()
            await push
            outcome = (await asyncio.gather(blocked, return_exceptions=True))[0]
            popped += not isinstance(outcome, BaseException)
        await until(lambda: client.statistics()["private_links"]["lent"] == 0)
        left = await client.execute("LLEN", "l")
        assert {orphan.arguments[0] for orphan in orphans} <= {"BLPOP"}, "others are nobody's business"
        assert popped + len(orphans) + left == 100  # type: ignore[operator]


async def test_who_leaves_a_connection_of_ones_own_loses_nothing(valkey_server: RealServer) -> None:
    """A blocking command is taken back there, too, before the connection ends with it."""
    async with (
        Proxy(valkey_server.port) as proxy,
        closing(penstock.open(f"redis://{HOST}:{proxy.port}")) as client,
    ):
        proxy.usual = Plan(delay_s=0.002)
        orphans: list[Any] = []
        client.on_event(lambda event: orphans.append(event) if isinstance(event, OrphanedReply) else None)

        async def pop() -> object:
            async with client.exclusive() as own:
                return await own.blpop("l", timeout_s=30)

        popped = 0
        for number in range(30):
            blocked = asyncio.create_task(pop())
            await blocked_on(valkey_server)
            valkey_server.execute("RPUSH", "l", number)
            await asyncio.sleep(0.0005 * (number % 10))
            blocked.cancel()
            outcome = (await asyncio.gather(blocked, return_exceptions=True))[0]
            popped += not isinstance(outcome, BaseException)
        assert popped + len(orphans) == 30
        assert orphans


async def blocked_on(server: RealServer, count: int = 1) -> None:
    async with asyncio.timeout(LIMIT_S):
        while int(server.info("clients")["blocked_clients"]) != count:
            await asyncio.sleep(0.002)


async def test_taking_one_back_does_not_end_another_on_its_connection(valkey_server: RealServer) -> None:
    """On a shared connection the second waits behind the first; nobody is stuck behind it later."""
    async with closing(penstock.open(valkey_server.url, blocking_policy="block")) as client:
        first = asyncio.create_task(client.blpop("first", timeout_s=0))
        await blocked_on(valkey_server)
        second = asyncio.create_task(client.execute("BLPOP", "second", 0, timeout_ms=50))
        third = asyncio.create_task(client.blpop("third", timeout_s=0))
        with pytest.raises(CommandTimeoutError, match="could not be taken back; it may have run"):
            await second
        assert not first.done()
        third.cancel()
        valkey_server.execute("RPUSH", "first", "x")
        assert await first == (b"first", b"x")
        async with asyncio.timeout(LIMIT_S):
            assert await client.execute("ECHO", "free") == b"free"
            await asyncio.gather(third, return_exceptions=True)
        assert valkey_server.execute("RPUSH", "second", "y") == 1, "nobody waits for it any more"


async def test_who_cannot_be_taken_back_costs_the_connection(valkey_server: RealServer) -> None:
    """CLIENT UNBLOCK is not allowed: others wait until the connection counts as dead, and not longer."""
    valkey_server.execute("ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-client|unblock")
    settings = {"blocking_policy": "block", "unresponsive_timeout_ms": 200, "command_timeout_ms": 5_000}
    url = valkey_server.url.replace("redis://", "redis://weak:pw@")
    async with closing(penstock.open(url, **settings)) as client:
        blocked = asyncio.create_task(client.blpop("l", timeout_s=0))
        await blocked_on(valkey_server)
        await asyncio.sleep(0.3)
        assert not blocked.done(), "it may wait for longer than others"
        blocked.cancel()
        async with asyncio.timeout(LIMIT_S):
            assert await client.execute("ECHO", "free") == b"free"
    valkey_server.execute("ACL", "DELUSER", "weak")


async def test_what_waits_is_interrupted_whenever_it_was_issued(valkey_server: RealServer) -> None:
    """Before there is a connection, and while others are being interrupted."""
    for _ in range(10):
        async with closing(penstock.open(valkey_server.url, blocking_policy="interrupt")) as client:
            blocked = [asyncio.create_task(client.blpop("l", timeout_s=0)) for _ in range(2)]
            await asyncio.sleep(0)
            echo = asyncio.create_task(client.execute("ECHO", 1))
            await asyncio.sleep(0)
            blocked.append(asyncio.create_task(client.blpop("l", timeout_s=0)))
            await asyncio.sleep(0)
            async with asyncio.timeout(5):
                assert await client.execute("ECHO", 2) == b"2"
                assert await echo == b"1"
                outcomes = await asyncio.gather(*blocked, return_exceptions=True)
            assert all("UNBLOCKED" in str(each) for each in outcomes)


# ------------------------------------------------------------------ limits that must hold


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Nobody listens there."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


async def _enter(manager: Any) -> None:
    async with manager:
        pass


async def _subscribe(client: penstock.Client) -> None:
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("c")


@pytest.mark.parametrize("scheme", ["redis", "redis-cluster", "redis-sentinel"])
async def test_every_way_of_calling_ends_while_nobody_is_there(scheme: str, deaf_port: int) -> None:
    """All at once on a client that was never connected; the limit of the call or of the client holds."""
    url = f"{scheme}://{HOST}:{deaf_port}" + ("/service" if scheme == "redis-sentinel" else "")
    ways: list[Callable[[penstock.Client], Awaitable[Any]]] = [
        lambda c: c.get("k"),
        lambda c: c.execute("DBSIZE"),
        lambda c: c.execute("DBSIZE", timeout_ms=100),
        lambda c: c.execute("GET", "k", timeout_ms=100),
        lambda c: c.execute("GET", "k", timeout_ms=1_000),
        lambda c: c.execute("MGET", "k", "l", "m", timeout_ms=1_000),
        lambda c: c.execute("PING", route=penstock.ToAny()),
        lambda c: c.execute("PING", route=penstock.ToAll(), timeout_ms=100),
        lambda c: c.execute("BLPOP", "k", 0, timeout_ms=100),
        lambda c: c.blpop("k", timeout_s=0.1),
        lambda c: c.pipeline().all(),
        lambda c: _fill(c.pipeline()).all(),
        lambda c: _fill(c.transaction()).all(),
        lambda c: c.script("return 1")(keys=["k"]),
        lambda c: _enter(c.exclusive("k")),
        lambda c: _enter(c.exclusive(route=penstock.ToAny())),
        lambda c: _enter(c.monitor()),
        _subscribe,
    ]
    settings = {**IMPATIENT, "command_timeout_ms": 500}
    async with closing(penstock.open(url, **settings)) as client:
        tasks = [asyncio.ensure_future(way(client)) for way in ways]
        _, pending = await asyncio.wait(tasks, timeout=LIMIT_S)
        assert not pending
        for task in tasks:
            error = task.exception()
            assert isinstance(error, CommandTimeoutError | NotSentError) or task.result() == [], task
        await nothing_pending(client)


def _fill(batch: Any) -> Any:
    batch.get("{t}k")
    batch.incr("{t}l")
    return batch


async def test_waiting_for_room_has_a_limit(valkey_server: RealServer) -> None:
    settings = {"max_blocking_connections": 1, "command_timeout_ms": 200, "blocking_margin_ms": 100}
    async with closing(penstock.open(valkey_server.url, **settings)) as client:
        occupant = asyncio.create_task(client.blpop("l", timeout_s=0))
        await blocked_on(valkey_server)
        async with asyncio.timeout(5):
            with pytest.raises(
                CommandTimeoutError, match=r"got no connection .* within 50 ms; it was not sent"
            ):
                await client.execute("BLPOP", "m", 0, timeout_ms=50)
            with pytest.raises(CommandTimeoutError, match="within 200 ms; it was not sent"):
                await client.blpop("m", timeout_s=0.1)
            with pytest.raises(CommandTimeoutError, match="1 are in use"):
                await _enter(client.exclusive("k"))
            with pytest.raises(CommandTimeoutError, match="max_blocking_connections 1"):
                await _enter(client.monitor())
        await client.rpush("l", "x")
        assert await occupant == (b"l", b"x")
        assert await client.blpop("l", timeout_s=0.01) is None


async def test_a_long_wait_is_no_silence(valkey_server: RealServer) -> None:
    settings = {"unresponsive_timeout_ms": 100, "idle_ping_ms": 0}
    async with closing(penstock.open(valkey_server.url, **settings)) as client:
        assert await client.blpop("l", timeout_s=0.5) is None


async def test_a_connection_of_ones_own_that_ended_has_sent_nothing(valkey_server: RealServer) -> None:
    """What is issued on it later did not run, and says so."""
    async with (
        Proxy(valkey_server.port) as proxy,
        closing(penstock.open(f"redis://{HOST}:{proxy.port}")) as client,
        client.exclusive("k") as own,
    ):
        proxy.passage.cut()
        await until(lambda: not own._link.is_open)
        with pytest.raises(NotSentError):
            await own.incr("k")


# ----------------------------------------------------------------------------- closing


@pytest.mark.parametrize("policy", ["dedicated", "block", "error", "interrupt"])
async def test_close_in_the_middle_of_everything(valkey_server: RealServer, policy: str) -> None:
    """Whoever calls then is told; nobody waits, and nothing is left of it."""
    async with Proxy(valkey_server.port) as proxy:
        proxy.usual = Plan(chance=random.Random(1))
        url, settings = f"redis://{HOST}:{proxy.port}", {**IMPATIENT, "blocking_policy": policy}
        client = await penstock.open(url, **settings)
        async with Workload(client, seed=1, ways=EVERY_WAY, workers=30, ends_closed=True) as workload:
            await workload.goes_on(100)
            proxy.passage.is_swallowing = True
            await asyncio.sleep(0.01)
            async with asyncio.timeout(5):
                await client.close()
            await until(workload.is_through)
        await workload.stop_listening()
        await nothing_pending(client)
        with pytest.raises(ClosedError):
            await client.get("k")
        assert workload.count("closed") > 0
        async with closing(penstock.open(valkey_server.url)) as calm:
            await workload.settle(calm)
        workload.check(unexplained=lambda _, elements: [])
