"""What other sites' scripts are told."""

from __future__ import annotations

from penstock.gateway.config.surroundings import CorsConfig
from penstock.gateway.http.requests import Request
from penstock.gateway.shaping import Cors

SITE = "https://app.example"
EXPOSED = b"ETag, Link, Location, Retry-After, Stream-First-Offset, Stream-Next-Offset, Stream-Up-To-Date"


def request(method: str = "GET", **headers: str) -> Request:
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"method": method, "headers": listed}, None, {}, 0)  # type: ignore[arg-type]


def preflight(cors: Cors, origin: str = SITE, **more: str) -> dict[bytes, bytes]:
    asked = request("OPTIONS", origin=origin, access_control_request_method="PUT", **more)
    answer = cors.preflight(asked)
    assert answer is not None
    assert (answer.status, answer.body) == (204, b"")
    return dict(answer.headers)


def test_a_listed_origin_is_echoed():
    cors = Cors(CorsConfig(origins=(SITE, "https://other.example")))
    headers = dict(cors.headers(request(origin=SITE)))
    assert headers == {
        b"access-control-allow-origin": SITE.encode(),
        b"access-control-expose-headers": EXPOSED,
        b"vary": b"origin",
    }


def test_others_are_told_nothing_but_caches_are():
    cors = Cors(CorsConfig(origins=(SITE,)))
    for asked in (request(origin="https://evil.example"), request(), request(origin="null")):
        assert list(cors.headers(asked)) == [(b"vary", b"origin")]
    assert set(preflight(cors, "https://app.example.evil")) == {b"vary"}


def test_anybody():
    cors = Cors(CorsConfig(origins=("*",)))
    for asked in (request(origin=SITE), request()):
        assert dict(cors.headers(asked)) == {
            b"access-control-allow-origin": b"*",
            b"access-control-expose-headers": EXPOSED,
        }
    assert preflight(cors)[b"access-control-allow-origin"] == b"*"


def test_credentials():
    cors = Cors(CorsConfig(origins=(SITE,), credentials=True))
    assert dict(cors.headers(request(origin=SITE)))[b"access-control-allow-credentials"] == b"true"
    assert preflight(cors)[b"access-control-allow-credentials"] == b"true"
    assert b"access-control-allow-credentials" not in dict(cors.headers(request(origin="https://x")))


def test_preflight_tells_methods_headers_and_how_long():
    cors = Cors(CorsConfig(origins=(SITE,), headers=("Authorization", "X-Mine"), max_age_ms=90_000))
    headers = preflight(cors, access_control_request_headers="x-other")
    assert headers[b"access-control-allow-origin"] == SITE.encode()
    assert headers[b"access-control-allow-headers"] == b"Authorization, X-Mine"
    assert b"PUT" in headers[b"access-control-allow-methods"]
    assert headers[b"access-control-max-age"] == b"90"
    assert b"origin" in headers[b"vary"]


def test_any_header_means_those_that_were_asked_for():
    cors = Cors(CorsConfig(origins=(SITE,), headers=("*",)))
    headers = preflight(cors, access_control_request_headers="x-a, x-b")
    assert headers[b"access-control-allow-headers"] == b"x-a, x-b"
    assert b"access-control-allow-headers" not in preflight(cors)


def test_other_requests_are_no_preflight():
    cors = Cors(CorsConfig(origins=(SITE,)))
    assert cors.preflight(request("GET", origin=SITE, access_control_request_method="PUT")) is None
    assert cors.preflight(request("OPTIONS", origin=SITE)) is None
    assert cors.preflight(request("OPTIONS", access_control_request_method="PUT")) is None
