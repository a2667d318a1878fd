"""The other process in the tests of the bus: roles to play, told by lines.

    python peer.py ROLE DIRECTORY [ARGUMENT...]

A peer prints a line when it is ready and then answers each line that it reads. It ends
when its standard input does, without cleaning up: an orderly close has to be asked for.
Also holds what both sides of a game need. Must not import pytest: peers start often.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import select
import signal as posix_signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.engine.bus.endpoint import Endpoint, probe, signal, sweep

#: Nothing on a living machine takes so long; whoever sleeps through it has lost a wake-up.
LOST_S = 20.0

BOARD_BYTES = 2


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def hear() -> str:
    # Unbuffered, so that after a fork the child finds the lines that the parent did not take.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


# ------------------------------------------------------------------------------- ping-pong


class Player:
    """One side of a rally over a shared board, keeping the protocol to the letter.

    The board stands for the database: one byte a side, so that every "commit" is atomic.
    ``stutter`` delays at random between any two steps, to reach every interleaving.
    """

    def __init__(self, endpoint: Endpoint, board: Path, side: int, seed: int) -> None:
        self._endpoint = endpoint
        self._side = side
        self._random = random.Random(seed)
        with board.open("r+b") as file:
            self._board = mmap.mmap(file.fileno(), BOARD_BYTES)

    def rally(self, rounds: int, send: Callable[[], object]) -> None:
        for number in range(1, rounds + 1):
            ball = number % 256
            if self._side == 0:
                self._hit(ball, send)
                self._await(ball, number)
            else:
                self._await(ball, number)
                self._hit(ball, send)

    def _hit(self, ball: int, send: Callable[[], object]) -> None:
        self._stutter()
        self._board[self._side] = ball
        self._stutter()
        send()

    def _await(self, ball: int, number: int) -> None:
        while True:
            self._stutter()
            ticket = self._endpoint.drain()
            self._stutter()
            if self._board[1 - self._side] == ball:
                return
            self._stutter()
            if not self._endpoint.wait(LOST_S, ticket):
                raise AssertionError(f"side {self._side} lost the wake-up of round {number}")

    def _stutter(self) -> None:
        chance = self._random.random()
        if chance < 0.15:
            time.sleep(self._random.random() * 1e-4)
        elif chance < 0.4:
            time.sleep(0)  # give up the processor


def play(directory: Path, board: str, other: str, rounds: str, seed: str) -> None:
    """Side 1, with a writer opened for each signal."""
    endpoint = Endpoint.create(directory)
    say(endpoint.id.hex())
    Player(endpoint, Path(board), 1, int(seed)).rally(
        int(rounds), lambda: signal(directory, bytes.fromhex(other))
    )
    endpoint.close()
    say("done")


# ----------------------------------------------------------------------------- other roles


def own(directory: Path) -> None:
    endpoint = Endpoint.create(directory)
    say(endpoint.id.hex())
    while line := hear():
        if line == "wait":
            say("waiting")
            say(endpoint.wait(LOST_S))
        elif line == "close":
            endpoint.close()
            say("closed")
    os._exit(0)  # as abrupt as a kill


def own_and_fork(directory: Path) -> None:
    """After the fork only the child listens; it outlives its parent."""
    endpoint = Endpoint.create(directory)
    if os.fork():
        say(endpoint.id.hex())
        posix_signal.pause()
    while line := hear():
        say(f"child heard {line}")
    os._exit(0)


def fork_among_threads(directory: Path, dead: str, forks: str) -> None:
    """Fork while other threads open and close locks; no child may keep one."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            found = probe(directory, bytes.fromhex(dead))
            if found is not None:
                found.release()
            Endpoint.create(directory).close()

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    kept = 0
    for _ in range(int(forks)):
        child = os.fork()
        if not child:
            os._exit(len(open_files_in(directory)))
        kept += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    stop.set()
    for thread in threads:
        thread.join()
    say(kept)


def keep_sweeping(directory: Path) -> None:
    """Bury whatever can be had, however young, until told to stop."""
    say("sweeping")
    buried = 0
    while not select.select([0], [], [], 0)[0]:
        for dead in sweep(directory, now_s=time.time(), older_than_s=0.0):
            dead.bury()
            buried += 1
    say(buried)


def crash(directory: Path, function: str, call: str) -> None:
    """Create and close an endpoint; die at the given call of a system function."""
    module, name = {"flock": (fcntl, "flock"), "mkfifo": (os, "mkfifo"), "unlink": (os, "unlink")}[function]
    original = getattr(module, name)
    left = int(call)

    def deadly(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), posix_signal.SIGKILL)
        return original(*arguments, **options)

    setattr(module, name, deadly)
    Endpoint.create(directory).close()
    say("survived")


def open_files_in(directory: Path) -> list[int]:
    """Descriptors of this process that lead into the directory (Linux)."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)  # noqa: PTH115 (a deleted target is no path)
        except FileNotFoundError:
            continue  # the descriptor of this very listing
        if target.startswith(f"{directory}/"):
            found.append(int(entry.name))
    return found


ROLES: dict[str, Callable[..., None]] = {
    role.__name__: role for role in (own, own_and_fork, fork_among_threads, keep_sweeping, crash, play)
}


if __name__ == "__main__":
    ROLES[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
