"""Something in every place that routes lead to, so that requests meet it: for tests that walk all routes.

names = await furnish(worker.http, ADMIN)    # {"channel": "room", "stream": "orders", "token": "…", …}
"""

from __future__ import annotations

import httpx


async def furnish(http: httpx.AsyncClient, headers: dict[str, str]) -> dict[str, str]:
    """Make one of everything, with this credential; values of paths by the names of their parameters."""
    http.headers.update(headers)
    await http.post("/v1/streams/orders", json=[{"tag": "a", "data": "1"}] * 20)
    await http.put("/v1/streams/orders/groups/billing")
    await http.post("/v1/streams/orders/groups/billing/read", json={"consumer": "c", "limit": 5})
    await http.put("/v1/channels/room/subscriptions/ann")
    await http.post("/v1/channels/room/messages?id=m1", content=b'{"n":1}')
    hook = {"url": "https://receiver.invalid/", "channels": ["other"], "schedule": {"delays_ms": [0]}}
    webhook = (await http.post("/v1/webhooks", json=hook)).json()["webhook"]["id"]
    delivery = (await http.post(f"/v1/webhooks/{webhook}/test")).json()["id"]
    token = (await http.post("/v1/tokens", json={"name": "t", "scopes": ["admin"]})).json()["token"]["id"]
    transaction = await _furnish_transactions(http)
    http.headers.pop("authorization")
    return {
        "channel": "room", "channelID": "room", "subscriber": "ann", "subscriberID": "ann",
        "message": "m1", "messageID": "m1", "stream": "orders", "group": "billing",
        "webhook": webhook, "delivery": delivery, "token": token, **transaction,
    }  # fmt: skip


async def _furnish_transactions(http: httpx.AsyncClient) -> dict[str, str]:
    """A pipeline, a transaction that nobody runs, a limit and a schedule."""
    await http.put("/v1/pipelines/checkout/draft", json={"steps": ["charge"], "node_group": "shop"})
    version = (await http.post("/v1/pipelines/checkout/commit", json={"activate": True})).json()["version"]
    wish = {"pipeline": "checkout", "external_id": "order-1"}
    transaction = (await http.post("/v1/transactions", json=wish)).json()["id"]
    await http.put(f"/v1/transactions/{transaction}/switches/paid", json={"value": True})
    await http.put("/v1/limits/pipelines/checkout", json={"concurrency": 5})
    await http.put("/v1/schedules/nightly", json={"pipeline": "checkout", "cron": "0 2 * * *"})
    return {
        "transaction": transaction, "txId": transaction, "external_id": "order-1", "externalId": "order-1",
        "switch": "paid", "pipeline": "checkout", "transactionType": "checkout", "version": version,
        "schedule": "nightly", "node_group": "shop", "kind": "pipelines", "name": "checkout",
    }  # fmt: skip
