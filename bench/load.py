"""Load on a RESP server: ``redis-benchmark`` where it is installed, else a small one of our own.

Both send the same commands from many connections with a given pipeline depth and
answer requests per second. Ours is an epoll loop that counts replies by their length,
which is constant for each command once the keys exist.
"""

from __future__ import annotations

import csv
import io
import select
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import Final

VALUE: Final = b"xxx"

#: name → command, the same that redis-benchmark sends
COMMANDS: Final[dict[str, tuple[bytes, ...]]] = {
    "SET": (b"SET", b"key:__rand_int__", VALUE),
    "GET": (b"GET", b"key:__rand_int__"),
    "INCR": (b"INCR", b"counter:__rand_int__"),
    "LPUSH": (b"LPUSH", b"mylist", VALUE),
    "HSET": (b"HSET", b"myhash", b"element:__rand_int__", VALUE),
    "ZADD": (b"ZADD", b"myzset", b"0", b"element:__rand_int__"),
}


@dataclass(frozen=True, slots=True)
class Load:
    command: str
    connections: int
    pipeline: int
    requests: int


def generator_name() -> str:
    return "redis-benchmark" if shutil.which("redis-benchmark") else "the load program in bench/load.py"


def run(port: int, load: Load) -> float:
    """Requests a second."""
    if shutil.which("redis-benchmark"):
        return _redis_benchmark(port, load)
    return _own(port, load)


def _redis_benchmark(port: int, load: Load) -> float:
    done = subprocess.run(
        [
            "redis-benchmark", "-p", str(port), "-t", load.command.lower(), "-n", str(load.requests),
            "-c", str(load.connections), "-P", str(load.pipeline), "--csv",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    return float(next(row["rps"] for row in rows if row["test"].startswith(load.command)))


def _encode(words: tuple[bytes, ...]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _own(port: int, load: Load) -> float:
    payload = _encode(COMMANDS[load.command]) * load.pipeline
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(load.connections)]
    poller = select.epoll()
    waiting: dict[int, int] = {}
    by_fd = {}
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poller.register(sock, select.EPOLLIN)
        by_fd[sock.fileno()] = sock
        waiting[sock.fileno()] = load.pipeline
    sent = done = 0
    started = time.perf_counter()
    for sock in sockets:
        sock.sendall(payload)
        sent += load.pipeline
    while done < load.requests:
        for fd, _ in poller.poll():
            # Every reply of these commands is one line, or a bulk of two (GET).
            lines = by_fd[fd].recv(65536).count(b"\r\n") // (2 if load.command == "GET" else 1)
            done += lines
            waiting[fd] -= lines
            if waiting[fd] == 0 and sent < load.requests:
                by_fd[fd].sendall(payload)
                waiting[fd] = load.pipeline
                sent += load.pipeline
            if sent >= load.requests and not any(waiting.values()):
                done = load.requests
    elapsed = time.perf_counter() - started
    poller.close()
    for sock in sockets:
        sock.close()
    return sent / elapsed
