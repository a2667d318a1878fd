"""Endpoints that users define: kept, listed, deleted with what waits for them, no wider than the policy."""

from __future__ import annotations

import pytest

import penstock
from penstock.client.client import Client
from penstock.errors import ConfigError, StoreCorruptError, UsageError
from penstock.webhooks import AnswerRules, Endpoint, EndpointStore, WebhookQueue, growing, new_secret
from penstock.webhooks.addresses import policy


@pytest.fixture
def store(client: Client, queue: WebhookQueue) -> EndpointStore:
    return EndpointStore(client, queue)


def endpoint(name: str = "shop", url: str = "https://example.com/hook", **settings: object) -> Endpoint:
    return Endpoint(id=name, url=url, **settings)  # type: ignore[arg-type]


async def test_a_definition_is_kept_whole(store: EndpointStore, url: str) -> None:
    whole = endpoint(
        method="PUT",
        secrets=(new_secret(), new_secret()),
        headers={"x-tenant": "a"},
        timeout_ms=1234,
        schedule=growing(3, 1000, 3, 0.2),
        rules=AnswerRules(give_up=frozenset({400, 422}), throttle_ms=7),
        max_in_flight=3,
        max_pending=99,
    )
    assert await store.put(whole)
    assert await store.get("shop") == whole
    assert await store.get("nobody") is None
    async with penstock.open(url) as other:
        assert await EndpointStore(other, WebhookQueue(other)).get("shop") == whole


async def test_it_can_be_defined_anew(store: EndpointStore, queue: WebhookQueue) -> None:
    assert await store.put(endpoint())
    await queue.put(endpoint(), "e1", b"")
    assert not await store.put(endpoint(max_in_flight=2))
    assert (await queue.state("shop")).max_in_flight == 2
    assert len(await store.list()) == 1


async def test_the_list_is_in_order(store: EndpointStore) -> None:
    for name in ("c", "a", "b"):
        await store.put(endpoint(name))
    assert [found.id for found in await store.list()] == ["a", "b", "c"]


async def test_deleting_takes_along_what_waits(store: EndpointStore, queue: WebhookQueue) -> None:
    await store.put(endpoint())
    await store.put(endpoint("other"))
    for number in range(300):
        await queue.put(endpoint(), f"e{number}", b"")
    await queue.put(endpoint("other"), "e1", b"")
    assert await store.delete("shop")
    assert not await store.delete("shop")
    assert await store.get("shop") is None
    claim = await queue.claim(10, 1000)
    assert [claimed.delivery.endpoint for claimed in claim.deliveries] == ["other"]


async def test_state_outlives_definitions_and_needs_none(store: EndpointStore) -> None:
    await store.put(endpoint())
    for name in ("shop", "configured elsewhere".replace(" ", "-")):
        assert (await store.state(name)).disabled is None
        assert await store.disable(name, "too many complaints")
        assert (await store.state(name)).disabled == "too many complaints"
    await store.put(endpoint(url="https://example.com/other"))
    assert (await store.state("shop")).disabled == "too many complaints"
    assert await store.enable("shop")
    assert (await store.state("shop")).disabled is None
    with pytest.raises(UsageError, match="reason"):
        await store.disable("shop", "")


@pytest.mark.parametrize(
    "inner", ["http://127.0.0.1/", "http://10.0.0.1/", "http://[::1]/", "http://localhost/"]
)
async def test_users_cannot_reach_inside(store: EndpointStore, client: Client, inner: str) -> None:
    inside = endpoint(url=inner)
    with pytest.raises(ConfigError, match="url"):
        await store.put(inside)
    with pytest.raises(UsageError, match="allowed_networks"):
        await store.put(endpoint(url=inner, allowed_networks=("0.0.0.0/0", "::/0")))
    assert await store.list() == []
    wider = EndpointStore(
        client, WebhookQueue(client), policy=policy(["127.0.0.0/8", "10.0.0.0/8", "::1/128"])
    )
    assert await wider.put(inside)


async def test_definitions_are_bounded(client: Client, queue: WebhookQueue) -> None:
    store = EndpointStore(client, queue, max_endpoints=2)
    await store.put(endpoint("a"))
    await store.put(endpoint("b"))
    with pytest.raises(UsageError, match="max_endpoints"):
        await store.put(endpoint("c"))
    assert not await store.put(endpoint("a", max_in_flight=1))


@pytest.mark.parametrize("text", [b"", b"{}", b'{"id":"shop","url":"ftp://x"}'])
async def test_a_row_of_others_is_called_corrupt(store: EndpointStore, client: Client, text: bytes) -> None:
    await client.hset("{webhooks}:endpoints", {"shop": text})
    with pytest.raises(StoreCorruptError, match="shop"):
        await store.get("shop")
