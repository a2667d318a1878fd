"""A link over a network that fails: every call ends in exactly one outcome, its own, and none hangs.

All calls go through a proxy that delays, splits, cuts and swallows (``proxy``). What a
call may end in:

=================================  ===========================================
read (ECHO, GET)                   its own value, however often it was sent
write (INCR, RPUSH)                its own value, or ``OutcomeUnknownError``;
                                   it ran at most once, exactly once if it has
                                   a value
cancelled                          nothing; nobody else gets its reply
=================================  ===========================================
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from penstock.client.config import open_settings
from penstock.client.connection import Slot
from penstock.client.dialing import Dialer
from penstock.client.link import Link, LinkState
from penstock.client.policies import Constant
from penstock.errors import CommandError, OutcomeUnknownError, PenstockError
from penstock.testing.servers import RealServer
from tests.effort import scaled
from tests.integration.proxy import Plan, Proxy

#: Longer than anything here takes on a busy machine; what is not done by then hangs.
PATIENCE_S = 60.0
#: After so long a peer is taken for dead: longer than a busy machine stands still.
NOTICED_MS = 700


class Owner:
    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None: ...

    def on_state(self, link: Link) -> None: ...


@asynccontextmanager
async def through(proxy: Proxy, **settings: Any) -> AsyncIterator[Link]:
    """A link that reconnects within a millisecond."""
    settings = {
        "reconnect": Constant(base_ms=1),
        "command_timeout_ms": 0,
        "max_attempts": 0,
        "close_timeout_ms": 0,
    } | settings
    target, checked = open_settings(f"redis://127.0.0.1:{proxy.port}", **settings)
    dialer = Dialer(target, checked)
    link = Link("proxy", Owner(), dialer.to(target.addresses[0]), checked)
    try:
        yield link
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await link.close()


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(coroutine)

    return run


@pytest.fixture(params=[2, 3])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param)


async def outcomes(futures: list[Any]) -> list[Any]:
    """Values and errors; AssertionError if one of them hangs."""
    _, pending = await asyncio.wait([asyncio.ensure_future(future) for future in futures], timeout=PATIENCE_S)
    assert not pending, f"{len(pending)} of {len(futures)} calls hang"
    return await asyncio.gather(*futures, return_exceptions=True)


# ------------------------------------------------------------- cut at every byte


async def converse(link: Link, run_id: str) -> int:
    """Reads and writes, in two ticks; checks every outcome and answers how many are unknown."""
    calls: list[tuple[str, str, asyncio.Future[Any]]] = []
    for part in ("first", "second"):
        for number in range(4):
            echo = f"{run_id}:{part}:{number}"
            calls.append(("ECHO", echo, link.call(("ECHO", echo))))
            key = f"n:{run_id}:{part}:{number}"
            calls.append(("INCR", key, link.call(("INCR", key))))
        await asyncio.wait([calls[-2][2]], timeout=PATIENCE_S)
    results = await outcomes([future for _, _, future in calls])
    unknown = 0
    for (name, word, _), result in zip(calls, results, strict=True):
        if name == "ECHO":
            assert result == word.encode()
            continue
        ran = await link.call(("GET", word))
        if isinstance(result, OutcomeUnknownError):
            assert ran in (None, b"1")
            unknown += 1
        else:
            assert (result, ran) == (1, b"1")
    return unknown


@pytest.mark.slow
@pytest.mark.parametrize("way", ["up", "down"])
def test_cut_at_every_byte(valkey_server: RealServer, protocol: int, way: str) -> None:
    """The handshake in steps, since its replies are long; everything else byte by byte."""

    async def scenario() -> None:
        async with Proxy(valkey_server.port) as proxy:
            async with through(proxy, protocol=protocol) as link:
                await link.wait_open()
                greeting = getattr(proxy.passage, way)
                await converse(link, "length")
                total = getattr(proxy.passage, way)
            unknown = 0
            step = 3 if way == "up" else 37
            for cut in [*range(0, greeting, step), *range(greeting, total + 1)]:
                proxy.passages.clear()
                proxy.plan(Plan(cut_up=cut) if way == "up" else Plan(cut_down=cut))
                async with through(proxy, protocol=protocol) as link:
                    in_this_one = await converse(link, f"{way}{protocol}:{cut}")
                assert getattr(proxy.passages[0], way) == cut
                assert len(proxy.passages) == 2
                # What was only greeted has sent nothing yet, hence nothing is unknown.
                assert in_this_one == 0 or cut >= greeting
                unknown += in_this_one
            assert unknown

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


# ------------------------------------------------------------- cancelled by chance


class Chaos:
    """Tasks that echo unique values, some of which are cancelled at any moment."""

    def __init__(self, link: Link, seed: int) -> None:
        self._link = link
        self._chance = random.Random(seed)
        self._values = itertools.count()
        self.ended: Counter[str] = Counter()

    async def run(self, tasks: int, calls: int) -> None:
        async with asyncio.timeout(PATIENCE_S * 10), asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(self._worker(calls // tasks))

    async def _worker(self, calls: int) -> None:
        chance = self._chance
        for _ in range(calls):
            value = b"value-%d" % next(self._values)
            future = self._link.call(("ECHO", value))
            fate = chance.random()
            if fate < 0.1:
                future.cancel()
            elif fate < 0.3:
                await self._cancel_later(future)
            try:
                reply = await future
            except asyncio.CancelledError:
                self.ended["cancelled"] += 1
            except PenstockError as error:
                self.ended[type(error).__name__] += 1
            else:
                assert reply == value, f"asked for {value!r}, got {reply!r}"
                self.ended["answered"] += 1

    async def _cancel_later(self, future: asyncio.Future[Any]) -> None:
        """In this tick after others, in a later one, or when the reply may be here already."""
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)
        if self._chance.random() < 0.2:
            await asyncio.sleep(self._chance.random() * 0.003)
        future.cancel()


async def echo_in_chaos(port: int, protocol: int, seed: int, tasks: int, calls: int, cuts: bool) -> None:
    chance = random.Random(seed)
    async with Proxy(port) as proxy:
        proxy.usual = Plan(chance=chance)
        if cuts:
            proxy.plan(*[_cut_somewhere(chance, within=2 * calls) for _ in range(20)])
        async with through(proxy, protocol=protocol, max_in_flight=chance.choice([7, 100, 10_000])) as link:
            chaos = Chaos(link, seed)
            await chaos.run(tasks, calls)
            assert chaos.ended["answered"] > calls / 3
            assert chaos.ended["cancelled"] > calls / 20
            assert sum(chaos.ended.values()) == tasks * (calls // tasks)
            assert set(chaos.ended) == {"answered", "cancelled"}
            assert len(proxy.passages) > (10 if cuts else 0)
            # Nothing is left behind that a later command could be given.
            assert await link.call(("ECHO", "last")) == b"last"
            assert link.statistics()["in_flight"] == 0


def _cut_somewhere(chance: random.Random, within: int) -> Plan:
    at = chance.randrange(within)
    return chance.choice([Plan(cut_up=at, chance=chance), Plan(cut_down=at, chance=chance)])


@pytest.mark.parametrize("cuts", [False, True], ids=["sound", "cut"])
def test_cancelled_calls_never_mix_up_replies(
    real_server: RealServer, protocol: int, cuts: bool, run: Run
) -> None:
    run(echo_in_chaos(real_server.port, protocol, seed=protocol, tasks=50, calls=3000, cuts=cuts))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cuts", [False, True], ids=["sound", "cut"])
def test_many_calls_without_one_mixed_up_reply(valkey_server: RealServer, cuts: bool) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(echo_in_chaos(valkey_server.port, 3, 7, tasks=500, calls=scaled(200_000), cuts=cuts))


# ------------------------------------------------------------------------- order


@pytest.mark.parametrize("seed", range(3))
def test_order_survives_cuts(valkey_server: RealServer, seed: int, run: Run) -> None:
    """Writes in program order: what ran, ran in that order and at most once; what succeeded, ran."""

    async def scenario() -> None:
        chance = random.Random(seed)
        async with Proxy(valkey_server.port) as proxy:
            proxy.plan(*[_cut_somewhere(chance, within=20_000) for _ in range(10)])
            async with through(proxy, max_in_flight=50) as link:
                futures = []
                for number in range(2000):
                    futures.append(link.call(("RPUSH", "l", number)))
                    if chance.random() < 0.1:
                        await asyncio.sleep(0)
                results = await outcomes(futures)
                ran = [int(item) for item in await link.call(("LRANGE", "l", 0, -1))]
            assert ran == sorted(set(ran))
            succeeded = {number for number, result in enumerate(results) if isinstance(result, int)}
            unknown = {
                number for number, result in enumerate(results) if isinstance(result, OutcomeUnknownError)
            }
            assert len(succeeded) + len(unknown) == 2000
            assert succeeded <= set(ran) <= succeeded | unknown
            assert unknown

    valkey_server.reset()
    run(scenario())


# ------------------------------------------------------------------- half-open, slow


def test_a_half_open_connection_is_noticed(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        async with (
            Proxy(real_server.port) as proxy,
            through(proxy, unresponsive_timeout_ms=NOTICED_MS) as link,
        ):
            await link.wait_open()
            proxy.passage.is_swallowing = True
            write, read = link.call(("INCR", "n")), link.call(("ECHO", "read"))
            assert await read == b"read"
            assert isinstance((await outcomes([write]))[0], OutcomeUnknownError)
            assert len(proxy.passages) == 2

    run(scenario())


def test_an_idle_half_open_connection_is_noticed(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        async with (
            Proxy(real_server.port) as proxy,
            through(proxy, idle_ping_ms=20, unresponsive_timeout_ms=50) as link,
        ):
            await link.wait_open()
            proxy.passage.is_swallowing = True
            async with asyncio.timeout(PATIENCE_S):
                while link.reconnections == 0:
                    await asyncio.sleep(0.005)

    run(scenario())


def test_a_handshake_that_is_never_answered(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        async with Proxy(real_server.port) as proxy:
            proxy.plan(Plan(swallow=True))
            async with through(proxy, handshake_timeout_ms=NOTICED_MS) as link:
                assert await link.call(("ECHO", "x")) == b"x"
                assert len(proxy.passages) == 2

    run(scenario())


def test_a_slow_drip_is_no_silence(valkey_server: RealServer, run: Run) -> None:
    """A reply that takes long to arrive, but arrives, is not taken for a dead peer."""

    async def scenario() -> None:
        async with Proxy(valkey_server.port) as proxy:
            async with through(proxy) as link:
                await link.call(("SET", "k", "x" * 400))
            proxy.passages.clear()
            async with through(proxy, unresponsive_timeout_ms=NOTICED_MS) as link:
                await link.wait_open()
                proxy.passage.plan = Plan(drip=1, delay_s=2 * NOTICED_MS / 1_000 / 400)
                assert await link.call(("GET", "k")) == b"x" * 400
                assert len(proxy.passages) == 1

    run(scenario())


def test_everything_arrives_in_any_pieces(real_server: RealServer, protocol: int, run: Run) -> None:
    async def scenario() -> None:
        async with Proxy(real_server.port) as proxy:
            for drip in (1, 2, 3, 5, 8, 13):
                proxy.usual = Plan(drip=drip)
                async with through(proxy, protocol=protocol) as link:
                    values = [f"{drip}:{number}".encode() for number in range(50)]
                    assert await asyncio.gather(*[link.call(("ECHO", value)) for value in values]) == values

    run(scenario())


# ------------------------------------------------------------------------- outages


def test_a_total_outage_and_the_return(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        async with Proxy(real_server.port) as proxy, through(proxy) as link:
            assert await link.call(("ECHO", "before")) == b"before"
            await proxy.vanish()
            waiting = [link.call(("INCR", "n")) for _ in range(100)]
            async with asyncio.timeout(PATIENCE_S):
                while link.state is LinkState.OPEN:
                    await asyncio.sleep(0.001)
            during = [link.call(("INCR", "n")) for _ in range(100)]
            await proxy.listen()
            results = await outcomes([*waiting, *during])
            assert all(isinstance(result, int | OutcomeUnknownError) for result in results)
            assert all(isinstance(result, int) for result in results[100:])
            assert len(set(results[100:])) == 100

    real_server.reset()
    run(scenario())


def test_close_during_an_outage_is_instant_and_complete(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        async with Proxy(real_server.port) as proxy:
            async with through(proxy, reconnect=Constant(base_ms=1_000_000)) as link:
                assert await link.call(("ECHO", "before")) == b"before"
                await proxy.vanish()
                futures = [link.call(("ECHO", number)) for number in range(10)]
            results = await outcomes(futures)
            assert all(isinstance(result, PenstockError) for result in results)

    run(scenario())
