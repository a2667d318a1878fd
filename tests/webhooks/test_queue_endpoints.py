"""What the queue knows of endpoints, on every store: breaker, log, replay, purge, and who is woken."""

from __future__ import annotations

import pytest

import penstock
from penstock.client.client import Client
from penstock.errors import ConfigError, UsageError
from penstock.webhooks import (
    Attempt,
    BreakerPolicy,
    Outcome,
    OutcomeKind,
    QueueSettings,
    Status,
    WebhookQueue,
)
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

# ------------------------------------------------------------------------------------ breaker, throttle


async def test_a_spared_endpoint_gets_nothing_and_loses_nothing(queue: WebhookQueue) -> None:
    for number in range(3):
        await put(queue, f"e{number}")
    await put(queue, "e0", endpoint("other"))
    mine = next(delivery for delivery in await claim(queue, 2) if delivery.endpoint == "shop")
    await queue.settle(mine, retry(0, hold_ms=3_600_000), Attempt(status=429))
    got = await queue.claim(10, LEASE_MS)
    assert {claimed.delivery.endpoint for claimed in got.deliveries} <= {"other"}
    state = await queue.state("shop")
    assert state.hold_ms > got.now_ms + 3_500_000
    assert [delivery.attempts for delivery in (await queue.pending("shop")).deliveries].count(0) == 2
    assert await queue.enable("shop")
    assert len(await claim(queue)) == 3


def opens_after(failures: int, open_ms: int = SHORT_MS) -> QueueSettings:
    return QueueSettings(breaker=BreakerPolicy(failures=failures, open_ms=open_ms, max_open_ms=3_600_000))


async def test_the_breaker_opens_probes_and_closes(client: Client) -> None:
    queue = WebhookQueue(client, settings=opens_after(2))
    for number in range(6):
        await put(queue, f"e{number}")
    for _ in range(2):
        await queue.settle((await claim(queue, 1))[0], retry(3_600_000))
    state = await queue.state("shop")
    assert (state.opened, state.failures) == (1, 2)
    probe = await claim_one(queue)  # when the time is up
    assert await claim(queue) == []  # one at a time
    await queue.settle(probe, DONE)
    assert (await queue.state("shop")).opened == 0
    assert len(await claim(queue)) == 3


async def test_a_failed_probe_opens_for_longer(client: Client) -> None:
    queue = WebhookQueue(client, settings=opens_after(1, 100))
    for number in range(4):
        await put(queue, f"e{number}")
    lengths = []
    for _ in range(3):
        await queue.settle(await claim_one(queue), retry(3_600_000))
        [last] = (await queue.log("shop", limit=1)).entries
        lengths.append((await queue.state("shop")).hold_ms - last.at_ms)
    assert lengths == [100, 200, 400]
    assert (await queue.state("shop")).opened == 3


async def test_what_was_sent_before_the_breaker_opened_has_no_say(client: Client) -> None:
    queue = WebhookQueue(client, settings=opens_after(1, 3_600_000))
    for number in range(3):
        await put(queue, f"e{number}")
    one, two, three = await claim(queue)
    await queue.settle(one, retry())
    before = await queue.state("shop")
    await queue.settle(two, retry())
    await queue.settle(three, DONE)
    after = await queue.state("shop")
    assert (before.opened, after.opened, after.hold_ms) == (1, 1, before.hold_ms)
    assert await claim(queue) == []


async def test_failing_for_long_disables(client: Client) -> None:
    queue = WebhookQueue(client, settings=QueueSettings(disable_after_ms=1))
    await put(queue, "e1")
    settled = await queue.settle(await claim_one(queue), retry())
    assert settled is not None
    assert settled.disabled is None

    async def is_disabled() -> bool:
        settled = await queue.settle(await claim_one(queue), retry())
        assert settled is not None
        return settled.disabled is not None

    await until(is_disabled)
    assert "nothing has succeeded" in str((await queue.state("shop")).disabled)


# ------------------------------------------------------------------------------------------- endpoints


async def test_a_disabled_endpoint_keeps_what_waits(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    await put(queue, "e2")
    first = (await claim(queue, 1))[0]
    gone = Outcome(kind=OutcomeKind.DISABLE, reason="410 Gone")
    settled = await queue.settle(first, gone, Attempt(status=410))
    assert settled is not None
    assert (settled.disabled, settled.delivery.status) == ("410 Gone", Status.DEAD)
    assert await claim(queue) == []
    await put(queue, "e3")
    assert await claim(queue) == []
    state = await queue.state("shop")
    assert (state.disabled, state.waiting) == ("410 Gone", 2)
    assert not await queue.disable("shop", "again")
    assert await queue.enable("shop")
    assert not await queue.enable("shop")
    assert {delivery.event for delivery in await claim(queue)} == {"e2", "e3"}
    assert await queue.disable("shop", "by hand")
    assert (await queue.state("shop")).disabled == "by hand"
    await assert_sound(queue)


async def test_purging_forgets_an_endpoint_and_no_other(queue: WebhookQueue) -> None:
    for number in range(5):
        await put(queue, f"e{number}")
        await put(queue, f"e{number}", endpoint("other"))
    mine = [delivery for delivery in await claim(queue, 6) if delivery.endpoint == "shop"]
    await queue.settle(mine[0], DEAD)
    await queue.purge("shop")
    assert (await queue.pending("shop")).deliveries == []
    assert (await queue.log("shop")).entries == []
    # What was being sent comes to its end, and then nothing is left.
    for delivery in mine[1:]:
        assert await queue.settle(delivery, DEAD) is not None
    assert (await queue.state("shop")).dead == 0
    assert (await queue.log("shop")).entries == []
    assert (await queue.state("other")).waiting + (await queue.state("other")).in_flight == 5
    assert (await queue.statistics()).endpoints == 1
    await assert_sound(queue)


# -------------------------------------------------------------------------------------- replay and log


async def test_replaying(queue: WebhookQueue) -> None:
    await put(queue, "e1")
    mine = await claim_one(queue)
    with pytest.raises(UsageError, match="right now"):
        await queue.replay(mine.id)
    await queue.settle(mine, retry(3_600_000))
    await queue.replay(mine.id)  # now, not in an hour
    mine = await claim_one(queue)
    assert mine.attempts == 1
    await queue.settle(mine, DEAD)
    dead = await queue.get(mine.id)
    assert dead is not None
    assert (dead.status, dead.reason) == (Status.DEAD, "enough")
    again = await queue.replay(mine.id)
    assert again is not None
    assert (again.status, again.attempts, again.replays, again.reason) == (Status.WAITING, 0, 1, None)
    await queue.settle(await claim_one(queue), DONE)
    assert await queue.replay(mine.id) is not None
    assert (await claim_one(queue)).replays == 2
    assert await queue.replay("dlv_unknown") is None
    await assert_sound(queue)


async def test_replaying_all_that_failed(queue: WebhookQueue) -> None:
    where = endpoint(max_in_flight=1000)
    for number in range(250):
        await put(queue, f"e{number:03}", where)
    for delivery in await claim(queue, 250):
        await queue.settle(delivery, DEAD if delivery.event != "e000" else DONE)
    await queue.enable("shop")
    since_ms = (await queue.statistics()).now_ms + 1
    await until(lambda: is_later(queue, since_ms))
    await put(queue, "late", where)
    await queue.settle(await claim_one(queue), DEAD)
    assert await queue.replay_failed(where, since_ms) == 1
    assert await queue.replay_failed(endpoint("other")) == 0
    assert await queue.replay_failed(endpoint(max_pending=11)) == 10
    assert await queue.replay_failed(where) == 239
    assert await queue.replay_failed(where) == 0
    await assert_sound(queue)


async def test_the_log_is_bounded_and_read_in_pages(client: Client) -> None:
    queue = WebhookQueue(client, settings=QueueSettings(max_log=7))
    for number in range(10):
        await put(queue, f"e{number}")
        attempt = Attempt(status=200 + number, duration_ms=number, response_excerpt=str(number))
        await queue.settle(await claim_one(queue), DONE, attempt)
    entries, cursor = [], None
    for _ in range(3):
        page = await queue.log("shop", cursor=cursor, limit=3)
        entries += page.entries
        cursor = page.next_cursor
    assert [entry.number for entry in entries] == [10, 9, 8, 7, 6, 5, 4]
    assert [entry.code for entry in entries] == [209, 208, 207, 206, 205, 204, 203]
    assert (entries[0].outcome, entries[0].event, entries[0].excerpt) == ("done", "e9", "9")
    assert cursor is None
    assert (await queue.log("nobody")).entries == []
    with pytest.raises(UsageError):
        await queue.log("shop", limit=0)
    with pytest.raises(UsageError):
        await queue.log("shop", cursor=0)


async def test_pending_in_pages(queue: WebhookQueue) -> None:
    for number in range(7):
        await put(queue, f"e{number}", delay_ms=1000 * number)
    events, cursor = [], None
    while True:
        page = await queue.pending("shop", cursor=cursor, limit=3)
        events += [delivery.event for delivery in page.deliveries]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert events == [f"e{number}" for number in range(7)]
    with pytest.raises(UsageError, match="cursor"):
        await queue.pending("other", cursor="shop 1 x")


async def test_statistics(queue: WebhookQueue) -> None:
    for number in range(4):
        await put(queue, f"e{number}")
    one, two, _ = await claim(queue, 3)
    await queue.settle(one, DONE)
    await queue.settle(two, DEAD)
    found = await queue.statistics()
    assert (found.waiting, found.leased, found.finished, found.dead_kept, found.endpoints) == (1, 1, 2, 1, 1)
    assert (found.put, found.delivered, found.dead, found.attempts, found.lost) == (4, 1, 1, 2, 0)


# ---------------------------------------------------------------------------------------------- waking


async def test_the_topic_tells_what_is_due_earlier(queue: WebhookQueue) -> None:
    async with queue.bell() as bell:
        await put(queue, "later", delay_ms=3_600_000)
        assert await bell.get(10_000) is not None
        await put(queue, "even later", delay_ms=7_200_000)
        await put(queue, "now")  # of the three only this one is news
        assert await bell.get(10_000) is not None
        assert await bell.get(100) is None
        mine = await claim_one(queue)
        assert mine.event == "now"
        await queue.settle(mine, retry(0))
        assert await bell.get(10_000) is not None


async def test_queues_of_different_names_are_apart(client: Client) -> None:
    one, other = WebhookQueue(client, "one"), WebhookQueue(client, "other")
    await put(one, "e1")
    assert await claim(other) == []
    assert len(await claim(one)) == 1


async def test_a_client_that_decodes_is_refused(url: str) -> None:
    client = penstock.open(url, decode_responses=True)
    with pytest.raises(ConfigError, match="decode_responses"):
        WebhookQueue(client)
    await client.close()
