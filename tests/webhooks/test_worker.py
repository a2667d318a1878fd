"""Workers with real receivers: everything arrives, signed; failures are retried, hopeless ones given up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import standardwebhooks

import penstock
from penstock.client.client import Client
from penstock.clock import ManualClock
from penstock.errors import ClosedError, ConfigError, OutcomeUnknownError
from penstock.webhooks import (
    AnswerRules,
    Attempt,
    BreakerPolicy,
    ConfiguredEndpoints,
    Endpoint,
    EndpointStore,
    QueueSettings,
    Request,
    Schedule,
    Status,
    WebhookQueue,
    WebhookWorker,
    WorkerSettings,
    event_body,
    new_key_pair,
    new_secret,
)
from penstock.webhooks.sending import HttpSender
from tests.places import until
from tests.webhooks.conftest import SECRET, endpoint_of
from tests.webhooks.receiver import Received, Receiver

BODY = event_body("order.created", "2026-01-01T00:00:00Z", b'{"n":1}')
QUICK = Schedule((0, 10, 10, 10), jitter=0)

#: A worker that is to be stopped while it sends must not wait long.
IMPATIENT = WorkerSettings(grace_ms=1)


def worker_for(queue: WebhookQueue, sender: Any, *endpoints: Endpoint, **options: Any) -> WebhookWorker:
    source = ConfiguredEndpoints({endpoint.id: endpoint for endpoint in endpoints})
    return WebhookWorker(queue, source, sender, **options)


async def status_of(queue: WebhookQueue, event: str, endpoint: str = "shop") -> Status | None:
    delivery = await queue.find(endpoint, event)
    return None if delivery is None else delivery.status


def is_(queue: WebhookQueue, event: str, status: Status) -> Callable[[], Any]:
    async def ask() -> bool:
        return await status_of(queue, event) is status

    return ask


async def test_what_is_put_arrives_signed(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    old, (private, _) = new_secret(), new_key_pair()
    endpoint = Endpoint(
        id="shop",
        url=receiver.url,
        secrets=(SECRET, old, private),
        headers={"X-Tenant": "endpoint", "x-b": "b"},
    )
    async with worker_for(queue, sender, endpoint) as worker:
        await queue.put(endpoint, "before.dots", BODY, {"x-tenant": "event"})
        await until(is_(queue, "before.dots", Status.DONE))
        await queue.put(endpoint, "evt_2", BODY)
        await until(is_(queue, "evt_2", Status.DONE))
    for got in receiver.received:
        for secret in (SECRET, old):
            assert standardwebhooks.Webhook(secret).verify(got.body, got.headers)["type"] == "order.created"
        assert len(got.headers["webhook-signature"].split(" ")) == 3
        assert (got.headers["content-type"], got.headers["x-b"]) == ("application/json", "b")
    assert receiver.ids[1] == "evt_2"
    assert "." not in receiver.ids[0]
    assert [got.headers["x-tenant"] for got in receiver.received] == ["event", "endpoint"]
    found = worker.statistics()
    assert (found.claimed, found.done, found.sending) == (2, 2, 0)


async def test_the_same_id_and_body_until_it_succeeds(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    answers = iter([500, (302, {"location": "/elsewhere"}, b""), 404])
    receiver.answer = lambda _: next(answers, 200)
    endpoint = endpoint_of(receiver, schedule=QUICK)
    async with worker_for(queue, sender, endpoint) as worker:
        await queue.put(endpoint, "evt", BODY)
        await until(is_(queue, "evt", Status.DONE))
    assert receiver.ids == ["evt"] * 4
    assert {got.body for got in receiver.received} == {BODY}
    log = (await queue.log("shop")).entries
    assert [(entry.attempt, entry.code, entry.outcome) for entry in reversed(log)] == [
        (1, 500, "retry"), (2, 302, "retry"), (3, 404, "retry"), (4, 200, "done"),
    ]  # fmt: skip
    assert worker.statistics().retry == 3


async def test_attempts_end(queue: WebhookQueue, sender: HttpSender, receiver: Receiver) -> None:
    receiver.answer = lambda _: (500, {}, b"sorry")
    endpoint = endpoint_of(receiver, schedule=QUICK)
    async with worker_for(queue, sender, endpoint):
        await queue.put(endpoint, "evt", BODY)
        await until(is_(queue, "evt", Status.DEAD))
        assert len(receiver.received) == 4
        dead = await queue.find("shop", "evt")
        assert dead is not None
        assert dead.reason == "all 4 attempts have failed"
        receiver.answer = lambda _: 200
        await queue.replay(dead.id)
        await until(is_(queue, "evt", Status.DONE))
    assert receiver.ids == ["evt"] * 5
    assert (await queue.log("shop")).entries[1].excerpt == "sorry"


async def test_gone_disables_and_somebody_is_told(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    receiver.answer = lambda _: 410
    told: list[tuple[str, str]] = []
    endpoint = endpoint_of(receiver, max_in_flight=1)
    async with worker_for(queue, sender, endpoint, on_disabled=lambda *facts: told.append(facts)):
        await queue.put(endpoint, "one", BODY)
        await queue.put(endpoint, "two", BODY)
        await until(lambda: told)
        assert told == [("shop", "the endpoint answered 410 Gone")]
        assert Counter([await status_of(queue, "one"), await status_of(queue, "two")]) == {
            Status.DEAD: 1, Status.WAITING: 1,
        }  # fmt: skip
        receiver.answer = lambda _: 200
        await queue.enable("shop")
        await until(lambda: len(receiver.received) == 2)


async def test_statuses_to_give_up_on(queue: WebhookQueue, sender: HttpSender, receiver: Receiver) -> None:
    receiver.answer = lambda _: 422
    endpoint = endpoint_of(receiver, rules=AnswerRules(give_up=frozenset({422})))
    async with worker_for(queue, sender, endpoint):
        await queue.put(endpoint, "evt", BODY)
        await until(is_(queue, "evt", Status.DEAD))
    assert len(receiver.received) == 1


async def test_retry_after_spares_the_whole_endpoint(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    receiver.answer = lambda _: (429, {"retry-after": "3600"}, b"")
    endpoint = endpoint_of(receiver, schedule=QUICK, max_in_flight=1)
    async with worker_for(queue, sender, endpoint):
        await queue.put(endpoint, "one", BODY)
        await until(lambda: _log_length(queue, 1))
        await queue.put(endpoint, "two", BODY)
        one, two = await queue.find("shop", "one"), await queue.find("shop", "two")
        assert one is not None
        assert two is not None
        assert one.due_ms - one.created_ms >= 3_600_000
        assert (two.status, two.attempts) == (Status.WAITING, 0)
        claim = await queue.claim(10, 1000)
        assert claim.deliveries == []
        assert claim.next_ms is not None
        assert claim.next_ms - claim.now_ms > 3_500_000
    assert len(receiver.received) == 1


async def _log_length(queue: WebhookQueue, least: int, endpoint: str = "shop") -> bool:
    return len((await queue.log(endpoint)).entries) >= least


async def test_an_open_breaker_burns_no_attempts_in_any_process(
    client: Client, sender: HttpSender, receiver: Receiver, url: str
) -> None:
    settings = QueueSettings(breaker=BreakerPolicy(failures=3, open_ms=200, max_open_ms=200))
    is_broken = True
    receiver.answer = lambda _: 500 if is_broken else 200
    endpoint = endpoint_of(receiver, schedule=Schedule((0,) + (1,) * 50, jitter=0), max_in_flight=1)
    async with penstock.open(url) as another_client:
        queue, same = WebhookQueue(client, settings=settings), WebhookQueue(another_client, settings=settings)
        async with worker_for(queue, sender, endpoint), worker_for(same, sender, endpoint):
            for number in range(10):
                await queue.put(endpoint, f"e{number}", BODY)
            await until(lambda: len(receiver.received) >= 5)  # three open it, then one each time
            state = await queue.state("shop")
            assert state.opened >= 2
            is_broken = False
            for number in range(10):
                await until(is_(queue, f"e{number}", Status.DONE))
    deliveries = [await queue.find("shop", f"e{number}") for number in range(10)]
    assert sum(delivery.attempts for delivery in deliveries if delivery) == len(receiver.received)
    assert len(receiver.received) < 10 + 3 + 60
    assert receiver.most_busy == 1
    assert (await queue.state("shop")).opened == 0


@pytest.mark.parametrize("workers", [1, 3])
async def test_concurrency_of_an_endpoint_is_bounded_over_all_workers(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver, workers: int
) -> None:
    go = asyncio.Event()

    async def wait(_: Received) -> int:
        await go.wait()
        return 200

    receiver.answer = wait
    endpoint = endpoint_of(receiver, max_in_flight=4)
    async with Receiver() as quick:
        other = endpoint_of(quick, "other")
        crew = [worker_for(queue, sender, endpoint, other) for _ in range(workers)]
        for worker in crew:
            await worker.__aenter__()
        for number in range(20):
            await queue.put(endpoint, f"e{number}", BODY)
            await queue.put(other, f"e{number}", BODY)
        await until(lambda: receiver.busy == 4)
        await until(lambda: len(quick.received) == 20)  # the slow one stops nobody else
        go.set()
        await until(lambda: len(receiver.received) == 20)
        for worker in crew:
            await worker.stop()
    assert receiver.most_busy == 4
    assert sorted(receiver.ids) == sorted(f"e{number}" for number in range(20))
    assert (await queue.statistics()).delivered == 40


async def test_a_worker_takes_no_more_than_it_can_send(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    go = asyncio.Event()

    async def wait(_: Received) -> int:
        await go.wait()
        return 200

    receiver.answer = wait
    endpoint = endpoint_of(receiver, max_in_flight=100)
    async with worker_for(queue, sender, endpoint, settings=WorkerSettings(concurrency=2)) as worker:
        for number in range(6):
            await queue.put(endpoint, f"e{number}", BODY)
        await until(lambda: receiver.busy == 2)
        assert worker.statistics().sending == (await queue.statistics()).leased == 2
        go.set()
        await until(lambda: len(receiver.received) == 6)
    assert receiver.most_busy == 2


@pytest.mark.parametrize("url", ["embedded", "valkey"], indirect=True)
async def test_a_long_send_keeps_its_lease(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    """Twice as long as a lease, with another worker waiting for it to run out."""
    go = asyncio.Event()

    async def wait(_: Received) -> int:
        await go.wait()
        return 200

    receiver.answer = wait
    endpoint = endpoint_of(receiver)
    short = WorkerSettings(lease_ms=1_500)  # a machine may stand still for a second
    async with (
        worker_for(queue, sender, endpoint, settings=short),
        worker_for(queue, sender, endpoint, settings=short),
    ):
        put = await queue.put(endpoint, "evt", BODY)
        await until(lambda: receiver.busy == 1)

        async def is_held_for_long() -> bool:
            held = await queue.get(put.delivery.id)
            assert held is not None
            assert held.lease_ms is not None
            return held.lease_ms > held.created_ms + 3 * short.lease_ms

        await until(is_held_for_long)
        go.set()
        await until(is_(queue, "evt", Status.DONE))
    assert len(receiver.received) == 1
    assert (await queue.statistics()).lost == 0


async def test_stopping_finishes_what_it_can_and_hands_back_the_rest(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    async def forever(_: Received) -> int:
        await asyncio.Event().wait()
        return 200

    receiver.answer = forever
    endpoint = endpoint_of(receiver)
    async with worker_for(queue, sender, endpoint, settings=IMPATIENT) as worker:
        for number in range(3):
            await queue.put(endpoint, f"e{number}", BODY)
        await until(lambda: receiver.busy == 3)
    assert worker.statistics().release == 3
    page = await queue.pending("shop")
    assert [(delivery.attempts, delivery.losses) for delivery in page.deliveries] == [(0, 0)] * 3
    receiver.answer = lambda _: 200
    async with worker_for(queue, sender, endpoint):
        await until(lambda: len(receiver.received) == 6)
        await until(is_(queue, "e2", Status.DONE))


async def test_stopping_waits_for_answers(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    go = asyncio.Event()

    async def wait(_: Received) -> int:
        await go.wait()
        return 200

    receiver.answer = wait
    endpoint = endpoint_of(receiver)
    worker = worker_for(queue, sender, endpoint)
    await worker.__aenter__()
    await queue.put(endpoint, "evt", BODY)
    await until(lambda: receiver.busy == 1)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)  # it has been told
    await queue.put(endpoint, "too late", BODY)
    assert not stopping.done()
    go.set()
    await stopping
    await worker.stop()
    assert await status_of(queue, "evt") is Status.DONE
    assert await status_of(queue, "too late") is Status.WAITING
    with pytest.raises(ClosedError):
        await worker.__aenter__()


async def test_it_sleeps_until_the_next_time_and_asks_for_nothing_meanwhile(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[int] = []
    claim = queue.claim

    async def counted(limit: int, lease_ms: int) -> Any:
        claims.append(limit)
        return await claim(limit, lease_ms)

    monkeypatch.setattr(queue, "claim", counted)
    endpoint = endpoint_of(receiver)
    async with worker_for(queue, sender, endpoint):
        await until(lambda: len(claims) >= 2)  # at the start, and when it is subscribed
        await queue.put(endpoint, "soon", BODY, delay_ms=400)
        await until(is_(queue, "soon", Status.DONE))
        put = await queue.find("shop", "soon")
        assert put is not None
        assert put.finished_ms is not None
        assert put.finished_ms >= put.due_ms
        assert len(claims) <= 6, "it polls"


async def test_an_endpoint_that_was_deleted(
    client: Client, queue: WebhookQueue, sender: HttpSender, receiver: Receiver
) -> None:
    endpoint = endpoint_of(receiver)
    await queue.put(endpoint, "evt", BODY)
    async with WebhookWorker(queue, EndpointStore(client, queue), sender):
        await until(is_(queue, "evt", Status.DEAD))
    delivery = await queue.find("shop", "evt")
    assert delivery is not None
    assert delivery.reason == "there is no endpoint shop any more"
    assert receiver.received == []


class FaultySender:
    """Fails in ways that no sender should, then works."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Attempt:
        self.requests.append(request)
        if len(self.requests) == 1:
            raise RuntimeError("a mistake")
        return Attempt(status=200)


async def test_a_mistake_of_the_sender_is_a_failed_attempt(queue: WebhookQueue) -> None:
    endpoint = Endpoint(id="shop", url="https://example.com/", schedule=QUICK)
    sender = FaultySender()
    clock = ManualClock()
    async with worker_for(queue, sender, endpoint, clock=clock):
        await queue.put(endpoint, "evt", BODY)
        await until(is_(queue, "evt", Status.DONE))
    assert (await queue.log("shop")).entries[1].error == "RuntimeError: a mistake"
    assert [request.headers["webhook-timestamp"] for request in sender.requests] == ["1700000000"] * 2
    assert "webhook-signature" not in sender.requests[0].headers


async def test_replies_that_are_lost_lose_nothing(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of the store is cut off once, after it ran."""
    cut: set[str] = set()

    def cutting(name: str) -> None:
        call = getattr(queue, name)

        async def once(*arguments: Any, **options: Any) -> Any:
            reply = await call(*arguments, **options)
            if name not in cut and (name != "claim" or reply.deliveries):
                cut.add(name)
                raise OutcomeUnknownError("the connection was cut")
            return reply

        monkeypatch.setattr(queue, name, once)

    for name in ("claim", "settle"):
        cutting(name)
    endpoint = endpoint_of(receiver)
    async with worker_for(queue, sender, endpoint, settings=WorkerSettings(lease_ms=500)) as worker:
        await queue.put(endpoint, "evt", BODY)
        await until(is_(queue, "evt", Status.DONE))
        await until(lambda: worker.statistics().lost == 1)  # settled, but the reply did not say so
    assert cut == {"claim", "settle"}
    assert receiver.ids == ["evt"]
    assert worker.statistics().store_errors == 2


async def test_a_closed_client_ends_the_worker(url: str, sender: HttpSender, receiver: Receiver) -> None:
    client = await penstock.open(url)
    worker = worker_for(WebhookQueue(client), sender, endpoint_of(receiver))
    running = asyncio.create_task(worker.run())
    await until(lambda: client.statistics())
    await client.close()
    with pytest.raises(ClosedError):
        async with asyncio.timeout(10):
            await running


@pytest.mark.parametrize(
    "settings", [{"concurrency": 0}, {"concurrency": 1001}, {"lease_ms": 29}, {"grace_ms": -1}]
)
def test_settings_that_make_no_sense(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        WorkerSettings(**settings)


async def test_a_worker_that_stumbled_can_be_run_again(
    queue: WebhookQueue, sender: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_of(receiver)
    worker = worker_for(queue, sender, endpoint)

    async def stumble() -> None:
        raise ValueError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "_renew", stumble)
        with pytest.raises(ValueError, match="a fault of ours"):
            await worker.run()
    running = asyncio.create_task(worker.run())
    await queue.put(endpoint, "evt", BODY)
    await until(is_(queue, "evt", Status.DONE))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
