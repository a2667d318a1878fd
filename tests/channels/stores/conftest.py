"""Several stores behind one name, of which some fail, lag, or are replaced. Faults are made on purpose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.channels.stores import ChannelStores
from penstock.clock import ManualClock
from tests.channels.stores.support import embedded_urls, opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def pair(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ChannelStores]:
    """Two stores of which one is enough."""
    async with opened(embedded_urls(tmp_path, "ab"), 1, clock=clock) as stores:
        yield stores


@pytest.fixture
async def three(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ChannelStores]:
    """Three stores of which two are needed."""
    async with opened(embedded_urls(tmp_path, "abc"), 2, clock=clock) as stores:
        yield stores
