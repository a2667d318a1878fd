"""Random calls on one partition of transactions, compared with a naive model (``transaction_model``).

On an engine whose clock is ours everything is compared, times too; on Valkey time cannot be moved, so there
something is due at once or never, and times are left out. After every call all records and lists must be the
model's, and the invariants of ``penstock.transactions.model`` must hold over the raw keys. In the end nobody
may stand still.

    PENSTOCK_TRANSACTION_SEED   the random choices of an earlier run, which a failure prints
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.clock import ManualClock
from penstock.engine import Engine
from penstock.errors import CommandError
from penstock.testing.servers import RealServer
from tests.effort import scaled, seed_of
from tests.model.transaction_pair import Both

SEED = seed_of("PENSTOCK_TRANSACTION_SEED")
_STEPS = 450


class EngineClient:
    """As much of a client as the store needs, over an engine with a clock of ours."""

    settings = SimpleNamespace(decode_responses=False)
    is_cluster = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._replies: list[Any] = []
        self._session = engine.session(self._replies.append)
        self._session.protocol = 3

    async def execute(self, *words: Any, timeout_ms: int | None = None) -> Any:
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self._engine.execute([(self._session, argv)])
        reply = self._replies.pop()
        if isinstance(reply, CommandError):
            raise reply
        return reply


async def run(both: Both, steps: int) -> None:
    print(f"PENSTOCK_TRANSACTION_SEED={SEED}")  # noqa: T201  (shown when it fails)
    await both.prepare()
    for _ in range(steps):
        await both.step()
    await both.finish()
    acts: list[Callable[[], Awaitable[None]]] = [
        both.start,
        both.dequeue,
        both.settle,
        both.control,
        both.archive,
    ]
    assert all(both.counts[act.__name__] for act in acts)


@pytest.mark.parametrize("has_limits", [False, True], ids=["free", "limited"])
@pytest.mark.parametrize("number", range(scaled(3)))
async def test_transactions_do_what_the_model_does(tmp_path: Path, number: int, has_limits: bool) -> None:
    clock = ManualClock()
    with Engine.open(tmp_path / "store.pen", durability="relaxed", clock=clock) as engine:
        await run(Both(EngineClient(engine), clock, SEED + number, has_limits=has_limits), _STEPS)


@pytest.fixture
async def valkey(valkey_server: RealServer) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(valkey_server.url) as client:
        yield client


@pytest.mark.parametrize("has_limits", [False, True], ids=["free", "limited"])
@pytest.mark.parametrize("number", range(scaled(2)))
async def test_they_do_so_on_valkey(valkey: penstock.Penstock, number: int, has_limits: bool) -> None:
    await run(Both(valkey, None, SEED + 100 + number, has_limits=has_limits), _STEPS)
