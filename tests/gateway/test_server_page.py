"""``/v1/server``: the process, the store behind it, who is connected, what was slow; how rates are made."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.gateway.config.model import RedisStoreConfig, StorageConfig
from penstock.gateway.rates import Rates
from penstock.gateway.store_figures import sections_of
from penstock.gateway.v1.server import shown_url
from penstock.testing.servers import RealServer
from penstock.version import __version__
from tests.gateway.harness import on_every_place, on_one_place
from tests.gateway.whole import ADMIN, Whole, code_of, whole_worker

VIEWER = {"Authorization": "Bearer the-secret-of-viewers"}
TOKENS = [
    {"name": "wall", "secret": "the-secret-of-viewers", "scopes": ["observe"]},
    {"name": "shop", "secret": "the-secret-of-the-shop", "scopes": ["publish", "read"], "streams": ["*"]},
]


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, tokens=TOKENS) as worker:
        worker.http.headers.update(VIEWER)
        yield worker


def kind_of(storage: dict[str, Any]) -> str:
    if "embedded" in storage:
        return "embedded"
    return "cluster" if "cluster" in storage["redis"] else "redis"


@on_every_place
async def test_the_process_and_its_store(worker: Whole, storage: dict[str, Any], tmp_path: Path) -> None:
    kind = kind_of(storage)
    for number in range(30):
        await worker.services.store.set(f"key-{number}", "x" * 100)
    found = (await worker.http.get("/v1/server")).json()
    assert (found["version"], found["pid"]) == (__version__, os.getpid())
    assert (found["worker"], found["workers"]) == (0, 1)
    assert found["memory_bytes"] > 1_000_000
    store = found["store"]
    assert store["kind"] == kind
    assert store["keys"] >= 30
    assert min(store["clients"], store["used_bytes"], store["memory_bytes"]) > 0
    assert store["commands_per_s"] >= 0
    assert store["uptime_s"] >= 0
    assert store["version"] == (
        __version__ if kind == "embedded" else found["info"]["Server"]["valkey_version"]
    )
    if kind == "embedded":
        assert (store["path"], store["durability"]) == (str(tmp_path / "store.pen"), "relaxed")
        assert store["url"] == f"embedded:{tmp_path}/store.pen"
        assert store["disk_free_bytes"] > 0
    else:
        assert (store["path"], store["disk_free_bytes"]) == (None, None)
        assert store["url"].startswith("redis-cluster://127" if kind == "cluster" else "redis://127")
        assert store["durability"] in ("snapshots", "none")
    assert len(found["nodes"]) == (3 if kind == "cluster" else 0)
    if kind == "cluster":
        used = [node["info"]["Memory"]["used_memory"] for node in found["nodes"]]
        assert store["used_bytes"] > max(used)
        keys = [node["info"]["Keyspace"].get("db0", {"keys": 0})["keys"] for node in found["nodes"]]
        assert store["keys"] == sum(keys)
        assert found["info"] == found["nodes"][0]["info"]


@on_every_place
async def test_who_is_connected(worker: Whole, storage: dict[str, Any]) -> None:
    found = (await worker.http.get("/v1/server/clients")).json()
    assert found["total"] == len(found["clients"]) > 0
    nodes = {client["node"] for client in found["clients"]}
    assert len(nodes) == (3 if kind_of(storage) == "cluster" else 1)
    assert (None in nodes) == (kind_of(storage) != "cluster")
    asking = [client for client in found["clients"] if client["command"] == "client|list"]
    assert asking
    assert all(client["id"] > 0 and client["flags"] for client in found["clients"])
    (one,) = (await worker.http.get("/v1/server/clients?limit=1")).json()["clients"]
    assert one["age_s"] == min(client["age_s"] for client in found["clients"])


@on_every_place
async def test_what_was_slow(worker: Whole, storage: dict[str, Any]) -> None:
    store = worker.services.store
    name = "slowlog-log-slower-than"
    before = (await store.config_get(name))[name]
    await store.config_set({name: "0"})
    try:
        for number in range(12):
            await store.set(f"slow-{number}", b"\xff\x00")
        entries = (await worker.http.get("/v1/server/slow-log?limit=1000")).json()["entries"]
        two = (await worker.http.get("/v1/server/slow-log?limit=2")).json()["entries"]
    finally:
        await store.config_set({name: before})
        await store.slowlog_reset()
    written = [entry for entry in entries if entry["command"][:1] == ["SET"] and len(entry["command"]) == 3]
    written = [entry for entry in written if entry["command"][1].startswith("slow-")]
    assert {entry["command"][1] for entry in written} == {f"slow-{number}" for number in range(12)}
    assert written[0]["command"][2] == "\\xff\x00"
    assert [entry["at_ms"] for entry in entries] == sorted((e["at_ms"] for e in entries), reverse=True)
    assert all(entry["duration_us"] >= 0 for entry in entries)
    assert len(two) == 2
    nodes = {entry["node"] for entry in written}
    assert len(nodes) == 3 if kind_of(storage) == "cluster" else nodes == {None}


@on_one_place
async def test_it_is_for_whoever_observes(worker: Whole) -> None:
    paths = ("/v1/server", "/v1/server/clients", "/v1/server/slow-log", "/v1/jobs", "/v1/overview")
    del worker.http.headers["authorization"]
    shop = {"Authorization": "Bearer the-secret-of-the-shop"}
    for path in paths:
        assert (await worker.http.get(path)).status_code == 401
        assert (await worker.http.get(path, headers=shop)).status_code == 403
        for headers in (VIEWER, ADMIN):
            assert (await worker.http.get(path, headers=headers)).status_code == 200
    bad = await worker.http.get("/v1/server/slow-log?limit=0", headers=VIEWER)
    assert code_of(bad) == (400, "invalid-parameter")


async def test_a_store_that_does_not_tell(tmp_path: Path) -> None:
    with RealServer() as server:
        rules = ("on", ">hush", "~*", "&*", "+@all", "-info", "-client|list", "-slowlog", "-config")
        server.execute("ACL", "SETUSER", "shy", *rules)
        node = {"singleNode": f"127.0.0.1:{server.port}", "username": "shy", "password": "hush"}
        async with whole_worker(tmp_path, {"redis": node}) as worker:
            worker.http.headers.update(ADMIN)
            await worker.services.store.set("key", "x")
            found = (await worker.http.get("/v1/server")).json()
            assert (found["info"], found["store"]["clients"]) == ({}, 0)
            assert found["store"]["keys"] >= 1
            assert found["store"]["durability"] == "unknown"
            for path in ("clients", "slow-log"):
                assert code_of(await worker.http.get(f"/v1/server/{path}")) == (404, "not-told")
            assert (await worker.http.get("/v1/overview")).status_code == 200


def test_a_password_is_not_told() -> None:
    redis = RedisStoreConfig(single_node="db:6379", username="me", password="hush")
    assert shown_url(StorageConfig(redis=redis), None) == "redis://me:***@db:6379"
    url = RedisStoreConfig(url="rediss://:hush@db:6380/2")
    assert shown_url(StorageConfig(redis=url), None) == "rediss://:***@db:6380/2"


def test_sections_of_a_report() -> None:
    report = b"# Server\r\nredis_version:7.2\r\nport:1\r\n\r\n# Keyspace\r\ndb0:keys=2,expires=0\r\n"
    assert sections_of(report) == {
        "Server": {"redis_version": "7.2", "port": 1},
        "Keyspace": {"db0": {"keys": 2, "expires": 0}},
    }


def test_rates_are_differences_between_looks() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    assert rates.look("a", 100) is None
    clock.advance_ms(2_000)
    assert rates.look("a", 150) == 25.0
    clock.advance_ms(100)
    assert rates.look("a", 1_000) == 25.0  # too soon to say anything new
    clock.advance_ms(900)
    assert rates.look("a", 250) == 100.0
    assert rates.look("a", 5) is None  # it has begun anew
    clock.advance_ms(1_000)
    assert rates.look("a", 6) == 1.0
    clock.advance_ms(600_000)
    assert rates.look("a", 7) is None
    assert rates.look("b", 0) is None
