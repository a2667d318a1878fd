"""The way to one server (``penstock.client.link``): a test asks for ``it`` and makes its links there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.client.link.harness import Setting
from tests.unit.client.waiting import nothing_left_behind


@pytest.fixture
async def it() -> AsyncIterator[Setting]:
    setting = Setting()
    yield setting
    for link in setting.links:
        await link.close()
    nothing_left_behind()
