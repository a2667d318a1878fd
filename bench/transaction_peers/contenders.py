"""Who is measured, on what, and how it is run: one process a run, which prints its figures as JSON.

A contender on Redis gets a server of its own for every run, one on SQLite or an embedded store an empty
directory: nobody pays for what another left behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from bench.environments import ASYNCHRONOUS, figures_of, python_with
from penstock.testing.servers import RealServer, ServerBinary

Store = Literal["redis", "sqlite", "embedded"]


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    script: str
    store: Store
    #: What is installed for it, in the environment of this name; ours needs none.
    environment: str = ""
    requirements: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    #: Of the number of jobs: less for those that would take minutes, more where a round would end at once.
    share: float = 1.0
    #: How many times as many jobs a second ours shall process.
    aim: float | None = None
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

OURS_ON_REDIS: Final = Contender("Penstock, Redis", "penstock_worker", "redis", share=4.0)
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
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", *ASYNCHRONOUS),
        aim=4.0,
    ),
    Contender(
        "SAQ, Redis",
        "saq_worker",
        "redis",
        "saq",
        # SAQ imports typing_extensions and does not ask for it.
        ("saq[redis,hiredis]==0.26.4", "typing_extensions==4.16.0", *ASYNCHRONOUS),
        aim=4.0,
    ),
    Contender("arq, Redis", "arq_worker", "redis", "arq", ("arq==0.28.0", *ASYNCHRONOUS), aim=4.0),
    Contender(
        "dramatiq, Redis",
        "dramatiq_worker",
        "redis",
        "dramatiq",
        ("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
        aim=4.0,
    ),
    OURS_ALWAYS,
    OURS_RELAXED,
    Contender("Huey, SQLite", "huey_worker", "sqlite", "huey", _HUEY),
    # Its threads wait for one lock, so that one of them is faster than many.
    Contender("Huey, SQLite, 1 thread", "huey_worker", "sqlite", "huey", _HUEY, ("--concurrency", "1")),
    Contender(
        "DBOS, SQLite, queued",
        "dbos_worker",
        "sqlite",
        "dbos",
        _DBOS,
        ("--mode", "queued"),
        share=0.07,
        aim=20.0,
    ),
    Contender(
        "DBOS, SQLite, inline",
        "dbos_worker",
        "sqlite",
        "dbos",
        _DBOS,
        ("--mode", "inline"),
        share=0.07,
        aim=20.0,
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
    return python_with(contender.environment, contender.requirements, cache)


def run(contender: Contender, python: Path, where: Place, count: int, *options: str) -> dict[str, Any]:
    """The figures of one run. A contender's own options win over those given."""
    module = f"bench.transaction_peers.{contender.script}"
    return figures_of(python, module, where.address_for(contender), str(count), *options, *contender.options)
