"""SIGKILL of workers in the middle of deliveries: nothing is lost, ids are stable, leases come back.

Workers are processes of their own (``crash_worker.py``), each killed while a receiver holds its requests.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections import Counter
from pathlib import Path

import pytest
import standardwebhooks

from penstock.client.client import Client
from penstock.webhooks import Status, WebhookQueue
from tests.places import until
from tests.webhooks.conftest import SECRET
from tests.webhooks.crash_worker import endpoint_at
from tests.webhooks.receiver import Received, Receiver

pytestmark = [pytest.mark.crash, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
LEASE_MS = 500
EVENTS = 60
KILLS = 4


async def start(store_url: str, receiver: Receiver) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.webhooks.crash_worker", store_url, receiver.url, SECRET, str(LEASE_MS),
        cwd=ROOT,
    )  # fmt: skip


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.mark.parametrize("url", ["embedded", "cluster"], indirect=True)
async def test_killed_workers_lose_nothing(client: Client, queue: WebhookQueue, url: str) -> None:
    """Each worker is killed while it waits for answers; half of what it sent had been answered before."""
    answered: Counter[str] = Counter()
    is_holding = True

    async def answer(request: Received) -> int:
        if is_holding and len(receiver.received) % 2:
            await asyncio.Event().wait()  # until the connection ends with the process
        answered[request.id] += 1
        return 200

    async with Receiver(answer) as receiver:
        endpoint = endpoint_at(receiver.url, SECRET)
        for number in range(EVENTS):
            await queue.put(endpoint, f"evt_{number}", b'{"n":%d}' % number)
        for _ in range(KILLS):
            before = receiver.busy
            process = await start(url, receiver)
            try:
                await until(lambda before=before: receiver.busy >= before + 4, limit_s=60)
            finally:
                await end(process)
        is_holding = False
        last = await start(url, receiver)
        try:
            await until(lambda: _is_all_delivered(queue), limit_s=60)
        finally:
            await end(last)

    assert set(answered) == {f"evt_{number}" for number in range(EVENTS)}
    bodies: dict[str, set[bytes]] = {}
    for request in receiver.received:
        bodies.setdefault(request.id, set()).add(request.body)
        standardwebhooks.Webhook(SECRET).verify(request.body, request.headers)
    assert bodies == {f"evt_{number}": {b'{"n":%d}' % number} for number in range(EVENTS)}
    await _assert_books_balance(queue, receiver)


async def _is_all_delivered(queue: WebhookQueue) -> bool:
    return (await queue.statistics()).delivered == EVENTS


async def _assert_books_balance(queue: WebhookQueue, receiver: Receiver) -> None:
    found = await queue.statistics()
    # A kill falls on four requests that are held, and on answers that were not written down yet.
    assert found.lost >= 4 * KILLS
    assert (found.waiting, found.leased, found.dead) == (0, 0, 0)
    assert found.attempts == EVENTS, "a lost lease counts as no attempt"
    assert len(receiver.received) <= EVENTS + found.lost
    for number in range(EVENTS):
        delivery = await queue.find("shop", f"evt_{number}")
        assert delivery is not None
        assert (delivery.status, delivery.attempts) == (Status.DONE, 1)
    state = await queue.state("shop")
    assert (state.in_flight, state.waiting, state.delivered) == (0, 0, EVENTS)


async def test_a_worker_of_another_process_is_woken(client: Client, queue: WebhookQueue, url: str) -> None:
    """It sleeps for a minute when nothing is due; only the topic makes it look earlier."""
    async with Receiver() as receiver:
        endpoint = endpoint_at(receiver.url, SECRET)
        process = await start(url, receiver)
        try:
            for number in range(5):
                await queue.put(endpoint, f"evt_{number}", b"{}")
                await until(lambda number=number: _is_done(queue, f"evt_{number}"), limit_s=30)
        finally:
            await end(process)
    assert receiver.ids == [f"evt_{number}" for number in range(5)]


async def _is_done(queue: WebhookQueue, event: str) -> bool:
    delivery = await queue.find("shop", event)
    return delivery is not None and delivery.status is Status.DONE
