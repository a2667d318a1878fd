"""A store, a session on it, and other processes that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.engine import Engine, LocalSession
from tests.integration.peers import Peer


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.pen"


@pytest.fixture
def engine(store: Path) -> Iterator[Engine]:
    with Engine.open(store, durability="relaxed") as engine:
        yield engine


@pytest.fixture
def session(engine: Engine) -> Iterator[LocalSession]:
    with LocalSession(engine) as session:
        yield session


@pytest.fixture
def start_peer(store: Path, engine: Engine) -> Iterator[Callable[[], Peer]]:
    peers: list[Peer] = []

    def start() -> Peer:
        peers.append(Peer(store))
        return peers[-1]

    yield start
    for one in peers:
        if one.process.is_alive():
            one.kill()
