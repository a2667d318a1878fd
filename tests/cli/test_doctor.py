"""``penstock doctor`` of stores: what loses data is found, each finding says what to do."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import penstock.blocking
from penstock.cli import doctor_store
from penstock.testing.servers import RealServer
from tests.cli.conftest import Penstock


def examine(run: Penstock, *words: str) -> dict[str, dict[str, Any]]:
    done = run("doctor", *words, "--json")
    found = {each["check"]: each for each in map(json.loads, done.out.splitlines())}
    assert all(each["remedy"] for each in found.values() if each["state"] != "ok")
    assert done.status == any(each["state"] == "fail" for each in found.values())
    return found


def test_a_directory(run: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "shop.pen")
    with penstock.blocking.open(url) as client:
        client.set("k", "v")
    before = sorted(path.name for path in (tmp_path / "shop.pen").iterdir())
    found = examine(run, url)
    assert {name: found[name]["state"] for name in ("store", "durability", "store directory", "clock")} == {
        "store": "ok", "durability": "ok", "store directory": "ok", "clock": "ok",
    }  # fmt: skip
    assert found["fsync"]["text"].startswith("takes ")
    assert sorted(path.name for path in (tmp_path / "shop.pen").iterdir()) == before
    monkeypatch.setattr(doctor_store, "_SLOW_FSYNC_MS", -1.0)
    assert examine(run, url)["fsync"]["state"] == "warn"
    assert examine(run, f"embedded:{url}?durability=relaxed")["durability"]["state"] == "warn"


def test_a_server_that_loses_data(run: Penstock) -> None:
    with RealServer() as server:
        found = examine(run, server.url)
        assert found["durability"]["text"].startswith("nothing is kept over a restart")
        assert (found["eviction"]["state"], found["server clock"]["state"]) == ("ok", "ok")
        for setting, state in (("save", "warn"), ("appendonly", "ok")):
            server.execute("CONFIG", "SET", setting, "900 1" if setting == "save" else "yes")
            assert examine(run, server.url)["durability"]["state"] == state, setting
        server.execute("CONFIG", "SET", "appendfsync", "no")
        assert "appendfsync everysec" in examine(run, server.url)["durability"]["remedy"]
        server.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert examine(run, server.url)["eviction"]["state"] == "warn"
        server.execute("CONFIG", "SET", "maxmemory", "100mb")
        found = examine(run, server.url)
        assert found["eviction"]["text"] == "allkeys-lru: a full memory deletes data"
        server.execute("REPLICAOF", "127.0.0.1", "1")
        assert examine(run, server.url)["role"]["state"] == "fail"


def test_a_server_that_must_not_be_asked(run: Penstock) -> None:
    with RealServer() as server:
        server.execute("ACL", "SETUSER", "looker", "on", ">pw", "~*", "+@all", "-config")
        found = examine(run, server.url.replace("redis://", "redis://looker:pw@"))
        assert found["durability"]["text"] == "its settings must not be read"


def test_a_clock_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_store, "_CLOCK_MS", -1)
    (finding,) = doctor_store._clock({"server_time_usec": "0"}, "")
    assert (finding.state, finding.check) == ("warn", "server clock")
    assert list(doctor_store._clock({}, "")) == []


def test_ports(run: Penstock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert examine(run, "--port", port)["ports"]["text"] == f"{port} is taken"
    assert examine(run, "--port", port)["ports"]["state"] == "ok"
    assert run("doctor", "--port", "70000").status == 2
