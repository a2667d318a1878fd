"""The file half of signalling between processes, with real processes and real kills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.engine.bus.endpoint import Endpoint
from tests.unit.bus.endpoints import Peer, StartPeer


@pytest.fixture
def start_peer() -> Iterator[StartPeer]:
    peers: list[Peer] = []

    def start(role: str, *arguments: object) -> Peer:
        peers.append(Peer(role, *arguments))
        return peers[-1]

    yield start
    for peer in peers:
        peer.end()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "signals"


@pytest.fixture
def create(directory: Path) -> Iterator[Callable[[], Endpoint]]:
    endpoints: list[Endpoint] = []

    def create_one() -> Endpoint:
        endpoints.append(Endpoint.create(directory))
        return endpoints[-1]

    yield create_one
    for endpoint in endpoints:
        endpoint.close()


@pytest.fixture
def endpoint(create: Callable[[], Endpoint]) -> Endpoint:
    return create()
