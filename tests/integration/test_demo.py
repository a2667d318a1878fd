"""``penstock demo``: the sample shop runs, is seen over HTTP, stops cleanly, and goes on in the next run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import blocking
from penstock.cli.main import main
from penstock.cli.shop import traffic
from penstock.cli.shop.pipelines import app
from penstock.transactions import Child, Function, Map, Router
from penstock.transactions.pipelines import walk
from penstock.transactions.pipelines.validation import problems_of
from tests.places import wait_until

LIMIT_S = 60.0


class Demo:
    """One run, as a process with a group of its own."""

    def __init__(self, directory: Path, *words: str) -> None:
        self._errors = directory.with_suffix(".errors")
        options = ("--port", "0", "--http-port", "0", "--no-open", "--json", *words)
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli.main", "demo", str(directory), *options],
                stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip
        self.http = httpx.Client(timeout=30)
        try:
            self.facts = self._line()
            self.http.base_url = self.facts["http"]
            self.http.headers["authorization"] = f"Bearer {self.facts['token']}"
        except BaseException:
            self.kill()
            raise

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it did not start: {self.complaints}"
        facts: dict[str, Any] = json.loads(line)
        return facts

    @property
    def complaints(self) -> str:
        return self._errors.read_text()

    @property
    def store(self) -> str:
        return f"redis://127.0.0.1:{self.facts['port']}"

    # ---------------------------------------------------------------------- over HTTP

    def get(self, path: str, **query: Any) -> Any:
        return self.http.get(path, params=query).raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.http.post(path, json=body).raise_for_status().json()

    def order(self, card: str, **options: Any) -> str:
        order = {"customer": "ada", "country": "fr", "product": "lamp", "pieces": 2, "card": card}
        body = {"pipeline": "checkout", "input": {**order, "address": "street 1"}, **options}
        return str(self.post("/v1/transactions", body)["id"])

    def last_order(self) -> int:
        """The offset of the newest one."""
        with blocking.open(self.store) as ps:
            return ps.stream(traffic.ORDERS).info().last

    def transaction(self, tx: str) -> Any:
        return self.get(f"/v1/transactions/{tx}", trail="true")

    def ended(self, tx: str) -> Any:
        return wait_until(lambda: (found := self.transaction(tx))["state"] == "ended" and found)

    # -------------------------------------------------------------------------- its end

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """To its process alone, and it leaves nobody behind."""
        self.process.send_signal(number)
        assert self.process.wait(LIMIT_S) == 0
        assert self._line() == {"state": "closed"}
        assert self.complaints == ""
        with pytest.raises(ProcessLookupError):
            os.killpg(self.process.pid, 0)
        self._close()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._close()

    def _close(self) -> None:
        self.http.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(directory: Path, *words: str) -> Iterator[Demo]:
    demo = Demo(directory, *words)
    try:
        yield demo
    finally:
        demo.kill()


# ------------------------------------------------------------------------------------- the shop


def test_pipelines_name_what_there_is() -> None:
    pipelines = {pipeline.name: pipeline for pipeline in app.pipelines}
    for pipeline in pipelines.values():
        assert problems_of(pipeline) == []
        for _, _, step in walk(pipeline.steps):
            undone = {step.compensate} if step.compensate else set()
            functions = undone | ({step.name} if isinstance(step, Function) else set())
            assert functions <= set(app.step_names)
            if isinstance(step, Child):
                assert step.pipeline in pipelines
            if isinstance(step, Router):
                assert {*step.routes.values(), step.default} <= set(pipelines)
            if isinstance(step, Map):
                assert step.pipeline is None


def test_customers_come_at_a_rate_that_changes() -> None:
    rates = [traffic.rate(second) for second in range(0, 400, 10)]
    assert 0.5 < min(rates) < 1 < 2 < max(rates) < 3


def test_the_clerk_leaves_some_to_people_and_approves_most() -> None:
    decisions = [traffic.decision(f"tx-0-{number}", 60_000) for number in range(2_000)]
    assert decisions.count("wait") in range(50, 200)
    assert decisions.count("cancel") in range(10, 100)
    assert decisions == [traffic.decision(f"tx-0-{number}", 60_000) for number in range(2_000)]
    # Nobody is answered before it was thought about.
    thoughts = [traffic.decision(f"tx-0-{number}", 1_000) for number in range(2_000)]
    assert thoughts.count("wait") > 1_500


# ---------------------------------------------------------------------------------- the command


def test_a_shop_runs_stops_and_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    with running(directory, "--no-spark") as demo:
        assert demo.facts["console"] == f"{demo.facts['http']}/console/#token={demo.facts['token']}"
        assert demo.http.get("/console/").status_code == 200
        assert demo.get("/v1/session")["may"]["operate"]
        with blocking.open(demo.store) as ps:
            receiver = f"http://127.0.0.1:{int(ps.get('demo:receiver-port') or 0)}/orders"
        empty = demo.order("empty", webhook=receiver)
        shaky = demo.order("shaky", external_id="shaky-1")
        good = demo.order("good")
        _see_a_card_that_fails(demo, empty)
        _approve_and_ship(demo, good)
        _see_a_card_that_is_tried_again(demo, shaky)
        _see_orders(demo)
        last = demo.last_order()
        demo.stop(signal.SIGINT)
    with running(directory, "--no-spark") as again:
        # What waited still does, or goes on; numbers of orders go on as well, and the address stays good.
        assert again.facts["token"] == demo.facts["token"]
        assert again.transaction(shaky)["external_id"] == "shaky-1"
        assert again.transaction(good)["status"] == "success"
        assert again.last_order() >= last
        wait_until(lambda: again.last_order() > last)
        again.stop(signal.SIGTERM)


def _see_a_card_that_fails(demo: Demo, tx: str) -> None:
    failed = demo.ended(tx)
    assert (failed["status"], failed["note"]) == ("failed", "the card is empty")
    steps = [entry for entry in failed["trail"] if entry["kind"] in ("step", "undo")]
    kinds = [(entry["kind"], entry["name"], entry["status"]) for entry in steps]
    assert ("step", "charge-card", "failed") in kinds
    assert kinds[-1] == ("undo", "release", "success")
    wait_until(lambda: demo.transaction(tx).get("webhook_status") == "delivered")


def _approve_and_ship(demo: Demo, tx: str) -> None:
    def is_beyond(state: str) -> bool:
        found = demo.transaction(tx)
        # The clerk may have been faster.
        return bool(found["state"] == state or found["step"] > 3)

    wait_until(lambda: is_beyond("waiting"))
    demo.http.put(f"/v1/transactions/{tx}/switches/approved", json={"value": "by me"}).raise_for_status()
    wait_until(lambda: demo.transaction(tx)["state"] == "sleeping" or demo.transaction(tx)["step"] > 6)
    demo.http.post(f"/v1/transactions/{tx}/wake", json={})
    done = demo.ended(tx)
    assert done["status"] == "success"
    assert set(done["output"]) == {"invoice", "mail", "points"}
    assert done["output"]["invoice"]["total"] == 98 * 1.2


def _see_a_card_that_is_tried_again(demo: Demo, tx: str) -> None:
    def attempts() -> list[tuple[int, str]]:
        trail = demo.transaction(tx)["trail"]
        charges = [entry for entry in trail if entry.get("name") == "charge-card"]
        return [(entry["attempt"], entry["status"]) for entry in charges]

    assert wait_until(lambda: len(found := attempts()) == 3 and found)[-1] == (3, "success")


def _see_orders(demo: Demo) -> None:
    orders = wait_until(lambda: demo.get("/v1/streams/orders", limit=10)["messages"])
    assert {message["tag"] for message in orders} <= set(traffic.COUNTRIES)
    groups = {group["name"] for group in demo.get("/v1/streams/orders/groups")["groups"]}
    assert {"checkout", "billing"} <= groups
    assert {group["name"] for group in demo.get("/v1/node-groups")["node_groups"]} >= {"shop", "warehouse"}
    assert _scheduled(demo) == {"stock-take", "inventory"}


def _scheduled(demo: Demo) -> set[str]:
    return {each["schedule"]["name"] for each in demo.get("/v1/schedules")["schedules"]}


def test_ports_that_are_taken_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["demo", str(tmp_path / "demo"), "--no-spark", "--http-port", port]) == 1
    assert not (tmp_path / "demo").exists()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"penstock: 127.0.0.1:{port} is in use; choose another port (--http-port), or stop what uses it\n"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--http-port", "65536"], "http-port must be between 0 and 65535, not 65536"),
        (["--port", "-1"], "port must be between 0 and 65535, not -1"),
    ],
)
def test_ports_that_cannot_be(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", str(tmp_path / "demo"), *words]) == 1
    assert capsys.readouterr().err == f"penstock: {sentence}\n"


@pytest.mark.soak
def test_spark_fills_the_lake_and_ends_with_the_demo(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    with running(directory) as demo:
        demo.order("empty")
        for table in ("transactions", "steps", "messages", "stats_60s"):
            wait_until(lambda table=table: (directory / "lake" / table / "_delta_log").is_dir(), 240)
        began_s = time.monotonic()
        demo.stop()
        assert time.monotonic() - began_s < 20
    assert "Traceback" not in (directory / "spark.log").read_text()
    with running(directory) as killed:
        wait_until(lambda: _children_of(killed.process.pid), 60)
        children = _children_of(killed.process.pid)
        killed.kill()
        # They notice by themselves that nobody wants them any more.
        wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    with running(directory, "--no-spark") as after_a_kill:
        last = after_a_kill.last_order()
        wait_until(lambda: after_a_kill.last_order() > last)
        after_a_kill.stop()


def _children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
