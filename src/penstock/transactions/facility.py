"""What users call: ``ps.transactions``.

    handle = await ps.transactions.start("checkout", {"cart": 42}, owner="acme", external_id="order-42")
    ended = await handle.wait(timeout_ms=15_000)

    async with ps.transactions.worker(app, node_group="shop"):
        ...

Rules: an owner that is given must have the transaction, else it is as if there were none; without an owner
every transaction is seen, which is for operators. What the store has no more is looked for in the archive, if
there is one; what is done to an archived transaction brings it back first.

Names are joined here; scripts are in ``store``, steps in ``worker``, definitions in ``pipelines``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from penstock.client.client import Client
from penstock.clock import Clock, SystemClock
from penstock.errors import TransactionEndedError, TransactionNotFoundError, UsageError
from penstock.transactions import keys
from penstock.transactions.archive.reading import ArchiveReader, TransactionPage
from penstock.transactions.handle import Handle
from penstock.transactions.looking import Looking, Page, Query
from penstock.transactions.model import (
    DEFAULT_OWNER,
    EXTERNAL_ID_MS,
    MAX_DELAY_MS,
    Limit,
    StepData,
    Transaction,
    step_data_from,
    to_json,
    transaction_from,
)
from penstock.transactions.notifying import check_webhook_url
from penstock.transactions.outbox import OutboxForwarder, Outlet
from penstock.transactions.pipelines import Pipeline, PipelineRegistry
from penstock.transactions.schedules import SchedulerDuty, Schedules
from penstock.transactions.statistics import Statistics
from penstock.transactions.store import TransactionStore, check_priority, not_found
from penstock.transactions.waiting import Waiters
from penstock.transactions.worker import App, Worker
from penstock.transactions.workers_registry import WorkerRegistry
from penstock.webhooks import AddressPolicy
from penstock.webhooks.endpoints import ANY_ADDRESS

if TYPE_CHECKING:
    from penstock.transactions.archive.sink import ArchiveQuery, ArchiveSink


class Transactions:
    """The transactions of one client."""

    def __init__(
        self,
        client: Client,
        *,
        outlet: Outlet | None = None,
        archive: ArchiveSink | None = None,
        clock: Clock | None = None,
        partitions: int | None = None,
        webhook_policy: AddressPolicy = ANY_ADDRESS,
    ) -> None:
        """``webhook_policy`` refuses starts by the text of their webhook; who sends has the last word."""
        self._client = client
        self._webhook_policy = webhook_policy
        self._clock = clock or SystemClock()
        self._outlet = outlet
        self.store: TransactionStore = TransactionStore(client, clock=self._clock, partitions=partitions)
        self.registry: PipelineRegistry = PipelineRegistry(client, self.store.partitions)
        self.looking: Looking = Looking(self.store)
        self.statistics: Statistics = Statistics(self.store)
        self.workers: WorkerRegistry = WorkerRegistry(client)
        self.schedules: Schedules = Schedules(self.store, clock)
        self.archive: ArchiveSink | None = archive
        self._reader = None if archive is None else ArchiveReader(archive)
        self._waiters = Waiters(client)

    # ------------------------------------------------------------------------------------ starting

    async def start(
        self,
        pipeline: str,
        input: Any = None,
        *,
        owner: str = DEFAULT_OWNER,
        external_id: str | None = None,
        external_id_ms: int = EXTERNAL_ID_MS,
        webhook: str | None = None,
        webhook_progress: bool = False,
        poll_cancels_webhook: bool = False,
        metadata: Any = None,
        version: str | None = None,
        priority: int | None = None,
        delay_ms: int = 0,
        at_ms: int | None = None,
        deadline_ms: int | None = None,
    ) -> Handle:
        """Start a transaction; it is in the store when this returns.

        ``external_id`` is unique among those of its owner for ``external_id_ms``: the same with the same body
        is answered with the one that was started first, with another body it is a ``DuplicateError``.
        ``at_ms`` (since 1970) or ``delay_ms`` begin it later; ``deadline_ms`` ends it if it takes longer.
        """
        keys.check_name("pipeline", pipeline)
        keys.check_name("owner", owner)
        data = to_json("input", input)
        fields: dict[str, Any] = {}
        if external_id is not None:
            keys.check_external_id(external_id)
            if not 0 < external_id_ms <= MAX_DELAY_MS:
                raise UsageError(f"external_id_ms must be 1 to {MAX_DELAY_MS}, not {external_id_ms}")
        if metadata is not None:
            fields["metadata"] = to_json("metadata", metadata)
        if webhook is not None:
            check_webhook_url(webhook, self._webhook_policy)
            fields |= {
                "webhook": webhook,
                "webhook_progress": int(webhook_progress),
                "webhook_cancellable": int(poll_cancels_webhook),
            }
        if at_ms is not None:
            if delay_ms:
                raise UsageError("give at_ms or delay_ms, not both")
            delay_ms = max(0, at_ms - self._clock.now_ms())
        if not 0 <= delay_ms <= MAX_DELAY_MS:
            raise UsageError(f"delay_ms must be 0 to {MAX_DELAY_MS} (366 days), not {delay_ms}")
        if deadline_ms is not None and not 0 <= deadline_ms <= MAX_DELAY_MS:
            raise UsageError(f"deadline_ms must be 0 to {MAX_DELAY_MS} (0 for none), not {deadline_ms}")
        started = await self.store.start(
            pipeline,
            data,
            owner=owner,
            external_id=external_id,
            external_id_ms=external_id_ms,
            version=version or "",
            priority=None if priority is None else check_priority(priority),
            delay_ms=delay_ms,
            deadline_ms=deadline_ms,
            fields=fields,
        )
        return Handle(self, started.id, owner, is_new=started.is_new)

    async def deploy(self, *pipelines: Pipeline | App, comment: str = "") -> list[str]:
        """Commit and activate pipelines (of an app: all it has); their versions."""
        flat = [
            one for given in pipelines for one in (given.pipelines if isinstance(given, App) else [given])
        ]
        return [await self.registry.deploy(pipeline, comment=comment) for pipeline in flat]

    # -------------------------------------------------------------------------------------- looking

    def handle(self, id: str, owner: str | None = None) -> Handle:
        """Of a transaction whose id is known; asking for it sends nothing."""
        keys.partition_of(id)
        return Handle(self, id, owner, is_new=False)

    async def get(self, id: str, *, owner: str | None = None, trail: bool = False) -> Transaction:
        """As it is now, from the store or the archive; ``TransactionNotFoundError`` if neither has it."""
        return await self._look(id, owner, 0, with_trail=trail)

    async def find(self, external_id: str, *, owner: str = DEFAULT_OWNER, trail: bool = False) -> Transaction:
        """By external id: the one that has it, or had it last."""
        keys.check_external_id(external_id)
        tx = await self.store.find_external(owner, external_id)
        if tx is not None:
            return await self.get(tx, owner=owner, trail=trail)
        cursor: str | None = None
        while True:
            # A page may be short, or empty, although there is more: each does a bounded amount of work.
            query = Query(owner=owner, external_id=external_id)
            page = await self.looking.list(query, limit=1, cursor=cursor)
            if page.items:
                return await self.get(page.items[0].id, owner=owner, trail=trail)
            cursor = page.cursor
            if cursor is None:
                break
        if self._reader is not None:
            found = await self._reader.get_external(owner, external_id)
            if found is not None:
                return found
        raise not_found(f"with external id {external_id!r}")

    async def list(self, query: Query | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Transactions of the store, newest first; ``search_archive`` has those that left it."""
        return await self.looking.list(query or Query(), limit=limit, cursor=cursor)

    async def search_archive(self, query: ArchiveQuery) -> TransactionPage:
        """Transactions that left the store, newest first."""
        if self._reader is None:
            raise UsageError("there is no archive: open the client with one (with_archive)")
        return await self._reader.search(query)

    async def wait(
        self,
        id: str,
        *,
        timeout_ms: int = 15_000,
        owner: str | None = None,
        cancels_webhook: bool = True,
        is_reply: bool = True,
    ) -> Transaction:
        """As it is when it has ended, or when the time is over: ask ``has_ended``.

        Whoever is told of the end this way may spare a webhook, if the start said ``poll_cancels_webhook``.
        Not so who only watches: ``is_reply=False`` leaves the transaction as it is.
        """
        cancels = is_reply and cancels_webhook
        look = partial(self._look, id, owner, is_reply=is_reply, cancels_webhook=cancels)
        return await self._waiters.until_ended(id, look, timeout_ms)

    def changes(
        self, id: str, *, owner: str | None = None, trail: bool = False
    ) -> AsyncIterator[Transaction]:
        """As it is now, and again whenever something happens, until it has ended."""
        return self._waiters.changes(id, partial(self._look, id, owner, with_trail=trail))

    async def children(self, id: str, *, owner: str | None = None) -> Sequence[Transaction]:
        """Those that it has started for its steps and that the store still has."""
        if owner is not None:
            await self.get(id, owner=owner)
        return await self.looking.children(id)

    async def step_data(self, id: str, step: int, *, owner: str | None = None) -> StepData:
        """What a step that was reached got, and what it gave."""
        found = await self.store.get(id, owner=owner or "")
        record = None if found is None else found[0]
        if record is None and self._reader is not None:
            record = await self._reader.record(id, owner=owner or "")
        if record is None:
            raise not_found(id)
        if not 0 <= step <= record.number(b"step"):
            reached = record.number(b"step")
            raise UsageError(f"step must be 0 to {reached}, the last that was reached, not {step}")
        return step_data_from(record, step)

    async def _look(
        self,
        id: str,
        owner: str | None,
        watch_ms: int,
        *,
        is_reply: bool = False,
        cancels_webhook: bool = False,
        with_trail: bool = False,
    ) -> Transaction:
        found = await self.store.get(
            id,
            owner=owner or "",
            watch_ms=watch_ms,
            is_reply=is_reply,
            cancels_webhook=cancels_webhook,
            with_trail=with_trail,
        )
        if found is not None:
            return transaction_from(*found)
        archived = None if self._reader is None else await self._reader.get(id, owner=owner or "")
        if archived is None:
            raise not_found(id)
        return archived

    # -------------------------------------------------------------------------------------- control

    async def cancel(self, id: str, reason: str = "", *, owner: str | None = None, by: str = "") -> bool:
        """Whether it has ended by this; else it runs, and ends as soon as its step lets go and it is
        undone."""
        reply = await self.store.control("cancel", id, _who(by, reason), owner=owner or "")
        for child in await self.looking.children(id):
            if not child.has_ended:
                # It may end by itself meanwhile.
                with suppress(TransactionEndedError, TransactionNotFoundError):
                    await self.cancel(child.id, reason or "its parent was cancelled", by=by)
        return reply[0] == "cancelled"

    async def retry(self, id: str, reason: str = "", *, owner: str | None = None, by: str = "") -> None:
        """Go on at the step where it failed; from the first if its steps were undone."""
        transaction = await self.get(id, owner=owner, trail=True)
        if transaction.is_success:
            raise TransactionEndedError(f"{id} has succeeded: replay it from a step")
        this_run = takewhile(lambda entry: entry.kind != "replay", reversed(transaction.trail))
        was_undone = any(entry.kind == "undo" for entry in this_run)
        await self.replay(id, 0 if was_undone else transaction.step, reason, owner=owner, by=by)

    async def replay(
        self, id: str, step: int = 0, reason: str = "", *, owner: str | None = None, by: str = ""
    ) -> None:
        """Run again from a step, with what that step was given then."""
        transaction = await self.get(id, owner=owner)
        if not 0 <= step <= transaction.step:
            raise UsageError(f"step must be 0 to {transaction.step}, the last that was reached, not {step}")
        if transaction.is_archived and self._reader is not None:
            await self._reader.restore(self.store, id)
        await self.store.control("replay", id, _who(by, reason), owner=owner or "", argument=step)

    async def wake(self, id: str, reason: str = "", *, owner: str | None = None, by: str = "") -> None:
        """Let one that sleeps go on now; one that waits for a switch looks at it, and waits on."""
        await self.store.control("wake", id, _who(by, reason), owner=owner or "")

    async def set_priority(self, id: str, priority: int, *, owner: str | None = None, by: str = "") -> None:
        """0 to 9; 9 is the most urgent."""
        await self.store.control(
            "priority", id, _who(by, ""), owner=owner or "", argument=check_priority(priority)
        )

    async def set_switch(
        self,
        id: str,
        name: str,
        value: str | bool | int | float | None,
        *,
        owner: str | None = None,
        by: str = "",
    ) -> str:
        """``nochange``, ``updated`` or ``woken``. Values become text (true, 1.5); None deletes the switch."""
        text = value if value is None or isinstance(value, str) else to_json("value", value).decode()
        return await self.store.set_switch(id, name, text, owner=owner or "", who=by or "somebody")

    async def get_switch(self, id: str, name: str, *, owner: str | None = None) -> str | None:
        value, _ = await self.store.get_switch(id, name, owner=owner or "")
        return value

    # --------------------------------------------------------------------------------------- limits

    async def limit(
        self,
        limit: Limit | None,
        *,
        pipeline: str | None = None,
        owner: str | None = None,
        node_group: str | None = None,
    ) -> None:
        """How much of a pipeline, of an owner, or of a group may run; None: no limit."""
        await self.store.set_limit(_limit_name(pipeline, owner, node_group), limit)

    async def pause(
        self, *, pipeline: str | None = None, owner: str | None = None, node_group: str | None = None
    ) -> None:
        """Let nothing more of it begin; what runs goes on to the end of its step."""
        await self._change_pause(_limit_name(pipeline, owner, node_group), True)

    async def resume(
        self, *, pipeline: str | None = None, owner: str | None = None, node_group: str | None = None
    ) -> None:
        await self._change_pause(_limit_name(pipeline, owner, node_group), False)

    async def _change_pause(self, name: str, is_paused: bool) -> None:
        limits = await self.looking.limits()
        known = limits.get(name, Limit())
        changed = Limit(
            is_paused=is_paused,
            concurrency=known.concurrency,
            rate=known.rate,
            burst=known.burst,
            max_queued=known.max_queued,
        )
        await self.store.set_limit(name, None if changed == Limit() else changed)

    # -------------------------------------------------------------------------------------- working

    def worker(
        self,
        app: App,
        *,
        node_group: str | None = None,
        node_groups: Sequence[str] = (),
        concurrency: int = 64,
        duties: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        **options: Any,
    ) -> Worker:
        """A worker of an app; ``async with`` runs it. Options are those of :class:`Worker`."""
        groups = [*([node_group] if node_group else []), *node_groups] or ["default"]
        name = options.pop("name", None)
        forwarder = None
        if self._outlet is not None:
            forwarder = OutboxForwarder(self.store, self._outlet, name or "worker")
        return Worker(
            self.store,
            self.registry,
            app,
            node_groups=list(dict.fromkeys(groups)),
            concurrency=concurrency,
            name=name,
            forwarder=forwarder,
            duties=[SchedulerDuty(self.schedules).run, *duties],
            on_beat=self._announce,
            **options,
        )

    async def _announce(self, worker: Worker) -> None:
        """A worker lives. It hears what is wished of its groups."""
        if worker.has_stopped:
            await self.workers.forget(worker.id)
            return
        wishes = await self.workers.wishes()
        wished = [wishes[group] for group in worker.node_groups if group in wishes]
        worker.wish(max(wished) if wished else None)
        await self.workers.announce(worker.info())

    def release(self) -> None:
        """End every wait: somebody wants to stop."""
        self._waiters.release()

    @property
    def waiting(self) -> int:
        """How many wait for a transaction."""
        return self._waiters.waiting

    async def close(self) -> None:
        await self._waiters.close()

    def __repr__(self) -> str:
        return f"<Transactions on {self._client!r}, {self.waiting} waiting>"


def _who(by: str, reason: str) -> str:
    return f"{by or 'somebody'}{': ' if reason else ''}{reason}"


def _limit_name(pipeline: str | None, owner: str | None, node_group: str | None) -> str:
    given = [("p", "pipeline", pipeline), ("o", "owner", owner), ("g", "node_group", node_group)]
    named = [(mark, what, value) for mark, what, value in given if value is not None]
    if len(named) != 1:
        raise UsageError("give exactly one of pipeline, owner, node_group")
    mark, what, value = named[0]
    return f"{mark}:{keys.check_name(what, value)}"
