"""One suite for the client, every place it runs on: embedded, one server, a cluster; RESP2 and RESP3.

A test asks for ``open_client`` (or ``client``, opened already) and runs once on each place.
What makes sense on some places only is marked ``@SERVERS``, ``@CLUSTERS`` and so on. The cluster
(three primaries, three replicas) is started once a session and emptied between tests. Keys
that go together share a hash tag, so that the same test runs on all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import penstock
from penstock.testing.clusters import RealCluster, start_cluster
from penstock.testing.control import HOST
from penstock.testing.servers import RealServer
from tests.places import until

#: A script that keeps the server busy for a while.
SLOW = "for i = 1, 6e7 do end return 1"

PLACES = ("embedded-3", "embedded-2", "server-3", "server-2", "cluster-3", "cluster-2")


def only_on(*kinds: str) -> pytest.MarkDecorator:
    """For tests of what only these kinds of places have."""
    places = [name for name in PLACES if name.partition("-")[0] in kinds]
    return pytest.mark.parametrize("place", places, indirect=True)


EMBEDDED = only_on("embedded")
SERVERS = only_on("server")
CLUSTERS = only_on("cluster")
SOCKETS = only_on("server", "cluster")
#: Where there is one server.
ALONE = only_on("embedded", "server")


@dataclass(frozen=True)
class Place:
    """Where a test runs, and in which protocol."""

    kind: str
    protocol: int
    url: str
    #: those that were started for it; primaries first
    nodes: tuple[RealServer, ...] = ()

    @property
    def is_cluster(self) -> bool:
        return self.kind == "cluster"

    @property
    def is_embedded(self) -> bool:
        return self.kind == "embedded"

    @property
    def primaries(self) -> tuple[RealServer, ...]:
        return self.nodes[:3]

    @property
    def replicas(self) -> tuple[RealServer, ...]:
        return self.nodes[3:]


def name_of(node: RealServer) -> str:
    """What clients call a node."""
    return f"{HOST}:{node.port}"


class SharedCluster:
    """The session's cluster, started when the first test needs it."""

    def __init__(self) -> None:
        self._cluster: RealCluster | None = None

    def get(self) -> RealCluster:
        if self._cluster is None:
            # Nodes tell of a replica once its offset has moved: by a ping of its primary, usually after 10 s.
            self._cluster = start_cluster(3, 1, options={"repl-ping-replica-period": "1"}).__enter__()
        for node in self._cluster.primaries:
            node.reset()
        return self._cluster

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[SharedCluster]:
    cluster = SharedCluster()
    yield cluster
    cluster.stop()


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    kind, _, word = request.param.partition("-")
    protocol = int(word)
    if kind == "embedded":
        return Place(kind, protocol, str(request.getfixturevalue("tmp_path") / "store.pen"))
    if kind == "server":
        server = request.getfixturevalue("real_servers").get("valkey")
        return Place(kind, protocol, server.url, (server,))
    cluster = request.getfixturevalue("shared_cluster").get()
    return Place(kind, protocol, cluster.url.replace("redis://", "redis-cluster://"), tuple(cluster.nodes))


@pytest.fixture
async def replicas_are_known(place: Place) -> None:
    """Until all nodes tell of all replicas; it is their first minute."""
    await until(lambda: all(_n_listed(node) == len(place.nodes) for node in place.nodes if place.is_cluster))


def _n_listed(node: RealServer) -> int:
    return sum(len(shard) - 2 for shard in node.execute("CLUSTER", "SLOTS"))


OpenClient = Callable[..., penstock.Client]


@pytest.fixture
async def open_client(place: Place) -> AsyncIterator[OpenClient]:
    """Makes clients of the place; they are closed after the test."""
    clients: list[penstock.Client] = []

    def open_one(**settings: Any) -> penstock.Client:
        settings = {"protocol": place.protocol, "durability": "relaxed", **settings}
        clients.append(penstock.open(place.url, **settings))
        return clients[-1]

    yield open_one
    for client in clients:
        await client.close()


@pytest.fixture
async def client(open_client: OpenClient) -> penstock.Client:
    return await open_client()
