"""SIGKILL of notifiers in the middle of their work: every event arrives, always under the same id.

Notifiers are processes of their own, this file run as a program until it is killed:

    python -m tests.transactions.test_webhooks_kill STORE-URL WHERE

It kills itself when it has taken events and put none (``taken``), has put the first (``put``), or has had
the first delivered and not written that down (``delivered``); or never (``never``).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import penstock
from penstock.transactions.notifying import (
    QUEUE,
    QUEUE_SETTINGS,
    NotifierSettings,
    Receivers,
    ReceiverSettings,
    TellingQueue,
    WebhookNotifier,
)
from penstock.transactions.store import TransactionStore
from penstock.webhooks import Delivery, Schedule, WorkerSettings
from penstock.webhooks.addresses import policy
from penstock.webhooks.sending import HttpSender

ROOT = Path(__file__).parents[2]
LOOPBACK = policy(["127.0.0.0/8"])
LEASE_MS = 200
EVENTS = 30


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class MortalQueue(TellingQueue):
    where = ""

    async def put(self, *arguments: Any, **options: Any) -> Any:
        if self.where == "taken":
            die()
        put = await super().put(*arguments, **options)
        if self.where == "put":
            die()
        return put


class MortalNotifier(WebhookNotifier):
    where = ""

    async def report(self, delivery: Delivery) -> None:
        if self.where == "delivered":
            die()
        await super().report(delivery)


async def notify(url: str, where: str) -> None:
    async with penstock.open(url) as client, HttpSender(LOOPBACK) as sender:
        queue = MortalQueue(client, QUEUE, QUEUE_SETTINGS)
        queue.where = where
        receivers = Receivers(client, ReceiverSettings(schedule=Schedule((0, 50, 50), 0.0)), policy=LOOPBACK)
        notifier = MortalNotifier(
            TransactionStore(client), queue, receivers, NotifierSettings(lease_ms=LEASE_MS, batch=5)
        )
        notifier.where = where
        await notifier.run(sender, WorkerSettings(concurrency=4, lease_ms=LEASE_MS))


if __name__ == "__main__":
    asyncio.run(notify(*sys.argv[1:]))
else:
    import pytest
    import standardwebhooks

    from penstock.transactions.model import Settlement, transaction_from
    from penstock.webhooks import webhook_id
    from tests.places import until
    from tests.transactions.conftest import put_pipeline
    from tests.webhooks.receiver import Received, Receiver

    pytestmark = [
        pytest.mark.crash,
        pytest.mark.slow,
        pytest.mark.parametrize("url", ["embedded-3", "server-3"], indirect=True),
    ]

    async def start(url: str, where: str) -> Process:
        return await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, url, where, cwd=ROOT)

    async def end(process: Process) -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def end_transactions(store: TransactionStore, webhook: str) -> list[str]:
        await put_pipeline(store, "noop")
        for _ in range(EVENTS):
            await store.start("noop", b"{}", owner="acme", fields={"webhook": webhook})
        taken = await store.dequeue(0, "w1", ["shop"], limit=EVENTS, lease_ms=600_000)
        settlements = [
            Settlement("end", record.id, record.token, 1, arguments=["success", 0])
            for record in taken.records
        ]
        assert await store.settle(0, settlements) == ["ok"] * EVENTS
        return [record.id for record in taken.records]

    async def all_told(store: TransactionStore, ended: list[str]) -> bool:
        for tx in ended:
            found = await store.get(tx)
            assert found is not None
            if transaction_from(*found).webhook_status != "delivered":
                return False
        return True

    async def assert_told(store: TransactionStore, receiver: Receiver, ended: list[str]) -> None:
        """Each at least once, all of them signed, and one body for an id."""
        secret = await Receivers(store.client).secret_of("acme")
        bodies: dict[str, set[bytes]] = {}
        for request in receiver.received:
            standardwebhooks.Webhook(secret).verify(request.body, request.headers)
            bodies.setdefault(request.id, set()).add(request.body)
        assert bodies.keys() == {webhook_id(f"{tx}.complete.0") for tx in ended}
        assert all(len(each) == 1 for each in bodies.values())

    async def test_notifiers_killed_at_each_point(url: str, store: TransactionStore) -> None:
        async with Receiver() as receiver:
            ended = await end_transactions(store, receiver.url)
            for where in ("taken", "put", "delivered", "put", "delivered"):
                process = await start(url, where)
                async with asyncio.timeout(60):
                    assert await process.wait() == -signal.SIGKILL, where
            assert not await all_told(store, ended)
            last = await start(url, "never")
            try:
                await until(lambda: all_told(store, ended), limit_s=60)
            finally:
                await end(last)
            await assert_told(store, receiver, ended)

    async def test_notifiers_killed_while_they_send(url: str, store: TransactionStore) -> None:
        is_holding = True

        async def answer(_: Received) -> int:
            if is_holding and len(receiver.received) % 2:
                await asyncio.Event().wait()  # until the connection ends with the process
            return 200

        async with Receiver(answer) as receiver:
            ended = await end_transactions(store, receiver.url)
            for _ in range(3):
                before = receiver.busy
                process = await start(url, "never")
                try:
                    await until(lambda before=before: receiver.busy >= before + 4, limit_s=60)
                finally:
                    await end(process)
            is_holding = False
            last = await start(url, "never")
            try:
                await until(lambda: all_told(store, ended), limit_s=60)
            finally:
                await end(last)
            await assert_told(store, receiver, ended)
            assert len(receiver.received) > EVENTS, "what was held was sent again"
