"""``/v1/pipelines``: drafts, versions, activation, export."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.gateway.harness import on_both_places, on_every_place, on_one_place
from tests.gateway.shop import AUTHOR, TOKENS, Shop, open_shop
from tests.gateway.whole import code_of

CHECKOUT = "/v1/pipelines/checkout"


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage, tokens=TOKENS) as shop:
        shop.http.headers.update(AUTHOR)
        yield shop


async def commit(shop: Shop, *steps: Any, name: str = "checkout", activate: bool = False) -> str:
    """The version that these steps are."""
    definition = {"steps": steps, "node_group": "shop"}
    path = quote(name, safe="")
    saved = await shop.http.put(f"/v1/pipelines/{path}/draft", json=definition)
    assert saved.status_code == 200, saved.text
    wish = {"comment": "why", "activate": activate}
    made = await shop.http.post(f"/v1/pipelines/{path}/commit", json=wish)
    assert made.status_code == 201, made.text
    assert made.json() == {"name": name, "version": saved.json()["version"]}
    assert made.headers["location"] == f"/v1/pipelines/{path}/versions/{made.json()['version']}"
    return str(made.json()["version"])


@on_every_place
async def test_from_draft_to_version(shop: Shop) -> None:
    first = await commit(shop, "add")
    state = (await shop.http.get(CHECKOUT)).json()
    assert (state["active"], state["has_draft"]) == (None, False)
    (version,) = state["versions"]
    assert (version["version"], version["comment"], version["by"]) == (first, "why", "author")
    shop.http.headers.pop("authorization")
    assert code_of(await shop.start()) == (404, "pipeline-not-found")
    shop.http.headers.update(AUTHOR)
    activated = await shop.http.post(f"{CHECKOUT}/versions/{first}/activate")
    assert activated.json()["active"] == first
    second = await commit(shop, "add", {"type": "delay", "ms": 5}, activate=True)
    assert (await shop.http.get(CHECKOUT)).json()["active"] == second
    definition = (await shop.http.get(f"{CHECKOUT}/versions/{second}")).json()
    assert [step["type"] for step in definition["steps"]] == ["function", "delay"]
    diff = await shop.http.get(f"{CHECKOUT}/diff", params={"from": first, "to": second})
    assert diff.headers["content-type"].startswith("text/plain")
    assert '+      "type": "delay"' in diff.text
    shop.http.headers.pop("authorization")
    async with shop.working():
        assert (await shop.ended(await shop.started(input={"n": 1})))["version"] == second
    shop.http.headers.update(AUTHOR)
    assert (await shop.http.post(f"{CHECKOUT}/deactivate")).json()["active"] is None


@on_both_places
async def test_drafts(shop: Shop) -> None:
    draft = f"{CHECKOUT}/draft"
    assert code_of(await shop.http.get(draft)) == (404, "pipeline-not-found")
    assert code_of(await shop.http.delete(draft)) == (404, "pipeline-not-found")
    assert code_of(await shop.http.post(f"{CHECKOUT}/commit")) == (404, "pipeline-not-found")
    version = await commit(shop, "add")
    assert code_of(await shop.http.get(draft)) == (404, "draft-not-found")
    assert code_of(await shop.http.post(f"{CHECKOUT}/commit")) == (404, "draft-not-found")
    cloned = await shop.http.post(f"{CHECKOUT}/versions/{version}/clone")
    assert cloned.json()["has_draft"] is True
    assert (await shop.http.get(draft)).json()["name"] == "checkout"
    assert code_of(await shop.http.get(f"{CHECKOUT}/versions/draft")) == (404, "pipeline-not-found")
    assert (await shop.http.delete(draft)).status_code == 204
    assert code_of(await shop.http.delete(draft)) == (404, "draft-not-found")


@on_one_place
async def test_what_is_wrong_is_told_with_its_place(shop: Shop) -> None:
    draft = f"{CHECKOUT}/draft"
    wrong = {"steps": [{"type": "delay", "ms": -5}, {"type": "router", "field": "x"}, {"type": "nonsense"}]}
    answer = await shop.http.put(draft, json=wrong)
    assert code_of(answer) == (400, "definition-invalid")
    assert "steps[2].type" in {error["name"] for error in answer.json()["errors"]}
    answer = await shop.http.put(
        draft, json={"steps": [{"type": "delay", "ms": -5}, {"type": "wait", "switch": ""}]}
    )
    assert len(answer.json()["errors"]) == 2
    for body in (b"", b"{", b"[]", b"5", b'{"steps": []}', b'{"steps": ["a"], "nods_group": "x"}'):
        assert code_of(await shop.http.put(draft, content=body)) == (400, "definition-invalid"), body
    other = await shop.http.put(draft, json={"name": "refund", "steps": ["add"]})
    assert code_of(other) == (400, "invalid-parameter")
    assert code_of(await shop.http.put("/v1/pipelines/no%20spaces/draft", json={"steps": ["a"]})) == (
        400,
        "definition-invalid",
    )


@on_both_places
async def test_deleting_versions(shop: Shop) -> None:
    old = await commit(shop, "hold", activate=True)
    shop.http.headers.pop("authorization")
    tx = await shop.started()
    shop.http.headers.update(AUTHOR)
    new = await commit(shop, "add", activate=True)
    assert code_of(await shop.http.delete(f"{CHECKOUT}/versions/{new}")) == (409, "version-in-use")
    assert code_of(await shop.http.delete(f"{CHECKOUT}/versions/{old}")) == (409, "version-in-use")
    await shop.transactions.cancel(tx)
    assert (await shop.http.delete(f"{CHECKOUT}/versions/{old}")).status_code == 204
    assert code_of(await shop.http.delete(f"{CHECKOUT}/versions/{old}")) == (404, "pipeline-not-found")
    state = (await shop.http.get(CHECKOUT)).json()
    assert [each["version"] for each in state["versions"]] == [new]


@on_one_place
async def test_export_and_import(shop: Shop) -> None:
    version = await commit(shop, "add", name="team/a", activate=True)
    path = f"/v1/pipelines/team%2Fa/versions/{version}"
    file = (await shop.http.get(f"{path}/export")).content
    await shop.http.post("/v1/pipelines/team%2Fa/deactivate")
    assert (await shop.http.delete(path)).status_code == 204
    taken = await shop.http.post("/v1/pipelines", content=file)
    assert (taken.status_code, taken.json()) == (201, {"name": "team/a", "version": version})
    assert taken.headers["location"] == path
    changed = file.replace(b'"add"', b'"sub"')
    assert changed != file
    assert code_of(await shop.http.post("/v1/pipelines", content=changed)) == (400, "definition-invalid")
    assert code_of(await shop.http.post("/v1/pipelines", content=b"{}")) == (400, "definition-invalid")


@on_one_place
async def test_lists(shop: Shop) -> None:
    for name in ("a", "b", "c"):
        await commit(shop, "add", name=name, activate=name == "b")
    page = (await shop.http.get("/v1/pipelines", params={"limit": 2})).json()
    assert [(each["name"], bool(each["active"])) for each in page["pipelines"]] == [("a", False), ("b", True)]
    rest = await shop.http.get("/v1/pipelines", params={"limit": 2, "cursor": page["cursor"]})
    assert [each["name"] for each in rest.json()["pipelines"]] == ["c"]
    assert rest.json()["cursor"] is None
    for name in ("from", "to"):
        answer = await shop.http.get(f"/v1/pipelines/a/diff?{name}=draft")
        assert code_of(answer) == (400, "invalid-parameter")
    missing = await shop.http.get("/v1/pipelines/a/diff", params={"from": "x", "to": "y"})
    assert code_of(missing) == (404, "pipeline-not-found")
