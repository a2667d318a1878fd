"""Viewers see everything and change nothing; operators do everything; the session says who may what."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from penstock.gateway.assembly import make_application
from penstock.gateway.http.routing import Route
from tests.gateway.furnishing import furnish
from tests.gateway.harness import on_one_place
from tests.gateway.shop import ACME, TOKENS, open_shop
from tests.gateway.whole import ADMIN, ADMIN_SECRET, Whole, code_of, whole_worker

JWT_KEY = b"a secret of more than sixty-four bytes, for every kind of HMAC there is, and then some"
OPERATOR_SECRET, VIEWER_SECRET = "the-secret-of-the-operator", "the-secret-of-the-viewer"
OPERATOR = {"Authorization": f"Bearer {OPERATOR_SECRET}"}
VIEWER = {"Authorization": f"Bearer {VIEWER_SECRET}"}
ROLES = [
    {"name": "chief", "secret": OPERATOR_SECRET, "role": "operator"},
    {"name": "screen", "secret": VIEWER_SECRET, "role": "viewer"},
]
#: GETs that do more than look.
NOT_FOR_VIEWERS = {
    "/channel/{channelID}/subscription/polling/{subscriberID}",
    "/v1/channels/{channel}/subscriptions/{subscriber}/messages",
    "/v1/channels/{channel}/subscriptions/{subscriber}/events",
    "/v1/transaction-webhook-secret",
}
#: What has to be said besides the path, so that there is something to answer.
QUERIES = {
    "/v1/pipelines/{pipeline}/diff": "?from={version}&to={version}",
    "/v1/transactions/by-external-id/{external_id}": "?owner=chief",
}
#: GETs of what is not there, or is another owner's where none can be named.
ABSENT = {
    "/v1/lake", "/v1/lake/{table}/rows", "/v1/pipelines/{pipeline}/draft", "/console/{file...}",
    "/tx/statusByExternalId/{externalId}", "/datp/1.0/tx/statusByExternalId/{externalId}",
}  # fmt: skip
SCOPES = [
    "publish", "subscribe", "read", "admin", "observe", "transactions:start", "transactions:read",
    "transactions:control", "transactions:*", "pipelines:read", "pipelines:write",
]  # fmt: skip
WAITING = {"timeout": httpx.Timeout(30)}


@dataclass
class Walk:
    """A gateway that asks everybody, with everything in it, and the routes of the product."""

    gateway: Whole
    routes: list[Route]
    names: dict[str, str]

    def path_of(self, route: Route) -> str:
        template = route.template + QUERIES.get(route.template, "")
        return re.sub(r"\{(\w+)(?:\.\.\.)?\}", lambda found: self.names.get(found[1], "0"), template)

    async def ask(self, route: Route, headers: dict[str, str]) -> tuple[int, str]:
        """The status and the body; of events only that they begin."""
        request = self.gateway.http.stream(route.method, self.path_of(route), headers=headers, **WAITING)
        async with request as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return response.status_code, ""
            return response.status_code, (await response.aread()).decode()


@pytest.fixture
async def walk(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Walk]:
    routes: list[Route] = []

    def make(services: Any) -> Any:
        application = make_application(services)
        routes.extend(application.routes)
        return application

    settings = {"tokens": ROLES, "requireTokens": True, "pubsub": {"enabled": True}}
    async with whole_worker(tmp_path, storage, make=make, **settings) as gateway:
        yield Walk(gateway, routes, await furnish(gateway.http, OPERATOR))


# ------------------------------------------------------------------------------ every route


@on_one_place
async def test_a_viewer_may_use_every_get_but_a_few(walk: Walk) -> None:
    looks = [route for route in walk.routes if route.method == "GET"]
    assert len(looks) > 50
    answers = {route.template: await walk.ask(route, VIEWER) for route in looks}
    assert {template for template, (status, _) in answers.items() if status == 403} == NOT_FOR_VIEWERS
    # All others are answered: a walk that meets nothing would prove little.
    for template in answers.keys() - NOT_FOR_VIEWERS - ABSENT:
        assert answers[template][0] in (200, 307), (template, *answers[template])
    assert {answers[template][0] for template in ABSENT} == {404}


@on_one_place
async def test_a_viewer_changes_nothing(walk: Walk) -> None:
    changes = [route for route in walk.routes if route.method != "GET"]
    assert len(changes) > 50
    for route in changes:
        status, _ = await walk.ask(route, VIEWER)
        assert status == 403, (route.method, route.template)
    address = f"ws://127.0.0.1:{walk.gateway.port}/v1/channels/room/subscriptions/ann/socket"
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, additional_headers=VIEWER, subprotocols=["penstock.v1"])  # type: ignore[list-item]
    assert refused.value.response.status_code == 403


@on_one_place
async def test_an_operator_is_never_refused(walk: Walk) -> None:
    # What deletes comes last, so that the others meet something.
    for route in sorted(walk.routes, key=lambda route: route.method == "DELETE"):
        status, body = await walk.ask(route, OPERATOR)
        assert status not in (401, 403), (route.method, route.template, body)


@on_one_place
async def test_nobody_else_is_let_in_by_looking(walk: Walk) -> None:
    made = await walk.gateway.http.post(
        "/v1/tokens", json={"name": "n", "scopes": ["publish"], "channels": ["x"]}, headers=OPERATOR
    )
    stranger = {"Authorization": f"Bearer {made.json()['bearer']}"}
    open_to_all = {
        "/", "/console", "/console/{file...}", "/metrics", "/probe/liveness", "/probe/readiness", "/v1/docs",
        "/v1/health", "/v1/openapi.json", "/v1/session", "/v1/channels", "/v1/streams",
    }  # fmt: skip
    for route in walk.routes:
        if route.template not in open_to_all:
            assert (await walk.ask(route, stranger))[0] == 403, (route.method, route.template)
            missing = 403 if route.template.startswith(("/channel/", "/admin/")) else 401
            assert (await walk.ask(route, {}))[0] == missing, (route.method, route.template)
    for path in ("/v1/channels", "/v1/streams"):
        listed = (await walk.gateway.http.get(path, headers=stranger)).json()
        assert [*listed.values()] == [[], None]


@on_one_place
async def test_a_viewer_is_shown_no_secret(walk: Walk) -> None:
    http = walk.gateway.http
    await walk.gateway.services.store.execute("CONFIG", "SET", "slowlog-log-slower-than", "0")
    header = {"Authorization": "a receiver's password"}
    hook = {"url": "https://receiver.invalid/", "channels": ["other"], "headers": header}
    webhook = (await http.post("/v1/webhooks", json=hook, headers=OPERATOR)).json()
    walk.names["webhook"] = webhook["webhook"]["id"]
    rotated = await http.post(f"/v1/webhooks/{walk.names['webhook']}/rotate-secret", headers=OPERATOR)
    token = (await http.post("/v1/tokens", json={"name": "n", "role": "viewer"}, headers=OPERATOR)).json()
    walk.names["token"] = token["token"]["id"]
    signing = await http.get("/v1/transaction-webhook-secret", headers=OPERATOR)
    secrets = [
        ADMIN_SECRET, OPERATOR_SECRET, VIEWER_SECRET, header["Authorization"], webhook["secret"],
        rotated.json()["secret"], token["bearer"], token["bearer"].rpartition("_")[2],
        signing.json()["secret"],
    ]  # fmt: skip
    assert all(len(secret) > 15 for secret in secrets)
    slow = (await http.get("/v1/server/slow-log?limit=100", headers=VIEWER)).text
    assert "{webhooks}:endpoints" in slow
    assert "penstock.token." in slow
    assert "{tx.hooks}:secretsH" in slow
    looks = [route for route in walk.routes if route.method == "GET"]
    shown = {"slow": slow, **{route.template: (await walk.ask(route, VIEWER))[1] for route in looks}}
    for template, body in shown.items():
        assert not [secret for secret in secrets if secret in body], template


# ------------------------------------------------------------------------------ what is not obvious


@on_one_place
async def test_a_viewer_who_waits_does_not_spare_a_webhook(tmp_path: Path, storage: dict[str, Any]) -> None:
    webhooks = {"enabled": False, "allowedNetworks": ["127.0.0.0/8"]}
    settings = {"tokens": [*TOKENS, *ROLES], "requireTokens": True, "transactions": {"webhooks": webhooks}}
    async with open_shop(tmp_path, storage, **settings) as shop:
        await shop.deploy("checkout", "add")
        wish = {"webhook": "http://127.0.0.1:1/hook", "poll_cancels_webhook": True}
        tx = (await shop.start(headers=ACME, **wish)).json()["id"]
        async with shop.working():
            watched = await shop.http.get(f"/v1/transactions/{tx}?wait=20s", headers=VIEWER)
        assert watched.json()["status"] == "success"
        datp = await shop.http.get(f"/tx/status/{tx}?reply=longpoll", headers=VIEWER)
        assert datp.status_code == 200
        record = await shop.transactions.store.get(tx)
        assert record is not None
        assert record[0].text(b"webhook_status") == "pending"
        told = await shop.http.get(f"/v1/transactions/{tx}?wait=20s", headers=ACME)
        assert told.json()["webhook_status"] == "cancelled"


@on_one_place
async def test_a_viewer_sees_transactions_of_all_owners(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with open_shop(tmp_path, storage, tokens=[*TOKENS, *ROLES], requireTokens=True) as shop:
        await shop.deploy("checkout", "add")
        tx = (await shop.start(headers=ACME, external_id="o-1")).json()["id"]
        listed = await shop.http.get("/v1/transactions", headers=VIEWER)
        assert [each["id"] for each in listed.json()["transactions"]] == [tx]
        named = "/v1/transactions/by-external-id/o-1"
        assert (await shop.http.get(named, params={"owner": "acme"}, headers=VIEWER)).json()["id"] == tx
        assert (await shop.http.get("/v1/transaction-statistics?by=owner", headers=VIEWER)).status_code == 200
        assert code_of(await shop.http.get(named, headers=VIEWER)) == (404, "transaction-not-found")


@on_one_place
async def test_a_viewer_changes_nothing_on_an_open_gateway_either(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with whole_worker(tmp_path, storage, tokens=ROLES) as gateway:
        publish = "/v1/channels/room/messages"
        assert (await gateway.http.post(publish, content=b"1")).status_code == 201
        refused = await gateway.http.post(publish, content=b"1", headers=VIEWER)
        assert code_of(refused) == (403, "auth-forbidden")
        assert code_of(await gateway.http.get("/v1/webhooks")) == (401, "auth-missing")
        assert code_of(await gateway.http.get("/v1/server")) == (401, "auth-missing")


# ------------------------------------------------------------------------------ roles of tokens


@on_one_place
async def test_tokens_are_made_by_role(walk: Walk) -> None:
    http = walk.gateway.http
    for role, scopes, patterns in (("viewer", ["observe"], []), ("operator", sorted(SCOPES), ["*"])):
        wish = {"name": "n", "role": role, "owner": "acme"}
        made = (await http.post("/v1/tokens", json=wish, headers=ADMIN)).json()["token"]
        assert (made["scopes"], made["channels"], made["streams"]) == (scopes, patterns, patterns)
        assert made["owner"] == "acme"


@on_one_place
async def test_a_role_says_it_all(walk: Walk) -> None:
    http = walk.gateway.http
    for more, name in (
        ({"role": "viewer", "scopes": ["read"]}, "scopes"),
        ({"role": "viewer", "channels": ["*"]}, "channels"),
        ({"role": "operator", "streams": ["*"]}, "streams"),
        ({}, "scopes"),
        ({"role": "king"}, "role"),
    ):
        answer = await http.post("/v1/tokens", json={"name": "n", **more}, headers=ADMIN)
        assert code_of(answer) == (400, "invalid-body")
        assert name in answer.json()["detail"]


# ------------------------------------------------------------------------------ the session


async def session(gateway: Whole, headers: dict[str, str], **more: str) -> dict[str, Any]:
    answer = await gateway.http.get("/v1/session", headers={**headers, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert list(found) == ["name", "kind", "may"]
    assert set(found["may"]) == {"operate", *SCOPES}
    return found


def allowed(found: dict[str, Any]) -> set[str]:
    return {name for name, may in found["may"].items() if may}


OPEN = {"publish", "subscribe", "read"}
OWN = {"transactions:start", "transactions:read", "transactions:control"}
OPERATIONS = OWN | {"transactions:*", "pipelines:read", "pipelines:write"}


@on_one_place
async def test_the_session_where_everybody_is_asked(walk: Walk) -> None:
    nobody = await session(walk.gateway, {})
    assert (nobody["name"], nobody["kind"]) == ("anonymous", "anonymous")
    assert allowed(nobody) == set()
    viewer = await session(walk.gateway, VIEWER)
    assert (viewer["name"], viewer["kind"]) == ("screen", "token")
    assert allowed(viewer) == {"observe", "read", "transactions:read", "pipelines:read"}
    operator = await session(walk.gateway, OPERATOR)
    assert allowed(operator) == {"operate", *SCOPES}
    admin = await session(walk.gateway, ADMIN)
    assert (admin["name"], admin["kind"]) == ("admin", "admin")
    assert allowed(admin) == {"operate", "admin", "observe", "read", *OPERATIONS}
    for bad in ("nonsense", f"pen_{'0' * 28}_{'0' * 64}"):
        answer = await walk.gateway.http.get("/v1/session", headers={"Authorization": f"Bearer {bad}"})
        assert code_of(answer) == (403, "auth-invalid")


@on_one_place
async def test_the_session_of_an_open_gateway(tmp_path: Path, storage: dict[str, Any]) -> None:
    limited = {"name": "l", "secret": "the-secret-of-limited", "scopes": ["transactions:*"]}
    async with whole_worker(tmp_path, storage, tokens=[*ROLES, limited]) as gateway:
        assert allowed(await session(gateway, {})) == OPEN | OWN
        viewer = await session(gateway, VIEWER)
        assert allowed(viewer) == {"observe", "read", "transactions:read", "pipelines:read"}
        found = await session(gateway, {"Authorization": f"Bearer {limited['secret']}"})
        assert allowed(found) == OPEN | OPERATIONS


@on_one_place
async def test_outside_the_networks_nobody_administrates(tmp_path: Path, storage: dict[str, Any]) -> None:
    admin = {"auth": {"bearer": [ADMIN_SECRET], "networks": ["10.0.0.0/8"]}}
    async with whole_worker(tmp_path, storage, tokens=ROLES, admin=admin) as gateway:
        assert allowed(await session(gateway, {})) == OPEN | OWN
        assert allowed(await session(gateway, OPERATOR)) == {*SCOPES} - {"admin"}
        answer = await gateway.http.get("/v1/session", headers=ADMIN)
        assert code_of(answer) == (403, "auth-invalid")
        assert code_of(await gateway.http.get("/v1/webhooks", headers=ADMIN)) == (403, "auth-forbidden")
        assert (await gateway.http.get("/v1/webhooks", headers=VIEWER)).status_code == 200
        assert (await gateway.http.get("/v1/webhooks")).status_code == 403


@on_one_place
async def test_a_json_web_token_observes_if_it_says_so(tmp_path: Path, storage: dict[str, Any]) -> None:
    key = tmp_path / "key"
    key.write_bytes(JWT_KEY)
    rule = {"iss": ["https://shop"], "keys": {"HS512": [str(key)]}}

    def bearer(**claims: Any) -> dict[str, str]:
        claims = {"iss": "https://shop", "exp": 4_000_000_000, **claims}
        return {"Authorization": f"Bearer {jwt.encode(claims, JWT_KEY, 'HS512')}"}

    strict = {"transactions": {"jwt": rule}, "requireTokens": True}
    channels = [{"regex": ".+", "jwt": {**rule, "iss": ["https://elsewhere"]}}]
    async with whole_worker(tmp_path, storage, channels=channels, **strict) as gateway:
        watcher = bearer(sub="ann", scope="openid observe")
        found = await session(gateway, watcher)
        assert (found["name"], found["kind"]) == ("ann", "jwt")
        assert allowed(found) == {"observe", "read", "transactions:read", "pipelines:read"}
        assert allowed(await session(gateway, bearer(sub="ann"))) == OWN
        assert allowed(await session(gateway, bearer(sub="o", scope=["transactions:*"]))) == OPERATIONS
        assert allowed(await session(gateway, {})) == set()
        paths = (
            "/v1/webhooks",
            "/v1/server",
            "/v1/limits",
            "/v1/transactions",
            "/v1/streams",
            "/v1/channels",
        )
        for path in paths:
            for headers in (watcher, bearer(scope="observe")):  # one who has no owner may look, too
                assert (await gateway.http.get(path, headers=headers)).status_code == 200, path
        for path in ("/v1/webhooks", "/v1/server", "/v1/limits", "/v1/streams/orders"):
            assert (await gateway.http.get(path, headers=bearer(sub="ann"))).status_code == 403, path
        subscription = "/v1/channels/room/subscriptions/ann"
        assert (await gateway.http.get(f"{subscription}/backlog", headers=watcher)).status_code == 404
        assert (await gateway.http.get(f"{subscription}/messages", headers=watcher)).status_code == 403
        refused = await gateway.http.post("/v1/transactions", json={"pipeline": "p"}, headers=watcher)
        assert code_of(refused) == (403, "auth-forbidden")
        forged = {"Authorization": watcher["Authorization"][:-4] + "AAAA"}
        assert code_of(await gateway.http.get("/v1/session", headers=forged)) == (403, "auth-invalid")
        assert (await gateway.http.get("/v1/webhooks", headers=forged)).status_code == 403
