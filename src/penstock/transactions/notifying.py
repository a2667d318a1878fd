"""Tells the ends and the progress of transactions to their webhooks, by the durable signed delivery.

    async with run_webhooks(client, store) as notifier:
        …                       # any number of processes; all share the work

The way of an event: a script schedules it in ``webhooksZ`` with the change that it tells of. A notifier takes
it (``lua/webhooks_to_process.lua``), builds its body (``events.py``), and puts it into the queue of
``penstock.webhooks``, whose workers sign, send, and try again. When that has ended, well or not, the event
leaves ``webhooksZ`` with a comment in the record, and the archive may go on.

Rules
-----
1. At least once, under the same ``webhook-id``: an event stays in ``webhooksZ`` until its delivery has ended,
   and the queue takes each event once. Who dies in between leaves it to the next, after a lease.
2. The worker that ends a delivery says so at once (:class:`TellingQueue`). Deliveries that others end are
   looked after at pauses that grow with their age, from a second to five minutes.
3. Events of one transaction go out one after the other: a report when the one before it is done with, the
   end when all reports are. The end does not wait longer than ``progress_patience_ms`` for them; reports
   that are not in the queue by then are not sent at all.
4. A webhook that a long poll has cancelled (``cancels_webhook``) is not sent. That is asked right before the
   event is put into the queue, which lies elsewhere in the store: a poll that answers in that moment, or
   later, comes too late. The record then says ``cancelled``, and the event arrives nevertheless.
5. What can never be delivered (a URL that must not be called, a converter that fails, a body that is too
   large, a receiver that has answered 410) ends as ``failed`` with the reason.

Nothing here knows pipelines, workers of steps, or HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from penstock.client.client import Client
from penstock.client.facts import to_bytes
from penstock.client.pubsub import Message
from penstock.clock import Clock, SystemClock
from penstock.errors import BackpressureError, ClosedError, ConfigError, PenstockError, UsageError
from penstock.transactions import keys
from penstock.transactions.events import (
    ReplyConverter,
    body_of,
    ending_of,
    event_id,
    event_of,
    is_finished,
    kind_of,
    summary_of,
)
from penstock.transactions.model import MAX_DATA_BYTES, Record, State, record_from
from penstock.transactions.receivers import (
    COMPLETE,
    PROGRESS,
    Receivers,
    ReceiverSettings,
    check_webhook_url,
    endpoint_id,
)
from penstock.transactions.store import TransactionStore
from penstock.webhooks import (
    AddressPolicy,
    Attempt,
    Delivery,
    Outcome,
    QueueSettings,
    Sender,
    Settled,
    Status,
    WebhookQueue,
    WebhookWorker,
    WorkerSettings,
)
from penstock.webhooks.model import DAY_MS

__all__ = [
    "QUEUE",
    "QUEUE_SETTINGS",
    "NotifierSettings",
    "ReceiverSettings",
    "Receivers",
    "ReplyConverter",
    "TellingQueue",
    "WebhookNotifier",
    "check_webhook_url",
    "run_webhooks",
    "summary_of",
]

_LOG = logging.getLogger(__name__)

#: The queue of these webhooks, apart from those of channels.
QUEUE: Final = "tx-webhooks"
QUEUE_SETTINGS: Final = QueueSettings(
    retention_ms=DAY_MS, max_log=100, max_body_bytes=2 * MAX_DATA_BYTES, disable_after_ms=0
)

_MIN_PAUSE_MS: Final = 1_000
_MAX_PAUSE_MS: Final = 300_000
#: Between looks whether it is an event's turn; who ends the one before it makes it come earlier.
_TURN_MS: Final = 250
_FULL_MS: Final = 5_000
#: Between looks at all partitions, if nothing is said to be due.
_SWEEP_S: Final = 30.0
_TIDY_S: Final = 3_600.0
_RETRY_S: Final = 1.0
_MAX_COMMENT: Final = 600


class TellingQueue(WebhookQueue):
    """A queue that tells of deliveries which have ended, if a worker of this process has ended them."""

    on_finished: Callable[[Delivery], Awaitable[None]] | None = None

    async def settle(
        self, delivery: Delivery, outcome: Outcome, attempt: Attempt | None = None
    ) -> Settled | None:
        settled = await super().settle(delivery, outcome, attempt)
        if settled is not None and self.on_finished is not None and is_finished(settled.delivery):
            try:
                await self.on_finished(settled.delivery)
            except PenstockError as error:
                _LOG.info("the end of delivery %s will be noticed later: %s", delivery.id, error)
        return settled


class NotifierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one notifier behaves."""

    #: events at a time
    batch: int = 100
    #: after so long without a sign of life its events are given to others
    lease_ms: int = 30_000
    #: how long the end waits for reports of progress
    progress_patience_ms: int = 60_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")


class _Result(NamedTuple):
    """What became of an event: delivered, failed, cancelled; or later, in so many ms."""

    tx: str
    event: str
    outcome: str
    comment: str | int


class WebhookNotifier:
    """One process's share of notifying."""

    def __init__(
        self,
        store: TransactionStore,
        queue: WebhookQueue,
        receivers: Receivers,
        settings: NotifierSettings | None = None,
        *,
        converter: ReplyConverter | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._queue = queue
        self.receivers = receivers
        self._settings = settings or NotifierSettings()
        self._converter = converter
        self._clock = clock or SystemClock()
        self._bell = asyncio.Event()
        #: partitions that have something due; at most as many as there are
        self._rung: set[int] = set()
        self._is_stopping = False
        self._worker: WebhookWorker | None = None
        if isinstance(queue, TellingQueue):
            queue.on_finished = self.report

    # ------------------------------------------------------------------------------------- lifecycle

    async def run(self, sender: Sender | None = None, worker: WorkerSettings | None = None) -> None:
        """Notify until :meth:`stop`. With a sender, deliver as well; else somebody else runs the queue."""
        work: list[Callable[[], Awaitable[None]]] = [self._listen, self._tidy]
        if sender is not None:
            work.append(partial(self._deliver, sender, worker))
        tasks = [asyncio.create_task(self._for_ever(each)) for each in work]
        try:
            await self._for_ever(self._notify)
            if self._worker is not None:
                await self._worker.stop()
                await asyncio.gather(tasks[-1], return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, sender: Sender, settings: WorkerSettings | None) -> None:
        # A new one each time: a worker that has stumbled does not start again.
        self._worker = WebhookWorker(self._queue, self.receivers, sender, settings)
        await self._worker.run()

    def stop(self) -> None:
        """Make :meth:`run` return, when what is being sent has ended."""
        self._is_stopping = True
        self._bell.set()

    async def _for_ever(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self._is_stopping:
            try:
                return await work()
            except ClosedError:
                return None
            except PenstockError as error:
                _LOG.warning("webhooks of transactions wait: %s", error)
            except Exception:  # noqa: BLE001 - a fault of ours must not stop webhooks until a restart
                _LOG.exception("webhooks of transactions stumbled and go on in a moment")
            await asyncio.sleep(_RETRY_S)
        return None

    async def _notify(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = dict.fromkeys(range(await self._store.partitions()), 0.0)
        while not self._is_stopping:
            self._bell.clear()
            rung, self._rung = self._rung, set()
            for partition in [each for each in due_s if each in rung or due_s[each] <= loop.time()]:
                # If the look fails, the next is in a moment, not at the next sweep.
                due_s[partition] = loop.time() + _RETRY_S
                next_ms = await self.look(partition)
                left_s = _SWEEP_S if next_ms is None else min(next_ms / 1000, _SWEEP_S)
                due_s[partition] = loop.time() + left_s
            try:
                async with asyncio.timeout_at(min(due_s.values())):
                    await self._bell.wait()
            except TimeoutError:
                pass

    async def _listen(self) -> None:
        async with self._store.client.pubsub() as subscriber:
            await subscriber.subscribe(keys.TOPIC_WEBHOOKS)
            partitions = range(await self._store.partitions())
            self._ring(*partitions)
            async for item in subscriber:
                if isinstance(item, Message):
                    text = to_bytes(item.data).decode("utf-8", "replace")
                    self._ring(*(each for each in partitions if keys.prefix_of(each) == text))
                else:
                    self._ring(*partitions)

    def _ring(self, *partitions: int) -> None:
        self._rung.update(partitions)
        self._bell.set()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDY_S)
            await self.receivers.forget_idle(self._queue)

    # --------------------------------------------------------------------------------------- looking

    async def look(self, partition: int) -> int | None:
        """See to what is due in a partition; ms until something is again, None for never."""
        while True:
            batch = self._settings.batch
            next_ms, *items = await self._process(partition, batch, [])
            if not items:
                break
            results = await asyncio.gather(*(self._handle(*item) for item in items))
            (next_ms,) = await self._process(partition, 0, [each for each in results if each is not None])
            if len(items) < batch:
                break
        return None if next_ms < 0 else int(next_ms)

    async def _process(self, partition: int, limit: int, results: list[_Result]) -> Any:
        words = [word for result in results for word in result]
        return await self._store.run(
            "webhooks_to_process", partition, limit, self._settings.lease_ms, len(results), *words
        )

    async def _handle(self, raw_tx: bytes, raw_event: bytes, flat: list[Any]) -> _Result | None:
        """What is to be written about an event; None: its lease tells when it is looked at again."""
        tx, event = raw_tx.decode(), raw_event.decode()
        try:
            outcome, comment = await self._see_to(record_from(tx, flat), event)
        except UsageError as error:
            outcome, comment = "failed", str(error)
        except BackpressureError:
            outcome, comment = "later", _FULL_MS
        except ClosedError:
            raise
        except PenstockError as error:
            _LOG.warning("the webhook of %s waits: %s", tx, error)
            return None
        except Exception:  # noqa: BLE001 - one that nobody can read must not stop the others
            _LOG.exception("the webhook of %s cannot be told %s", tx, event)
            outcome, comment = "failed", "the event could not be built: see the log of the notifier"
        if outcome == "gone":
            return None
        return _Result(tx, event, outcome, comment[:_MAX_COMMENT] if isinstance(comment, str) else comment)

    async def _see_to(self, record: Record, event: str) -> tuple[str, str | int]:
        kind, url, owner = kind_of(event), record.text(b"webhook"), record.text(b"owner")
        if kind == COMPLETE and event != f"complete.{record.number(b'run')}":
            return "cancelled", "the transaction was begun again"
        delivery = await self._queue.find(endpoint_id(url, owner, kind), event_id(record.id, event))
        if delivery is not None:
            return await self._judge(delivery)
        waiting = self._turn(record, event)
        if waiting is not None:
            return waiting
        endpoint = await self.receivers.define(url, owner, kind)
        body = body_of(record, event, self._clock.now_ms(), self._converter)
        if not await self._is_wanted(record.id, event):
            return "gone", ""
        put = await self._queue.put(endpoint, event_id(record.id, event), body)
        return "later", self._pause_ms(put.delivery)

    def _turn(self, record: Record, event: str) -> tuple[str, str | int] | None:
        """None if it is the event's turn."""
        reports = [int(number) for number in record.with_prefix(b"w:progress.") if number.isdigit()]
        ended_ms = record.number(b"ended_ms") if record.state == State.ENDED else 0
        left_ms = self._settings.progress_patience_ms
        if ended_ms:
            left_ms -= self._clock.now_ms() - ended_ms
        if kind_of(event) == COMPLETE:
            return ("later", min(left_ms, _TURN_MS)) if reports and left_ms > 0 else None
        if left_ms <= 0:
            return "cancelled", "the transaction had ended before the report could be sent"
        number = int(event.rpartition(".")[2])
        return ("later", _TURN_MS) if any(each < number for each in reports) else None

    async def _is_wanted(self, tx: str, event: str) -> bool:
        key = f"{keys.prefix_of(keys.partition_of(tx))}webhooksZ"
        return await self._store.client.execute("ZSCORE", key, f"{tx} {event}") is not None

    async def _judge(self, delivery: Delivery) -> tuple[str, str | int]:
        if is_finished(delivery):
            return ending_of(delivery)
        if delivery.status is Status.WAITING:
            disabled = (await self._queue.state(delivery.endpoint)).disabled
            if disabled is not None:
                return "failed", f"nothing is sent to this receiver any more: {disabled}"
        return "later", self._pause_ms(delivery)

    def _pause_ms(self, delivery: Delivery) -> int:
        now_ms = self._clock.now_ms()
        pause_ms = max(_MIN_PAUSE_MS, (now_ms - delivery.created_ms) // 2, delivery.due_ms - now_ms)
        return min(pause_ms, _MAX_PAUSE_MS)

    # ------------------------------------------------------------------------------------- reporting

    async def report(self, delivery: Delivery) -> None:
        """Write down how a delivery has ended; whose turn it is now is looked after at once."""
        tx, event = event_of(delivery)
        if tx is None or not is_finished(delivery):
            return
        partition = keys.partition_of(tx)
        results = [_Result(tx, event, *ending_of(delivery))]
        if kind_of(event) == PROGRESS:
            results += await self._following(tx, event)
        await self._process(partition, 0, results)
        if len(results) > 1:
            self._ring(partition)

    async def _following(self, tx: str, event: str) -> list[_Result]:
        """The event that has waited for this one."""
        key = f"{keys.prefix_of(keys.partition_of(tx))}stateH:{tx}"
        following = f"progress.{int(event.rpartition('.')[2]) + 1}"
        found: Any = await self._store.client.execute("HMGET", key, f"w:{following}", "run")
        report, run = found
        if report is None:
            following = f"complete.{int(run or 0)}"
        return [_Result(tx, following, "later", 0)]

    def __repr__(self) -> str:
        return f"<WebhookNotifier {'stopping' if self._is_stopping else 'open'} on {self._queue!r}>"


# -------------------------------------------------------------------------------------------- running


@asynccontextmanager
async def run_webhooks(
    client: Client,
    store: TransactionStore,
    *,
    policy: AddressPolicy | None = None,
    sender: Sender | None = None,
    converter: ReplyConverter | None = None,
    settings: NotifierSettings | None = None,
    receivers: ReceiverSettings | None = None,
    queue: QueueSettings = QUEUE_SETTINGS,
    worker: WorkerSettings | None = None,
) -> AsyncGenerator[WebhookNotifier, None]:
    """Notify and deliver while the block runs; then finish what is being sent.

    ``policy`` says which addresses may be called; without a ``sender`` one is made, which needs
    ``penstock[gateway]``.
    """
    notifier = WebhookNotifier(
        store,
        TellingQueue(client, QUEUE, queue),
        Receivers(client, receivers, policy=policy),
        settings,
        converter=converter,
    )
    async with AsyncExitStack() as stack:
        if sender is None:
            sender = await stack.enter_async_context(_http_sender(policy))
        running = asyncio.create_task(notifier.run(sender, worker), name="penstock webhooks of transactions")
        try:
            yield notifier
        finally:
            notifier.stop()
            await running


def _http_sender(policy: AddressPolicy | None) -> Any:
    try:
        from penstock.webhooks.sending import HttpSender
    except ModuleNotFoundError as error:
        raise ConfigError(f"webhooks need penstock[gateway]: install it ({error})") from None
    return HttpSender(policy)
