"""Signals: they stay until they are taken, and none is lost.

``Signaller`` is imported under its own name, ``signal`` as ``send_signal`` because the
standard module of that name is needed too.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.bus import signalling
from penstock.engine.bus.endpoint import Endpoint, Signaller
from penstock.engine.bus.endpoint import signal as send_signal
from penstock.errors import ClosedError
from tests.unit.bus.endpoints import GONE, StartPeer, dead_endpoint, failing, files
from tests.unit.bus.peer import BOARD_BYTES, LOST_S, Player, open_files_in


def test_signal_is_sticky_until_drained(directory: Path, endpoint: Endpoint) -> None:
    assert not endpoint.wait(0)
    assert send_signal(directory, endpoint.id)
    assert send_signal(directory, endpoint.id)
    assert select.select([endpoint], [], [], 0)[0]
    endpoint.drain()
    assert not select.select([endpoint], [], [], 0)[0]
    assert not endpoint.wait(0.001)
    send_signal(directory, endpoint.id)
    assert endpoint.wait(LOST_S)
    assert not endpoint.wait(-1.0)


def test_ticket_from_before_a_drain_wakes_at_once(directory: Path, endpoint: Endpoint) -> None:
    ticket = endpoint.drain()
    send_signal(directory, endpoint.id)
    endpoint.drain()  # by another thread, say
    assert endpoint.wait(0, ticket)
    assert not endpoint.wait(0, endpoint.drain())


def test_full_pipe_is_as_good_as_signalled(directory: Path, endpoint: Endpoint) -> None:
    signaller = Signaller(directory)
    writer = os.open(directory / f"{endpoint.id.hex()}.fifo", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"\0")
    os.close(writer)
    assert send_signal(directory, endpoint.id)
    assert signaller.signal(endpoint.id)
    assert signaller.signal(endpoint.id)
    endpoint.drain()
    assert not endpoint.wait(0)
    assert signaller.signal(endpoint.id)
    assert endpoint.wait(0)
    signaller.close()


def test_signalling_the_gone_is_harmless(directory: Path, start_peer: StartPeer) -> None:
    endpoint_id = dead_endpoint(directory, start_peer)
    assert not send_signal(directory, endpoint_id)  # ENXIO: nobody reads
    assert not send_signal(directory, GONE)  # ENOENT
    signaller = Signaller(directory)
    assert not signaller.signal(endpoint_id)
    assert not signaller.signal(GONE)
    assert repr(signaller) == "<Signaller open, 0/128 writers>"


def test_signaller_drops_the_writer_of_a_dead_reader(directory: Path, start_peer: StartPeer) -> None:
    owner = start_peer("own", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    signaller = Signaller(directory)
    assert signaller.signal(endpoint_id)
    owner.kill()
    assert repr(signaller) == "<Signaller open, 1/128 writers>"
    assert not signaller.signal(endpoint_id)  # EPIPE
    assert repr(signaller) == "<Signaller open, 0/128 writers>"


def test_signaller_keeps_the_latest_writers(directory: Path, create: Callable[[], Endpoint]) -> None:
    first, second, third = (create().id for _ in range(3))
    signaller = Signaller(directory, keep=2)
    for endpoint_id in (first, second, first, third):
        assert signaller.signal(endpoint_id)
    assert repr(signaller) == "<Signaller open, 2/2 writers>"
    for path in directory.glob("*.fifo"):
        path.unlink()  # from here on only kept writers reach anybody
    assert [signaller.signal(endpoint_id) for endpoint_id in (first, second, third)] == [True, False, True]
    signaller.forget(first)
    signaller.forget(GONE)
    assert not signaller.signal(first)
    signaller.close()
    signaller.close()
    with pytest.raises(ClosedError):
        signaller.signal(third)
    assert repr(signaller) == "<Signaller closed, 0/2 writers>"


def test_signaller_gives_up_a_writer_when_descriptors_run_out(
    directory: Path, create: Callable[[], Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = create(), create()
    signaller = Signaller(directory)
    assert signaller.signal(first.id)
    outcomes: list[Callable[..., Any]] = [failing(errno.EMFILE), signalling._open_writer]
    monkeypatch.setattr(signalling, "_open_writer", lambda *arguments: outcomes.pop(0)(*arguments))
    assert signaller.signal(second.id)
    assert repr(signaller) == "<Signaller open, 1/128 writers>"
    assert second.wait(0)
    signaller.close()


def test_wait_is_not_ended_by_other_signals_of_the_system(directory: Path, endpoint: Endpoint) -> None:
    interruptions = 0

    def interrupt(*_: object) -> None:
        nonlocal interruptions
        interruptions += 1
        if interruptions == 5:
            send_signal(directory, endpoint.id)

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        assert endpoint.wait(LOST_S)
        assert interruptions >= 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


async def test_event_loop_reads_the_endpoint(directory: Path, endpoint: Endpoint) -> None:
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def on_readable() -> None:
        endpoint.drain()
        woken.set()

    loop.add_reader(endpoint, on_readable)
    try:
        for _ in range(3):
            woken.clear()
            assert await asyncio.to_thread(send_signal, directory, endpoint.id)
            await asyncio.wait_for(woken.wait(), LOST_S)
    finally:
        loop.remove_reader(endpoint)


# ---------------------------------------------------------------------------------- no lost wake-up


def test_two_processes_lose_no_wake_up(
    directory: Path, tmp_path: Path, endpoint: Endpoint, start_peer: StartPeer
) -> None:
    rounds = 2500
    board = tmp_path / "board"
    board.write_bytes(bytes(BOARD_BYTES))
    signaller = Signaller(directory)
    other = start_peer("play", directory, board, endpoint.id.hex(), rounds, 2)
    other_id = bytes.fromhex(other.hear())
    Player(endpoint, board, side=0, seed=1).rally(rounds, lambda: signaller.signal(other_id))
    assert other.hear() == "done"
    signaller.close()
    endpoint.close()
    assert files(directory) == []


def test_threads_of_one_endpoint_lose_no_wake_up(directory: Path, endpoint: Endpoint) -> None:
    """Receivers get balls in turn, while thieves drain the same FIFO all the time."""
    balls = [0, 0, 0]
    caught = threading.Semaphore(0)
    lost: list[int] = []
    stop = threading.Event()
    rounds = 400

    def receive(side: int) -> None:
        for ball in range(1, rounds + 1):
            while True:
                ticket = endpoint.drain()
                if balls[side] == ball:
                    break
                if not endpoint.wait(LOST_S, ticket):
                    lost.append(ball)
                    break
            caught.release()

    def steal() -> None:
        while not stop.is_set():
            endpoint.wait(0.0002, endpoint.drain())

    receivers = [threading.Thread(target=receive, args=(side,)) for side in range(len(balls))]
    thieves = [threading.Thread(target=steal) for _ in range(2)]
    for thread in receivers + thieves:
        thread.start()
    for ball in range(1, rounds + 1):
        for side in range(len(balls)):
            balls[side] = ball
            send_signal(directory, endpoint.id)
            assert caught.acquire(timeout=2 * LOST_S)
            if lost:
                break
    stop.set()
    for thread in thieves:
        thread.join()
    if lost:
        endpoint.close()  # frees receivers that would wait for balls never thrown
    for thread in receivers:
        thread.join()
    assert lost == []


def test_close_wakes_whoever_waits(directory: Path, endpoint: Endpoint) -> None:
    outcomes: list[object] = []

    def wait() -> None:
        try:
            outcomes.append(endpoint.wait(math.inf))
        except ClosedError:
            outcomes.append("closed")

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not repr(endpoint).endswith("open, polled>"):
        time.sleep(0)
    endpoint.close()
    for thread in threads:
        thread.join(LOST_S)
    assert outcomes == ["closed"] * 3
    assert files(directory) == []
    if Path("/proc/self/fd").is_dir():
        assert open_files_in(directory) == []
