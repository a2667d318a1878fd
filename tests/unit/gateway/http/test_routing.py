"""Routes are found by the segments of a path; values come decoded."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route, Router


async def nothing(request: Request) -> Response:
    raise AssertionError("no handler is called here")


def refuse(refusal: Any) -> Response:
    raise AssertionError("nothing is refused here")


def router(*templates: str, prefix: str = "") -> Router:
    routes = [
        Route(*template.split(" ", 1), nothing, refuse)  # type: ignore[call-arg]
        for template in templates
    ]
    return Router(routes, prefix)


CHANNELS = router(
    "PUT /channel/{c}/message/{m}",
    "GET /channel/{c}/message/{m}",
    "GET /channel/{c}/message/newest",
    "GET /v1/streams",
    "GET /v1/streams/{name...}",
    "GET /v1/streams/{name}/info",
)


@pytest.mark.parametrize(
    ("path", "template", "values"),
    [
        (b"/channel/a/message/b", "/channel/{c}/message/{m}", {"c": "a", "m": "b"}),
        (b"/channel/a%2Fb/message/%C3%A4", "/channel/{c}/message/{m}", {"c": "a/b", "m": "ä"}),
        (b"/channel//message/", "/channel/{c}/message/{m}", {"c": "", "m": ""}),
        (b"/channel/a/message/newest", "/channel/{c}/message/newest", {"c": "a"}),
        (b"/v1/streams", "/v1/streams", {}),
        (b"/v1/streams/a/b/c", "/v1/streams/{name...}", {"name": "a/b/c"}),
        (b"/v1/streams/a/info", "/v1/streams/{name}/info", {"name": "a"}),
    ],
)
def test_found(path: bytes, template: str, values: dict[str, str]) -> None:
    routes, found = CHANNELS.find(path)
    assert routes["GET"].template == template
    assert found == values


@pytest.mark.parametrize(
    "path",
    [b"", b"/", b"/channel", b"/channel/a/message/b/", b"/channel/a/message/b/c", b"/CHANNEL/a/message/b"],
)
def test_nothing_is_there(path: bytes) -> None:
    assert CHANNELS.find(path)[0] == {}


def test_a_prefix_stands_before_every_route() -> None:
    prefixed = router("GET /probe", prefix="/gate/way/")
    assert prefixed.find(b"/gate/way/probe")[0]
    assert not prefixed.find(b"/probe")[0]


@pytest.mark.parametrize("segment", [b"%", b"a%2", b"%zz", b"%ff", b"%c3%28"])
def test_what_is_not_encoded_text_is_refused(segment: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        CHANNELS.find(b"/channel/" + segment + b"/message/m")
    assert refused.value.status == 400


def test_a_percent_sign_can_be_written() -> None:
    assert CHANNELS.find(b"/channel/100%25/message/%2525")[1] == {"c": "100%", "m": "%25"}


@pytest.mark.parametrize(
    "templates", [("GET /a/{x}", "GET /a/{y}/b"), ("GET /a", "GET /a")], ids=["two names", "twice"]
)
def test_a_table_that_contradicts_itself_is_a_fault(templates: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError):
        router(*templates)
