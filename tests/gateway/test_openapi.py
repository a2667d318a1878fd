"""The OpenAPI document says what routes there are; the page shows it and can reach nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Response
from penstock.gateway.http.routing import Route
from penstock.gateway.v1.documents import Doc, Reply
from penstock.gateway.v1.openapi import document, is_known, read_page
from penstock.gateway.v1.problems import refuse
from tests.gateway.conftest import config_of
from tests.gateway.harness import on_one_place
from tests.gateway.whole import Whole, all_routes, whole_worker


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, pubsub={"enabled": True}) as worker:
        yield worker


# ------------------------------------------------------------------------------ the document


@on_one_place
async def test_every_route_is_described(worker: Whole) -> None:
    found = (await worker.http.get("/v1/openapi.json")).json()
    routes = all_routes(worker.services)
    assert len(routes) > 50
    for route in routes:
        operation = found["paths"][route.template][route.method.lower()]
        assert operation["summary"], route
        assert operation["responses"], route
        named = re.findall(r"\{(\w+)\}", route.template)
        assert [each["name"] for each in operation.get("parameters", []) if each["in"] == "path"] == named
    described = sum(len(methods) for methods in found["paths"].values())
    assert described == len(routes)


@on_one_place
async def test_the_document_holds_together(worker: Whole) -> None:
    answer = await worker.http.get("/v1/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["openapi"] == "3.1.0"
    schemas = found["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/([^"]+)"', answer.text):
        assert name in schemas
    ids = [each["operationId"] for methods in found["paths"].values() for each in methods.values()]
    assert len(ids) == len(set(ids))
    tags = {tag["name"] for tag in found["tags"]}
    for methods in found["paths"].values():
        for operation in methods.values():
            assert set(operation["tags"]) <= tags
    assert all(tag["description"] for tag in found["tags"])


@on_one_place
async def test_administrators_are_asked_for_a_credential(worker: Whole) -> None:
    found = (await worker.http.get("/v1/openapi.json")).json()
    assert found["paths"]["/v1/tokens"]["get"]["security"] == [{"bearer": []}]
    assert found["paths"]["/v1/streams/{stream}"]["get"]["security"] == [{}, {"bearer": []}]
    assert "security" not in found["paths"]["/v1/health"]["get"]


@on_one_place
async def test_who_has_the_document_is_not_sent_it_again(worker: Whole) -> None:
    first = await worker.http.get("/v1/openapi.json", headers={"Accept-Encoding": "identity"})
    tag = first.headers["etag"]
    squeezed = await worker.http.get("/v1/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert squeezed.headers["etag"] == f"W/{tag}"
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await worker.http.get("/v1/openapi.json", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    other = await worker.http.get("/v1/openapi.json", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200
    assert not is_known(None, tag)


async def nothing(request: Request) -> Response:
    raise AssertionError


def test_a_document_needs_only_routes_and_a_configuration(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"http": {"pathPrefix": "api/x"}})
    doc = Doc("things", "Do it", {200: Reply("Done.", dict[str, int])}, refusals={409: "No."})
    routes = [
        Route("PUT", "/v1/things/{thing}/{rest...}", nothing, refuse, doc),
        Route("GET", "/v1/secret", nothing, refuse),
    ]
    found = document(routes, config)
    assert list(found["paths"]) == ["/v1/things/{thing}/{rest}"]
    assert found["servers"] == [{"url": "/api/x"}]
    operation = found["paths"]["/v1/things/{thing}/{rest}"]["put"]
    assert [each["name"] for each in operation["parameters"]] == ["thing", "rest"]
    assert list(operation["responses"]) == ["200", "400", "401", "403", "409", "429", "500", "503"]
    problem = operation["responses"]["409"]["content"]["application/problem+json"]["schema"]
    assert problem == {"$ref": "#/components/schemas/Problem"}
    assert "413" not in operation["responses"]


_COLLECTING_ALWAYS = """
import gc
from penstock.gateway.v1 import openapi, hook_documents, stream_documents, tokens
from penstock.gateway.v1.documents import Doc
modules = (hook_documents, stream_documents, tokens)
docs = [value for module in modules for value in vars(module).values() if isinstance(value, Doc)]
gc.set_threshold(1)
for _ in range(3):
    openapi._Schemas(docs)
"""


def test_schemas_survive_the_garbage_collector() -> None:
    """Some unions of types end the process when they are collected while msgspec looks at them."""
    subprocess.run([sys.executable, "-c", _COLLECTING_ALWAYS], check=True, timeout=60)


# ------------------------------------------------------------------------------ the page


class Links(HTMLParser):
    """Whatever a page would load, or go to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("src", "href", "action", "data", "poster", "srcset"):
                self.targets.append(value or "")


def test_the_page_loads_nothing_from_elsewhere() -> None:
    page, policy = read_page()
    text = page.decode()
    links = Links()
    links.feed(text)
    assert links.targets == ["openapi.json"]
    assert not re.search(r"https?://", text)
    assert not re.search(r"@import|\burl\(", text)
    # Its policy forbids them, so that they would silently do nothing.
    assert "style" not in links.attributes
    assert not [name for name in links.attributes if name.startswith("on")]
    assert "innerHTML" not in text
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@on_one_place
async def test_the_page_is_served_under_its_policy(worker: Whole) -> None:
    answer = await worker.http.get("/v1/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    for element in ("script", "style"):
        (inline,) = re.findall(rf"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert "frame-ancestors 'none'" in policy
