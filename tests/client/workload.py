"""A workload that uses a client in every way at once, and the books that say what came of it.

    async with Workload(client, seed=1, ways=EVERY_WAY) as workload:
        ...                                    # whatever happens to the servers
    await workload.settle(calm)                # a sound client reads what has become of it
    workload.check()

Every value is used once in a run and names its worker, so that a reply of somebody else is
always noticed. Every call ends in one of these, within ``LIMIT_S``:

===============  ==============================================================
``ok``           it ran, once
``unknown``      it ran once or not at all, now or later. So do ``timeout`` and
                 ``cancelled``
``not_sent``     it did not run. Nor did ``refused``, ``watch``, ``backpressure``
                 and ``closed``
===============  ==============================================================

What the books must say at the end is in ``books``.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Self

import penstock
from penstock.client.events import Event, OrphanedReply
from penstock.client.exclusive import ExclusiveConnection
from penstock.client.pipelines import Transaction
from penstock.client.policies import Constant
from penstock.client.pubsub import Gap, Message
from penstock.errors import (
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    NotSentError,
    OutcomeUnknownError,
    WatchError,
)
from tests.client.books import MAYBE, Books, Tally
from tests.client.hearing import Channel
from tests.client.quiet import LIMIT_S

#: Settings by which what fell silent is noticed before a test is over.
IMPATIENT: dict[str, Any] = {
    "reconnect": Constant(base_ms=1),
    "connect_timeout_ms": 300,
    "handshake_timeout_ms": 300,
    "command_timeout_ms": 3_000,
    "unresponsive_timeout_ms": 300,
    "idle_ping_ms": 100,
    "blocking_margin_ms": 300,
    "close_timeout_ms": 500,
    "max_attempts": 0,
    "split_multi_key": True,
}

_OUTCOMES: dict[type[BaseException], str] = {
    asyncio.CancelledError: "cancelled",
    OutcomeUnknownError: "unknown",
    CommandTimeoutError: "timeout",
    NotSentError: "not_sent",
    CommandError: "refused",
    WatchError: "watch",
    BackpressureError: "backpressure",
    ClosedError: "closed",
}

#: A counter begins here times its number, so that its values are nobody else's.
_BASE = 10**9

_COUNTERS = ("count", "script", "pipe", "ta", "tb")

COUNT_AND_ECHO = "return {redis.call('INCR', KEYS[1]), ARGV[1]}"


class Workload(Books):
    """Workers that call at random, in the ways they are given, until the block ends."""

    def __init__(
        self,
        client: penstock.Client,
        *,
        seed: int,
        ways: Sequence[str],
        workers: int = 20,
        cancels: float = 0.2,
        is_exact: bool = True,
        calls: int | None = None,
        ends_closed: bool = False,
    ) -> None:
        super().__init__(is_exact=is_exact, is_sharded="smessages" in ways)
        self.client = client
        self.orphans = 0
        self._chance = random.Random(seed)
        self._ways: list[Callable[[int], Coroutine[Any, Any, None]]] = [
            getattr(self, f"_{way}") for way in ways
        ]
        self._n_workers = workers
        self._cancels = cancels
        self._values = itertools.count()
        self._versions: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._script = client.script(COUNT_AND_ECHO)
        self._hears = self.is_sharded or "messages" in ways
        #: left to issue; None: until the end
        self._calls = calls
        #: whether a worker ends when it hears that the client is closed
        self._ends_closed = ends_closed
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------- running

    async def __aenter__(self) -> Self:
        self.client.on_event(self._on_event)
        await asyncio.gather(*map(self._begin_at, self._counters()))
        if self._hears:
            self._listener = asyncio.create_task(self._listen())
        self._tasks = [asyncio.create_task(self._work(number)) for number in range(self._n_workers)]
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        await self.end()

    async def end(self) -> None:
        """Until the last call has ended."""
        self._is_over = self._calls is None
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in self._tasks:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    async def goes_on(self, calls: int = 200) -> None:
        """Until so many more calls have succeeded."""
        before = self.succeeded
        async with asyncio.timeout(LIMIT_S):
            while self.succeeded < before + calls:
                await asyncio.sleep(0.005)

    def is_through(self) -> bool:
        """Whether the calls that were to be made are made."""
        return all(task.done() for task in self._tasks)

    async def _work(self, worker: int) -> None:
        while not self._is_over:
            if self._calls is not None:
                self._calls -= 1
                if self._calls < 0:
                    return
            way = self._chance.choice(self._ways)
            try:
                await way(worker)
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                self.wrong.append(f"{way.__name__}: a reply of another shape than asked for: {error!r}")
            if self._ends_closed and self.count("closed"):
                return

    async def _attempt(self, way: str, work: Coroutine[Any, Any, Any]) -> tuple[str, Any]:
        """Run one call, and cancel it perhaps; its outcome and its value."""
        self.started[way] += 1
        task = asyncio.ensure_future(work)
        if self._chance.random() < self._cancels:
            await self._cancel_later(task)
        if not task.done():
            await asyncio.wait([task], timeout=LIMIT_S)
        if not task.done():
            self.wrong.append(f"{way} hangs: {task}")
            task.cancel()
            return "hung", None
        outcome, value = self._outcome_of(way, task)
        self.outcomes[way, outcome] += 1
        if outcome in ("not_sent", "refused"):
            await asyncio.sleep(0.01)  # a server that is away needs no hammering
        return outcome, value

    async def _cancel_later(self, task: asyncio.Future[Any]) -> None:
        """In this tick, in a later one, or when the reply may be here already; sometimes twice."""
        chance = self._chance
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() ** 2 * 0.02)
        task.cancel()
        if chance.random() < 0.3:
            await asyncio.sleep(chance.choice([0, 0.001]))
            task.cancel()

    def _outcome_of(self, way: str, task: asyncio.Future[Any]) -> tuple[str, Any]:
        if task.cancelled():
            return "cancelled", None
        error = task.exception()
        if error is None:
            return "ok", task.result()
        return self._outcome_of_error(way, error), None

    def _outcome_of_error(self, way: str, error: BaseException) -> str:
        for kind, outcome in _OUTCOMES.items():
            if isinstance(error, kind):
                return outcome
        self.wrong.append(f"{way} ended with {error!r}")
        return "strange"

    def _unique(self, worker: int) -> bytes:
        return b"%d:%d" % (worker, next(self._values))

    def _expect(self, way: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            self.wrong.append(f"{way}: wanted {wanted!r}, got {found!r}")

    # ------------------------------------------------------------- one command at a time

    async def _echo(self, worker: int) -> None:
        value = self._unique(worker)
        outcome, reply = await self._attempt("echo", self.client.execute("ECHO", value))
        if outcome == "ok":
            self._expect("echo", reply, value)

    async def _timed(self, worker: int) -> None:
        """A timeout of its own, shorter or longer than everybody's."""
        value = self._unique(worker)
        timeout_ms = self._chance.choice([1, 5, 20, 5_000])
        outcome, reply = await self._attempt(
            "timed", self.client.execute("ECHO", value, timeout_ms=timeout_ms)
        )
        if outcome == "ok":
            self._expect("timed", reply, value)

    async def _routed(self, worker: int) -> None:
        value = self._unique(worker)
        everywhere = self._chance.random() < 0.3
        route = penstock.ToAll() if everywhere else penstock.ByKey(f"{{w{worker}}}")
        timeout_ms = self._chance.choice([None, 20, 5_000])
        outcome, reply = await self._attempt(
            "routed", self.client.execute("ECHO", value, route=route, timeout_ms=timeout_ms)
        )
        if outcome == "ok":
            self._expect("routed", set(reply.values()) if everywhere else {reply}, {value})

    async def _everywhere(self, worker: int) -> None:
        timeout_ms = self._chance.choice([None, 20])
        outcome, reply = await self._attempt(
            "everywhere", self.client.execute("DBSIZE", timeout_ms=timeout_ms)
        )
        if outcome == "ok":
            self._expect("everywhere", isinstance(reply, int), True)

    async def _count(self, worker: int) -> None:
        tally = self.tallies[f"{{w{worker}}}count"]
        outcome, reply = await self._attempt("count", self.client.execute("INCR", f"{{w{worker}}}count"))
        self.counted("count", tally, outcome, reply)

    async def _script_call(self, worker: int) -> None:
        value, key = self._unique(worker), f"{{w{worker}}}script"
        tally = self.tallies[key]
        outcome, reply = await self._attempt("script", self._script(keys=[key], args=[value]))
        self.counted("script", tally, outcome, reply and reply[0])
        if outcome == "ok":
            self._expect("script", reply[1], value)

    async def _cached(self, worker: int) -> None:
        """What is read is the last that was written, or one that may be on its way."""
        key = f"{{w{worker}}}cached"
        versions = self._versions[key]
        if self._chance.random() < 0.3:
            version = len(versions)
            versions[version] = "cancelled"
            work = self.client.execute("SET", key, f"{worker}:v{version}")
            versions[version], _ = await self._attempt("cached", work)
            return
        outcome, reply = await self._attempt("cached", self.client.execute("GET", key))
        if outcome == "ok":
            self._check_version(worker, versions, reply)

    def _check_version(self, worker: int, versions: dict[int, str], reply: bytes | None) -> None:
        sure = [version for version, outcome in versions.items() if outcome == "ok"]
        latest = max(sure, default=None)
        if reply is None:
            is_fine = latest is None or not self.is_exact
        else:
            owner, _, word = reply.partition(b":v")
            version = int(word)
            is_fine = owner == b"%d" % worker and (
                version == latest or versions.get(version) in MAYBE or (not self.is_exact and version in sure)
            )
        if not is_fine:
            self.wrong.append(f"cached: {reply!r} was read after version {latest} was written")

    async def _spread(self, worker: int) -> None:
        """Keys of several slots in one command."""
        keys = [f"{{w{worker}s{n}}}" for n in range(4)]
        if self._chance.random() < 0.5:
            pairs = [word for key in keys for word in (key, b"%d/%d" % (worker, next(self._values)))]
            await self._attempt("spread", self.client.execute("MSET", *pairs))
            return
        outcome, reply = await self._attempt("spread", self.client.execute("MGET", *keys))
        if outcome == "ok":
            owners = {value.partition(b"/")[0] for value in reply if value is not None}
            self._expect("spread", (owners | {b"%d" % worker}, len(reply)), ({b"%d" % worker}, len(keys)))

    # --------------------------------------------------------------- several commands

    async def _pipeline(self, worker: int) -> None:
        values, key = [self._unique(worker) for _ in range(3)], f"{{w{worker}}}pipe"
        tally = self.tallies[key]
        pipe = self.client.pipeline()
        for value in values:
            pipe.execute("ECHO", value)
        pipe.incr(key)
        outcome, replies = await self._attempt(
            "pipeline", pipe.try_all(timeout_ms=self._chance.choice([None, 20, 1000]))
        )
        if outcome != "ok":
            self.counted("pipeline", tally, outcome, None)
            return
        for value, reply in zip(values, replies, strict=False):
            if not isinstance(reply, Exception):
                self._expect("pipeline", reply, value)
        if isinstance(replies[3], Exception):
            self.counted("pipeline", tally, self._outcome_of_error("pipeline", replies[3]), None)
        else:
            self.counted("pipeline", tally, "ok", replies[3])

    async def _transaction(self, worker: int) -> None:
        value, keys = self._unique(worker), [f"{{w{worker}}}ta", f"{{w{worker}}}tb"]
        tallies = [self.tallies[key] for key in keys]
        tx = self.client.transaction()
        tx.incr(keys[0])
        tx.execute("ECHO", value)
        tx.incr(keys[1])
        outcome, replies = await self._attempt("transaction", tx.all())
        for tally, reply in zip(tallies, replies[::2] if replies else (None, None), strict=True):
            self.counted("transaction", tally, outcome, reply)
        if outcome == "ok":
            self._expect("transaction", replies[1], value)
            self._expect("transaction", tallies[0].since(replies[0]), tallies[1].since(replies[2]))

    async def _watched(self, worker: int) -> None:
        """Two workers a key, so that they get into each other's way."""
        key = f"{{p{worker // 2}}}watched"
        tally = self.tallies[key]

        async def increment(own: ExclusiveConnection) -> Transaction:
            value = int(await own.get(key) or 0)
            tx = own.transaction()
            tx.set(key, value + 1)
            return tx

        outcome, _ = await self._attempt("watched", self.client.transact(increment, key))
        self.counted("watched", tally, outcome, None)

    async def _exclusive(self, worker: int) -> None:
        value = self._unique(worker)

        async def converse() -> Any:
            async with self.client.exclusive(f"{{w{worker}}}") as own:
                return await own.execute("ECHO", value)

        outcome, reply = await self._attempt("exclusive", converse())
        if outcome == "ok":
            self._expect("exclusive", reply, value)

    # ----------------------------------------------------------------------- counters

    def _counters(self) -> list[str]:
        own = [f"{{w{n}}}{name}" for n in range(self._n_workers) for name in _COUNTERS]
        return own + [f"{{p{n}}}watched" for n in range((self._n_workers + 1) // 2)]

    async def _begin_at(self, key: str) -> None:
        self.tallies[key] = Tally(_BASE * (len(self.tallies) + 1))
        await self.client.execute("SET", key, self.tallies[key].base)

    # ----------------------------------------------------------------------- elements

    async def _push(self, worker: int) -> None:
        """For the neighbour."""
        key = f"{{w{(worker + 1) % self._n_workers}}}list"
        element, elements = self._unique(worker), self.lists[key]
        elements.pushed[element] = "cancelled"  # it may be received before we know
        elements.pushed[element], _ = await self._attempt("push", self.client.execute("RPUSH", key, element))

    async def _pop(self, worker: int) -> None:
        key = f"{{w{worker}}}list"
        elements = self.lists[key]
        kind = self._chance.randrange(3)
        if kind == 0:
            work = self.client.execute("BLPOP", key, 0, timeout_ms=self._chance.choice([5, 50]))
        else:
            work = self.client.execute("BLPOP", key, self._chance.choice([0.005, 0.05]))
        outcome, reply = await self._attempt("pop", work)
        elements.pops[outcome] += 1
        if outcome == "ok" and reply is not None:
            self._expect("pop", reply[0], key.encode())
            elements.received[reply[1]] += 1

    def _on_event(self, event: Event) -> None:
        if isinstance(event, OrphanedReply) and event.arguments[0] == "BLPOP":
            self.orphans += 1
            self.lists[str(event.arguments[1])].orphaned[event.reply[1]] += 1

    # ----------------------------------------------------------------------- messages

    async def _messages(self, worker: int) -> None:
        await self._publish("PUBLISH", worker)

    async def _smessages(self, worker: int) -> None:
        await self._publish("SPUBLISH", worker)

    async def _publish(self, command: str, worker: int) -> None:
        name = f"{{w{worker}}}channel"
        published = self.channels.setdefault(name, Channel()).published
        number = len(published)
        published[number] = "cancelled"
        published[number], _ = await self._attempt("publish", self.client.execute(command, name, number))

    async def _tuned(self, worker: int) -> None:
        """A subscriber that comes and goes; it hears nothing but its own channel."""
        name = f"{{w{worker}}}channel"

        async def listen() -> None:
            async with self.client.pubsub() as subscriber:
                await (subscriber.ssubscribe if self.is_sharded else subscriber.subscribe)(name)
                item = await subscriber.get(timeout_ms=5)
                if isinstance(item, Message):
                    self._expect("tuned", item.channel, name.encode())

        await self._attempt("tuned", listen())

    async def _listen(self) -> None:
        names = [f"{{w{worker}}}channel" for worker in range(self._n_workers)]
        async with self.client.pubsub() as subscriber:
            for name in names:
                while True:
                    try:
                        await (subscriber.ssubscribe if self.is_sharded else subscriber.subscribe)(name)
                        break
                    except (CommandTimeoutError, CommandError):
                        continue
            async for item in subscriber:
                if isinstance(item, Message):
                    channel = self.channels.setdefault(bytes(item.channel).decode(), Channel())
                    channel.heard.append(int(item.data))
                elif isinstance(item, Gap):
                    for name in item.channels:
                        self.channels.setdefault(bytes(name).decode(), Channel()).heard.append(None)
                else:
                    self.wrong.append(f"the subscriber was given {item}")

    # -------------------------------------------------------------------- the reckoning

    async def hear_out(self) -> None:
        """Until the subscriber has heard of every channel, now that all is calm."""
        for name, channel in self.channels.items():
            async with asyncio.timeout(LIMIT_S):
                while channel.heard[-1:] != [len(channel.published) - 1]:
                    number = len(channel.published)
                    channel.published[number] = "cancelled"
                    # Whoever was cancelled while it blocked may still hold the connection for a moment.
                    with suppress(BackpressureError):
                        await self.client.execute("SPUBLISH" if self.is_sharded else "PUBLISH", name, number)
                        channel.published[number] = "ok"
                    await asyncio.sleep(0.02)

    async def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)


#: The ways that make sense everywhere.
PLAIN = ("echo", "timed", "routed", "everywhere", "count", "cached", "spread")
BATCHES = ("pipeline", "transaction", "watched", "exclusive", "script_call")
ELEMENTS = ("push", "pop", "pop")
EVERY_WAY = (*PLAIN, *BATCHES, *ELEMENTS, "messages", "tuned")
