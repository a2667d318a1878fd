"""Webhooks of channels, from a publish over HTTP to a receiver: bodies, signatures, patience, crashes."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Self

import pytest
import standardwebhooks

import penstock
from penstock.channels import ChannelStore
from penstock.gateway.config.model import RedisStoreConfig
from penstock.webhooks import Status, new_secret
from tests.crash.gateway_worker import listener, spawn
from tests.gateway.conftest import Start, Worker, ask, config_of, storage_at
from tests.places import until
from tests.webhooks.receiver import Received, Receiver

SECRET = new_secret()
#: Retries at once, so that nobody has to wait for them.
SOON = {"count": 90, "interval": "100ms", "intervalMultiplier": 1, "intervalJitter": "0s"}
#: Somebody who waited for a receiver would wait for ever.
SLOW_PUBLISH_S = 10.0


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


class ReturningReceiver(Receiver):
    """A receiver at an address that was known before it was there."""

    def __init__(self, port: int, answer: Callable[[Received], Any] | None = None) -> None:
        super().__init__(answer)
        self.port = port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.url = f"http://127.0.0.1:{self.port}/hook"
        return self


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and is nobody else's."""
    with listener() as held:
        port = held.getsockname()[1]
    yield port


def channel_hook(url: str, **settings: Any) -> list[dict[str, Any]]:
    return [
        {"regex": r"room-(?P<id>\d+)", "webhooks": [{"url": url, "retry": SOON, **settings}]},
        {"regex": ".+"},
    ]


def said(receiver: Receiver) -> list[str]:
    return [json.loads(request.body)["messageID"] for request in receiver.received]


# ---------------------------------------------------------------------------------- bodies


async def test_the_body_of_the_dsps_api(start: Start, receiver: Receiver) -> None:
    base = receiver.url.removesuffix("/hook")
    gateway = await start(
        channels=channel_hook(f"{base}/in/{{{{.channel.id}}}}", headers={"X-Room": "no. {{.channel.id}}"})
    )
    assert (await gateway.publish("m-1", b'{"b": 1.0, "a": "<&>"}', "room-17")).status == 200
    assert (await gateway.publish("m-2", channel="elsewhere")).status == 200
    await until(lambda: receiver.received)
    [request] = receiver.received
    assert (request.method, request.target) == ("PUT", "/in/17")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-room"] == "no. 17"
    assert request.body == (
        b'{"channelID":"room-17","content":{"b":1.0,"a":"\\u003c\\u0026\\u003e"},"messageID":"m-1",'
        b'"type":"dsps.channel.outgoing-webhook"}'
    )


async def test_the_body_of_standard_webhooks_is_signed(start: Start, receiver: Receiver) -> None:
    hook = {"name": "audit", "regex": "room-.*", "url": receiver.url, "secrets": [SECRET]}
    gateway = await start(webhooks=[hook])
    assert (await gateway.publish("m-1", b'{"n":1}', "room-1")).status == 200
    await until(lambda: receiver.received)
    [request] = receiver.received
    assert request.method == "POST"
    body = standardwebhooks.Webhook(SECRET).verify(request.body, request.headers)
    assert body["type"] == "channel.message"
    assert body["data"] == {"channel": "room-1", "id": "m-1", "content": {"n": 1}}
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(request.body + b" ", request.headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(new_secret()).verify(request.body, request.headers)


async def test_every_webhook_of_every_entry_that_matches(start: Start, receiver: Receiver) -> None:
    base = receiver.url
    channels = [
        {"regex": "room-.*", "webhooks": [{"url": base + "/1"}, {"url": base + "/2", "method": "POST"}]},
        {"regex": ".*-7", "webhooks": [{"url": base + "/3"}]},
    ]
    gateway = await start(
        channels=channels, webhooks=[{"regex": ".+", "url": base + "/4", "secrets": [SECRET]}]
    )
    await gateway.publish("m-1", channel="room-7")
    await until(lambda: len(receiver.received) >= 4)
    found = {(request.method, request.target) for request in receiver.received}
    assert found == {("PUT", "/hook/1"), ("POST", "/hook/2"), ("PUT", "/hook/3"), ("POST", "/hook/4")}


async def test_a_duplicate_does_not_fire_again(start: Start, receiver: Receiver) -> None:
    gateway = await start(channels=channel_hook(receiver.url))
    for content in (b"1", b"2", b"3"):
        assert (await gateway.publish("m-1", content, "room-1")).status == 200
    await gateway.publish("m-2", b"4", "room-1")
    await until(lambda: len(said(receiver)) >= 2)
    await until(lambda: _is_settled(gateway))
    assert [json.loads(request.body)["content"] for request in receiver.received] == [1, 4]


async def _is_settled(gateway: Worker) -> bool:
    assert gateway.services.webhooks is not None
    found = await gateway.services.webhooks.queue.statistics()
    return (found.waiting, found.leased) == (0, 0)


async def test_workers_share_the_work(start: Start, receiver: Receiver) -> None:
    settings = {"channels": channel_hook(receiver.url)}
    workers = [await start(**settings) for _ in range(3)]
    ids = [f"m-{number}" for number in range(60)]
    await asyncio.gather(*(workers[n % 3].publish(each, b"1", f"room-{n % 4}") for n, each in enumerate(ids)))
    await until(lambda: len(said(receiver)) >= 60)
    await until(lambda: _is_settled(workers[0]))
    assert sorted(said(receiver)) == sorted(ids), "each once"


# -------------------------------------------------------------------------------- patience


async def test_a_receiver_that_is_down_slows_nobody_and_gets_all_later(start: Start) -> None:
    with closed_port() as port:
        gateway = await start(channels=channel_hook(f"http://127.0.0.1:{port}/hook"))
        began = monotonic()
        for number in range(5):
            assert (await gateway.publish(f"m-{number}", channel="room-1")).status == 200
        assert monotonic() - began < SLOW_PUBLISH_S
        await until(lambda: _attempts(gateway, 5))
        async with ReturningReceiver(port) as receiver:
            await until(lambda: set(said(receiver)) == {f"m-{number}" for number in range(5)}, limit_s=60)
            await until(lambda: _is_settled(gateway))


async def _attempts(gateway: Worker, count: int) -> bool:
    assert gateway.services.webhooks is not None
    return (await gateway.services.webhooks.queue.statistics()).attempts >= count


async def test_a_receiver_that_never_answers_slows_nobody(start: Start) -> None:
    async def hang(_: Received) -> int:
        await asyncio.Event().wait()
        return 200

    async with Receiver(hang) as receiver:
        gateway = await start(channels=channel_hook(receiver.url, timeout="300ms"))
        began = monotonic()
        assert (await gateway.publish("m-1", channel="room-1")).status == 200
        assert monotonic() - began < SLOW_PUBLISH_S
        await until(lambda: len(receiver.received) >= 2)  # the time limit holds, and it was tried again
        assert {request.id for request in receiver.received} == {receiver.received[0].id}
        receiver.answer = lambda _: 200
        await until(lambda: _is_settled(gateway))


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (404, 3), (302, 3), (401, 1), (410, 1), (501, 1)])
async def test_which_answers_are_tried_again(start_here: Start, status: int, tries: int) -> None:
    async with Receiver(lambda _: (status, {"location": "/elsewhere"}, b"")) as receiver:
        gateway = await start_here(channels=channel_hook(receiver.url, retry={**SOON, "count": 2}))
        await gateway.publish("m-1", channel="room-1")
        await until(lambda: _is_over(gateway))
        assert [request.target for request in receiver.received] == ["/hook"] * tries


@pytest.fixture
def start_here(starter: Start, tmp_path: Path) -> Start:
    async def start(**settings: object) -> Worker:
        storages = {"default": {"embedded": {"directory": f"{tmp_path}/here.pen", "durability": "relaxed"}}}
        return await starter(**{"storages": storages, **settings})

    return start


async def _is_over(gateway: Worker) -> bool:
    """The one delivery has ended, well or badly."""
    assert gateway.services.webhooks is not None
    found = await gateway.services.webhooks.queue.statistics()
    return found.attempts > 0 and (found.waiting, found.leased) == (0, 0)


async def test_no_retries_means_none(start: Start) -> None:
    async with Receiver(lambda _: 500) as receiver:
        gateway = await start(channels=channel_hook(receiver.url, retry={"count": 0}))
        await gateway.publish("m-1", channel="room-1")
        await until(lambda: _is_over(gateway))
        assert len(receiver.received) == 1


async def test_a_message_at_the_limit_of_bodies_is_sent(start: Start, receiver: Receiver) -> None:
    """Escaped it is six times as long; and it keeps nobody waiting."""
    gateway = await start(channels=channel_hook(receiver.url), http={"limits": {"bodyBytes": 300_000}})
    assert (await gateway.publish("big", b'"' + b"<" * 299_998 + b'"', "room-1")).status == 200
    assert (await gateway.publish("small", b"1", "room-1")).status == 200
    await until(lambda: len(receiver.received) >= 2)
    sizes = {json.loads(request.body)["messageID"]: len(request.body) for request in receiver.received}
    assert sizes["big"] > 1_799_000


async def test_an_entry_that_the_queue_refuses_is_left_out(
    start: Start, receiver: Receiver, storage: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Published by a gateway that allows more: here it can never be sent, and those behind it must be."""
    hooks = {"channels": channel_hook(receiver.url)}
    gateway = await start(**hooks, http={"limits": {"bodyBytes": 100}})
    big = ("big", b'"' + b"x" * 10_000 + b'"')
    with caplog.at_level(logging.ERROR):
        await gateway.services.channels.publish("room-1", [big], expire_ms=60_000, outbox=True)
        await gateway.publish("small", b"1", "room-1")
        await until(lambda: said(receiver) == ["small"])
    assert "big of room-1 is not sent to webhook" in caplog.text


# ------------------------------------------------------------------------- expiry, crashes


async def test_the_end_of_a_channel_does_not_lose_a_webhook(start: Start) -> None:
    """The receiver is away while everything of the channel expires."""
    with closed_port() as port:
        gateway = await start(channels=channel_hook(f"http://127.0.0.1:{port}/hook"))
        await gateway.publish("m-1", b'"kept"', "room-1")
        await until(lambda: _attempts(gateway, 1))
        store = gateway.services.store
        keys = [f"c.{{room-1}}.{each}" for each in ("clock", "m.1", "mid.m-1")]
        for key in keys:
            assert await store.execute("PEXPIRE", key, 1) == 1
        await until(lambda: _are_gone(gateway, keys))
        async with ReturningReceiver(port) as receiver:
            await until(lambda: said(receiver) == ["m-1"], limit_s=60)
            assert json.loads(receiver.received[0].body)["content"] == "kept"


async def _are_gone(gateway: Worker, keys: list[str]) -> bool:
    return bool(await gateway.services.store.execute("EXISTS", *keys) == 0)


async def test_what_waits_in_an_outbox_outlives_its_channel(
    start: Start, receiver: Receiver, storage: dict[str, Any], tmp_path: Path
) -> None:
    """The messages expire before any worker has forwarded them."""
    chosen = config_of(tmp_path, {"storages": {"default": storage}}).storages["default"].chosen
    url = chosen.target_url if isinstance(chosen, RedisStoreConfig) else f"{tmp_path / 'store.pen'}"
    async with penstock.open(url) as client:
        channels = ChannelStore(client)
        await channels.publish("room-1", [("m-1", b'"kept"')], expire_ms=1, outbox=True)
        assert await client.execute("TTL", "c.{room-1}.out") == -1
        assert (
            await client.execute("DEL", *(f"c.{{room-1}}.{each}" for each in ("clock", "m.1", "mid.m-1")))
            == 3
        )
        await channels.close()
    await start(channels=channel_hook(receiver.url))
    await until(lambda: said(receiver) == ["m-1"])
    assert json.loads(receiver.received[0].body)["content"] == "kept"


@asynccontextmanager
async def process(
    folder: Path, settings: dict[str, Any]
) -> AsyncIterator[tuple[int, subprocess.Popen[bytes]]]:
    """A gateway as a process; its port."""
    config, log = folder / "process.yaml", folder / "process.log"
    config.write_text(json.dumps(settings))
    with listener() as shared:
        worker = spawn(config, shared, log)
        port = shared.getsockname()[1]
        try:
            await until(lambda: _is_serving(port, worker, log), limit_s=60)
            yield port, worker
        finally:
            worker.kill()
            worker.wait()
    assert "Traceback" not in log.read_text()


async def _is_serving(port: int, worker: subprocess.Popen[bytes], log: Path) -> bool:
    assert worker.poll() is None, log.read_text()
    try:
        return (await ask(port, "GET", "/probe/readiness", limit_s=2)).status == 200
    except TimeoutError:
        return False  # its connection waits in the backlog for somebody to start


@pytest.mark.slow
async def test_a_gateway_killed_before_the_delivery(
    starter: Start, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Its last word is the 200; another one delivers."""
    with closed_port() as port:
        storages = {"default": storage_at("valkey", request, tmp_path)}
        # Few enough, and not so soon again, that the breaker of the receiver stays closed.
        hook = channel_hook(f"http://127.0.0.1:{port}/hook", retry={**SOON, "interval": "2s"})
        settings = {"storages": storages, "channels": hook}
        async with process(tmp_path, settings) as (gateway_port, worker):
            for number in range(8):
                target = f"/channel/room-{number % 3}/message/m-{number}"
                assert (await ask(gateway_port, "PUT", target, b"1")).status == 200
            worker.kill()
        async with ReturningReceiver(port) as receiver:
            await starter(**settings)
            expected = {f"m-{number}" for number in range(8)}
            # What the dead one held in its hands comes back when its leases end.
            await until(lambda: set(said(receiver)) == expected, limit_s=90)


@pytest.mark.slow
async def test_a_gateway_killed_in_the_middle_of_a_delivery(starter: Start, tmp_path: Path) -> None:
    """The receiver has the request and does not answer before its sender dies: the same id comes again."""
    is_holding = True

    async def answer(_: Received) -> int:
        if is_holding:
            await asyncio.Event().wait()
        return 200

    storages = {"default": {"embedded": {"directory": str(tmp_path / "store.pen"), "durability": "relaxed"}}}
    async with Receiver(answer) as receiver:
        settings = {"storages": storages, "channels": channel_hook(receiver.url)}
        async with process(tmp_path, settings) as (port, worker):
            assert (await ask(port, "PUT", "/channel/room-1/message/m-1", b"1")).status == 200
            await until(lambda: receiver.received)
            worker.kill()
        is_holding = False
        gateway = await starter(**settings)
        await until(lambda: len(receiver.received) >= 2, limit_s=60)
        await until(lambda: _is_settled(gateway))
        first, *others = receiver.received
        assert [(each.id, each.body) for each in others] == [(first.id, first.body)]


async def test_a_lock_of_a_dead_forwarder_does_not_hold_for_ever(start: Start, receiver: Receiver) -> None:
    gateway = await start(channels=channel_hook(receiver.url))
    await gateway.services.store.execute("SET", "c.{room-1}.forwarding", "1", "PX", 500)
    await gateway.publish("m-1", channel="room-1")
    await until(lambda: said(receiver) == ["m-1"], limit_s=15)


async def test_finished_deliveries_can_be_looked_up(start: Start, receiver: Receiver) -> None:
    hook = {"name": "audit", "regex": ".+", "url": receiver.url, "secrets": [SECRET]}
    gateway = await start(webhooks=[hook])
    await gateway.publish("m-1", channel="room-1")
    await until(lambda: receiver.received)
    await until(lambda: _is_settled(gateway))
    assert gateway.services.webhooks is not None
    delivery = await gateway.services.webhooks.queue.find("audit", "room-1/m-1/1")
    assert delivery is not None
    assert (delivery.status, delivery.attempts) == (Status.DONE, 1)


# ---------------------------------------------------------------------------------- tidiness


async def test_outboxes_that_nobody_fills_are_forgotten(start: Start, receiver: Receiver) -> None:
    gateway = await start(channels=channel_hook(receiver.url))
    store = gateway.services.store
    await gateway.publish("m-1", channel="room-1")
    await until(lambda: receiver.received)
    await store.execute("ZADD", "channels.outboxes", 1, "room-2")
    await store.execute("PUBLISH", "channels.outboxes", "room-2")  # as if it had to be looked at

    async def known() -> set[bytes]:
        return set(await store.zrange("channels.outboxes", 0, -1))

    async def is_forgotten() -> bool:
        return await known() == {b"room-1"}

    await until(is_forgotten)
