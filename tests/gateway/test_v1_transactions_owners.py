"""Owners of transactions: who has one, who sees what, and who sees everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from penstock.gateway.auth.decisions import Action, Principal
from penstock.gateway.auth.owners import is_owner, jwt_caller, owner_name
from tests.gateway.harness import on_both_places, on_one_place
from tests.gateway.shop import ACME, ADMIN, AUTHOR, BOLT, OPERATOR, TOKENS, Shop, open_shop
from tests.gateway.whole import code_of

KEY = b"a secret of more than sixty-four bytes, for every kind of HMAC there is, and then some"


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage, tokens=TOKENS, requireTokens=True) as shop:
        await shop.deploy("checkout", "add")
        yield shop


async def ids_seen(shop: Shop, headers: dict[str, str], **query: Any) -> list[str]:
    answer = await shop.http.get("/v1/transactions", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["transactions"]]


@on_both_places
async def test_another_owners_transaction_is_not_there(shop: Shop) -> None:
    mine = (await shop.start(headers=ACME, external_id="o-1")).json()
    other = (await shop.start(headers=BOLT, external_id="o-1")).json()
    assert (mine["owner"], other["owner"]) == ("acme", "bolt")
    assert mine["id"] != other["id"]
    tx = mine["id"]
    for method, path, body in (
        ("GET", "", None),
        ("GET", "?wait=1s", None),
        ("GET", "/children", None),
        ("GET", "/events", None),
        ("GET", "/switches/x", None),
    ):
        answer = await shop.http.request(method, f"/v1/transactions/{tx}{path}", json=body, headers=BOLT)
        assert code_of(answer) == (404, "transaction-not-found"), path
    for method, path, body in (
        ("POST", "/cancel", {}),
        ("POST", "/retry", {}),
        ("POST", "/replay", {}),
        ("POST", "/wake", {}),
        ("POST", "/priority", {"priority": 1}),
        ("PUT", "/switches/x", {"value": 1}),
        ("DELETE", "/switches/x", None),
    ):
        answer = await shop.http.request(
            method, f"/v1/transactions/{other['id']}{path}", json=body, headers=ACME
        )
        assert code_of(answer) == (404, "transaction-not-found"), path
    assert await ids_seen(shop, ACME) == [tx]
    assert await ids_seen(shop, BOLT, external_id="o-1") == [other["id"]]
    found = await shop.http.get("/v1/transactions/by-external-id/o-1", headers=BOLT)
    assert found.json()["id"] == other["id"]
    answer = await shop.http.get("/v1/transactions", params={"owner": "acme"}, headers=BOLT)
    assert code_of(answer) == (403, "owner-not-allowed")
    status = await shop.http.get(f"/tx/status/{tx}", headers=BOLT)
    assert (status.status_code, status.json()["status"]) == (404, "error")
    assert (await shop.look(tx, ACME)).json()["state"] == "queued"


@on_both_places
async def test_operators_see_everything_and_may_name_an_owner(shop: Shop) -> None:
    mine = (await shop.start(headers=ACME)).json()["id"]
    other = (await shop.start(headers=BOLT)).json()["id"]
    for headers in (OPERATOR, ADMIN):
        assert set(await ids_seen(shop, headers)) == {mine, other}
        assert await ids_seen(shop, headers, owner="bolt") == [other]
        assert (await shop.look(mine, headers)).status_code == 200
        assert code_of(await shop.look(mine, headers, owner="bolt")) == (404, "transaction-not-found")
    named = await shop.start(headers=OPERATOR, owner="acme", external_id="o-9")
    assert named.json()["owner"] == "acme"
    found = await shop.http.get(
        "/v1/transactions/by-external-id/o-9", params={"owner": "acme"}, headers=OPERATOR
    )
    assert found.json()["id"] == named.json()["id"]
    cancelled = await shop.http.post(f"/v1/transactions/{other}/cancel", headers=OPERATOR)
    assert cancelled.json()["status"] == "cancelled"
    assert code_of(await shop.start(headers=OPERATOR, owner="no spaces")) == (400, "invalid-body")
    answer = await shop.http.get("/v1/transactions", params={"owner": "no spaces"}, headers=OPERATOR)
    assert code_of(answer) == (400, "invalid-parameter")


@on_one_place
async def test_a_token_is_held_to_its_scopes(shop: Shop) -> None:
    tx = (await shop.start(headers=BOLT)).json()["id"]
    forbidden = (403, "auth-forbidden")
    assert code_of(await shop.http.post(f"/v1/transactions/{tx}/cancel", headers=BOLT)) == forbidden
    assert code_of(await shop.start(headers=AUTHOR)) == forbidden
    for path in ("/v1/limits", "/v1/node-groups", "/v1/workers", "/v1/schedules", "/v1/transaction-overview"):
        assert code_of(await shop.http.get(path, headers=ACME)) == forbidden, path
        assert (await shop.http.get(path, headers=OPERATOR)).status_code == 200, path
    for path in ("/v1/pipelines", "/v1/pipelines/checkout"):
        assert code_of(await shop.http.get(path, headers=ACME)) == forbidden
        assert (await shop.http.get(path, headers=AUTHOR)).status_code == 200
    assert code_of(await shop.start()) == (401, "auth-missing")
    assert code_of(await shop.start(headers={"Authorization": "Bearer nonsense"})) == (403, "auth-invalid")


@on_one_place
async def test_tokens_that_are_made_here_have_owners(shop: Shop) -> None:
    wish = {"name": "Ann's laptop", "scopes": ["transactions:start", "transactions:read"]}
    made = (await shop.http.post("/v1/tokens", json=wish, headers=ADMIN)).json()
    headers = {"Authorization": f"Bearer {made['bearer']}"}
    assert (await shop.start(headers=headers)).json()["owner"] == "Ann+27s+20laptop"
    made = (await shop.http.post("/v1/tokens", json={**wish, "owner": "acme"}, headers=ADMIN)).json()
    assert made["token"]["owner"] == "acme"
    headers = {"Authorization": f"Bearer {made['bearer']}"}
    assert (await shop.start(headers=headers)).json()["owner"] == "acme"
    wrong = await shop.http.post("/v1/tokens", json={**wish, "owner": "a b"}, headers=ADMIN)
    assert wrong.status_code == 400


@on_one_place
async def test_an_open_gateway(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with open_shop(tmp_path, storage, tokens=TOKENS) as shop:
        await shop.deploy("checkout", "add")
        assert (await shop.start()).json()["owner"] == "default"
        mine = (await shop.start(headers=ACME)).json()
        assert mine["owner"] == "acme"
        assert code_of(await shop.look(mine["id"])) == (404, "transaction-not-found")
        # What concerns everybody is never open to everybody.
        for path in ("/v1/pipelines", "/v1/limits", "/v1/workers", "/v1/schedules"):
            assert code_of(await shop.http.get(path)) == (401, "auth-missing"), path
        # A token that is not for transactions stands for nobody here.
        assert code_of(await shop.http.get("/v1/transactions", headers=AUTHOR)) == (403, "auth-forbidden")


# ------------------------------------------------------------------------------ JSON Web Tokens


def bearer(key: bytes = KEY, **claims: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {jwt.encode({'iss': 'https://me', **claims}, key, algorithm='HS256')}"}


@on_one_place
async def test_json_web_tokens_stand_for_owners(tmp_path: Path, storage: dict[str, Any]) -> None:
    (tmp_path / "key").write_bytes(KEY)
    rule = {"iss": ["https://me"], "keys": {"HS256": [str(tmp_path / "key")]}, "claims": {"role": "buyer"}}
    async with open_shop(tmp_path, storage, tokens=TOKENS, transactions={"jwt": rule}) as shop:
        await shop.deploy("checkout", "add")
        for claims, owner in (
            ({"sub": "ann@example.com"}, "ann@example.com"),
            ({"sub": "ann", "owner": "acme"}, "acme"),
            ({"sub": "a+b c"}, "a+2Bb+20c"),
        ):
            answer = await shop.start(headers=bearer(role="buyer", **claims))
            assert (answer.status_code, answer.json()["owner"]) == (202, owner)
        for headers, status in (
            ({}, 401),
            (bearer(sub="ann"), 403),
            (bearer(role="buyer"), 403),
            (
                bearer(b"another secret that nobody here has ever heard of, or will", role="buyer", sub="x"),
                403,
            ),
        ):
            assert (await shop.start(headers=headers)).status_code == status, headers
        reader = bearer(role="buyer", sub="ann", scope="openid transactions:read")
        assert code_of(await shop.start(headers=reader)) == (403, "auth-forbidden")
        assert await ids_seen(shop, reader) == []
        operator = bearer(role="buyer", sub="ann", scope=["transactions:*"])
        assert len(await ids_seen(shop, operator)) == 3
        assert (await shop.http.get("/v1/limits", headers=operator)).status_code == 200
        # API tokens and administrators go on as before.
        assert (await shop.start(headers=ACME)).json()["owner"] == "acme"
        assert len(await ids_seen(shop, ADMIN)) == 4


# ------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("subject", "owner"),
    [
        ("acme", "acme"),
        ("a.b_c@d:e/f-9", "a.b_c@d:e/f-9"),
        ("a+b", "a+2Bb"),
        ("a b", "a+20b"),
        ("ü", "+C3+BC"),
        ("100%", "100+25"),
        ("x\n", "x+0A"),
    ],
)
def test_owners_of_subjects(subject: str, owner: str) -> None:
    assert owner_name(subject) == owner
    assert is_owner(owner)


def test_no_two_subjects_are_the_same_owner() -> None:
    long = "x" * 129
    hashed = owner_name(long)
    subjects = [long, long + "y", hashed, "a b", "a+20b", "a+2020b", "x" * 128, "ü" * 50, "\ud800"]
    owners = [owner_name(subject) for subject in subjects]
    assert len(set(owners)) == len(subjects)
    assert all(is_owner(owner) for owner in owners)


def test_scopes_of_a_jwt_that_are_not_ours_mean_nothing() -> None:
    for scope in (None, "openid email", [], [1, {}], 5):
        caller = jwt_caller(Principal("jwt", "ann", {"sub": "ann", "scope": scope}), Action.START)
        assert (caller.owner, caller.is_operator) == ("ann", False)
