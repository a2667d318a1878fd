"""One Spark session a test process, and stores for it: embedded, a server, a cluster (``places``).

A session takes seconds to start, and the first query of each kind another one. So tests share it, each brings
its own store, and each shows much.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock.blocking
from penstock.testing.clusters import RealCluster, start_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake import Lake


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for a JVM to start and to warm up, minutes where others are at work."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import penstock.spark

    session = penstock.spark.session(
        "penstock-tests", master="local[2]", conf={"spark.driver.memory": "1g", "spark.task.maxFailures": "1"}
    )
    yield session
    session.stop()


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match getattr(request, "param", "embedded"):
        case "server":
            return str(request.getfixturevalue("real_servers").get("valkey").url)
        case "cluster":
            nodes: RealCluster = request.getfixturevalue("cluster")
            for node in nodes.primaries:
                node.reset()
            return nodes.url.replace("redis://", "redis-cluster://")
    return f"embedded:{tmp_path / 'store.pen'}?durability=relaxed"


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    with start_cluster(3, 0) as nodes:
        yield nodes


@pytest.fixture
def ps(url: str) -> Iterator[penstock.blocking.Client]:
    with penstock.blocking.open(url) as client:
        yield client


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    from penstock.lake import Lake

    return Lake.open(tmp_path / "lake")
