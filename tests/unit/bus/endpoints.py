"""Endpoints of other processes (``peer.py``), which are really killed, and the files they leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock.errors
from penstock.engine.bus.endpoint import probe

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
GONE = bytes(20)


class Peer:
    """Another process, see ``peer.py``."""

    def __init__(self, role: str, *arguments: object) -> None:
        source_root = Path(penstock.errors.__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("peer.py")), role, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(source_root)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def hear(self) -> str:
        return self._from.readline().decode().strip()

    def tell(self, word: str) -> None:
        self._to.write(word.encode() + b"\n")
        self._to.flush()

    def ask(self, word: str) -> str:
        self.tell(word)
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self._to.close()  # also ends a forked child that still listens
        self.kill()
        self._from.read()
        self._from.close()


StartPeer = Callable[..., Peer]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def is_alive(directory: Path, endpoint_id: bytes) -> bool:
    dead = probe(directory, endpoint_id)
    if dead is not None:
        dead.release()
    return dead is None


def make_old(directory: Path, age_s: float = 3600.0) -> None:
    for path in directory.iterdir():
        os.utime(path, (time.time() - age_s,) * 2)


def dead_endpoint(directory: Path, start_peer: StartPeer) -> bytes:
    owner = start_peer("own", directory)
    endpoint_id = bytes.fromhex(owner.hear())
    owner.kill()
    return endpoint_id


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return fail
