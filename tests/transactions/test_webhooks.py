"""Webhooks of transactions, from the end of a step to a real receiver and back into the record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import standardwebhooks

import penstock
from penstock.clock import ManualClock
from penstock.errors import UsageError
from penstock.transactions import notifying
from penstock.transactions.keys import partition_of, prefix_of
from penstock.transactions.model import Record, Settlement, Transaction, transaction_from
from penstock.transactions.notifying import (
    QUEUE,
    NotifierSettings,
    Receivers,
    ReceiverSettings,
    TellingQueue,
    WebhookNotifier,
    check_webhook_url,
    run_webhooks,
)
from penstock.transactions.receivers import endpoint_id
from penstock.transactions.store import TransactionStore
from penstock.webhooks import (
    Attempt,
    BreakerPolicy,
    Outcome,
    OutcomeKind,
    QueueSettings,
    Schedule,
    WebhookQueue,
    WebhookWorker,
    WorkerSettings,
    growing,
    webhook_id,
)
from penstock.webhooks.addresses import policy
from penstock.webhooks.sending import HttpSender
from tests.places import until
from tests.transactions.conftest import put_pipeline
from tests.webhooks.receiver import Received, Receiver

pytestmark = pytest.mark.parametrize("url", ["embedded-3", "server-3", "cluster-3"], indirect=True)

LOOPBACK = policy(["127.0.0.0/8"])
QUICK = ReceiverSettings(
    timeout_ms=2_000,
    schedule=Schedule((0, 10, 20), 0.0),
    progress_schedule=Schedule((0, 10, 20), 0.0),
)


class Shop:
    """Starts transactions, and does what a worker of theirs would."""

    def __init__(self, store: TransactionStore) -> None:
        self.store = store
        self._seq: dict[str, int] = {}

    async def start(self, webhook: str, **fields: Any) -> Record:
        started = await self.store.start(
            "noop", b'{"in":1}', owner="acme", external_id=None, fields={"webhook": webhook, **fields}
        )
        return await self.take(started.id)

    async def take(self, tx: str) -> Record:
        taken = await self.store.dequeue(partition_of(tx), "w1", ["shop"], limit=1, lease_ms=600_000)
        assert [record.id for record in taken.records] == [tx]
        self._seq[tx] = 0
        return taken.records[0]

    async def settle(self, record: Record, kind: str, **words: Any) -> None:
        self._seq[record.id] += 1
        settlement = Settlement(kind, record.id, record.token, self._seq[record.id], **words)
        assert await self.store.settle(partition_of(record.id), [settlement]) == ["ok"]

    async def report(self, record: Record, report: Any) -> None:
        await self.settle(record, "keep", fields=["progress", msgspec.json.encode(report)])

    async def end(self, record: Record, status: str = "success", output: Any = None) -> str:
        fields = ["d:1", msgspec.json.encode(output), "data", 1]
        await self.settle(record, "end", fields=fields, arguments=[status, 0], note="fine")
        return record.id

    async def look(self, tx: str) -> Transaction:
        found = await self.store.get(tx, with_trail=True)
        assert found is not None
        return transaction_from(*found)

    async def until_told(self, tx: str, limit_s: float = 20) -> Transaction:
        """Until its webhook is done with."""

        async def is_told() -> bool:
            return (await self.look(tx)).webhook_status not in (None, "pending")

        await until(is_told, limit_s)
        return await self.look(tx)

    async def may_be_archived(self, tx: str) -> bool:
        key = f"{prefix_of(partition_of(tx))}toArchiveZ"
        return await self.store.client.execute("ZSCORE", key, tx) is not None


@pytest.fixture
async def shop(store: TransactionStore) -> Shop:
    await put_pipeline(store, "noop")
    return Shop(store)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def hooks(shop: Shop, **options: Any) -> Any:
    """What delivers while a block runs."""
    given = {"policy": LOOPBACK, "receivers": QUICK} | options
    return run_webhooks(shop.store.client, shop.store, **given)


def body_of(request: Received) -> Any:
    return msgspec.json.decode(request.body)


# ------------------------------------------------------------------------------------------- delivering


async def test_the_end_is_told_with_a_valid_signature(
    shop: Shop, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks whether it was delivered: the worker says so.
    monkeypatch.setattr(notifying, "_MIN_PAUSE_MS", 3_600_000)
    monkeypatch.setattr(notifying, "_MAX_PAUSE_MS", 3_600_000)
    async with hooks(shop) as notifier:
        record = await shop.start(receiver.url)
        tx = await shop.end(record, output={"total": 42})
        told = await shop.until_told(tx)
        secret = await notifier.receivers.secret_of("acme")
    (request,) = receiver.received
    standardwebhooks.Webhook(secret).verify(request.body, request.headers)
    assert request.id == webhook_id(f"{tx}.complete.0")
    body = body_of(request)
    metadata = body["data"].pop("metadata")
    assert body["type"] == "transaction.complete"
    assert body["data"] == {"progressReport": None, "data": {"total": 42}, "note": "fine"}
    assert (metadata["owner"], metadata["txId"], metadata["externalId"]) == ("acme", tx, None)
    assert (metadata["transactionType"], metadata["status"]) == ("noop", "success")
    assert metadata["completionTime"] == body["timestamp"] == metadata["lastUpdated"]
    assert body["timestamp"].endswith("Z")
    assert metadata["notifiedTime"] is None
    assert (told.webhook_status, told.webhook_comment) == ("delivered", "HTTP 200 after 1 attempt")
    assert [entry.note for entry in told.trail if entry.kind == "webhook"] == [
        "complete.0 delivered: HTTP 200 after 1 attempt"
    ]


async def test_it_is_tried_again_after_an_error(shop: Shop, receiver: Receiver) -> None:
    receiver.answer = lambda _: 200 if len(receiver.received) > 2 else 500
    async with hooks(shop):
        tx = await shop.end(await shop.start(receiver.url))
        told = await shop.until_told(tx)
    assert told.webhook_comment == "HTTP 200 after 3 attempts"
    assert set(receiver.ids) == {webhook_id(f"{tx}.complete.0")}


async def test_the_archive_waits_and_goes_on_after_a_failure(shop: Shop, receiver: Receiver) -> None:
    may_answer = asyncio.Event()

    async def answer(_: Received) -> int:
        await may_answer.wait()
        return 503

    receiver.answer = answer
    async with hooks(shop):
        tx = await shop.end(await shop.start(receiver.url))
        await until(lambda: receiver.busy)
        assert not await shop.may_be_archived(tx)
        assert (await shop.look(tx)).webhook_status == "pending"
        may_answer.set()
        told = await shop.until_told(tx)
    assert told.webhook_status == "failed"
    assert told.webhook_comment == "all 3 attempts have failed; HTTP 503 after 3 attempts"
    assert await shop.may_be_archived(tx)


async def test_a_receiver_that_hangs_is_left_in_time(shop: Shop, receiver: Receiver) -> None:
    receiver.answer = lambda _: asyncio.Event().wait()
    quick = ReceiverSettings(timeout_ms=50, schedule=Schedule((0, 5), 0.0))
    async with hooks(shop, receivers=quick):
        told = await shop.until_told(await shop.end(await shop.start(receiver.url)))
    assert told.webhook_comment == (
        "all 2 attempts have failed; no complete answer within 50 ms after 2 attempts"
    )


async def test_a_breaker_spares_the_one_and_not_the_other(shop: Shop, receiver: Receiver) -> None:
    receiver.answer = lambda _: 500
    settings = QueueSettings(breaker=BreakerPolicy(failures=3, open_ms=60_000))
    patient = ReceiverSettings(schedule=Schedule((0, 60_000), 0.0), max_in_flight=1)
    async with Receiver() as well, hooks(shop, queue=settings, receivers=patient):
        for _ in range(8):
            await shop.end(await shop.start(receiver.url))
        await until(lambda: len(receiver.received) == 3)
        for _ in range(5):
            told = await shop.until_told(await shop.end(await shop.start(well.url)))
            assert told.webhook_status == "delivered"
    state = await WebhookQueue(shop.store.client, QUEUE).state(endpoint_id(receiver.url, "acme"))
    assert (len(receiver.received), state.opened, state.waiting) == (3, 1, 8)


async def test_a_receiver_that_is_gone_ends_what_waits_for_it(shop: Shop, receiver: Receiver) -> None:
    receiver.answer = lambda _: 410
    async with hooks(shop):
        first = await shop.until_told(await shop.end(await shop.start(receiver.url)))
        second = await shop.until_told(await shop.end(await shop.start(receiver.url)))
    assert (first.webhook_status, second.webhook_status) == ("failed", "failed")
    assert first.webhook_comment == "the endpoint answered 410 Gone; HTTP 410 after 1 attempt"
    assert second.webhook_comment == (
        "nothing is sent to this receiver any more: the endpoint answered 410 Gone"
    )
    assert len(receiver.received) == 1


async def test_many_ends_arrive_once_from_two_notifiers(shop: Shop, receiver: Receiver) -> None:
    async with hooks(shop), hooks(shop):
        ended = [await shop.end(await shop.start(receiver.url)) for _ in range(60)]
        for tx in ended:
            assert (await shop.until_told(tx)).webhook_status == "delivered"
    assert sorted(receiver.ids) == sorted(webhook_id(f"{tx}.complete.0") for tx in ended)


async def test_a_replay_is_another_event(shop: Shop, receiver: Receiver) -> None:
    async with hooks(shop):
        tx = await shop.end(await shop.start(receiver.url), "failed")
        await shop.until_told(tx)
        await shop.store.control("replay", tx, "me", argument=0)
        await shop.end(await shop.take(tx))
        await shop.until_told(tx)
    assert receiver.ids == [webhook_id(f"{tx}.complete.{run}") for run in (0, 1)]
    statuses = [body_of(request)["data"]["metadata"]["status"] for request in receiver.received]
    assert statuses == ["failed", "success"]


async def test_what_another_worker_delivers_is_noticed(
    shop: Shop, receiver: Receiver, ps: penstock.Penstock
) -> None:
    """The queue is run by somebody who knows nothing of transactions, as a gateway may."""
    receivers = Receivers(ps, QUICK, policy=LOOPBACK)
    notifier = WebhookNotifier(shop.store, WebhookQueue(ps, QUEUE), receivers)
    running = asyncio.create_task(notifier.run())
    async with HttpSender(LOOPBACK) as sender, WebhookWorker(WebhookQueue(ps, QUEUE), receivers, sender):
        told = await shop.until_told(await shop.end(await shop.start(receiver.url)))
        assert told.webhook_comment == "HTTP 200 after 1 attempt"
    notifier.stop()
    await running


# ------------------------------------------------------------------------------------------- progress


async def test_reports_come_in_order_and_before_the_end(shop: Shop, receiver: Receiver) -> None:
    """Each is refused once."""
    receiver.answer = lambda request: 500 if receiver.ids.count(request.id) == 1 else 200
    async with hooks(shop):
        record = await shop.start(receiver.url, webhook_progress=1)
        for number in range(5):
            await shop.report(record, {"done": number})
        tx = await shop.end(record, output="all")
        await shop.until_told(tx)
    accepted = [body_of(request) for request in receiver.received[1::2]]
    assert [body["type"] for body in accepted] == ["transaction.progress"] * 5 + ["transaction.complete"]
    reports = [body["data"]["progressReport"] for body in accepted]
    assert reports == [*({"done": number} for number in range(5)), None]
    progress = accepted[0]["data"]
    assert (progress["metadata"]["status"], progress["data"]) == ("running", None)
    assert progress["metadata"]["completionTime"] is None
    assert len(set(receiver.ids)) == 6
    record_fields = await shop.store.get(tx)
    assert record_fields is not None
    assert record_fields[0].with_prefix(b"w:") == {}


async def test_whoever_ends_a_report_makes_the_next_one_come(
    shop: Shop, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, without a worker; what waits for its turn would wait for an hour."""
    monkeypatch.setattr(notifying, "_TURN_MS", 3_600_000)
    client = shop.store.client
    queue = TellingQueue(client, QUEUE)
    settings = NotifierSettings(progress_patience_ms=3_600_000)
    notifier = WebhookNotifier(shop.store, queue, Receivers(client, QUICK, policy=LOOPBACK), settings)
    record = await shop.start(receiver.url, webhook_progress=1)
    await shop.report(record, 1)
    await shop.report(record, 2)
    tx = await shop.end(record)
    for event in ("progress.1", "progress.2", "complete.0"):
        await notifier.look(partition_of(tx))
        claim = await queue.claim(10, 1_000)
        assert [each.delivery.event for each in claim.deliveries] == [f"{tx}.{event}"]
        done = Outcome(kind=OutcomeKind.DONE)
        await queue.settle(claim.deliveries[0].delivery, done, Attempt(status=204))
    told = await shop.look(tx)
    assert (told.webhook_status, told.webhook_comment) == ("delivered", "HTTP 204 after 1 attempt")


async def test_without_the_wish_no_reports_are_sent(shop: Shop, receiver: Receiver) -> None:
    async with hooks(shop):
        record = await shop.start(receiver.url)
        await shop.report(record, 1)
        await shop.until_told(await shop.end(record))
    assert [body_of(request)["type"] for request in receiver.received] == ["transaction.complete"]


async def test_reports_that_fail_do_not_keep_the_end(shop: Shop, receiver: Receiver) -> None:
    receiver.answer = lambda request: 500 if b"transaction.progress" in request.body else 200
    async with hooks(shop):
        record = await shop.start(receiver.url, webhook_progress=1)
        await shop.report(record, 1)
        await shop.report(record, 2)
        tx = await shop.end(record)
        told = await shop.until_told(tx)
    assert told.webhook_status == "delivered"
    notes = [entry.note for entry in told.trail if entry.kind == "webhook"]
    assert [note.split(":")[0] for note in notes] == [
        "progress.1 failed", "progress.2 failed", "complete.0 delivered",
    ]  # fmt: skip


async def test_the_end_does_not_wait_for_ever_for_reports(shop: Shop, receiver: Receiver) -> None:
    """The first report hangs; the second is not sent any more once the end could not wait longer."""

    async def answer(request: Received) -> int:
        if b"transaction.progress" in request.body:
            await asyncio.Event().wait()
        return 200

    receiver.answer = answer
    slow = ReceiverSettings(timeout_ms=60_000)
    settings = NotifierSettings(progress_patience_ms=300)
    async with hooks(shop, receivers=slow, settings=settings, worker=WorkerSettings(grace_ms=10)):
        record = await shop.start(receiver.url, webhook_progress=1)
        await shop.report(record, 1)
        await shop.report(record, 2)
        tx = await shop.end(record)
        told = await shop.until_told(tx)
        assert told.webhook_status == "delivered"

        async def is_second_given_up() -> bool:
            trail = (await shop.look(tx)).trail
            return any(entry.note.startswith("progress.2 cancelled: the transaction had") for entry in trail)

        await until(is_second_given_up)
    types = [body_of(request)["type"] for request in receiver.received]
    assert types == ["transaction.progress", "transaction.complete"]


# ----------------------------------------------------------------------------------------- cancelling


async def test_a_poll_that_was_answered_spares_the_webhook(shop: Shop, receiver: Receiver) -> None:
    spared = await shop.end(await shop.start(receiver.url, webhook_cancellable=1))
    insists = await shop.end(await shop.start(receiver.url))
    for tx in (spared, insists):
        await shop.store.get(tx, is_reply=True, cancels_webhook=True)
    async with hooks(shop):
        told = await shop.until_told(insists)
    assert told.webhook_status == "delivered"
    assert (await shop.look(spared)).webhook_status == "cancelled"
    assert await shop.may_be_archived(spared)
    assert receiver.ids == [webhook_id(f"{insists}.complete.0")]
    assert body_of(receiver.received[0])["data"]["metadata"]["notifiedTime"] is not None


async def test_a_webhook_cancelled_after_it_was_taken_is_not_put(shop: Shop, receiver: Receiver) -> None:
    """The poll comes between the notifier's taking the event and its putting it."""
    tx = await shop.end(await shop.start(receiver.url, webhook_cancellable=1))
    key = f"{prefix_of(partition_of(tx))}webhooksZ"

    class Late(WebhookNotifier):
        async def _is_wanted(self, tx: str, event: str) -> bool:
            await shop.store.get(tx, cancels_webhook=True)
            return await super()._is_wanted(tx, event)

    queue = WebhookQueue(shop.store.client, QUEUE)
    notifier = Late(shop.store, queue, Receivers(shop.store.client, QUICK, policy=LOOPBACK))
    assert await notifier.look(partition_of(tx)) is None
    assert await shop.store.client.execute("ZCARD", key) == 0
    assert await queue.find(endpoint_id(receiver.url, "acme"), f"{tx}.complete.0") is None
    assert (await shop.look(tx)).webhook_status == "cancelled"


# -------------------------------------------------------------------------------------------- bad input


async def test_an_address_that_must_not_be_called_fails_at_once(shop: Shop, receiver: Receiver) -> None:
    async with hooks(shop, policy=None):
        told = await shop.until_told(await shop.end(await shop.start(receiver.url)))
    assert told.webhook_status == "failed"
    assert "127.0.0.1, a loopback address" in (told.webhook_comment or "")
    assert receiver.received == []
    assert await shop.may_be_archived(told.id)


async def test_a_body_that_is_too_large_fails_with_the_reason(shop: Shop, receiver: Receiver) -> None:
    async with hooks(shop, queue=QueueSettings(max_body_bytes=200)):
        told = await shop.until_told(await shop.end(await shop.start(receiver.url)))
    assert "body must be at most 200 bytes" in (told.webhook_comment or "")


async def test_records_that_nobody_can_read_stop_nobody(shop: Shop, receiver: Receiver) -> None:
    broken = await shop.end(await shop.start(receiver.url))
    await shop.store.client.execute(
        "HSET",
        f"{prefix_of(partition_of(broken))}stateH:{broken}",
        "webhook",
        "\u2603 no url",
        "d:1",
        b"\xff",
    )
    odd = await shop.end(await shop.start(receiver.url))
    key = f"{prefix_of(partition_of(odd))}webhooksZ"
    await shop.store.client.execute("ZADD", key, 1, f"{odd} progress.what")
    well = await shop.end(await shop.start(receiver.url))
    async with hooks(shop):
        assert (await shop.until_told(broken)).webhook_status == "failed"
        assert (await shop.until_told(odd)).webhook_status == "delivered"
        assert (await shop.until_told(well)).webhook_status == "delivered"
    assert await shop.store.client.execute("ZCARD", key) == 0


@pytest.mark.parametrize("reply", [{"x": 1}, b'{"x": 1}'])
async def test_a_converter_changes_the_data(shop: Shop, receiver: Receiver, reply: Any) -> None:
    seen: list[Transaction] = []

    def convert(transaction: Transaction) -> Any:
        seen.append(transaction)
        return reply

    async with hooks(shop, converter=convert):
        tx = await shop.end(await shop.start(receiver.url), output=5)
        await shop.until_told(tx)
    assert body_of(receiver.received[0])["data"] == {"x": 1}
    assert (seen[0].id, seen[0].output) == (tx, 5)


@pytest.mark.parametrize("reply", [b"{no json", object(), ZeroDivisionError("oh")])
async def test_a_converter_that_fails_sends_nothing(
    shop: Shop, receiver: Receiver, reply: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def convert(_: Transaction) -> Any:
        if isinstance(reply, Exception):
            raise reply
        return reply

    with caplog.at_level(logging.CRITICAL):
        async with hooks(shop, converter=convert):
            told = await shop.until_told(await shop.end(await shop.start(receiver.url)))
    assert told.webhook_status == "failed"
    assert (told.webhook_comment or "").startswith("the reply converter failed: ")
    assert receiver.received == []


# ----------------------------------------------------------------------------------- secrets, receivers


async def test_secrets_are_made_once_and_rotate(shop: Shop, receiver: Receiver) -> None:
    client = shop.store.client
    one, other = Receivers(client), Receivers(client)
    first = await one.secret_of("acme")
    assert await other.secret_of("acme") == first
    assert await other.secret_of("globex") != first
    second = await other.rotate("acme")
    assert await one.secrets_of("acme") == (second, first)
    async with hooks(shop):
        await shop.until_told(await shop.end(await shop.start(receiver.url)))
    (request,) = receiver.received
    for secret in (first, second):
        standardwebhooks.Webhook(secret).verify(request.body, request.headers)
    third = await one.rotate("acme", keep=0)
    assert await one.secrets_of("acme") == (third,)
    with pytest.raises(UsageError, match="keep must be 0 to 7"):
        await one.rotate("acme", keep=8)


async def test_receivers_that_nobody_uses_are_forgotten(shop: Shop, ps: penstock.Penstock) -> None:
    clock = ManualClock()
    queue = WebhookQueue(ps, QUEUE)
    receivers = Receivers(ps, ReceiverSettings(schedule=growing(1, 86_400_000)), clock=clock)
    idle = await receivers.define("https://a.example/", "acme")
    waiting = await receivers.define("https://b.example/", "acme")
    await queue.put(waiting, "tx.complete.0", b"{}")
    assert await receivers.forget_idle(queue) == 0
    clock.advance_ms(2 * 86_400_000 + 1)
    used = await receivers.define("https://c.example/", "acme")
    assert await receivers.forget_idle(queue) == 1
    assert await receivers.get(idle.id) is None
    for kept in (waiting, used):
        found = await receivers.get(kept.id)
        assert found is not None
        assert (found.url, len(found.secrets)) == (kept.url, 1)
    # Used again, it is there again.
    assert (await receivers.define("https://a.example/", "acme")).id == idle.id
    assert await receivers.get(idle.id) is not None


async def test_owners_do_not_share_receivers(shop: Shop) -> None:
    receivers = Receivers(shop.store.client)
    one, other = [await receivers.define("https://a.example/", owner) for owner in ("acme", "globex")]
    assert one.id != other.id
    found = [await receivers.get(each.id) for each in (one, other)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].secrets != found[1].secrets


async def test_urls_are_refused_at_the_start(shop: Shop) -> None:
    assert check_webhook_url("https://shop.example/hook?x=1") == "https://shop.example/hook?x=1"
    for bad, why in [
        (5, "webhook must be a URL such as"),
        ("ftp://x.example/", "must begin with https://"),
        ("http://10.0.0.1/", "a private address"),
        ("https://user:pw@x.example/", "must not contain a user"),
        ("https://x.example/\n", "must be visible ASCII"),
        ("", "must begin with https://"),
    ]:
        with pytest.raises(UsageError, match=why):
            check_webhook_url(bad)
    assert check_webhook_url("http://127.0.0.1:8080/", LOOPBACK)
