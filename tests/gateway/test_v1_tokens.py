"""``/v1/tokens``: tokens are made, listed and revoked by administrators, and good for what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SystemClock
from tests.gateway.harness import on_both_places, on_one_place
from tests.gateway.whole import ADMIN, Whole, whole_worker

TOKENS = "/v1/tokens"
WISH = {"name": "shop", "scopes": ["publish", "subscribe"], "channels": ["room*"], "streams": ["orders"]}


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, requireTokens=True) as worker:
        yield worker


async def make(worker: Whole, **changes: Any) -> dict[str, Any]:
    answer = await worker.http.post(TOKENS, headers=ADMIN, json={**WISH, **changes})
    assert answer.status_code == 201, answer.text
    return answer.json()


@on_both_places
async def test_a_token_opens_what_it_names_until_it_is_revoked(worker: Whole) -> None:
    made = await worker.http.post(TOKENS, headers=ADMIN, json=WISH)
    assert made.status_code == 201
    token, bearer = made.json()["token"], made.json()["bearer"]
    assert made.headers["location"] == f"{TOKENS}/{token['id']}"
    headers = {"Authorization": f"Bearer {bearer}"}
    assert (await worker.http.post("/v1/streams/orders", content=b"x", headers=headers)).status_code == 201
    assert (await worker.http.post("/v1/streams/bills", content=b"x", headers=headers)).status_code == 403
    assert (await worker.http.get("/v1/streams/orders/info", headers=headers)).status_code == 403
    assert (await worker.http.get(TOKENS, headers=headers)).status_code == 403
    assert (await worker.http.delete(f"{TOKENS}/{token['id']}", headers=ADMIN)).status_code == 204
    assert (await worker.http.post("/v1/streams/orders", content=b"x", headers=headers)).status_code == 403
    again = await worker.http.delete(f"{TOKENS}/{token['id']}", headers=ADMIN)
    assert (again.status_code, again.json()["code"]) == (404, "token-not-found")


@on_both_places
async def test_the_secret_is_shown_once(worker: Whole) -> None:
    made = await make(worker, expires_ms=SystemClock().now_ms() + 3_600_000)
    secret = made["bearer"].rpartition("_")[2]
    looked = await worker.http.get(f"{TOKENS}/{made['token']['id']}", headers=ADMIN)
    listed = await worker.http.get(TOKENS, headers=ADMIN)
    assert looked.json() == made["token"] == listed.json()["tokens"][0]
    assert secret not in looked.text
    assert secret not in listed.text
    assert looked.json()["scopes"] == ["publish", "subscribe"]
    assert looked.json()["used_ms"] is None


@on_both_places
async def test_tokens_are_listed_by_pages(worker: Whole) -> None:
    made = [(await make(worker, name=f"t{number}"))["token"]["id"] for number in range(5)]
    found: list[str] = []
    path: str | None = f"{TOKENS}?limit=2"
    while path:
        answer = await worker.http.get(path, headers=ADMIN)
        found += [token["id"] for token in answer.json()["tokens"]]
        link = answer.headers.get("link")
        path = None if link is None else link[1 : link.index(">")]
    assert sorted(found) == sorted(made)
    assert len(set(found)) == 5


@on_one_place
@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "x" * 201},
        {"name": "two\nlines"},
        {"scopes": []},
        {"scopes": ["everything"]},
        {"channels": [], "streams": []},
        {"channels": [""]},
        {"channels": "room*"},
        {"channels": ["a"] * 65},
        {"expires_ms": 1},
        {"expires_ms": -1},
    ],
)
async def test_a_bad_wish_makes_no_token(worker: Whole, changes: dict[str, Any]) -> None:
    answer = await worker.http.post(TOKENS, headers=ADMIN, json={**WISH, **changes})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await worker.http.get(TOKENS, headers=ADMIN)).json()["tokens"] == []


@on_one_place
async def test_only_administrators_see_tokens(worker: Whole) -> None:
    for method, path in (
        ("GET", TOKENS),
        ("POST", TOKENS),
        ("GET", f"{TOKENS}/x"),
        ("DELETE", f"{TOKENS}/x"),
    ):
        assert (await worker.http.request(method, path)).status_code == 401
        bad = await worker.http.request(method, path, headers={"Authorization": "Bearer guess"})
        assert bad.status_code == 403
    answer = await worker.http.get(f"{TOKENS}?cursor=nonsense", headers=ADMIN)
    assert answer.status_code == 400


@on_one_place
async def test_a_token_with_the_scope_may_administrate(worker: Whole) -> None:
    made = await make(worker, scopes=["admin"], channels=[], streams=[])
    headers = {"Authorization": f"Bearer {made['bearer']}"}
    assert (await worker.http.get(TOKENS, headers=headers)).status_code == 200
    assert (await worker.http.get("/v1/webhooks", headers=headers)).status_code == 200
