"""``/v1/webhooks`` and ``/v1/deliveries``: defining, looking after, replaying; a real receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.harness import on_both_places, on_one_place
from tests.gateway.whole import ADMIN, Whole, whole_worker
from tests.places import until

HOOKS = "/v1/webhooks"
#: A name that no resolver knows: every attempt fails at once, and nothing leaves this machine.
NOWHERE = "https://receiver.invalid/in?key=1"
WISH = {"url": NOWHERE, "channels": ["room-*"], "schedule": {"delays_ms": [0], "jitter": 0}}


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage) as worker:
        worker.http.headers.update(ADMIN)
        yield worker


async def make(worker: Whole, **changes: Any) -> tuple[str, str]:
    """The path and the secret of a new webhook."""
    answer = await worker.http.post(HOOKS, json={**WISH, **changes})
    assert answer.status_code == 201, answer.text
    return answer.headers["location"], answer.json()["secret"]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


# ------------------------------------------------------------------------------ definitions


@on_both_places
async def test_a_webhook_is_made_looked_at_changed_and_deleted(worker: Whole) -> None:
    headers = {"Authorization": "Bearer of-the-receiver", "X-Shop": "7"}
    made = await worker.http.post(
        HOOKS, json={**WISH, "headers": headers, "method": "PUT", "timeout_ms": 900}
    )
    assert made.status_code == 201
    secret, webhook = made.json()["secret"], made.json()["webhook"]
    path = made.headers["location"]
    assert path == f"{HOOKS}/{webhook['id']}"
    assert secret.startswith("whsec_")
    looked = await worker.http.get(path)
    assert looked.json() == webhook
    assert (webhook["method"], webhook["timeout_ms"], webhook["channels"]) == ("PUT", 900, ["room-*"])
    assert webhook["headers"] == {"authorization": "********", "x-shop": "********"}
    assert webhook["is_configured"] is False
    assert (webhook["secrets"], webhook["state"]["disabled"]) == (1, None)
    listed = await worker.http.get(HOOKS)
    assert listed.json()["webhooks"] == [{"id": webhook["id"], "url": NOWHERE, "channels": ["room-*"]}]
    for text in (looked.text, listed.text):
        assert secret not in text
        assert "of-the-receiver" not in text

    changed = await worker.http.put(
        path, json={**WISH, "channels": ["hall"], "headers": {"Authorization": "********", "X-Shop": "8"}}
    )
    assert changed.json()["channels"] == ["hall"]
    assert changed.json()["schedule"] == {"delays_ms": [0], "jitter": 0.0}
    assert worker.services.webhooks is not None
    stored = await worker.services.webhooks.endpoints.get(webhook["id"])
    assert stored is not None
    assert stored.headers == {"authorization": "Bearer of-the-receiver", "x-shop": "8"}
    assert stored.secrets == (secret,)

    assert (await worker.http.delete(path)).status_code == 204
    assert code_of(await worker.http.delete(path)) == (404, "webhook-not-found")
    assert (await worker.http.get(HOOKS)).json()["webhooks"] == []


@on_both_places
async def test_secrets_are_rotated_one_behind_the_other(worker: Whole) -> None:
    path, first = await make(worker)
    second = (await worker.http.post(path + "/rotate-secret")).json()["secret"]
    third = (await worker.http.post(path + "/rotate-secret")).json()["secret"]
    assert len({first, second, third}) == 3
    assert worker.services.webhooks is not None
    stored = await worker.services.webhooks.endpoints.get(path.rpartition("/")[2])
    assert stored is not None
    assert stored.secrets == (third, second)
    assert (await worker.http.get(path)).json()["secrets"] == 2


@on_one_place
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"url": "http://127.0.0.1:9/x"}, "invalid-webhook"),
        ({"url": "http://169.254.169.254/latest"}, "invalid-webhook"),
        ({"url": "http://[::1]/"}, "invalid-webhook"),
        ({"url": "ftp://shop.example/"}, "invalid-webhook"),
        ({"url": "not a url"}, "invalid-webhook"),
        ({"headers": {"Host": "other"}}, "invalid-webhook"),
        ({"headers": {"a": "1", "A": "2"}}, "invalid-webhook"),
        ({"headers": {"a": "line\nbreak"}}, "invalid-webhook"),
        ({"url": ""}, "invalid-body"),
        ({"channels": []}, "invalid-body"),
        ({"method": "GET"}, "invalid-body"),
        ({"timeout_ms": 0}, "invalid-body"),
        ({"schedule": {"delays_ms": []}}, "invalid-body"),
        ({"schedule": {"delays_ms": [0], "jitter": 2}}, "invalid-body"),
    ],
)
async def test_a_bad_definition_makes_no_webhook(worker: Whole, changes: dict[str, Any], code: str) -> None:
    answer = await worker.http.post(HOOKS, json={**WISH, **changes})
    assert code_of(answer) == (400, code)
    assert (await worker.http.get(HOOKS)).json()["webhooks"] == []


@on_one_place
async def test_webhooks_are_listed_by_pages(worker: Whole) -> None:
    made = sorted([(await make(worker))[0].rpartition("/")[2] for _ in range(5)])
    found: list[str] = []
    path: str | None = f"{HOOKS}?limit=2"
    while path:
        answer = await worker.http.get(path)
        found += [webhook["id"] for webhook in answer.json()["webhooks"]]
        link = answer.headers.get("link")
        path = None if link is None else link[1 : link.index(">")]
    assert found == made


@on_one_place
async def test_only_administrators_see_webhooks(worker: Whole) -> None:
    path, _ = await make(worker)
    del worker.http.headers["authorization"]
    for method, where in (
        ("GET", HOOKS),
        ("POST", HOOKS),
        ("GET", path),
        ("DELETE", path),
        ("POST", path + "/test"),
    ):
        assert (await worker.http.request(method, where)).status_code == 401
    assert (await worker.http.get("/v1/deliveries/x")).status_code == 401


# ------------------------------------------------------------------------------ deliveries


@on_both_places
async def test_what_failed_is_in_the_log_and_is_sent_again(worker: Whole) -> None:
    path, _ = await make(worker)
    tested = await worker.http.post(path + "/test")
    assert tested.status_code == 202
    where = tested.headers["location"]
    assert where == f"/v1/deliveries/{tested.json()['id']}"

    async def is_dead() -> bool:
        return (await worker.http.get(where)).json()["status"] == "dead"

    await until(is_dead)
    delivery = (await worker.http.get(where)).json()
    assert delivery["attempts"] == 1
    assert "webhook.test" in delivery["body"]
    (attempt,) = (await worker.http.get(path + "/deliveries")).json()["attempts"]
    assert attempt["delivery"] == delivery["id"]
    assert attempt["error"]
    again = await worker.http.post(path + "/replay-failed")
    assert again.json() == {"replayed": 1}
    await until(is_dead)
    assert (await worker.http.post(where + "/replay")).status_code == 202
    await until(is_dead)
    assert (await worker.http.get(where)).json()["replays"] == 2
    first = (await worker.http.get(path + "/deliveries", params={"limit": 2})).json()
    assert len(first["attempts"]) == 2
    rest = (await worker.http.get(path + "/deliveries", params={"cursor": first["cursor"]})).json()
    assert [each["number"] for each in first["attempts"] + rest["attempts"]] == [3, 2, 1]
    assert rest["cursor"] is None
    since = await worker.http.post(path + "/replay-failed", json={"since_ms": 2**52})
    assert since.json() == {"replayed": 0}


@on_both_places
async def test_a_disabled_webhook_keeps_what_waits(worker: Whole) -> None:
    path, _ = await make(worker)
    assert (await worker.http.post(path + "/disable", json={"reason": "holidays"})).json() == {
        "changed": True
    }
    assert (await worker.http.post(path + "/disable")).json() == {"changed": False}
    assert (await worker.http.get(path)).json()["state"]["disabled"] == "holidays"
    sent = [(await worker.http.post(path + "/test")).json()["id"] for _ in range(3)]
    first = (await worker.http.get(path + "/waiting", params={"limit": 2})).json()
    rest = (await worker.http.get(path + "/waiting", params={"cursor": first["cursor"]})).json()
    waiting = first["deliveries"] + rest["deliveries"]
    assert sorted(each["id"] for each in waiting) == sorted(sent)
    assert {each["status"] for each in waiting} == {"waiting"}
    assert (await worker.http.post(path + "/enable")).json() == {"changed": True}

    async def are_dead() -> bool:
        return (await worker.http.get(path)).json()["state"]["dead"] == 3

    await until(are_dead)


@on_one_place
async def test_what_is_not_there_is_not_found(worker: Whole) -> None:
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("POST", "/enable"), ("POST", "/disable"), ("POST", "/rotate-secret"),
        ("POST", "/test"), ("GET", "/deliveries"), ("GET", "/waiting"), ("POST", "/replay-failed"),
    ):  # fmt: skip
        answer = await worker.http.request(method, f"{HOOKS}/nobody{path}")
        assert code_of(answer) == (404, "webhook-not-found"), path
    assert code_of(await worker.http.put(f"{HOOKS}/nobody", json=WISH)) == (404, "webhook-not-found")
    assert code_of(await worker.http.get("/v1/deliveries/none")) == (404, "delivery-not-found")
    assert code_of(await worker.http.post("/v1/deliveries/none/replay")) == (404, "delivery-not-found")


# ------------------------------------------------------------------------------ of the configuration


@dataclass
class Receiver:
    """Answers webhooks with ``status``, and keeps what it got."""

    port: int = 0
    status: int = 204
    bodies: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                self.bodies.append(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % self.status)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1")
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver


@on_both_places
async def test_webhooks_of_the_configuration_can_be_looked_after(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with receiving() as receiver:
        hook = {"name": "shop", "url": f"http://127.0.0.1:{receiver.port}/in", "retry": {"count": 0}}
        channels = [{"regex": ".+", "webhooks": [hook]}]
        async with whole_worker(tmp_path, storage, channels=channels) as worker:
            worker.http.headers.update(ADMIN)
            receiver.status = 500
            published = await worker.http.post("/v1/channels/room/messages?id=m1", content=b'{"n":1}')
            assert published.status_code == 201
            path = f"{HOOKS}/shop"

            async def attempts() -> list[dict[str, Any]]:
                answer = await worker.http.get(path + "/deliveries")
                return answer.json()["attempts"] if answer.status_code == 200 else []

            async def is_settled(count: int) -> bool:
                return len(await attempts()) == count

            await until(lambda: is_settled(1))
            looked = (await worker.http.get(path)).json()
            assert looked["is_configured"] is True
            listed = (await worker.http.get(HOOKS, params={"configured": "true"})).json()["webhooks"]
            assert listed == [{"id": "shop", "url": hook["url"], "channels": [], "is_configured": True}]
            assert (await worker.http.get(HOOKS)).json()["webhooks"] == []
            assert looked["url"] == hook["url"]
            for answer in (
                await worker.http.put(path, json=WISH),
                await worker.http.delete(path),
                await worker.http.post(path + "/rotate-secret"),
            ):
                assert code_of(answer) == (409, "webhook-configured")
            receiver.status = 204
            assert (await worker.http.post(path + "/enable")).status_code == 200
            assert (await worker.http.post(path + "/replay-failed")).json() == {"replayed": 1}
            await until(lambda: is_settled(2))
            done = (await attempts())[0]
            assert (done["outcome"], done["code"]) == ("done", 204)
            assert receiver.bodies[0] == receiver.bodies[1]
            delivery = (await worker.http.get(f"/v1/deliveries/{done['delivery']}")).json()
            assert (delivery["status"], delivery["webhook"]) == ("done", "shop")
            assert delivery["body"].encode() == receiver.bodies[0]
