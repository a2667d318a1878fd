"""Stores in this process behind a link: transactions, other processes and loops, slow scripts, the end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.client.config import Credentials, open_settings
from penstock.client.dialing import Dialer
from penstock.client.link import Link, LinkState
from penstock.client.policies import Constant, NoReconnect
from penstock.client.router.standalone import StandaloneRouter
from penstock.engine import Engine, LocalSession
from penstock.engine.duties import Duties
from penstock.engine.storage.layout import U32
from penstock.errors import (
    ClosedError,
    CommandError,
    ConfigError,
    OutcomeUnknownError,
    StoreError,
    StoreFormatError,
)
from penstock.host import registry
from tests.integration.peers import Peer
from tests.integration.test_client_sockets import Owner
from tests.places import until

DEADLINE_S = 20.0
SOON = Constant(base_ms=1)
RUNAWAY = "redis.call('SET', 'half', 'done') while true do end"


def link_to(path: Path, owner: Owner | None = None, **settings: Any) -> Link:
    target, checked = open_settings(path, **{"durability": "relaxed", **settings})
    dialer = Dialer(target, checked)
    return Link(dialer.name_of(None), owner or Owner(), dialer.to(None), checked)


@asynccontextmanager
async def opened(path: Path, owner: Owner | None = None, **settings: Any) -> AsyncIterator[Link]:
    link = link_to(path, owner, **settings)
    try:
        await link.wait_open(timeout_s=DEADLINE_S)
        yield link
    finally:
        await link.close()


async def within(awaitable: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(awaitable, DEADLINE_S)


async def until_blocked(link: Link, count: int) -> None:
    """Until so many clients of this loop wait for a key."""
    async with asyncio.timeout(DEADLINE_S):
        while (await link.call(("CLIENT", "LIST"))).count(b" flags=b ") < count:
            await asyncio.sleep(0.001)


async def kill_script(link: Link) -> None:
    """Where the machine is slow, the script may not have begun when the others are told BUSY."""
    async with asyncio.timeout(DEADLINE_S):
        while (await link.call_burst([("SCRIPT", "KILL")])) != [b"OK"]:
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    assert not registry._hosts


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(coroutine)

    return run


# ------------------------------------------------------------------------ use


def test_a_router_on_a_directory(store: Path, run: Any) -> None:
    class Nobody:
        def on_push(self, link: object, push: object) -> None: ...

        def on_event(self, event: object) -> None: ...

    async def scenario() -> None:
        target, settings = open_settings(store, durability="relaxed", db=3, client_name="shop")
        router = StandaloneRouter(Dialer(target, settings), None, settings, Nobody())
        await router.open()
        replies = await asyncio.gather(*(router.call(("ECHO", f"value {n}")) for n in range(5000)))
        assert replies == [b"value %d" % n for n in range(5000)]
        assert await router.call(("CLIENT", "GETNAME")) == b"shop"
        assert b" db=3 " in await router.call(("CLIENT", "INFO"))
        await router.close()

    run(scenario())
    assert list((store / "signals").iterdir()) == [] if (store / "signals").exists() else True


async def test_credentials_mean_nothing_here(store: Path) -> None:
    async def provide(_: object) -> Credentials:
        raise AssertionError("asked for credentials")

    for login in ({"username": "someone", "password": "secret"}, {"credential_provider": provide}):
        async with opened(store, **login) as link:
            assert await link.call(("PING",)) == b"PONG"


async def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with opened(Path("store.pen"), reconnect=SOON) as link:
        await link.call(("SET", "k", "v"))
        monkeypatch.chdir(tmp_path / "elsewhere")
        link.call(("CLIENT", "KILL", "SKIPME", "no"))
        await until(lambda: link.reconnections == 1)
        assert await link.call(("GET", "k")) == b"v"
    assert not (tmp_path / "elsewhere" / "store.pen").exists()


async def test_large_values_and_many_commands(store: Path) -> None:
    async with opened(store) as link, opened(store) as other:
        values = [bytes([number]) * (3 << 20) for number in range(8)]
        await asyncio.gather(*(link.call(("SET", f"k{n}", value)) for n, value in enumerate(values)))
        assert await asyncio.gather(*(other.call(("GET", f"k{n}")) for n in range(8))) == values
        burst = await link.call_burst([("INCR", "n")] * 25_000)
        assert burst == list(range(1, 25_001))


# ------------------------------------------------------------------------ transactions


async def test_a_tick_of_all_clients_is_one_transaction(store: Path, engine: Engine) -> None:
    def last_transaction() -> int:
        return int(engine.env._env.info()["last_txnid"])

    async def cost_of(*calls: asyncio.Future[Any]) -> int:
        """How many transactions were committed meanwhile; the store may have tidied up in between."""
        before = last_transaction()
        await asyncio.gather(*calls)
        return last_transaction() - before

    async with opened(store) as one, opened(store) as two:
        both = (one, two)
        costs = [
            await cost_of(*(link.call(("INCR", "n")) for link in both for _ in range(100))) for _ in range(9)
        ]
        assert min(costs) == 1, costs
        assert await one.call(("GET", "n")) == b"1800"
        assert min([await cost_of(one.call(("GET", "n"))) for _ in range(9)]) == 0
    async with opened(store) as alone:
        assert min([await cost_of(*(alone.call(("INCR", "n")) for _ in range(100))) for _ in range(9)]) == 1


async def test_a_burst_is_not_mixed_with_others(store: Path) -> None:
    async with opened(store) as one, opened(store) as two:

        async def transact(link: Link) -> None:
            for _ in range(50):
                replies = await link.call_burst([("MULTI",), ("INCR", "n"), ("DECR", "n"), ("EXEC",)])
                assert replies[3][1] == replies[3][0] - 1

        await asyncio.gather(*(transact(link) for link in (one, two) for _ in range(10)))
        assert await one.call(("GET", "n")) == b"0"


# ------------------------------------------------------------------------ blocking


def test_commands_behind_a_blocked_one_wait(store: Path, run: Any) -> None:
    async def scenario() -> None:
        async with opened(store) as link, opened(store) as other:
            popped = [link.call_blocking(("BLPOP", "jobs", 0), None) for _ in range(3)]
            echoed = [link.call(("ECHO", number)) for number in range(3)]
            await until_blocked(other, 1)
            echoed.append(link.call(("ECHO", 3)))
            assert await other.call(("RPUSH", "jobs", "one")) == 1
            assert await within(popped[0]) == [b"jobs", b"one"]
            await until_blocked(other, 1)
            assert not any(future.done() for future in [*popped[1:], *echoed])
            await other.call(("RPUSH", "jobs", "two", "three"))
            assert await within(asyncio.gather(*popped[1:])) == [[b"jobs", b"two"], [b"jobs", b"three"]]
            assert await within(asyncio.gather(*echoed)) == [b"0", b"1", b"2", b"3"]
            assert await within(link.call_blocking(("BLPOP", "jobs", 0.01), 0.01)) is None

    run(scenario())


async def test_a_cancelled_pop_on_a_link_that_ends_takes_nothing(store: Path) -> None:
    async with opened(store) as other:
        for how in ("close", "kill"):
            async with opened(store, reconnect=NoReconnect(), close_timeout_ms=0) as link:
                popping = asyncio.ensure_future(link.call_blocking(("BLPOP", "jobs", 0), None))
                await until_blocked(other, 1)
                popping.cancel()
                if how == "kill":
                    await other.call(("CLIENT", "KILL", "ID", link.facts.client_id))
                    await until(lambda link=link: link.state is LinkState.CLOSED)
            assert await other.call(("RPUSH", "jobs", how)) == 1
            assert await other.call(("LPOP", "jobs")) == how.encode()


async def test_a_cancelled_pop_on_a_link_that_goes_on_tells_what_it_took(store: Path) -> None:
    async with opened(store) as link, opened(store) as other:
        orphans: list[Any] = []
        link.on_orphan = lambda slot, reply: orphans.append((slot.arguments, reply))
        popping = link.call_blocking(("BLPOP", "jobs", 0), None)
        await until_blocked(other, 1)
        popping.cancel()
        await other.call(("RPUSH", "jobs", "one"))
        await until(lambda: orphans)
        assert orphans == [(("BLPOP", "jobs", 0), [b"jobs", b"one"])]
        assert await link.call(("PING",)) == b"PONG"


async def test_unblocking(store: Path) -> None:
    async with opened(store) as link, opened(store) as other:
        for mode, empty in (("TIMEOUT", None), ("ERROR", CommandError)):
            popping = link.call_blocking(("BLPOP", "jobs", 0), None)
            await until_blocked(other, 1)
            assert await other.call(("CLIENT", "UNBLOCK", link.facts.client_id, mode)) == 1
            if empty is None:
                assert await within(popping) is None
            else:
                with pytest.raises(CommandError, match="UNBLOCKED"):
                    await within(popping)


# ------------------------------------------------------------------------ other processes and loops


@pytest.fixture
def signals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the background duty that would find lost signals a second later."""
    monkeypatch.setattr(Duties, "tick", lambda duties: False)


@pytest.mark.usefixtures("signals_alone")
def test_a_pop_is_woken_by_another_process(
    store: Path, engine: Engine, start_peer: Callable[[], Peer], run: Any
) -> None:
    peer = start_peer()

    def waiters() -> int:
        counts: list[int] = []
        engine.run_task(
            lambda: counts.append(engine.unit.entries(engine.unit.tables["waiting"])), write=False
        )
        return counts[-1]

    async def scenario() -> None:
        async with opened(store) as link, opened(store) as other:
            popping = link.call_blocking(("BLPOP", "jobs", 0), None)
            await until_blocked(other, 1)
            assert peer.do("RPUSH", "jobs", "one") == 1
            assert await within(popping) == [b"jobs", b"one"]
            peer.send("BLPOP", "results", "0")
            await until(lambda: waiters() == 1)
            assert await other.call(("RPUSH", "results", "two")) == 1
            assert await other.call(("LLEN", "results")) == 0
            assert peer.receive() == [b"results", b"two"]

    run(scenario())


@pytest.mark.usefixtures("signals_alone")
def test_messages_cross_processes(store: Path, start_peer: Callable[[], Peer], run: Any) -> None:
    peer = start_peer()

    async def scenario() -> None:
        owner = Owner()
        async with opened(store, owner) as link:
            assert await link.call(("SUBSCRIBE", "news")) == 1
            assert peer.do("PUBLISH", "news", "from there") == 1
            assert await within(owner.pushes.get()) == [b"subscribe", b"news", 1]
            assert await within(owner.pushes.get()) == [b"message", b"news", b"from there"]
            peer.do("SUBSCRIBE", "answers")
            assert peer.do("wait", 1000) == [b"subscribe", b"answers", 1]
            assert await link.call(("PUBLISH", "answers", "from here")) == 1
            assert peer.do("wait", 20_000) == [b"message", b"answers", b"from here"]

    run(scenario())


@pytest.mark.usefixtures("signals_alone")
def test_two_loops_of_one_process(store: Path, run: Any) -> None:
    """Each has an engine of its own; they wake and hear each other."""
    ready, failures = threading.Event(), []

    async def worker() -> None:
        async with opened(store) as link, opened(store) as other:
            popping = link.call_blocking(("BLPOP", "jobs", 0), None)
            await until_blocked(other, 1)
            ready.set()
            assert await within(popping) == [b"jobs", b"one"]
            for _ in range(300):
                await link.call(("INCR", "n"))
            await other.call(("RPUSH", "done", "yes"))

    def work() -> None:
        try:
            asyncio.run(worker())
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            ready.set()

    async def scenario() -> None:
        async with opened(store) as link, opened(store) as waiting:
            thread = threading.Thread(target=work)
            thread.start()
            await asyncio.get_running_loop().run_in_executor(None, ready.wait, DEADLINE_S)
            done = waiting.call_blocking(("BLPOP", "done", 0), None)
            assert await link.call(("RPUSH", "jobs", "one")) == 1
            for _ in range(300):
                await link.call(("INCR", "n"))
            assert await within(done) == [b"done", b"yes"]
            assert await link.call(("GET", "n")) == b"600"
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    run(scenario())
    assert not failures


async def test_another_loop_gets_a_clear_error(store: Path) -> None:
    errors: list[str] = []

    async def misuse(link: Link) -> None:
        try:
            await link.call(("PING",))
        except ClosedError as error:
            errors.append(str(error))

    async with opened(store) as link:
        thread = threading.Thread(target=asyncio.run, args=(misuse(link),))
        thread.start()
        thread.join()
        assert "another event loop" in errors[0]
        assert await link.call(("PING",)) == b"PONG"


async def test_a_forked_child_gets_a_clear_error(store: Path) -> None:
    async with opened(store) as link, opened(store):
        await link.call(("SUBSCRIBE", "news"))
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            message = "nothing was raised"
            try:
                link.call(("GET", "k")).result()
            except ClosedError as error:
                message = f"{error} ({len(registry._hosts)} hosts)"
            finally:
                os.write(write, message.encode())
                os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
            assert answer.read().decode() == (
                f"the client of {store} was opened before fork and cannot be used in the child (0 hosts)"
            )
        assert await link.call(("PUBLISH", "news", "text")) == 1


def test_what_a_closed_loop_left_open_is_closed_by_the_next(store: Path) -> None:
    async def forget() -> Engine:
        link = link_to(store)
        await link.wait_open(DEADLINE_S)
        await link.call(("SET", "k", "v"))
        await link.call(("SUBSCRIBE", "news"))
        (host,) = registry._hosts.values()
        return host.engine

    async def go_on() -> None:
        async with opened(store) as link:
            assert await link.call(("GET", "k")) == b"v"
            assert await link.call(("PUBSUB", "CHANNELS")) == []

    engine = asyncio.run(forget())
    assert not engine._closed
    asyncio.run(go_on())
    assert engine._closed


# ------------------------------------------------------------------------ slow scripts


def test_a_slow_script_stops_nobody_elses_loop(store: Path, run: Any) -> None:
    async def scenario() -> None:
        async with opened(store) as link, opened(store) as other:
            running = link.call(("EVAL", "for i = 1, 5e7 do end return redis.call('INCR', 'n')", 0))
            behind = link.call(("ECHO", "behind"))
            turns = 0
            while not running.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert await running == 1
            assert await behind == b"behind"
            assert turns > 20
            assert await other.call(("GET", "n")) == b"1"

    run(scenario())


def test_a_runaway_is_killed_from_another_session(store: Path, run: Any) -> None:
    async def scenario() -> None:
        async with opened(store) as link, opened(store) as other:
            await other.call(("CONFIG", "SET", "busy-reply-threshold", 50))
            running = link.call(("EVAL", RUNAWAY, 0))
            with pytest.raises(CommandError, match="BUSY Redis is busy running a script"):
                async with asyncio.timeout(DEADLINE_S):
                    while True:
                        await other.call(("GET", "half"))
            refused = await other.call_burst([("MULTI",), ("GET", "half"), ("EXEC",), ("SHUTDOWN", "NOSAVE")])
            assert all("BUSY" in str(reply) for reply in refused)
            await kill_script(other)
            with pytest.raises(CommandError, match="killed by user"):
                await within(running)
            assert await other.call(("GET", "half")) is None
            with pytest.raises(CommandError, match="SHUTDOWN is for servers"):
                await other.call(("SHUTDOWN",))

    run(scenario())


def test_the_last_to_leave_kills_a_runaway(store: Path, run: Any) -> None:
    async def scenario() -> None:
        async with opened(store, close_timeout_ms=50) as link:
            running = link.call(("EVAL", RUNAWAY, 0))
            await until(lambda: next(iter(registry._hosts.values())).executor.is_away)
        with pytest.raises(OutcomeUnknownError):
            await running
        assert not registry._hosts
        async with opened(store) as link:
            assert await link.call(("EXISTS", "half")) == 0

    run(scenario())


async def test_leaving_while_anothers_script_runs_does_not_wait_for_it(store: Path) -> None:
    async with opened(store) as link:
        async with opened(store, close_timeout_ms=50) as other:
            await other.call(("CONFIG", "SET", "busy-reply-threshold", 200))
            await other.call(("SUBSCRIBE", "news"))
            running = link.call(("EVAL", RUNAWAY, 0))
            await until(lambda: next(iter(registry._hosts.values())).executor.is_away)
        assert not running.done()
        async with opened(store) as third:
            await kill_script(third)
            with pytest.raises(CommandError, match="killed by user"):
                await within(running)
            assert await third.call(("PUBSUB", "CHANNELS")) == []


# ------------------------------------------------------------------------ the end


async def test_quit_and_kill_end_the_connection_and_the_link_returns(store: Path) -> None:
    async with opened(store, reconnect=SOON) as link, opened(store) as other:
        await link.call(("SUBSCRIBE", "news"))
        await link.call(("QUIT",))
        await until(lambda: link.reconnections == 1)
        assert await other.call(("PUBSUB", "CHANNELS")) == []
        assert await other.call(("CLIENT", "KILL", "ID", link.facts.client_id)) == 1
        await until(lambda: link.reconnections == 2)
        assert await link.call(("PING",)) == b"PONG"


async def test_the_last_to_leave_closes_the_engine(store: Path) -> None:
    async with opened(store) as one:
        (host,) = registry._hosts.values()
        async with opened(store) as two:
            assert host.references == 2
            await two.call(("SUBSCRIBE", "news"))
        assert host.references == 1
        assert await one.call(("PING",)) == b"PONG"
    assert host.engine._closed
    assert list((store / "signals").iterdir()) == []


async def test_close_answers_what_was_sent(store: Path) -> None:
    async with opened(store) as other:
        link = link_to(store)
        await link.wait_open(DEADLINE_S)
        pending = [link.call(("INCR", "n")) for _ in range(100)]
        await link.close()
        assert [future.result() for future in pending] == list(range(1, 101))
        assert await other.call(("GET", "n")) == b"100"


# ------------------------------------------------------------------------ bad stores


async def test_another_durability_in_one_process_is_refused_at_once(store: Path) -> None:
    async with opened(store) as link:
        for _ in range(2):
            with pytest.raises(ConfigError, match="open in this process with durability 'relaxed'"):
                async with opened(store, durability="always"):
                    pass
        assert await link.call(("PING",)) == b"PONG"


def test_another_durability_on_another_loop_is_refused(store: Path, engine: Engine) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="open in this process with durability 'relaxed'"):
            async with opened(store, durability="always"):
                pass

    asyncio.run(scenario())


async def test_a_store_that_cannot_be_opened_is_told_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError, match=r"cannot use .*file as a store directory"):
        async with opened(tmp_path / "file"):
            pass
    with pytest.raises(StoreError, match="cannot use"):
        async with opened(tmp_path / "file" / "below"):
            pass


async def test_a_store_of_another_version_is_told_plainly(store: Path) -> None:
    with Engine.open(store, durability="relaxed") as engine, LocalSession(engine) as session:
        session.execute("SET", "k", "v")
        system = engine.unit.tables["system"]
        engine.run_task(lambda: engine.unit.put(b"format", U32.pack(99), db=system))
    with pytest.raises(StoreFormatError, match="written by a newer Penstock"):
        async with opened(store):
            pass
