"""A worker: takes transactions of its node groups under leases and carries them through their steps.

    worker = Worker(store, registry, app, node_groups=["shop"], concurrency=64)
    async with worker:                 # runs until the block is left
        await worker.run()             # … or until stop() is called

How it waits
------------
Nobody polls. A partition is *fresh* when something may be there for us: at the start, when a topic says so,
when the time has come that a dequeue foretold, and while a dequeue gave as much as was asked for. It stops
being fresh when a dequeue gives less, since the queues were empty then. All this is decided in ``_fresh``.

Rules
-----
1. No more is taken than there are free places (``concurrency``): what waits, waits in the store, for anybody.
   While steps take no time a few more wait on a shelf; what stays there for a second is handed back.
2. Leases are renewed three times in their length; whoever is no longer ours is dropped.
3. ``stop`` takes nothing more, lets steps end for ``grace_ms``, then interrupts them; what has not ended is
   handed back at once, so nobody waits for a lease to run out.
4. One transaction that cannot be worked with stops no other, and a store that is away stops nothing for good.
5. An async step that blocks the loop for longer than a lease keeps all leases of this worker from being
   renewed: others may take them, what was done is lost to them, and a warning says so. Blocking code belongs
   into a step that is not async.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from penstock.client.facts import to_bytes
from penstock.client.pubsub import Message, Subscriber
from penstock.client.resending import is_outage, persistently
from penstock.clock import SystemClock
from penstock.errors import (
    ClosedError,
    ConfigError,
    DefinitionError,
    PenstockError,
    TransactionError,
    UsageError,
)
from penstock.transactions import keys
from penstock.transactions.model import Ending, Record, TrailEntry, entry_to
from penstock.transactions.outbox import OutboxForwarder
from penstock.transactions.pipelines import Pipeline, PipelineRegistry
from penstock.transactions.store import TransactionStore
from penstock.transactions.worker.app import App
from penstock.transactions.worker.flow import Flow
from penstock.transactions.worker.holding import Held, LeaseLostError, NotWrittenError
from penstock.transactions.worker.http_calls import HttpCaller
from penstock.transactions.worker.outcomes import printable
from penstock.transactions.worker.performing import Performer, Pools
from penstock.transactions.worker.places import Places
from penstock.transactions.worker.settling import Settler
from penstock.transactions.workers_registry import WorkerInfo
from penstock.version import __version__

_LOG = logging.getLogger(__name__)

LEASE_MS: Final = 30_000
GRACE_MS: Final = 20_000
MAX_CONCURRENCY: Final = 1_000
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
#: How long a worker that starts waits for a store that is away.
_PREPARING_MS: Final = 60_000
_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 5_000
#: Well within the time after which a worker counts as dead.
_LONGEST_BEAT_S: Final = 10.0
#: Leases in one call of the script.
_RENEWED_AT_ONCE: Final = 1_000


class WorkerStatistics(msgspec.Struct):
    """What a worker has done since it started."""

    taken: int = 0
    #: carried to an end, a sleep, or another group
    left: int = 0
    ended: int = 0
    lost: int = 0
    running: int = 0
    concurrency: int = 0


class _Catch(NamedTuple):
    """What one dequeue gave, not begun yet."""

    place: int
    records: list[Record]
    now_ms: int
    #: loop time
    leased_until_s: float


class Worker:
    """One worker. Several may share a process, a machine, or nothing but the store."""

    def __init__(
        self,
        store: TransactionStore,
        registry: PipelineRegistry,
        app: App,
        *,
        node_groups: Sequence[str] = ("default",),
        concurrency: int = 64,
        max_concurrency: int = MAX_CONCURRENCY,
        lease_ms: int = LEASE_MS,
        grace_ms: int = GRACE_MS,
        name: str | None = None,
        threads: int | None = None,
        processes: int | None = None,
        http: HttpCaller | None = None,
        forwarder: OutboxForwarder | None = None,
        duties: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        on_beat: Callable[[Worker], Coroutine[Any, Any, None]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        if not 1 <= concurrency <= max_concurrency:
            raise ConfigError(f"concurrency must be 1 to {max_concurrency}, not {concurrency}")
        if not node_groups:
            raise ConfigError("node_groups must name at least one group")
        if lease_ms < 100:
            raise ConfigError(f"lease_ms must be at least 100, not {lease_ms}")
        self.node_groups = tuple(keys.check_name("node_groups", group) for group in node_groups)
        self.id = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        keys.check_name("name", self.id)
        self.app = app
        self._store = store
        self._registry = registry
        #: what it was made with; wishes come and go
        self._own_concurrency = concurrency
        self._max_concurrency = max_concurrency
        self._started_ms = SystemClock().now_ms()
        self._lease_ms = lease_ms
        self._grace_ms = grace_ms
        self._forwarder = forwarder
        self._duties = duties
        self._on_beat = on_beat
        #: told with each heartbeat; whoever gave it may still change it
        self._labels = {} if labels is None else labels
        self._pools = Pools(
            lambda: ThreadPoolExecutor(threads or min(concurrency, 64), "penstock-step"),
            lambda: Pools.processes(processes),
        )
        self._http = http or HttpCaller()
        self._performer = Performer(app, self._pools, self._http, must_stop=lambda: self._is_interrupting)
        self._places = Places(concurrency, begin=self._begin, hand_back=self._hand_back_soon, ring=self._ring)
        self._settlers: dict[int, Settler] = {}
        #: partitions as topics name them
        self._partitions: dict[str, int] = {}
        #: partitions that may have something for us; others by the loop time when they may
        self._fresh: set[int] = set()
        self._due_s: dict[int, float] = {}
        self._pause_ms = _FIRST_PAUSE_MS
        self._bell = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._is_stopping = False
        self._is_interrupting = False
        self._has_stopped = False
        self._runner: asyncio.Task[None] | None = None
        self._statistics = WorkerStatistics()

    # -------------------------------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        """Run in the background."""
        await self._prepare()
        self._runner = asyncio.create_task(self._run(), name=f"penstock worker {self.id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_stopping:
            self.stop()
        if self._runner is not None:
            await self._runner

    async def run(self) -> None:
        """Until ``stop`` is called."""
        if self._runner is not None:
            await asyncio.shield(self._runner)
            return
        await self._prepare()
        await self._run()

    def stop(self) -> None:
        """Take nothing more, and end when what is held has ended or was handed back. Twice: at once."""
        self._is_interrupting = self._is_stopping
        self._is_stopping = True
        self._places.hold()
        self._bell.set()

    async def _prepare(self) -> None:
        """Pipelines of the app are what the store runs from now on."""
        for pipeline in self.app.pipelines:
            deploy = partial(self._registry.deploy, pipeline, comment=f"worker {self.id}")
            await persistently("deploying", deploy, limit_ms=_PREPARING_MS, is_cause=is_outage)
        partitions = await persistently(
            "starting", self._store.partitions, limit_ms=_PREPARING_MS, is_cause=is_outage
        )
        self._settlers = {
            place: Settler(self._store, place, patience_s=2 * self._lease_ms / 1_000)
            for place in range(partitions)
        }
        self._partitions = {keys.prefix_of(place): place for place in self._settlers}

    async def _run(self) -> None:
        async with self._store.client.pubsub() as subscriber:
            background = [
                asyncio.create_task(_endlessly(partial(self._listen, subscriber))),
                asyncio.create_task(_endlessly(self._beat)),
                *(asyncio.create_task(_endlessly(duty)) for duty in self._duties),
            ]
            try:
                await self._feed()
            finally:
                self._is_interrupting = self._is_interrupting or not self._is_stopping
                self._is_stopping = True
                try:
                    await self._drain()
                finally:
                    for task in background:
                        task.cancel()
                    await asyncio.gather(*background, return_exceptions=True)
                    await self._close()

    async def _close(self) -> None:
        for settler in self._settlers.values():
            await settler.close()
        if self._forwarder is not None:
            await self._forwarder.close()
        self._pools.close()
        await self._http.close()
        self._has_stopped = True
        await self._say_alive()

    # -------------------------------------------------------------------------------------- taking

    async def _feed(self) -> None:
        while not self._is_stopping:
            room = self._places.room()
            place = self._next_fresh() if room > 0 else None
            if place is None:
                await self._rest(room)
            else:
                self._shelve(await self._fetch(place, room))

    async def _rest(self, room: int) -> None:
        """Until something changes: a place is free, a topic rings, or the time has come."""
        self._bell.clear()
        timeout_s = None
        if room > 0 and self._due_s:
            timeout_s = max(0.0, min(self._due_s.values()) - asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(timeout_s):
                await self._bell.wait()
        except TimeoutError:
            pass

    def _next_fresh(self) -> int | None:
        if self._due_s:
            now_s = asyncio.get_running_loop().time()
            for place in [place for place, due_s in self._due_s.items() if due_s <= now_s]:
                del self._due_s[place]
                self._fresh.add(place)
        return self._fresh.pop() if self._fresh else None

    async def _fetch(self, place: int, room: int) -> _Catch:
        """Transactions that are not begun yet; none if the store is away."""
        asked_s = asyncio.get_running_loop().time()
        try:
            taken = await self._store.dequeue(
                place, self.id, self.node_groups, limit=room, lease_ms=self._lease_ms
            )
        except ClosedError:
            raise
        except Exception as error:  # noqa: BLE001 - a reply that nobody understands ends nothing
            if not isinstance(error, PenstockError) or not is_outage(error):
                _LOG.error("worker %s cannot take transactions: %s", self.id, error)
            self._note_due(place, self._pause_ms)
            self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)
            return _Catch(place, [], 0, 0.0)
        self._pause_ms = _FIRST_PAUSE_MS
        self._note_due(place, taken.next_ms)
        if taken.is_more or len(taken.records) >= room:
            self._fresh.add(place)
        return _Catch(place, taken.records, taken.now_ms, asked_s + self._lease_ms / 1_000)

    def _shelve(self, catch: _Catch) -> None:
        settler, leave = self._settlers[catch.place], self._places.note_leaving
        caught = [Held(self._store, settler, record, catch.now_ms, leave) for record in catch.records]
        for held in caught:
            held.leased_until_s = catch.leased_until_s
        self._places.add(caught)
        self._statistics.taken += len(catch.records)

    def _begin(self, held: Held) -> None:
        held.task = asyncio.create_task(self._carry(held))

    def _hand_back_soon(self, held: Held) -> None:
        held.task = asyncio.create_task(self._hand_back(held))

    async def _hand_back(self, held: Held) -> None:
        record = held.record
        try:
            await held.settle("queue", arguments=(record.text(b"queue"), record.text(b"group")))
        except TransactionError as error:
            _LOG.warning("worker %s could not hand back %s", self.id, error)
        finally:
            self._places.forget(held)

    def _ring(self) -> None:
        self._bell.set()

    def _note_due(self, place: int, next_ms: int | None) -> None:
        if next_ms is None:
            self._due_s.pop(place, None)
        else:
            self._due_s[place] = asyncio.get_running_loop().time() + next_ms / 1_000

    # ------------------------------------------------------------------------------------- carrying

    async def _carry(self, held: Held) -> None:
        record = held.record
        try:
            pipeline = await self._load(held)
            await Flow(held, pipeline, self._performer, self.id).run(lambda: self._is_stopping)
            self._statistics.left += 1
            self._statistics.ended += held.has_ended
        except LeaseLostError as error:
            self._statistics.lost += 1
            _LOG.warning("worker %s lost %s", self.id, error)
        except asyncio.CancelledError:
            if not held.is_lost:
                raise
        except (UsageError, NotWrittenError) as error:
            await self._give_up(held, error)
        except PenstockError as error:
            # Most likely the store is away; the lease brings it back.
            _LOG.error("worker %s leaves %s to its lease: %s", self.id, record.id, error)
        except Exception as error:  # noqa: BLE001 - a record that is not as it should be breaks anything
            await self._give_up(held, error)
        finally:
            self._places.forget(held)
            if self._forwarder is not None and held.has_outbox:
                self._forwarder.kick(held.partition)

    async def _load(self, held: Held) -> Pipeline:
        """The version that it was started with."""
        name, version = held.record.text(b"pipeline"), held.record.text(b"version")
        known = self._registry.known(name, version)
        if known is not None:
            return known
        try:
            return await held.ask(lambda: self._registry.load(name, version))
        except msgspec.MsgspecError as error:
            raise DefinitionError(
                f"version {version} of pipeline {name!r} cannot be read: {error}"
            ) from error

    async def _give_up(self, held: Held, error: Exception) -> None:
        """A record that cannot be carried: no other worker could do better."""
        note = printable(f"{type(error).__name__}: {error}")
        _LOG.error("worker %s gives up %s: %s", self.id, held.record.id, note)
        entry = entry_to(TrailEntry("note", held.now_ms(), worker=self.id, note=note))
        is_dead = not held.record.fields.get(b"parent")
        try:
            await held.settle("end", note, (), [entry], arguments=(Ending.INTERNAL_ERROR, int(is_dead)))
        except LeaseLostError:
            self._statistics.lost += 1
        except NotWrittenError as refused:
            _LOG.error("worker %s leaves %s to its lease: %s", self.id, held.record.id, refused)

    async def _drain(self) -> None:
        """What is held ends by itself, or is interrupted and handed back; the shelf is handed back at
        once."""
        self._places.close()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._grace_ms / 1_000
        while self._places and loop.time() < end_s and not self._is_interrupting:
            self._bell.clear()
            try:
                async with asyncio.timeout(end_s - loop.time()):
                    await self._bell.wait()
            except TimeoutError:
                pass
        self._is_interrupting = True
        tasks = [held.task for held in self._places if held.task is not None]
        for held in self._places:
            held.interrupt()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------ listening

    async def _listen(self, subscriber: Subscriber) -> None:
        """Everything is fresh once the topics are heard; and again after each gap."""
        topics = [keys.TOPIC_WORK + group for group in self.node_groups]
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await subscriber.subscribe(
                    *topics,
                    keys.TOPIC_AGENDA,
                    keys.TOPIC_PIPELINES,
                    keys.TOPIC_WORKER + self.id,
                    keys.TOPIC_WISHES,
                )
                break
            except ClosedError:
                return
            except PenstockError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._everything_is_fresh()
        try:
            async for item in subscriber:
                if isinstance(item, Message):
                    words = (to_bytes(word).decode("utf-8", "replace") for word in (item.channel, item.data))
                    self._hear(*words)
                else:
                    self._everything_is_fresh()
        except ClosedError:
            pass

    def _hear(self, topic: str, word: str) -> None:
        if topic == keys.TOPIC_PIPELINES:
            self._registry.forget(word)
        elif topic == keys.TOPIC_WORKER + self.id:
            self._interrupt(word)
        elif topic == keys.TOPIC_WISHES:
            self._beat_now.set()
        else:
            place = self._partitions.get(word)
            if place is not None:
                self._fresh.add(place)
                self._bell.set()

    def _everything_is_fresh(self) -> None:
        self._fresh.update(self._settlers)
        self._bell.set()

    def _interrupt(self, tx: str) -> None:
        """Somebody wants it to end."""
        held = self._places.get(tx)
        # What is being undone is ending already, and must not be left half done.
        if held is not None and not held.is_interrupted and not held.record.fields.get(b"fate"):
            held.cancel_reason = held.cancel_reason or "cancelled"
            held.interrupt()

    # ------------------------------------------------------------------------------------ heartbeat

    async def _beat(self) -> None:
        while True:
            for place in self._settlers:
                try:
                    await self._renew(place)
                except ClosedError:
                    return
                except PenstockError as error:
                    _LOG.warning("worker %s cannot renew its leases: %s", self.id, error)
            await self._say_alive()
            self._beat_now.clear()
            try:
                async with asyncio.timeout(min(self._lease_ms / 3_000, _LONGEST_BEAT_S)):
                    await self._beat_now.wait()
            except TimeoutError:
                pass

    async def _say_alive(self) -> None:
        if self._on_beat is None:
            return
        try:
            await self._on_beat(self)
        except PenstockError as error:
            _LOG.warning("worker %s cannot say that it lives: %s", self.id, error)

    async def _renew(self, place: int) -> None:
        """All leases of a partition, by so many that nobody waits long for the store."""
        mine = [(held.record.id, held.record.token) for held in self._places if held.partition == place]
        for start in range(0, max(1, len(mine)), _RENEWED_AT_ONCE):
            await self._renew_some(place, mine[start : start + _RENEWED_AT_ONCE])

    async def _renew_some(self, place: int, mine: Sequence[tuple[str, int]]) -> None:
        leased_until_s = asyncio.get_running_loop().time() + self._lease_ms / 1_000
        renewal = await self._store.renew(place, mine, self._lease_ms)
        self._note_due(place, renewal.next_ms)
        self._bell.set()
        if renewal.outbox and self._forwarder is not None:
            self._forwarder.kick(place)
        for tx in renewal.unwanted:
            self._interrupt(tx)
        tokens = dict(mine)
        for tx in tokens.keys() - set(renewal.lost):
            held = self._places.get(tx)
            if held is not None and held.record.token == tokens[tx]:
                held.leased_until_s = leased_until_s
        for tx in renewal.lost:
            held = self._places.get(tx)
            if held is not None and held.record.token == tokens[tx] and not held.is_leaving:
                held.is_lost = True
                held.interrupt()

    # ------------------------------------------------------------------------------------- looking

    @property
    def concurrency(self) -> int:
        return self._places.concurrency

    def wish(self, concurrency: int | None) -> None:
        """Somebody wants more or fewer at a time; None: as it was made. Less takes effect as steps end."""
        wanted = self._own_concurrency if concurrency is None else min(concurrency, self._max_concurrency)
        if wanted != self._places.concurrency:
            self._places.concurrency = wanted
            self._places.fill()
            self._bell.set()

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def has_stopped(self) -> bool:
        """It holds nothing and takes nothing any more."""
        return self._has_stopped

    def info(self) -> WorkerInfo:
        """What others may know of it."""
        return WorkerInfo(
            id=self.id,
            node_groups=list(self.node_groups),
            concurrency=self._places.concurrency,
            running=len(self._places),
            ended=self._statistics.ended,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_ms=self._started_ms,
            heard_ms=SystemClock().now_ms(),
            steps=self.app.step_names,
            state="stopping" if self._is_stopping else "working",
            labels=dict(self._labels),
        )

    def statistics(self) -> WorkerStatistics:
        self._statistics.running = len(self._places)
        self._statistics.concurrency = self._places.concurrency
        return self._statistics

    def __repr__(self) -> str:
        state = "stopping" if self._is_stopping else "running" if self._runner else "new"
        return f"<Worker {self.id} of {', '.join(self.node_groups)}, {len(self._places)} held, {state}>"


async def _endlessly(duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A duty that fails begins again: nobody else does it in this process."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            await duty()
            return
        except ClosedError:
            return
        except Exception:  # noqa: BLE001 - whatever it was
            _LOG.exception("a duty of the worker failed; it begins again")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
