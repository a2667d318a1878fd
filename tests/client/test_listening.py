"""Events, tracing, the cache, and the scripted server that users test with."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import penstock
from penstock.client.events import CacheFlushed, Connected, Disconnected, Event
from penstock.client.policies import Constant
from penstock.errors import CommandError, ConfigError, OutcomeUnknownError
from penstock.testing import ScriptedServer, open_scripted
from tests.client.conftest import OpenClient, Place

# ---------------------------------------------------------------------- events


async def test_events_of_a_connection() -> None:
    server = ScriptedServer()
    server.on("PING").reply(b"PONG")
    client = open_scripted(server, reconnect=Constant(1))
    seen: list[Event] = []
    stop = client.on_event(seen.append)
    stream = client.events()
    await client
    server.cut()
    assert await client.ping() in (b"PONG", True)
    await client.close()
    kinds = [type(event) for event in seen]
    assert kinds == [Connected, Disconnected, Connected, Disconnected]
    assert [event async for event in stream] == seen
    first, lost, again, ended = seen
    assert isinstance(first, Connected)
    assert isinstance(again, Connected)
    assert (first.is_reconnection, again.is_reconnection) == (False, True)
    assert isinstance(lost, Disconnected)
    assert isinstance(ended, Disconnected)
    assert (lost.is_final, ended.is_final) == (False, True)
    stop()
    stop()


async def test_a_listener_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    server = ScriptedServer()
    client = open_scripted(server)
    seen: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("no")

    client.on_event(fail)
    client.on_event(seen.append)
    async with client:
        assert len(seen) == 1
    assert "cannot handle" in caplog.text


# --------------------------------------------------------------------- tracing


async def test_a_span_for_each_command(open_client: OpenClient, place: Place) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with open_client(tracer=provider.get_tracer("test")) as client:
        await client.set("k", "secret")
        with pytest.raises(CommandError):
            await client.lpush("k", "v")
        await client.blpop("none", timeout_s=0.01)
    spans = [span for span in exporter.get_finished_spans() if span.name in ("SET", "LPUSH", "BLPOP")]
    assert [span.name for span in spans] == ["SET", "LPUSH", "BLPOP"]
    assert all(span.kind is SpanKind.CLIENT for span in spans)
    stored, refused, _ = spans
    assert stored.attributes is not None
    assert refused.attributes is not None
    assert stored.attributes["db.operation.name"] == "SET"
    assert "secret" not in str(stored.to_json())
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes["db.response.status_code"] == "WRONGTYPE"
    provider.shutdown()


def test_a_tracer_must_be_one() -> None:
    with pytest.raises(ConfigError, match="tracer must be an OpenTelemetry tracer"):
        penstock.open("redis://localhost", tracer="yes")


# ----------------------------------------------------------------------- cache


async def test_reads_are_cached(open_client: OpenClient, place: Place) -> None:
    if place.protocol == 2:
        with pytest.raises(ConfigError, match="client_cache_entries needs protocol 3"):
            open_client(client_cache_entries=100)
        return
    cached, other = await open_client(client_cache_entries=100), await open_client()
    await other.set("k", "1")
    for _ in range(5):
        assert await cached.get("k") == b"1"
    assert cached.statistics()["cache"]["hits"] == 4
    await other.set("k", "2")
    async with asyncio.timeout(5):
        while await cached.get("k") != b"2":
            await asyncio.sleep(0.001)
    await cached.set("k", "3")
    assert await cached.get("k") == b"3"
    tx = cached.transaction()
    tx.set("k", "4")
    await tx.all()
    assert await cached.get("k") == b"4"
    async with cached.exclusive() as own:
        if not place.is_cluster:
            await own.set("k", "5")
            assert await cached.get("k") == b"5"


async def test_the_cache_is_empty_after_a_loss() -> None:
    server = ScriptedServer()
    server.on("GET").reply(b"v")
    client = open_scripted(server, client_cache_entries=10, reconnect=Constant(1))
    seen: list[Event] = []
    client.on_event(seen.append)
    async with client:
        await client.get("k")
        await client.get("k")
        assert client.statistics()["cache"]["hits"] == 1
        server.cut()
        await asyncio.sleep(0)
        await client.get("k")
        assert client.statistics()["cache"]["hits"] == 1
        assert any(isinstance(event, CacheFlushed) for event in seen)


# -------------------------------------------------------------------- scripted


async def test_users_can_script_a_server() -> None:
    server = ScriptedServer()
    server.on("GET", "k").reply(b"v")
    server.on("INCR").drop()
    async with open_scripted(server) as client:
        assert await client.get("k") == b"v"
        with pytest.raises(OutcomeUnknownError):
            await client.incr("n")
        with pytest.raises(CommandError, match="unexpected command"):
            await client.set("k", "v")
