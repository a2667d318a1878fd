"""One worker of a gateway as a process of its own, to be killed: what a supervisor starts, without one.

    python -m tests.crash.gateway_worker CONFIG-FILE LISTENER-FD

A supervisor lets workers that die often wait longer and longer, so a storm of kills starts them itself. They
listen on a socket that they inherit, as all workers of one port do. Must not import pytest.
"""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from pathlib import Path

from penstock.gateway import transacting
from penstock.gateway.config import load
from penstock.gateway.hooks import service
from penstock.gateway.running import run_worker

ROOT = Path(__file__).parents[2]
#: Of webhooks: what a killed one had in its hands is sent by others soon, not after the usual ten seconds.
LEASE_MS = 2_000


def listener() -> socket.socket:
    """A free port of the loopback that workers can share."""
    shared = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    shared.set_inheritable(True)
    return shared


def spawn(config: Path, shared: socket.socket, log: Path) -> subprocess.Popen[bytes]:
    """A worker that serves this socket, as soon as it can."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.gateway_worker", str(config), str(shared.fileno())],
            cwd=ROOT,
            pass_fds=[shared.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


if __name__ == "__main__":
    service._LEASE_MS = transacting._LEASE_MS = LEASE_MS  # type: ignore[misc]
    payload = pickle.dumps(load(Path(sys.argv[1]), environment={}))
    sys.exit(run_worker(payload, int(sys.argv[2]), 0, 1))
