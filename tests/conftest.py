"""Real servers for every suite: one of each kind, started on first use, shared by the session.

    def test_something(real_server): ...        # runs once on Valkey and once on Redis

Valkey comes from a wheel, so it must be there in CI; a ``redis-server`` is used where
PATH has one. Locally, a test without its server is skipped and says why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.testing.servers import Kind, RealServer, ServerUnavailableError, find_server


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
