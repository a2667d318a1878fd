"""Subscriptions as desired state, against scripted servers: a test asks for ``it``, in RESP2 and RESP3."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.client.pubsub.harness import Setting
from tests.unit.client.waiting import nothing_left_behind


@pytest.fixture(params=[2, 3])
async def it(request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    setting = Setting(request.param)
    yield setting
    for hub in setting.hubs:
        await hub.close()
    nothing_left_behind()
