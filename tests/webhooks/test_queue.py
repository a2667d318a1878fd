"""The durable queue, on every store: once in, one lease at a time, nothing lost, everything bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.errors import BackpressureError, ConfigError, UsageError
from penstock.webhooks import (
    Attempt,
    Outcome,
    OutcomeKind,
    QueueSettings,
    Schedule,
    Status,
    WebhookQueue,
)
from penstock.webhooks.keys import SCRIPT_KEYS
from tests.places import until
from tests.webhooks.deliveries import (
    DEAD,
    DONE,
    LEASE_MS,
    SHORT_MS,
    assert_sound,
    claim,
    claim_one,
    endpoint,
    is_later,
    put,
    retry,
)

# ------------------------------------------------------------------------------------------------- put


async def test_a_delivery_is_put_once(queue: WebhookQueue) -> None:
    first = await queue.put(endpoint(), "e1", b"body", {"X-Tenant": "a"})
    again = await queue.put(endpoint(), "e1", b"another body")
    assert (first.is_new, again.is_new) == (True, False)
    assert first.delivery == again.delivery == await queue.get(first.delivery.id)
    assert await queue.find("shop", "e1") == first.delivery
    assert (await queue.put(endpoint("other"), "e1", b"body")).is_new
    payload = await queue.payload(first.delivery.id)
    assert payload is not None
    assert (payload.headers, payload.body) == ({"x-tenant": "a"}, b"body")
    await assert_sound(queue)


async def test_putting_again_after_it_was_done_does_nothing(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    await queue.settle(await claim_one(queue), DONE)
    assert not (await queue.put(endpoint(), "e1", b"")).is_new
    assert await claim(queue) == []


async def test_many_who_put_the_same_at_once_put_one(queue: WebhookQueue) -> None:
    results = await asyncio.gather(*(queue.put(endpoint(), f"e{n % 3}", b"") for n in range(30)))
    assert sum(result.is_new for result in results) == 3
    assert (await queue.statistics()).put == 3


async def test_bodies_are_bytes(queue: WebhookQueue) -> None:
    body = bytes(range(256)) * 4
    await queue.put(endpoint(), "é\u0000 event.with any/text", body)
    [got] = (await queue.claim(1, LEASE_MS)).deliveries
    assert (got.payload.body, got.delivery.event) == (body, "é\u0000 event.with any/text")


async def test_a_full_endpoint_refuses(queue: WebhookQueue) -> None:
    small = endpoint(max_pending=2)
    await put(queue, "e1", small)
    await put(queue, "e2", small)
    with pytest.raises(BackpressureError, match="max_pending"):
        await put(queue, "e3", small)
    assert not (await queue.put(small, "e1", b"")).is_new  # what is there already is no news
    taken = await claim(queue, 1)
    with pytest.raises(BackpressureError):
        await put(queue, "e3", small)
    await queue.settle(taken[0], DONE)
    await put(queue, "e3", small)
    await put(queue, "e3", endpoint("other"))
    await assert_sound(queue)


@pytest.mark.parametrize(
    ("event", "body", "options", "error"),
    [
        ("", b"", {}, UsageError), ("x" * 513, b"", {}, UsageError), ("\ud800", b"", {}, UsageError),
        ("e", b"x" * 1_048_577, {}, UsageError), ("e", b"", {"delay_ms": -1}, UsageError),
        ("e", b"", {"headers": {"host": "x"}}, ConfigError),
    ],
)  # fmt: skip
async def test_what_cannot_be_put(
    queue: WebhookQueue, event: str, body: bytes, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await queue.put(endpoint(), event, body, **options)
    assert (await queue.statistics()).put == 0


# ----------------------------------------------------------------------------------------------- claim


async def test_a_claim_takes_what_is_due_in_order(queue: WebhookQueue) -> None:
    where = endpoint(max_in_flight=100)
    names = [(await put(queue, f"e{n}", where)).id for n in range(5)]
    later = await put(queue, "later", where, delay_ms=3_600_000)
    got = await queue.claim(100, LEASE_MS)
    assert {claimed.delivery.id for claimed in got.deliveries} == set(names)
    tokens = [claimed.delivery.token for claimed in got.deliveries]
    assert len(set(tokens)) == 5
    assert all(claimed.delivery.status is Status.LEASED for claimed in got.deliveries)
    assert got.next_ms is not None
    assert got.next_ms == min(got.now_ms + LEASE_MS, later.due_ms)
    assert await claim(queue) == []
    await assert_sound(queue)


async def test_what_is_due_first_goes_first(queue: WebhookQueue) -> None:
    where = endpoint(max_in_flight=100)
    for number in (3, 1, 2):
        await put(queue, f"e{number}", where, delay_ms=number * 10)
    got = [(await claim_one(queue)).event for _ in range(3)]
    assert got == ["e1", "e2", "e3"]


async def test_an_empty_queue_has_no_next_time(queue: WebhookQueue) -> None:
    assert (await queue.claim(1, LEASE_MS)).next_ms is None


async def test_an_endpoint_has_so_many_in_flight_and_no_more(queue: WebhookQueue) -> None:
    where = endpoint(max_in_flight=3)
    for number in range(10):
        await put(queue, f"e{number}", where)
    first = await claim(queue)
    assert len(first) == 3
    assert await claim(queue) == []
    await queue.settle(first[0], DONE)
    assert len(await claim(queue)) == 1
    await queue.limit(endpoint(max_in_flight=5))
    assert len(await claim(queue)) == 2
    await assert_sound(queue)


async def test_endpoints_take_turns(queue: WebhookQueue) -> None:
    """A long line at one endpoint does not keep the others waiting."""
    for number in range(50):
        await put(queue, f"e{number}", endpoint("long", max_in_flight=1000))
    for name in ("b", "c"):
        for number in range(2):
            await put(queue, f"e{number}", endpoint(name))
    taken = Counter(delivery.endpoint for delivery in await claim(queue, 9))
    assert taken == {"long": 5, "b": 2, "c": 2}
    for number in range(3):
        await put(queue, f"f{number}", endpoint("b"))
    turns = []
    for _ in range(4):
        now_ms = (await queue.statistics()).now_ms
        await until(lambda now_ms=now_ms: is_later(queue, now_ms))  # turns are told apart by the millisecond
        turns.append((await claim(queue, 1))[0].endpoint)
    assert sorted(turns) == ["b", "b", "long", "long"]


async def test_claims_at_once_never_share(queue: WebhookQueue) -> None:
    where = endpoint(max_in_flight=1000)
    for number in range(60):
        await put(queue, f"e{number}", where)
    got = await asyncio.gather(*(claim(queue, 7) for _ in range(12)))
    ids = [delivery.id for part in got for delivery in part]
    assert len(ids) == len(set(ids)) == 60


async def test_a_claim_of_large_bodies_is_bounded(queue: WebhookQueue) -> None:
    where = endpoint(max_in_flight=100)
    for number in range(20):
        await queue.put(where, f"e{number}", b"x" * 1_048_576)
    first = await queue.claim(100, LEASE_MS)
    assert len(first.deliveries) == 16
    assert first.next_ms is not None
    assert first.next_ms <= first.now_ms
    assert len(await claim(queue)) == 4


async def test_what_is_left_of_a_delivery_does_not_stop_the_others(
    client: Client, queue: WebhookQueue
) -> None:
    """A server that evicts keys, or a hand that deletes rows, leaves parts behind."""
    names = [(await put(queue, f"e{number}")).id for number in range(4)]
    await client.hdel(queue.keys.payloads, names[0])
    await client.hdel(queue.keys.deliveries, names[1])
    await client.hdel(queue.keys.payloads, names[1])
    assert {delivery.event for delivery in await claim(queue)} == {"e2", "e3"}
    await assert_sound(queue)
    assert (await queue.put(endpoint(), "e0", b"")).is_new
    await client.delete(queue.keys.all[SCRIPT_KEYS.index("states")])
    await put(queue, "e5")
    assert {delivery.event for delivery in await claim(queue)} == {"e0", "e5"}
    await queue.purge("shop")


async def test_names_that_begin_alike_are_apart(queue: WebhookQueue) -> None:
    for name in ("a", "a!", "a~", "ab", "a:b"):
        await put(queue, "e", endpoint(name))
    page = await queue.pending("a")
    assert [delivery.endpoint for delivery in page.deliveries] == ["a"]
    assert len({delivery.endpoint for delivery in await claim(queue)}) == 5
    await assert_sound(queue)


@pytest.mark.parametrize(("limit", "lease_ms"), [(0, 1), (1001, 1), (1, 0), (1, 3_600_001)])
async def test_claims_that_make_no_sense(queue: WebhookQueue, limit: int, lease_ms: int) -> None:
    with pytest.raises(UsageError):
        await queue.claim(limit, lease_ms)


# ---------------------------------------------------------------------------------------------- leases


async def test_a_lease_that_runs_out_gives_the_delivery_to_another(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    dead = await claim_one(queue, SHORT_MS)
    heir = await claim_one(queue)
    assert (heir.id, heir.losses, heir.attempts) == (dead.id, 1, 0)
    assert heir.token > dead.token
    # The first one was only slow: it may say what it likes.
    for outcome in (DONE, DEAD, retry(), Outcome(kind=OutcomeKind.RELEASE)):
        assert await queue.settle(dead, outcome) is None
    assert await queue.renew([dead, heir], LEASE_MS) == [dead.id]
    assert await queue.get(heir.id) is not None
    settled = await queue.settle(heir, DONE)
    assert settled is not None
    assert settled.delivery.status is Status.DONE
    assert [entry.outcome for entry in (await queue.log("shop")).entries] == ["done", "lost"]
    assert (await queue.statistics()).lost == 1
    await assert_sound(queue)


async def test_a_renewed_lease_does_not_run_out(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    mine = await claim_one(queue, 500)
    assert await queue.renew([mine], LEASE_MS) == []
    got = await queue.get(mine.id)
    assert got is not None
    assert mine.lease_ms is not None
    assert got.lease_ms is not None
    assert got.lease_ms > mine.lease_ms + LEASE_MS - 1000
    assert (await queue.claim(1, LEASE_MS)).next_ms == got.lease_ms
    assert await queue.settle(mine, DONE) is not None
    assert await queue.renew([mine], LEASE_MS) == [mine.id]
    assert await queue.renew([], LEASE_MS) == []


async def test_a_dead_workers_place_in_flight_is_free_again(queue: WebhookQueue) -> None:
    where = endpoint(max_in_flight=1)
    await put(queue, "e1", where)
    await put(queue, "e2", where)
    await claim_one(queue, SHORT_MS)
    seen = set()
    for _ in range(2):
        mine = await claim_one(queue)
        seen.add(mine.event)
        await queue.settle(mine, DONE)
    assert seen == {"e1", "e2"}
    await assert_sound(queue)


# ---------------------------------------------------------------------------------------------- settle


async def test_a_retry_waits(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    mine = await claim_one(queue)
    attempt = Attempt(status=503, duration_ms=7, response_excerpt="busy")
    settled = await queue.settle(mine, retry(3_600_000), attempt)
    assert settled is not None
    [last] = (await queue.log("shop")).entries
    assert settled.delivery.due_ms - last.at_ms == 3_600_000
    assert (settled.delivery.attempts, settled.delivery.code) == (1, 503)
    got = await queue.claim(1, LEASE_MS)
    assert (got.deliveries, got.next_ms) == ([], settled.delivery.due_ms)
    await assert_sound(queue)


async def test_every_pause_of_the_standard_schedule_is_kept_by_the_store(queue: WebhookQueue) -> None:
    """Days pass by replaying: what waits is made due now, its attempts are counted on."""
    await put(queue, "e1")
    for number, delay_ms in enumerate(Schedule().delays_ms[1:], start=1):
        mine = await claim_one(queue)
        settled = await queue.settle(mine, retry(delay_ms))
        assert settled is not None
        [last] = (await queue.log("shop", limit=1)).entries
        assert (settled.delivery.due_ms - last.at_ms, settled.delivery.attempts) == (delay_ms, number)
        await queue.enable("shop")  # the breaker is not what is tested
        await queue.replay(mine.id)


async def test_nothing_is_settled_twice(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    mine = await claim_one(queue)
    assert await queue.settle(mine, retry(0)) is not None
    assert await queue.settle(mine, DONE) is None
    again = await claim_one(queue)
    assert await queue.settle(again, DONE) is not None
    assert await queue.settle(again, DEAD) is None
    got = await queue.get(mine.id)
    assert got is not None
    assert (got.status, got.attempts) == (Status.DONE, 2)


async def test_a_released_delivery_loses_nothing(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    settled = await queue.settle(await claim_one(queue), Outcome(kind=OutcomeKind.RELEASE))
    assert settled is not None
    assert (settled.delivery.status, settled.delivery.attempts) == (Status.WAITING, 0)
    assert (await queue.log("shop")).entries == []
    assert (await claim_one(queue)).event == "e1"


async def test_texts_of_receivers_are_kept_within_bounds(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    attempt = Attempt(status=500, error="é" * 9000, response_excerpt="\ud800\x00" + "ß" * 9000)
    await queue.settle(await claim_one(queue), retry(), attempt)
    [entry] = (await queue.log("shop")).entries
    assert entry.error == "é" * 512
    assert entry.excerpt == "?\x00" + "ß" * 510


async def test_finished_deliveries_are_forgotten(client: Client) -> None:
    queue = WebhookQueue(client, settings=QueueSettings(retention_ms=1))
    for number in range(5):
        await put(queue, f"e{number}")
    for mine in await claim(queue):
        await queue.settle(mine, DONE if mine.event < "e3" else DEAD)

    async def is_clean() -> bool:
        await queue.claim(1, LEASE_MS)
        return (await queue.statistics()).finished == 0

    await until(is_clean)
    assert await client.hlen(queue.keys.deliveries) == await client.hlen(queue.keys.payloads) == 0
    assert (await queue.statistics()).dead_kept == 0
    assert (await queue.put(endpoint(), "e1", b"")).is_new
