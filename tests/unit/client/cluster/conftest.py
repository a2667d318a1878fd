"""Where commands go in a cluster, and what becomes of them when it changes: on scripted servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.client.cluster.fake_cluster import FakeCluster


@pytest.fixture
async def it() -> AsyncIterator[FakeCluster]:
    fake = FakeCluster()
    yield fake
    await fake.close()
