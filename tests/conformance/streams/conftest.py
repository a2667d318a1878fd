"""The stream commands of ``docs/streams.md``, one suite on every backend.

==========  ==================================================================================
valkey      scripts over the streams of a real Valkey
redis       the same on a real Redis
cluster     the same on three nodes
embedded    the engine in process
server      ``penstock serve``
==========  ==================================================================================

``test_NN_…`` belongs to requirement NN of the stream specification; what has no number came after it:
1–6 and 32 ``test_writing``, 7–11 ``test_reading``, 12–15 ``test_groups``, 16–23 ``test_delivering``,
24–28 ``test_evicting``, 29–31 ``test_keeping``. Tests wait for conditions, and sleep only until a retry
time is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import penstock
from tests import places
from tests.conformance.streams.stores import Store

BACKENDS = ["valkey", "redis", "cluster", "embedded", "server"]


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of("served" if request.param == "server" else request.param, request)


@pytest.fixture
async def db(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Store]:
    async with penstock.open(url) as client:
        yield Store(request.node.callspec.params["url"], client)
