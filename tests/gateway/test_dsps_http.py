"""What all routes of the DSPS API share: form of answers, headers, paths, methods, order of checks."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import Connection, Start, Worker, ask, polling

DEFAULT_HEADERS = {
    "x-frame-options": "deny",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache, no-store, max-age=0, must-revalidate",
    "pragma": "no-cache",
    "expires": "0",
}
NO_JWT = [{"regex": "open"}, {"regex": "closed", "jwt": {"iss": ["me"], "keys": {"none": []}}}]


# ------------------------------------------------------------------------------- form


async def test_json_is_compact_with_sorted_keys_and_a_line_feed(gateway: Worker) -> None:
    answer = await gateway.publish("m-1")
    assert answer.body == b'{"channelID":"room","messageID":"m-1"}\n'
    assert answer.headers["content-type"] == "application/json"
    answer = await gateway.subscribe()
    assert answer.body == b'{"channelID":"room","subscriberID":"ann"}\n'
    assert (await gateway.fetch()).body == b'{"channelID":"room","messages":[],"moreMessages":false}\n'
    await gateway.publish("m-2")
    answer = await gateway.fetch()
    handle = answer.json["ackHandle"]
    assert answer.body.decode() == (
        f'{{"ackHandle":"{handle}","channelID":"room","messages":[{{"content":"hi","messageID":"m-2"}}],'
        '"moreMessages":false}\n'
    )


async def test_html_and_line_separators_are_escaped(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1", "\"<a href='x'>&amp;\u2028\u2029é</a>\"".encode())
    body = (await gateway.fetch()).body
    expected = r"\u003ca href='x'\u003e\u0026amp;\u2028\u2029é\u003c/a\u003e"
    assert f'"content":"{expected}"'.encode() in body


async def test_errors_are_escaped_and_sorted_alike(start: Start) -> None:
    gateway = await start(channels=[{"regex": "room"}])
    assert (await gateway.publish("m", channel="hall")).body == (
        b'{"code":"dsps.storage.invalid-channel","error":"Invalid \\"channelID\\" parameter"}\n'
    )


async def test_204_has_neither_body_nor_length(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1")
    handle = (await gateway.fetch()).json["ackHandle"]
    async with Connection.open(gateway.port) as connection:
        answer = await connection.ask("DELETE", f"{polling()}/message?ackHandle={handle}")
        assert (answer.status, answer.body) == (204, b"")
        assert "content-length" not in answer.headers
        assert "content-type" not in answer.headers
        assert (await connection.ask("GET", polling())).status == 200, "nothing of a body was left behind"


# ---------------------------------------------------------------------------- headers


async def test_default_headers_are_on_whatever_a_route_answers(gateway: Worker) -> None:
    await gateway.subscribe()
    for answer in (
        await gateway.publish("m-1"),
        await gateway.fetch(),
        await gateway.fetch("?max=x"),
        await gateway.fetch(subscriber="nobody"),
        await gateway.ask("GET", "/probe/liveness"),
        await gateway.ask("PUT", "/admin/jwt/revoke"),
    ):
        assert DEFAULT_HEADERS.items() <= answer.headers.items(), answer


@pytest.mark.parametrize(("method", "target"), [("GET", "/nothing"), ("POST", "/channel/a/message/b")])
async def test_answers_of_no_route_have_nosniff_alone(gateway: Worker, method: str, target: str) -> None:
    headers = (await gateway.ask(method, target)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert not (DEFAULT_HEADERS.keys() - {"x-content-type-options"}) & headers.keys()


async def test_default_headers_can_be_changed_and_switched_off(start: Start) -> None:
    gateway = await start(
        http={"defaultHeaders": {"Pragma": "", "X-Frame-Options": "sameorigin", "X-Own": "1"}}
    )
    headers = (await gateway.publish("m-1")).headers
    assert "pragma" not in headers
    assert (headers["x-frame-options"], headers["x-own"], headers["expires"]) == ("sameorigin", "1", "0")


# -------------------------------------------------------------------- paths and methods


UNKNOWN = (
    "/", "/nothing", "/channel", "/channel/a", "/channel/a/message", "/channel/a/message/b/",
    "/channel/a/message/b/c", "/channel/a/subscription/polling/s/",
    "/channel/a/subscription/polling/s/message/",
    "/probe", "/probe/liveness/", "/admin", "/admin/jwt/revoke/", "//probe/liveness", "/Probe/liveness",
)  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_unknown_paths(gateway: Worker, method: str) -> None:
    for target in UNKNOWN:
        answer = await gateway.ask(method, target)
        assert (answer.status, answer.body) == (404, b"404 page not found\n"), target
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "location" not in answer.headers


ALLOWED = {
    "/channel/a/message/b": "OPTIONS, PUT",
    polling(): "DELETE, GET, OPTIONS, PUT",
    polling() + "/message": "DELETE, OPTIONS",
    "/admin/jwt/revoke": "OPTIONS, PUT",
    "/admin/log/level": "OPTIONS, PUT",
    "/probe/liveness": "GET, OPTIONS",
    "/probe/readiness": "GET, OPTIONS",
}


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "HEAD", "TRACE"])
async def test_wrong_methods(gateway: Worker, method: str) -> None:
    for target, allow in ALLOWED.items():
        answer = await gateway.ask(method, target)
        assert (answer.status, answer.headers["allow"]) == (405, allow), target
        assert answer.body == (b"" if method == "HEAD" else b"Method Not Allowed\n")


async def test_path_values_are_percent_decoded_before_they_are_checked(gateway: Worker) -> None:
    answer = await gateway.ask("PUT", "/channel/%72oo%6D/message/m%2D1", b"1")
    assert answer.body == b'{"channelID":"room","messageID":"m-1"}\n'
    answer = await gateway.ask("PUT", "/channel/room/message/a%2Fb", b"1")
    assert (answer.status, answer.json) == (400, {"error": 'Invalid "messageID" parameter'})


@pytest.mark.parametrize(
    ("target", "name"),
    [("/channel//message/m", "channelID"), ("/channel/room/message/", "messageID")],
)
async def test_an_empty_segment_is_an_invalid_value(gateway: Worker, target: str, name: str) -> None:
    answer = await gateway.ask("PUT", target, b"1")
    assert (answer.status, answer.json) == (400, {"error": f'Invalid "{name}" parameter'})


async def test_an_empty_subscriber(gateway: Worker) -> None:
    answer = await gateway.ask("GET", polling("room", ""))
    assert (answer.status, answer.json) == (400, {"error": 'Invalid "subscriberID" parameter'})


async def test_what_is_not_percent_encoded_text_is_refused(gateway: Worker) -> None:
    await gateway.subscribe(channel="hall")
    for bad in ("%", "%2", "%zz", "%c3", "%ff", "%ed%a0%80"):
        answers = [
            await gateway.ask("PUT", f"/channel/{bad}/message/m", b"1"),
            await gateway.ask("PUT", f"/channel/room/message/{bad}", b"1"),
            await gateway.fetch(f"?timeout={bad}"),
            await gateway.fetch(f"?unknown={bad}", channel="hall"),
        ]
        assert [answer.status for answer in answers] == [400, 400, 400, 400], bad
    assert await gateway.services.channels.names() == ["hall"]


async def test_path_prefix(start: Start) -> None:
    gateway = await start(http={"pathPrefix": "/deep/er/"})
    assert gateway.prefix == "/deep/er"
    assert (await gateway.publish("m-1")).status == 200
    assert (await gateway.ask("GET", "/probe/liveness")).status == 200
    for target in ("/channel/room/message/m-1", "/deep/channel/room/message/m-1", "/probe/liveness"):
        assert (await ask(gateway.port, "PUT", target, b"1")).status == 404


# ------------------------------------------------------------------------ query, bodies


async def test_the_first_of_several_query_parameters_counts(gateway: Worker) -> None:
    await gateway.subscribe()
    for number in range(3):
        await gateway.publish(f"m-{number}")
    assert await gateway.ids("?max=1&max=3") == ["m-0"]
    assert (await gateway.fetch("?max=x&max=3")).status == 400
    assert await gateway.ids("?unknown=1&_=1601&max=2&&=") == ["m-0", "m-1"]


async def test_the_content_type_of_a_request_is_not_looked_at(gateway: Worker) -> None:
    assert (await gateway.publish("m-1", b'{"a": 1}')).status == 200
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/xml", "nonsense"):
        answer = await gateway.ask("PUT", "/channel/room/message/m-1", b'{"a": 1}', [("Content-Type", kind)])
        assert answer.status == 200, kind


async def test_bodies_where_none_is_expected_are_ignored(gateway: Worker) -> None:
    async with Connection.open(gateway.port) as connection:
        assert (await connection.ask("PUT", polling(), b"{nonsense")).status == 200
        assert (await connection.ask("GET", polling(), b"x" * 1000)).status == 200
        assert (await connection.ask("DELETE", polling(), b"x")).status == 200


# ----------------------------------------------------------------------- order of checks


IN_ORDER = [
        # the channel's name, whether it is configured, the credential; then other ids, the query, the body
    ("PUT", "/channel/UPPER/message/BAD", (400, None, 'Invalid "channelID" parameter')),
    ("PUT", "/channel/unknown/message/BAD",
     (400, "dsps.storage.invalid-channel", 'Invalid "channelID" parameter')),
    ("PUT", "/channel/closed/message/BAD", (403, "dsps.auth.rejected", "Unauthorized")),
    ("GET", polling("closed", "BAD") + "?max=x", (403, "dsps.auth.rejected", "Unauthorized")),
    ("DELETE", polling("closed", "BAD") + "/message", (403, "dsps.auth.rejected", "Unauthorized")),
    ("PUT", "/channel/open/message/BAD", (400, None, 'Invalid "messageID" parameter')),
    ("PUT", "/channel/open/message/good", (400, None, "Request body is not JSON")),
    ("GET", polling("open", "BAD") + "?timeout=x&max=x", (400, None, 'Invalid "subscriberID" parameter')),
    ("GET", polling("open") + "?max=x&timeout=x", (400, None, 'Invalid "timeout" parameter')),
    ("GET", polling("open") + "?max=x", (400, None, 'Invalid "max" parameter')),
    ("DELETE", polling("open", "BAD") + "/message", (400, None, 'Invalid "subscriberID" parameter')),
    ("DELETE", polling("open") + "/message", (400, None, 'Missing "ackHandle" parameter')),
]  # fmt: skip


async def test_what_is_wrong_is_found_in_this_order(start: Start) -> None:
    gateway = await start(channels=NO_JWT)
    for method, target, expected in IN_ORDER:
        answer = await gateway.ask(method, target, b"{")
        fields = answer.json
        assert (answer.status, fields.get("code"), fields["error"]) == expected, target
