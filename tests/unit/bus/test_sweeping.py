"""Sweeping: what the dead left is removed, what is being made is left alone."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.bus.endpoint import DeadEndpoint, Endpoint, probe, sweep
from penstock.engine.bus.endpoint import signal as send_signal
from penstock.errors import StoreError
from tests.unit.bus.endpoints import StartPeer, dead_endpoint, files, make_old


def sweep_old(directory: Path, **options: Any) -> list[DeadEndpoint]:
    return sweep(directory, now_s=time.time(), **options)


def test_sweep_removes_what_a_killed_owner_left(
    directory: Path, endpoint: Endpoint, start_peer: StartPeer
) -> None:
    endpoint_id = dead_endpoint(directory, start_peer)
    (directory / "README").write_text("not ours")
    assert sweep_old(directory) == []  # too young
    make_old(directory)
    found = sweep_old(directory)
    assert [dead.id for dead in found] == [endpoint_id]
    assert sweep_old(directory) == []  # held by the first sweep
    found[0].release()
    (dead,) = sweep_old(directory)
    dead.bury()
    assert files(directory) == sorted([f"{endpoint.id.hex()}.fifo", f"{endpoint.id.hex()}.lock", "README"])
    endpoint.close()
    assert files(directory) == ["README"]


@pytest.mark.parametrize(
    ("function", "call", "left"),
    [
        ("flock", 1, [".lock"]),  # created, not yet locked
        ("mkfifo", 1, [".lock"]),  # locked, no FIFO
        ("unlink", 1, [".fifo", ".lock"]),  # closing, rows gone
        ("unlink", 2, [".lock"]),  # closing, FIFO gone
    ],
)
def test_sweep_after_a_crash_at(
    directory: Path, start_peer: StartPeer, function: str, call: int, left: list[str]
) -> None:
    peer = start_peer("crash", directory, function, call)
    assert peer.hear() == ""
    assert peer.process.wait() == -signal.SIGKILL
    assert sorted(path.suffix for path in directory.iterdir()) == left
    (dead,) = sweep_old(directory, older_than_s=0.0)
    dead.bury()
    assert files(directory) == []


def test_sweep_of_strays_and_strangers(directory: Path) -> None:
    assert sweep_old(directory) == []  # no directory yet
    directory.mkdir()
    os.mkfifo(directory / f"{'ab' * 20}.fifo")
    strangers = [f"{'AB' * 20}.lock", f"{'ab' * 19}.lock", f"{'ab' * 20}.lock.old", "x.fifo"]
    for name in strangers:
        (directory / name).touch()
    assert sweep_old(directory) == []
    make_old(directory)
    (stray,) = sweep_old(directory)
    assert stray.id == b"\xab" * 20
    stray.bury()
    assert files(directory) == sorted(strangers)


def test_sweep_takes_the_far_future_for_old(directory: Path) -> None:
    directory.mkdir()
    (directory / f"{'00' * 20}.lock").touch()
    make_old(directory, age_s=-3600.0)
    assert len(sweep_old(directory)) == 1


def test_sweep_holds_a_limited_number(directory: Path) -> None:
    directory.mkdir()
    for number in range(5):
        (directory / f"{number:040x}.lock").touch()
    make_old(directory)
    counts = []
    while found := sweep_old(directory, limit=2):
        counts.append(len(found))
        for dead in found:
            dead.bury()
    assert counts == [2, 2, 1]
    assert files(directory) == []


@pytest.mark.parametrize("ending", ["bury", "release", "hold"])
def test_sweeper_between_creation_and_lock(
    directory: Path, create: Callable[[], Endpoint], monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The creator's lock is refused, or granted on a file without a name: a new id is due."""
    original = fcntl.flock
    swept: list[DeadEndpoint] = []

    def flock_after_a_sweep(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", original)
        swept.extend(sweep_old(directory, older_than_s=0.0))
        if ending != "hold":
            getattr(swept[0], ending)()
        original(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_a_sweep)
    endpoint = create()
    (dead,) = swept
    # Released before the lock was taken, the file is as good as new; else its id is burnt.
    assert (endpoint.id == dead.id) is (ending == "release")
    dead.release()
    assert files(directory) == [f"{endpoint.id.hex()}.fifo", f"{endpoint.id.hex()}.lock"]
    assert probe(directory, endpoint.id) is None


def test_creation_gives_up_when_files_keep_vanishing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = fcntl.flock

    def flock_after_a_burial(descriptor: int, operation: int) -> None:
        for path in directory.iterdir():
            path.unlink()
        original(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_a_burial)
    with pytest.raises(StoreError, match="what else removes"):
        Endpoint.create(directory)


def test_creators_against_a_sweeper(
    directory: Path, create: Callable[[], Endpoint], start_peer: StartPeer
) -> None:
    """Whatever the sweeper snatches is unfinished; a finished endpoint keeps its files."""
    directory.mkdir()
    sweeper = start_peer("keep_sweeping", directory)
    assert sweeper.hear() == "sweeping"
    for _ in range(250):
        endpoint = create()
        name = endpoint.id.hex()
        assert probe(directory, endpoint.id) is None
        assert send_signal(directory, endpoint.id)
        assert endpoint.wait(0)
        assert {f"{name}.fifo", f"{name}.lock"} <= set(files(directory))
        endpoint.close()
    sweeper.ask("stop")
    assert files(directory) == []
