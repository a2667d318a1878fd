"""Who is measured, on what, and how it is run: one process a run, which prints its figures as JSON.

A contender on Redis gets a server of its own for every run, one on SQLite or an embedded store an empty
directory: nobody pays for what another left behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from bench.transaction_peers.environments import ContenderError, python_with
from penstock.testing.servers import RealServer, ServerBinary

Store = Literal["redis", "sqlite", "embedded"]

_ROOT: Final = Path(__file__).resolve().parents[2]
#: A run that takes longer is stuck: the slowest take a minute or two, a fill of a million some ten.
_LIMIT_S: Final = 3_600.0
_ASYNCHRONOUS: Final = ("hiredis==3.5.0", "uvloop==0.23.0")


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    script: str
    store: Store
    #: What is installed for it, in the environment of this name; ours needs none.
    environment: str = ""
    requirements: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    #: Of the number of jobs; less for those that would take minutes.
    share: float = 1.0
    #: Whether a reply means that it is on disk; on Redis the server's setting says so.
    is_synced: bool = True

    @property
    def is_ours(self) -> bool:
        return not self.requirements

    def on_disk(self, fsync: str) -> str:
        if self.store == "redis":
            return "at once" if fsync == "always" else "within 1 s"
        return "at once" if self.is_synced else "some time"


_HUEY: Final = ("huey==3.5.4",)
_DBOS: Final = ("dbos==3.3.0",)

OURS_ON_REDIS: Final = Contender("Penstock, Redis", "penstock_worker", "redis")
OURS_ALWAYS: Final = Contender(
    "Penstock, embedded, always", "penstock_worker", "embedded", options=("--durability", "always")
)
OURS_RELAXED: Final = Contender(
    "Penstock, embedded, relaxed",
    "penstock_worker",
    "embedded",
    options=("--durability", "relaxed"),
    is_synced=False,
)

CONTENDERS: Final = (
    OURS_ON_REDIS,
    Contender(
        "taskiq, Redis",
        "taskiq_worker",
        "redis",
        "taskiq",
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", *_ASYNCHRONOUS),
    ),
    Contender(
        "SAQ, Redis",
        "saq_worker",
        "redis",
        "saq",
        # SAQ imports typing_extensions and does not ask for it.
        ("saq[redis,hiredis]==0.26.4", "typing_extensions==4.16.0", *_ASYNCHRONOUS),
    ),
    Contender("arq, Redis", "arq_worker", "redis", "arq", ("arq==0.28.0", *_ASYNCHRONOUS)),
    Contender(
        "dramatiq, Redis",
        "dramatiq_worker",
        "redis",
        "dramatiq",
        ("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
    ),
    OURS_ALWAYS,
    OURS_RELAXED,
    Contender("Huey, SQLite", "huey_worker", "sqlite", "huey", _HUEY),
    # Its threads wait for one lock, so that one of them is faster than many.
    Contender("Huey, SQLite, 1 thread", "huey_worker", "sqlite", "huey", _HUEY, ("--concurrency", "1")),
    Contender(
        "DBOS, SQLite, queued", "dbos_worker", "sqlite", "dbos", _DBOS, ("--mode", "queued"), share=0.05
    ),
    Contender(
        "DBOS, SQLite, inline", "dbos_worker", "sqlite", "dbos", _DBOS, ("--mode", "inline"), share=0.05
    ),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a contender works: a server, or a directory."""

    server: RealServer | None
    directory: Path

    def address_for(self, contender: Contender) -> str:
        if self.server is not None:
            return self.server.url if contender.is_ours else str(self.server.port)
        return str(self.directory / "store.pen") if contender.is_ours else str(self.directory)

    def used_bytes(self) -> int:
        """In memory for a server, else on disk; the files of a store may have holes."""
        if self.server is not None:
            return int(self.server.info("memory")["used_memory"])
        return sum(path.stat().st_blocks * 512 for path in self.directory.rglob("*") if path.is_file())


@contextmanager
def place(store: Store, binary: ServerBinary, fsync: str) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        if store != "redis":
            yield Place(None, Path(directory))
            return
        with RealServer(binary, options={"appendonly": "yes", "appendfsync": fsync}) as server:
            yield Place(server, Path(directory))


def interpreter(contender: Contender, cache: Path) -> Path:
    if contender.is_ours:
        return Path(sys.executable)
    return python_with(contender.environment, contender.requirements, cache)


def run(contender: Contender, python: Path, where: Place, count: int, *options: str) -> dict[str, Any]:
    """The figures of one run; ``ContenderError`` with the script's last words if there are none.

    A contender's own options win over those given.
    """
    command = [str(python), "-m", f"bench.transaction_peers.{contender.script}", where.address_for(contender)]
    try:
        done = subprocess.run(
            [*command, str(count), *options, *contender.options],
            cwd=_ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ContenderError(f"it took longer than {_LIMIT_S:g} s") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        words = done.stderr.strip().splitlines()
        raise ContenderError(f"its script failed: {words[-1] if words else f'status {done.returncode}'}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures
