"""Every row of the error table of the DSPS API, as bytes on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CommandError, PenstockError, StoreFullError
from tests.gateway.conftest import Start, Worker, polling, storage_at

ADMIN = [("Authorization", "Bearer sesame")]
ADMIN_AUTH = {"auth": {"bearer": ["sesame"]}}


def text(error: str, code: str | None = None) -> bytes:
    escaped = error.replace('"', '\\"')
    first = f'"code":"{code}",' if code else ""
    return f'{{{first}"error":"{escaped}"}}\n'.encode()


async def test_a_channel_that_is_no_name(gateway: Worker) -> None:
    answer = await gateway.publish("m", channel="UPPER")
    assert (answer.status, answer.body) == (400, text('Invalid "channelID" parameter'))


async def test_a_channel_that_is_not_configured(start: Start) -> None:
    gateway = await start(channels=[{"regex": "room-[0-9]+"}])
    expected = (400, text('Invalid "channelID" parameter', "dsps.storage.invalid-channel"))
    for answer in (
        await gateway.publish("m", channel="room-"),
        await gateway.publish("m", channel="room-1x"),
        await gateway.publish("m", channel="a-room-1"),
        await gateway.subscribe(channel="hall"),
        await gateway.unsubscribe(channel="hall"),
        await gateway.fetch(channel="hall"),
        await gateway.ack("x", channel="hall"),
    ):
        assert (answer.status, answer.body) == expected
    assert (await gateway.publish("m", channel="room-17")).status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"{", b"{]", b"nope", b"'a'", b"[1,]", b'{"a":1,}', b"{a:1}", b"1 2", b"NaN", b"Infinity",
     b"+1", b"01", b".5", b"1.", b'"\n"', b'"\\x"', b"\xef\xbb\xbf1", b"\xff",
     b"// c\n1", b'"open', b"[" * 10_000],
    ids=repr,
)  # fmt: skip
async def test_a_body_that_is_not_json(start_here: Start, body: bytes) -> None:
    gateway = await start_here()
    answer = await gateway.publish("m", body)
    assert (answer.status, answer.body) == (400, text("Request body is not JSON"))
    assert await gateway.services.channels.names() == []


@pytest.fixture
def start_here(starter: Start, request: pytest.FixtureRequest, tmp_path: Any) -> Start:
    async def start(**settings: object) -> Worker:
        return await starter(
            **{"storages": {"default": storage_at("embedded", request, tmp_path)}, **settings}
        )

    return start


async def test_missing_parameters(start: Start) -> None:
    gateway = await start(admin=ADMIN_AUTH)
    for method, target, name in (
        ("DELETE", polling() + "/message", "ackHandle"),
        ("DELETE", polling() + "/message?ackHandle=", "ackHandle"),
        ("DELETE", polling() + "/message?ackhandle=x", "ackHandle"),
        ("PUT", "/admin/jwt/revoke?exp=1", "jti"),
        ("PUT", "/admin/jwt/revoke?jti=&exp=1", "jti"),
        ("PUT", "/admin/log/level?level=DEBUG", "category"),
        ("PUT", "/admin/log/level?category=&level=DEBUG", "category"),
    ):
        answer = await gateway.ask(method, target, headers=ADMIN)
        assert (answer.status, answer.body) == (400, text(f'Missing "{name}" parameter')), target


async def test_a_subscriber_that_is_not_there(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1")
    handle = (await gateway.fetch()).json["ackHandle"]
    await gateway.unsubscribe()
    for answer in (
        await gateway.fetch(),
        await gateway.fetch("?timeout=20s", limit_s=5),
        await gateway.ack(handle),
    ):
        assert answer.status == 404
        assert answer.json["code"] == "dsps.storage.subscription-not-found"
        assert answer.json["error"]


async def test_a_handle_that_is_none(gateway: Worker) -> None:
    await gateway.subscribe()
    answer = await gateway.ack("nonsense")
    assert (answer.status, answer.json["code"]) == (400, "dsps.storage.ack-handle-malformed")
    assert answer.json["error"]


async def test_no_credential_where_one_is_needed(start: Start) -> None:
    channels = [{"regex": ".+", "jwt": {"iss": ["me"], "keys": {"none": []}}}]
    gateway = await start(channels=channels)
    expected = (403, text("Unauthorized", "dsps.auth.rejected"))
    for answer in (
        await gateway.publish("m"),
        await gateway.subscribe(),
        await gateway.unsubscribe(),
        await gateway.fetch(),
        await gateway.ack("x"),
    ):
        assert (answer.status, answer.body) == expected


async def test_the_reason_is_told_only_where_it_is_allowed(start: Start) -> None:
    channels = [{"regex": ".+", "jwt": {"iss": ["me"], "keys": {"none": []}}}]
    gateway = await start(channels=channels, http={"discloseAuthRejectionDetail": True})
    answer = await gateway.publish("m")
    assert answer.status == 403
    assert answer.json.keys() == {"code", "error", "reason"}
    assert (answer.json["error"], answer.json["reason"]) == (
        "Unauthorized",
        "a token is needed on this channel",
    )


async def test_administrators_are_told_nothing(start: Start) -> None:
    gateway = await start(admin=ADMIN_AUTH, http={"discloseAuthRejectionDetail": True})
    for target in (
        "/admin/jwt/revoke?jti=a&exp=1",
        "/admin/log/level?category=*&level=INFO",
        "/admin/jwt/revoke",
    ):
        for headers in ([], [("Authorization", "Bearer wrong")], [("Authorization", "Basic sesame")]):
            answer = await gateway.ask("PUT", target, headers=headers)
            assert (answer.status, answer.body) == (403, b'{"error":""}\n')


async def test_no_storage_for_messages(start: Start, storage: dict[str, Any]) -> None:
    [(kind, settings)] = storage.items()
    gateway = await start(
        storages={"default": {kind: {**settings, "disablePubSub": True}}}, channels=[{"regex": "room"}]
    )
    expected = (501, text("No PubSub compatible storage available."))
    for answer in (
        await gateway.publish("BAD"),
        await gateway.subscribe(),
        await gateway.unsubscribe(),
        await gateway.fetch("?max=x"),
        await gateway.ack(""),
    ):
        assert (answer.status, answer.body) == expected
    assert (await gateway.publish("m", channel="hall")).status == 400, "the channel is looked at first"


async def test_no_storage_for_revocations(start: Start, storage: dict[str, Any]) -> None:
    [(kind, settings)] = storage.items()
    gateway = await start(storages={"default": {kind: {**settings, "disableJwt": True}}}, admin=ADMIN_AUTH)
    answer = await gateway.ask("PUT", "/admin/jwt/revoke?jti=a&exp=4000000000", headers=ADMIN)
    assert (answer.status, answer.body) == (501, text("No JWT compatible storage available."))
    assert (await gateway.publish("m")).status == 200


async def test_one_of_two_storages_for_each(start: Start, storage: dict[str, Any], tmp_path: Any) -> None:
    here = {
        "embedded": {"directory": str(tmp_path / "here.pen"), "durability": "relaxed", "disablePubSub": True}
    }
    [(kind, settings)] = storage.items()
    there = {kind: {**settings, "disableJwt": True}}
    gateway = await start(storages={"here": here, "there": there}, admin=ADMIN_AUTH)
    await gateway.subscribe()
    assert (await gateway.publish("m")).status == 200
    assert await gateway.ids() == ["m"]
    assert await gateway.services.store.execute("EXISTS", "c.{room}.clock") == 0, "here is not for messages"
    assert (await gateway.ask("PUT", "/admin/jwt/revoke?jti=a&exp=4000000000", headers=ADMIN)).status == 200
    assert await gateway.services.store.execute("EXISTS", "jwt.{a}.revoke") == 1


# ------------------------------------------------------------------------- faults of ours


async def test_a_fault_of_ours_has_no_body_and_is_logged(
    gateway: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stumble(*_: object, **__: object) -> bool:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(type(gateway.services.channels), "create", stumble)
    answer = await gateway.subscribe()
    assert (answer.status, answer.body, answer.headers["content-length"]) == (500, b"", "0")
    assert "of all things" in caplog.text
    assert (await gateway.publish("m")).status == 200, "the worker goes on"


@pytest.mark.parametrize(
    "error",
    [StoreFullError("/secret/path is full"), CommandError("MISCONF /secret/path is full")],
)
async def test_a_full_store(gateway: Worker, monkeypatch: pytest.MonkeyPatch, error: PenstockError) -> None:
    async def refuse(*_: object, **__: object) -> bool:
        raise error

    monkeypatch.setattr(type(gateway.services.channels), "publish", refuse)
    answer = await gateway.publish("m")
    assert (answer.status, answer.body) == (507, text("the store is full; nothing was written"))


async def test_a_probe_that_fails(gateway: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> bool:
        raise PenstockError("no answer")

    monkeypatch.setattr(type(gateway.services.channels), "probe", fail)
    answer = await gateway.ask("GET", "/probe/readiness")
    assert (answer.status, answer.json) == (500, {"error": "no answer", "storage": {}})
    assert (await gateway.ask("GET", "/probe/liveness")).status == 200


async def test_a_key_that_holds_something_else(gateway: Worker) -> None:
    await gateway.services.store.execute("RPUSH", "c.{room}.clock", "x")
    answer = await gateway.publish("m")
    assert (answer.status, answer.body) == (409, text("something else is stored under this name"))
    assert (await gateway.publish("m", channel="hall")).status == 200
