"""Servers for every suite: one of each kind, started on first use, shared by the session.

    def test_something(real_server): ...        # runs once on Valkey and once on Redis

Valkey comes from a wheel, so it must be there in CI; a ``redis-server`` is used where
PATH has one. Locally, a test without its server is skipped and says why. Who wants a test to run on
several kinds of places has them from ``tests/places.py``.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import httpcore
import pytest

import penstock.blocking
from penstock.engine.scripting import runtime, sandbox
from penstock.testing.clusters import RealCluster, start_cluster
from penstock.testing.own_server import PenstockServer
from penstock.testing.servers import Kind, RealServer, ServerUnavailableError, find_server

_SPARK = "tests/spark/"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Tens of thousands of tests stay until the end: the collector need not look at them again and again.

    A full collection would take a second, in the middle of some test that counts milliseconds.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is the work of one process, and so are all that share a Spark session: warm is better."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileAndSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _SPARK if nodeid.startswith(_SPARK) else super()._split_scope(nodeid)

    return ByFileAndSession(config, log)


class RealServers:
    """The servers of this session by kind. A server that a test has killed is replaced."""

    def __init__(self) -> None:
        self._servers: dict[Kind, RealServer] = {}

    def get(self, kind: Kind) -> RealServer:
        """A running, empty server of this kind; skips or fails the calling test if there is none."""
        if kind not in self._servers:
            self._servers[kind] = RealServer(self._binary(kind))
        server = self._servers[kind].start()
        server.reset()
        return server

    @staticmethod
    def _binary(kind: Kind):
        try:
            return find_server(kind)
        except ServerUnavailableError as error:
            if kind == "valkey" and os.environ.get("CI") == "true":
                pytest.fail(str(error))
            pytest.skip(str(error))

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()


@pytest.fixture(scope="session")
def real_servers() -> Iterator[RealServers]:
    servers = RealServers()
    yield servers
    servers.stop()


@pytest.fixture(params=["valkey", "redis"])
def real_server(request: pytest.FixtureRequest, real_servers: RealServers) -> RealServer:
    """An empty real server; the test runs once on each kind. Shared: do not reconfigure it."""
    return real_servers.get(request.param)


@pytest.fixture
def redis_server(real_servers: RealServers) -> RealServer:
    """An empty Redis, the reference where Redis and Valkey differ."""
    return real_servers.get("redis")


@pytest.fixture
def valkey_server(real_servers: RealServers) -> RealServer:
    """An empty Valkey, which every test run has."""
    return real_servers.get("valkey")


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """Three primaries without replicas, as the last test left them."""
    with start_cluster(3, 0) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(cluster: RealCluster) -> RealCluster:
    """The same, emptied. Do not reconfigure it, and leave its slots where they are."""
    for node in cluster.primaries:
        node.reset()
    return cluster


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    """``penstock serve``, as the last test left it."""
    path = tmp_path_factory.mktemp("served") / "store.pen"
    with PenstockServer(path, durability="relaxed") as server:
        yield server


@pytest.fixture
def own_server(shared_server: PenstockServer) -> PenstockServer:
    """The same, emptied."""
    with penstock.blocking.open(shared_server.url) as client:
        client.execute("FLUSHALL")
        client.execute("SCRIPT", "FLUSH")
    return shared_server


#: Functions whose answers stay the same: certificates of all authorities, bytecode of scripts.
_WORKED_OUT_ONCE = (
    (httpcore, "default_ssl_context"),
    (sandbox, "keep_all_frames"),
    (runtime, "keep_frames"),
)


@pytest.fixture(scope="session", autouse=True)
def worked_out_once() -> Iterator[None]:
    """Tests open thousands of stores and senders; a program opens one, and need not keep such things."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in _WORKED_OUT_ONCE:
            patch.setattr(module, name, functools.lru_cache(maxsize=1_000)(getattr(module, name)))
        yield


@pytest.fixture(autouse=True)
def stores_of_spark_are_closed() -> Iterator[None]:
    """What a driver keeps open for its next query would be seen by the tests that count open stores."""
    yield
    stores = sys.modules.get("penstock.spark.stores")
    if stores is not None:
        stores.close_stores()
