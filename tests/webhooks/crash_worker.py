"""The process that gets killed: a worker that sends until then. Must not import pytest.

python -m tests.webhooks.crash_worker STORE-URL RECEIVER-URL SECRET LEASE-MS
"""

from __future__ import annotations

import asyncio
import sys

import penstock
from penstock.webhooks import ConfiguredEndpoints, Endpoint, WebhookQueue, WebhookWorker, WorkerSettings
from penstock.webhooks.addresses import policy
from penstock.webhooks.sending import HttpSender


def endpoint_at(url: str, secret: str) -> Endpoint:
    return Endpoint(id="shop", url=url, secrets=(secret,), max_in_flight=4)


async def work(store_url: str, receiver_url: str, secret: str, lease_ms: str) -> None:
    endpoint = endpoint_at(receiver_url, secret)
    async with penstock.open(store_url) as client, HttpSender(policy(["127.0.0.0/8"])) as sender:
        worker = WebhookWorker(
            WebhookQueue(client),
            ConfiguredEndpoints({endpoint.id: endpoint}),
            sender,
            WorkerSettings(concurrency=8, lease_ms=int(lease_ms)),
        )
        await worker.run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
