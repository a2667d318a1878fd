"""Lines reach their descriptor, in order, and nobody waits for those who do not take them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.gateway.observing.outlet import Outlet
from tests.places import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            pass


def test_lines_arrive_in_order_and_by_themselves(tmp_path: Path):
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    outlet = Outlet(descriptor, flush_interval_s=0.01)
    for number in range(100):
        outlet.put(b"%d\n" % number)
    wait_until(lambda: path.read_bytes().count(b"\n") == 100)
    outlet.put(b"after a while\n")
    wait_until(lambda: path.read_bytes().endswith(b"after a while\n"))
    outlet.close()
    os.close(descriptor)
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(100)) + b"after a while\n"
    assert outlet.dropped == 0


def test_close_writes_what_is_left_at_once(tmp_path: Path):
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    outlet = Outlet(descriptor, flush_interval_s=1000)
    outlet.put(b"one\n")
    outlet.close(10)
    outlet.close(10)
    os.close(descriptor)
    assert path.read_bytes() == b"one\n"


def test_a_reader_that_does_not_read_holds_up_nobody(pipe: tuple[int, int]):
    outlet = Outlet(pipe[1], flush_interval_s=0.0, limit_bytes=1_000_000)
    told: list[int] = []
    outlet.on_drop = told.append
    line = b"x" * 999 + b"\n"
    began_s = time.monotonic()
    for _ in range(5000):
        outlet.put(line)
    outlet.close(0.1)
    assert time.monotonic() - began_s < 5
    assert sum(told) == outlet.dropped >= 3900
    assert "dropped" in repr(outlet)
    # Once somebody reads, the thread comes to its end.
    os.set_blocking(pipe[0], False)
    wait_until(lambda: _drained(pipe[0]) and outlet._thread is not None and not outlet._thread.is_alive())


def _drained(descriptor: int) -> bool:
    try:
        while os.read(descriptor, 1_000_000):
            pass
    except BlockingIOError:
        pass
    return True


def test_a_descriptor_that_fails_costs_its_lines_only(pipe: tuple[int, int]):
    os.close(pipe[0])
    outlet = Outlet(pipe[1], flush_interval_s=0.0)
    outlet.put(b"a\nb\n")
    wait_until(lambda: outlet.dropped == 2)
    outlet.put(b"c\n")
    wait_until(lambda: outlet.dropped == 3)
    outlet.close(10)


def test_threads_lose_nothing(tmp_path: Path):
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    outlet = Outlet(descriptor, flush_interval_s=0.0)

    def write(name: int) -> None:
        for number in range(2000):
            outlet.put(b"%d %d\n" % (name, number))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outlet.close(10)
    os.close(descriptor)
    lines = path.read_bytes().splitlines()
    assert outlet.dropped == 0
    assert sorted(lines) == sorted(b"%d %d" % (name, n) for name in range(4) for n in range(2000))


def test_an_outlet_without_lines_has_no_thread(pipe: tuple[int, int]):
    outlet = Outlet(pipe[1])
    assert outlet._thread is None
    outlet.close()
