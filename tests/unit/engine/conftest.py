"""An engine with a clock that moves when told to, and a caller; files that need another have their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine
from tests.unit.engine.stream_clients import Client


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed", clock=clock) as engine:
        yield engine


@pytest.fixture
def do(engine: Engine) -> Client:
    return Client(engine)
