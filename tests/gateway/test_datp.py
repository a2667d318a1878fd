"""The DATP API: aliases of transactions, in its own words."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from penstock.errors import ConfigError
from penstock.gateway.assembly import open_services
from penstock.gateway.datp.converting import Converter
from tests.gateway.conftest import config_of
from tests.gateway.harness import on_both_places, on_every_place, on_one_place
from tests.gateway.shop import ACME, TOKENS, Shop, open_shop
from tests.places import until
from tests.webhooks.receiver import Receiver

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_CONVERTERS = "tests.gateway.reply_converters"


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage, tokens=TOKENS) as shop:
        await shop.deploy("checkout", "add")
        await shop.deploy("slow", "report", "hold")
        yield shop


async def put(
    shop: Shop, kind: str = "checkout", data: Any = None, *, below: str = "", **metadata: Any
) -> tuple[int, Any]:
    body = {"metadata": metadata, "data": data}
    answer = await shop.http.put(f"{below}/tx/start/{kind}", json=body)
    return answer.status_code, answer.json()


@on_every_place
async def test_a_start_and_a_status(shop: Shop) -> None:
    status, reply = await put(shop, data={"n": 1}, externalId="order-1", lang="fil")
    assert status == 200
    assert list(reply) == ["metadata", "progressReport", "data"]
    metadata = reply["metadata"]
    assert list(metadata) == [
        "owner", "txId", "externalId", "transactionType", "status", "completionTime", "lastUpdated",
        "notifiedTime",
    ]  # fmt: skip
    assert (metadata["owner"], metadata["externalId"]) == ("default", "order-1")
    assert (metadata["transactionType"], metadata["status"]) == ("checkout", "running")
    assert _TIME.fullmatch(metadata["lastUpdated"])
    assert (metadata["completionTime"], reply["data"]) == (None, None)
    async with shop.working():
        for path in (f"/tx/status/{metadata['txId']}", "/datp/1.0/tx/statusByExternalId/order-1"):
            ended = (await shop.http.get(path, params={"reply": "longpoll"})).json()
            assert (ended["metadata"]["status"], ended["data"]) == ("success", {"n": 2})
            assert _TIME.fullmatch(ended["metadata"]["completionTime"])
            assert _TIME.fullmatch(ended["metadata"]["notifiedTime"])
    stored = (await shop.look(metadata["txId"])).json()
    assert stored["metadata"]["lang"] == "fil"


@on_both_places
async def test_a_long_poll_of_the_start(shop: Shop) -> None:
    async with shop.working():
        for metadata in ({"poll": "long"}, {"reply": "longpoll"}, {"reply": "long"}):
            status, reply = await put(shop, below="/datp/1.0", data={"n": 1}, **metadata)
            assert (status, reply["metadata"]["status"], reply["data"]) == (200, "success", {"n": 2})


@on_both_places
async def test_progress_is_told_while_it_runs(shop: Shop) -> None:
    _, reply = await put(shop, "slow")
    tx = reply["metadata"]["txId"]
    async with shop.working():

        async def report() -> Any:
            return (await shop.http.get(f"/tx/status/{tx}")).json()["progressReport"]

        await until(report)
        assert await report() == {"percent": 50}
        waiting = asyncio.create_task(shop.http.get(f"/tx/status/{tx}?reply=long"))
        await until(lambda: shop.gateway.services.waiting == 1)
        shop.gate.set()
        ended = (await waiting).json()
    assert (ended["metadata"]["status"], ended["progressReport"]) == ("success", None)


@on_both_places
async def test_duplicates(shop: Shop) -> None:
    _, first = await put(shop, data={"n": 1}, externalId="o-1")
    status, again = await put(shop, data={"n": 1}, externalId="o-1")
    assert (status, again["metadata"]["txId"]) == (200, first["metadata"]["txId"])
    status, refused = await put(shop, data={"n": 2}, externalId="o-1")
    assert (status, refused["status"], refused["code"]) == (409, "error", "external-id-taken")
    # A start that was refused uses nothing up.
    status, refused = await put(shop, "nobody", externalId="o-2")
    assert (status, refused["status"], refused["code"]) == (404, "error", "pipeline-not-found")
    status, _ = await put(shop, externalId="o-2")
    assert status == 200


@on_one_place
async def test_refusals(shop: Shop) -> None:
    for metadata in (
        {"externalId": 5},
        {"poll": "sometimes"},
        {"poll": True},
        {"progressReports": "yes"},
        {"webhook": "gopher://x"},
        {"webhook": "http://10.0.0.1/"},
        {"reply": "http://10.0.0.1/"},
    ):
        status, refused = await put(shop, **metadata)
        assert (status, refused["status"]) == (400, "error"), metadata
    for body in (b"", b"[]", b'{"metadata": 5}', b"{"):
        answer = await shop.http.put("/tx/start/checkout", content=body)
        assert (answer.status_code, answer.json()["status"]) == (400, "error"), body
    for path in ("/tx/status/nonsense", f"/tx/status/tx-0-{'0' * 31}", "/tx/statusByExternalId/none"):
        for query in ("", "?reply=longpoll"):
            answer = await shop.http.get(path + query)
            assert (answer.status_code, answer.json()["code"]) == (404, "transaction-not-found"), path
    _, reply = await put(shop)
    answer = await shop.http.get(f"/tx/status/{reply['metadata']['txId']}?reply=maybe")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-parameter")


@on_one_place
async def test_an_empty_body_of_a_start_is_none(shop: Shop) -> None:
    answer = await shop.http.put("/tx/start/checkout", json={}, headers=ACME)
    assert (answer.status_code, answer.json()["metadata"]["owner"]) == (200, "acme")


# ------------------------------------------------------------------------------ converters


@on_one_place
async def test_an_application_words_its_replies(tmp_path: Path, storage: dict[str, Any]) -> None:
    settings = {
        "replyConverter": f"{_CONVERTERS}:convert",
        "webhooks": {"allowedNetworks": ["127.0.0.0/8"]},
    }
    async with Receiver() as receiver, open_shop(tmp_path, storage, transactions=settings) as shop:
        await shop.deploy("checkout", "add")
        async with shop.working():
            status, reply = await put(
                shop, data={"n": 1}, poll="long", externalId="o-1", webhook=receiver.url
            )
            assert (status, reply) == (207, {"order": "o-1", "n": {"n": 2}})
            found = await shop.http.get("/tx/statusByExternalId/o-1")
            assert (found.status_code, found.json()) == (207, reply)
            # Refusals, and /v1, are as ever.
            assert (await shop.http.get("/tx/status/x")).status_code == 404
            await until(lambda: receiver.received)
        secret = (await shop.http.get("/v1/transaction-webhook-secret")).json()["secret"]
        event = Webhook(secret).verify(receiver.received[0].body, receiver.received[0].headers)
        assert (event["type"], event["data"]) == ("transaction.complete", {"order": "o-1", "n": {"n": 2}})


@on_one_place
@pytest.mark.parametrize("name", ["fail", "confuse"])
async def test_a_converter_that_fails(
    tmp_path: Path, storage: dict[str, Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"replyConverter": f"{_CONVERTERS}:{name}"}
    async with open_shop(tmp_path, storage, transactions=settings) as shop:
        await shop.deploy("checkout", "add")
        status, reply = await put(shop)
        assert (status, reply["metadata"]["status"]) == (200, "running")
        assert "the reply converter failed" in caplog.text
        transaction = await shop.transactions.get(reply["metadata"]["txId"])
        told = json.loads(Converter(f"{_CONVERTERS}:{name}").data(transaction))
        assert told["metadata"]["txId"] == transaction.id


@pytest.mark.parametrize("name", [f"{_CONVERTERS}:nobody", "no.such.module:f", f"{_CONVERTERS}:NOT_CALLABLE"])
async def test_a_converter_that_is_not_there(tmp_path: Path, name: str) -> None:
    config = config_of(tmp_path, {"transactions": {"replyConverter": name}})
    with pytest.raises(ConfigError, match=r"transactions\.replyConverter"):
        async with open_services(config):
            pass
