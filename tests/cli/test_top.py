"""``penstock top``: frames of real stores and of a gateway, once, as JSON, and live behind a real pty."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.cli.top_figures import Frame
from penstock.spark.noticeboard import KEY, JobStatus
from penstock.testing.servers import RealServer
from tests import places
from tests.cli.conftest import Penstock
from tests.cli.terminal import Terminal
from tests.transactions.cli_places import deploy, on_store, working


@pytest.fixture(params=("embedded", "valkey"))
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


async def _fill(ps: penstock.Penstock) -> None:
    for total in range(5):
        await (await ps.transactions.start("checkout", {"total": total})).wait(20_000)
    await ps.transactions.start("napping", {})
    await (await ps.transactions.start("boom", {})).wait(20_000)
    await ps.stream("orders").write_many([("eu", b"x")] * 100)
    await ps.stream("audit").write("eu", b"x")
    status = JobStatus(job="export", kind="export", node="etl-1", state="waiting", at_ms=1, passes=7)
    await ps.hset(KEY, {status.field: msgspec.json.encode(status)})


@contextmanager
def shop(url: str) -> Iterator[None]:
    """A store on which something has happened, and a worker that is there."""
    deploy(url)
    with working(url):
        on_store(url, _fill)
        yield


def test_a_frame_in_json(run: Penstock, url: str) -> None:
    with shop(url):
        done = run("top", url, "--json", "--level", "60s")
    assert (done.status, done.errors) == (0, "")
    frame = msgspec.json.decode(done.out, type=Frame)
    assert frame.level == "60s"
    assert frame.transactions is not None
    assert (frame.transactions.sleeping, frame.transactions.total) == (1, 7)
    assert frame.statistics is not None
    assert frame.statistics.total.ended == {"success": 5, "internal-error": 1}
    assert frame.statistics.parts["checkout"].started == 5
    assert frame.statistics.total.latency is not None
    assert frame.statistics.total.latency.p99_ms is not None
    assert [(group.name, group.workers) for group in frame.node_groups] == [("shop", 1)]
    assert [worker.node_groups for worker in frame.workers] == [["shop"]]
    assert [(stream.name, stream.messages) for stream in frame.streams] == [("orders", 100), ("audit", 1)]
    assert [(job.job, job.passes, job.is_alive) for job in frame.jobs] == [("export", 7, False)]
    assert frame.store is not None
    assert frame.store.kind == ("embedded" if url.startswith("embedded") else "redis")
    assert frame.store.keys > 0
    assert "password" not in frame.where


def test_one_frame_for_people(run: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "shop.pen")
    for width in (60, 80, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        with shop(url) if width == 60 else working(url):
            done = run("top", url)
        assert (done.status, done.errors) == (0, "")
        assert all(len(line) <= width for line in done.out.splitlines())
        for word in ("transactions", "checkout", "node groups", "working", "orders", "export", "commands/s"):
            assert word in done.out, word
        assert "\x1b" not in done.out


def test_an_empty_store_has_little_to_show(run: Penstock, tmp_path: Path) -> None:
    url = str(tmp_path / "shop.pen")
    assert run("top", url).errors == f"penstock: there is no store at {url}\n"
    on_store(url, lambda ps: ps.set("k", "v"))
    done = run("top", url, "--once")
    assert "transactions" in done.out
    assert "workers" not in done.out
    assert run("top").status == 2


def test_the_screen(tmp_path: Path) -> None:
    url = str(tmp_path / "shop.pen")
    with shop(url), Terminal("top", url) as terminal:
        terminal.wait_for("q ends it")
        terminal.wait_for("of 5 minutes")
        terminal.wait_for("orders")
        terminal.send("2")
        terminal.wait_for("of 2 hours")
        terminal.send("x3")
        terminal.wait_for("of 24 hours")
        # Rates need two looks.
        on_store(url, lambda ps: ps.stream("audit").write_many([("eu", b"x")] * 500))
        terminal.wait_for("501")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    assert terminal.raw.rstrip().endswith("\x1b[?1049l"), "the screen is as it was before"


def test_a_server_that_goes_away_is_told_and_looked_for() -> None:
    with RealServer() as server, Terminal("top", server.url) as terminal:
        terminal.wait_for("commands/s")
        server.kill()
        terminal.wait_for("is not connected")
        server.restart()
        terminal.send("3")
        terminal.wait_for("of 24 hours")
        terminal.send("\x03")
        assert terminal.wait_for_end() == 0


# ------------------------------------------------------------------------------------- a gateway


@contextmanager
def gateway(store: Path) -> Iterator[tuple[str, str]]:
    """Its address, and the link to its console."""
    words = ["serve", str(store), "--port", "0", "--http-port", "0", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            facts: dict[str, Any] = {}
            while not {"http", "port"} <= set(facts):
                facts |= json.loads(process.stdout.readline())
            assert facts["durability"] == "always"
            yield facts["http"], process.stderr.readline().split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_a_gateway(run: Penstock, tmp_path: Path) -> None:
    store = tmp_path / "shop.pen"
    on_store(str(store), lambda ps: ps.stream("orders").write("eu", b"x"))
    with gateway(store) as (url, link):
        token = link.partition("#token=")[2]
        assert run("top", url, "--json").errors == (
            f"penstock: {url} asks for a credential that may look on: give --token\n"
        )
        for words in ([link], [f"{url}/console/", "--token", token]):
            done = run("top", *words, "--json")
            assert (done.status, done.errors) == (0, "")
        frame = msgspec.json.decode(done.out, type=Frame)
        assert frame.where == url
        assert frame.transactions is not None
        assert frame.store is not None
        assert frame.store.kind == "embedded"
        assert [stream.name for stream in frame.streams] == ["orders"]
        assert "orders" in run("top", url, "--token", token).out
    assert "does not answer" in run("top", url, "--json").errors
    assert "is named by http://host:port" in run("top", "http://user@host", "--json").errors
