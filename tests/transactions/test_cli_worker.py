"""``penstock worker``: a real process that is told to stop, told twice, and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from penstock.cli.worker import groups_of, load_app
from penstock.errors import ConfigError
from penstock.transactions import App, Child, Function, Parallel, Pipeline
from tests.places import wait_until
from tests.shell import Shell
from tests.transactions.cli_places import on_store

MODULE = '''
import asyncio, time
from pathlib import Path
from penstock.transactions import Function, Pipeline, step

HERE = Path(__file__).parent

def add(file, text):
    with (HERE / file).open("a") as out:
        out.write(text + "\\n")

@step("effect")
async def effect(tx):
    return {"effect": await tx.once("effect", add, "effects", tx.id)}

@step("hold")
async def hold(tx):
    """Until somebody says go; leaves a mark when it begins."""
    await tx.once("effect", add, "effects", tx.id)
    add("begun", tx.id)
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    return {"held": True}

@step("block")
def block(tx):
    add("begun", tx.id)
    time.sleep(600)

@step("far", runs_in="process")
def far(tx):
    add("begun", tx.id)
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return {"far": True}

distant = Pipeline("distant", ["far"], node_group="shop")
quick = Pipeline("quick", ["effect"], node_group="shop")
holding = Pipeline("holding", ["hold", "effect"], node_group="shop")
blocking = Pipeline("blocking", ["block"], node_group="shop")
'''


@pytest.fixture(params=["embedded", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return str(tmp_path / "store.pen")
    return str(request.getfixturevalue("real_servers").get("valkey").url)


@pytest.fixture
def desk(tmp_path: Path, where: str) -> Desk:
    (tmp_path / "shop.py").write_text(MODULE)
    return Desk(tmp_path, where)


class Desk:
    """A directory with a module, a store, and workers of it."""

    def __init__(self, home: Path, where: str) -> None:
        self.home = home
        self.where = where

    @contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """One that has said that it is ready; killed at the end, if it still lives."""
        command = [sys.executable, "-m", "penstock.cli.main", "worker", "shop", "--store", self.where, *words]
        with (
            (self.home / "log").open("a") as log,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.home,
                start_new_session=True,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                assert " works for " in ready, (self.home / "log").read_text()
                yield process
            finally:
                process.kill()

    def start(self, pipeline: str, **options: Any) -> str:
        async def start(ps: Any) -> str:
            return str((await ps.transactions.start(pipeline, {}, **options)).id)

        return str(on_store(self.where, start))

    def get(self, id: str) -> Any:
        return on_store(self.where, lambda ps: ps.transactions.get(id, trail=True))

    def lines(self, file: str) -> list[str]:
        path = self.home / file
        return path.read_text().splitlines() if path.exists() else []

    def has_said(self, words: str) -> Callable[[], bool]:
        return lambda: words in (self.home / "log").read_text()

    def ended(self, id: str) -> Any:
        found = on_store(self.where, lambda ps: ps.transactions.wait(id, timeout_ms=20_000))
        assert found.has_ended, found
        return self.get(id)


def last_line(worker: subprocess.Popen[str], *, status: int = 0) -> str:
    assert worker.wait(20) == status
    assert worker.stdout is not None
    return worker.stdout.read()


# ------------------------------------------------------------------------------------- stopping


def test_it_works_and_stops_when_it_is_told(desk: Desk) -> None:
    with desk.worker("--name", "w-1", "--concurrency", "8") as worker:
        found = desk.ended(desk.start("quick"))
        assert found.status == "success"
        assert found.trail[0].worker == "w-1"
        (info,) = on_store(desk.where, lambda ps: ps.transactions.workers.list())
        assert (info.id, info.concurrency, info.node_groups) == ("w-1", 8, ["shop"])
        worker.send_signal(signal.SIGTERM)
        assert last_line(worker) == "Worker w-1 has stopped: 1 taken, 1 of them ended.\n"
    assert on_store(desk.where, lambda ps: ps.transactions.workers.list()) == []


def test_a_step_that_ends_in_time_is_waited_for(desk: Desk) -> None:
    with desk.worker("--grace-ms", "60000") as worker:
        id = desk.start("holding")
        wait_until(lambda: desk.lines("begun"))
        worker.send_signal(signal.SIGINT)
        wait_until(desk.has_said("stopping: 1 transactions have 60000 ms"))
        (desk.home / "go").touch()
        assert "1 taken, 0 of them ended" in last_line(worker)
    found = desk.get(id)
    # The step that ran was finished, the next one was not begun.
    assert (found.state, found.step) == ("queued", 1)


def test_a_signal_to_all_its_processes_is_the_workers_affair(desk: Desk) -> None:
    with desk.worker("--grace-ms", "60000") as worker:
        id = desk.start("distant")
        wait_until(lambda: desk.lines("begun"))
        os.killpg(worker.pid, signal.SIGINT)  # as Ctrl-C does
        wait_until(desk.has_said("stopping: 1 transactions have 60000 ms"))
        (desk.home / "go").touch()
        assert "1 taken, 1 of them ended" in last_line(worker)
    assert desk.get(id).output == {"far": True}


def test_what_does_not_end_in_time_is_handed_back(desk: Desk) -> None:
    with desk.worker("--grace-ms", "50", "--lease-ms", "600000") as worker:
        id = desk.start("holding")
        wait_until(lambda: desk.lines("begun"))
        worker.send_signal(signal.SIGTERM)
        last_line(worker)
    assert desk.get(id).state == "queued"
    (desk.home / "go").touch()
    with desk.worker() as worker:
        found = desk.ended(id)
        worker.send_signal(signal.SIGTERM)
        last_line(worker)
    assert found.status == "success"
    assert not [entry for entry in found.trail if entry.kind == "lost"]
    assert (len(desk.lines("begun")), len(desk.lines("effects"))) == (2, 2)  # one a step


def test_told_twice_it_stops_at_once(desk: Desk) -> None:
    with desk.worker("--grace-ms", "600000", "--lease-ms", "600000") as worker:
        id = desk.start("holding")
        wait_until(lambda: desk.lines("begun"))
        worker.send_signal(signal.SIGTERM)
        wait_until(desk.has_said("stopping: 1 transactions"))
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        last_line(worker)
    assert desk.get(id).state == "queued"


def test_a_thread_that_hangs_does_not_keep_it(desk: Desk) -> None:
    with desk.worker("--grace-ms", "50", "--lease-ms", "600000") as worker:
        id = desk.start("blocking")
        wait_until(lambda: desk.lines("begun"))
        worker.send_signal(signal.SIGTERM)
        assert "has stopped" in last_line(worker)
    assert desk.get(id).state == "queued"
    assert "steps in threads have not come back" in (desk.home / "log").read_text()


def test_who_is_killed_is_replaced(desk: Desk) -> None:
    with desk.worker("--lease-ms", "500", "--name", "w-1") as first:
        id = desk.start("holding")
        wait_until(lambda: desk.lines("begun"))
        first.send_signal(signal.SIGKILL)
        assert first.wait(20) == -signal.SIGKILL
        assert desk.get(id).state == "running"
        (desk.home / "go").touch()
        with desk.worker("--lease-ms", "500", "--name", "w-2") as second:
            found = desk.ended(id)
            second.send_signal(signal.SIGTERM)
            last_line(second)
    assert found.status == "success"
    assert [entry.kind for entry in found.trail] == ["lost", "step", "step"]
    assert {entry.worker for entry in found.trail if entry.kind == "step"} == {"w-2"}
    assert len(desk.lines("begun")) == 2
    assert desk.lines("effects") == [id, id]  # that of the first step, which was noted, and of the second


# -------------------------------------------------------------------------------------- beside


class Hook(BaseHTTPRequestHandler):
    bodies: ClassVar[list[bytes]]

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: stderr is the test's."""


@contextmanager
def receiver() -> Iterator[tuple[str, list[bytes]]]:
    class Handler(Hook):
        bodies: ClassVar[list[bytes]] = []

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", Handler.bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_webhooks_and_archive_beside_the_work(desk: Desk) -> None:
    on_store(desk.where, lambda ps: ps.transactions.store.configure(archive_delay_ms=0))
    words = ("--archive", "archive", "--webhooks", "--allow-network", "127.0.0.0/8")
    with receiver() as (url, bodies), desk.worker(*words) as worker:
        id = desk.start("quick", webhook=url)
        wait_until(lambda: bodies)
        assert id.encode() in bodies[0]
        wait_until(lambda: list((desk.home / "archive").rglob("*.parquet")))
        worker.send_signal(signal.SIGTERM)
        last_line(worker)
    assert on_store(desk.where, lambda ps: ps.transactions.list()).items == []


# -------------------------------------------------------------------------------------- loading


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a module that nobody else has; answers its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    names: list[str] = []

    def write(text: str) -> str:
        names.append(f"shop_{os.getpid()}_{time.monotonic_ns()}")
        (tmp_path / f"{names[-1]}.py").write_text(text)
        return names[-1]

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_apps_are_found(module: Callable[[str], str]) -> None:
    marked = "from penstock.transactions import *\n@step('a')\nasync def a(tx): pass\n"
    assert load_app(module(marked)).step_names == ["a"]
    assert load_app(module(marked + "app = App([a], [Pipeline('p', ['a'])])\n")).step_names == ["a"]
    two = marked + "one = App([a])\nother = App()\n"
    assert load_app(f"{module(two)}:one").step_names == ["a"]


@pytest.mark.parametrize(
    ("text", "suffix", "sentence"),
    [
        ("import nobody_has_this", "", "ModuleNotFoundError: No module named 'nobody_has_this'"),
        ("1 / 0", "", "cannot be imported: ZeroDivisionError: division by zero"),
        ("def", "", "cannot be imported: SyntaxError"),
        ("x = 1", "", "has neither steps nor pipelines"),
        ("x = 1", ":app", "has no 'app': it has no App at all"),
        ("app = 1", ":app", "has a int, not an App, named 'app'"),
        ("from penstock.transactions import App\na, b = App(), App()", "", "has several apps: say"),
        ("from penstock.transactions import App\na, b = App(), App()", ":c", "it has a, b"),
        ("", ":", "must name a module"),
        ("", ".py", "is a file: name the module, shop_"),
        ("", "_not_there", "there is no module"),
    ],
)
def test_what_is_missing_is_told(module: Callable[[str], str], text: str, suffix: str, sentence: str) -> None:
    name = module(text)
    with pytest.raises(ConfigError) as caught:
        load_app(name + suffix)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_are_those_of_the_pipelines() -> None:
    assert groups_of(App()) == ["default"]
    steps = [Function("a", node_group="gpu"), Parallel({"x": [Child("b", node_group="far")]})]
    assert groups_of(App([], [Pipeline("p", steps, node_group="shop")])) == ["shop", "gpu", "far"]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("{module}",), 2, "say which store"),
        (("{module}", "--store", "redis://127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("{module}", "--store", "s.pen", "--node-group", "a b"), 1, "node_groups must be 1 to 128"),
        (("{module}", "--store", "s.pen", "--lease-ms", "1"), 1, "lease_ms must be at least 100"),
        (("{module}", "--store", "s.pen", "--concurrency", "5000"), 1, "concurrency must be 1 to 1000"),
        (("{module}", "--store", "s.pen", "--allow-network", "home"), 1, "home"),
        (("{module}", "--store", "s.pen", "--concurrency", "0"), 2, "must be a whole number above 0"),
        (("nobody_has_this", "--store", "s.pen"), 1, "there is no module 'nobody_has_this'"),
    ],
)
def test_what_cannot_start_is_one_sentence(
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    module: Callable[[str], str],
    words: tuple[str, ...],
    status: int,
    sentence: str,
) -> None:
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    name = module("from penstock.transactions import *\n@step('a')\nasync def a(tx): pass\n")
    worker = Shell("worker", capsysbinary, monkeypatch)
    errors = worker.failure(*(word.replace("{module}", name) for word in words), status=status)
    assert sentence in errors
    assert errors.count("\n") == 1 or status == 2
