"""Several processes behind one port: killed ones are replaced, none outlives its parent."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.places import wait_until

ROOT = Path(__file__).parents[2]
LIMIT_S = 30.0


@dataclass
class Fleet:
    parent: subprocess.Popen[str]
    port: int

    def ask(self, path: str = "/") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def told(self) -> dict[str, Any]:
        return json.loads(self.ask())

    def processes(self, count: int) -> dict[int, int]:
        """Who answers: the process of each worker's number, once ``count`` of them have answered."""
        found: dict[int, int] = {}

        def look() -> bool:
            told = self.told()
            found[told["index"]] = told["process"]
            return len(found) == count

        wait_until(look)
        return found


@contextmanager
def fleet(
    target: str, count: int = 2, balance: str = "per worker", stop_timeout_s: float = 2.0
) -> Iterator[Fleet]:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.gateway.serving.fleet",
            target,
            str(count),
            balance,
            str(stop_timeout_s),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        yield Fleet(parent, int(parent.stdout.readline()))
    finally:
        parent.kill()
        parent.communicate()


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("balance", ["shared", "per worker"])
def test_a_killed_worker_is_replaced_and_the_port_keeps_answering(balance: str):
    with fleet("serve", 2, balance) as running:
        told = running.told()
        assert (told["count"], told["payload"]) == (2, "what workers must know")
        for _ in range(3):
            victim = running.told()
            os.kill(victim["process"], signal.SIGKILL)
            wait_until(lambda victim=victim: not is_alive(victim["process"]))
            assert running.told()["process"] != victim["process"]
        running.parent.terminate()
        assert running.parent.wait(LIMIT_S) == 0


def test_numbers_stay_and_counters_go_on_when_a_worker_is_replaced():
    with fleet("serve", 2) as running:
        before = running.processes(2)
        asked = _requests(running)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: not is_alive(before[0]))
        after = running.processes(2)
        assert after[0] != before[0]
        assert after[1] == before[1]
        assert _requests(running) > asked
        text = running.ask("/metrics").decode()
        assert "penstock_workers 2.0" in text
        assert 'penstock_ready{worker="0"} 1.0' in text


def _requests(running: Fleet) -> float:
    lines = running.ask("/metrics").decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("penstock_http_requests_total{"))


def test_a_signal_ends_all_of_them_gracefully():
    with fleet("serve", 3) as running:
        processes = running.processes(3)
        running.parent.send_signal(signal.SIGINT)
        assert running.parent.wait(LIMIT_S) == 0
        assert not any(map(is_alive, processes.values()))
        with pytest.raises(ConnectionRefusedError):
            running.ask()


def test_workers_do_not_outlive_a_parent_that_was_killed():
    with fleet("serve", 2) as running:
        processes = running.processes(2)
        running.parent.kill()
        wait_until(lambda: not any(map(is_alive, processes.values())))


def test_a_stubborn_worker_does_not_outlive_a_parent_that_was_killed():
    with fleet("stubborn", 1, stop_timeout_s=0.1) as running:
        process = running.told()["process"]
        running.parent.kill()
        wait_until(lambda: not is_alive(process))


def test_a_stubborn_worker_is_killed_in_the_end():
    with fleet("stubborn", 1, stop_timeout_s=0.1) as running:
        process = running.told()["process"]
        running.parent.terminate()
        assert running.parent.wait(LIMIT_S) == 0
        assert not is_alive(process)


def test_a_second_signal_is_impatience():
    with fleet("stubborn", 1, stop_timeout_s=1000) as running:
        process = running.told()["process"]

        def is_over() -> bool:
            running.parent.terminate()
            return running.parent.poll() is not None

        wait_until(is_over)
        # Its last act may be to hear one more signal, as anybody hears it.
        assert running.parent.returncode in (0, -signal.SIGTERM)
        assert not is_alive(process)


def test_a_configuration_that_makes_no_sense_ends_everything():
    with fleet("misconfigured", 2) as running:
        assert running.parent.wait(LIMIT_S) == 78
        assert running.parent.stderr is not None
        assert "http.nothing makes no sense" in running.parent.stderr.read()
