"""Writes in batches: what leaves together, what is repeated, what is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import (
    ClosedError,
    CommandError,
    NotSentError,
    OutcomeUnknownError,
    PenstockError,
    StoreFullError,
)
from penstock.transactions.model import Settlement
from penstock.transactions.worker import settling
from penstock.transactions.worker.settling import Settler

Answer = Callable[[list[Settlement]], list[str]]


class Store:
    """Answers as it is told; keeps what it was given."""

    def __init__(self, answer: Answer = lambda given: ["ok"] * len(given)) -> None:
        self.answer = answer
        self.batches: list[list[str]] = []

    async def settle(self, partition: int, settlements: list[Settlement]) -> list[str]:
        self.batches.append([one.tx for one in settlements])
        await asyncio.sleep(0)
        return self.answer(settlements)


def settler(store: Any, patience_s: float = 10.0) -> Settler:
    return Settler(store, 3, patience_s=patience_s)


def one(tx: str) -> Settlement:
    return Settlement("keep", tx, 1, 1)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_FIRST_PAUSE_S", 0.001)


async def test_what_comes_meanwhile_leaves_together() -> None:
    store = Store()
    writer = settler(store)
    first = [writer.put(one("a")), writer.put(one("b"))]
    await asyncio.sleep(0)
    second = [writer.put(one(f"c{number}")) for number in range(130)]
    assert await asyncio.gather(*first, *second) == ["ok"] * 132
    sizes = [len(batch) for batch in store.batches]
    assert (sum(sizes), len(sizes) <= 3, max(sizes)) == (132, True, 128)
    assert [tx for batch in store.batches for tx in batch] == ["a", "b", *(f"c{n}" for n in range(130))]
    await writer.close()


async def test_whoever_is_gone_is_written_all_the_same() -> None:
    store = Store()
    writer = settler(store)
    gone, here = writer.put(one("a")), writer.put(one("b"))
    gone.cancel()
    assert await here == "ok"
    assert store.batches == [["a", "b"]]


@pytest.mark.parametrize(
    "error", [NotSentError(""), OutcomeUnknownError(""), CommandError("LOADING x"), StoreFullError("")]
)
async def test_an_outage_is_waited_out(error: PenstockError) -> None:
    failures = [error] * 3

    def answer(given: list[Settlement]) -> list[str]:
        if failures:
            raise failures.pop()
        return ["ok"] * len(given)

    store = Store(answer)
    writer = settler(store)
    assert await asyncio.gather(writer.put(one("a")), writer.put(one("b"))) == ["ok", "ok"]
    assert store.batches == [["a", "b"]] * 4


async def test_an_outage_that_lasts_loses_the_lease(caplog: pytest.LogCaptureFixture) -> None:
    def answer(given: list[Settlement]) -> list[str]:
        raise NotSentError("away")

    writer = settler(Store(answer), patience_s=0.02)
    assert await writer.put(one("a")) == "lost"
    assert "could not write 1 settlements: away" in caplog.text


async def test_a_closed_client_loses_it_at_once() -> None:
    def answer(given: list[Settlement]) -> list[str]:
        raise ClosedError("closed")

    assert await settler(Store(answer)).put(one("a")) == "lost"


@pytest.mark.parametrize(
    "error", [CommandError("ERR no"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), TypeError("no")]
)
async def test_one_that_cannot_be_written_stops_no_other(error: Exception) -> None:
    def answer(given: list[Settlement]) -> list[str]:
        if any(each.tx == "bad" for each in given):
            raise error
        return ["ok"] * len(given)

    store = Store(answer)
    writer = settler(store)
    answers = await asyncio.gather(*(writer.put(one(tx)) for tx in ("a", "bad", "b")))
    assert [answers[0], answers[2]] == ["ok", "ok"]
    assert answers[1].startswith(f"error {type(error).__name__}: ")
    assert store.batches == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    assert await writer.put(one("later")) == "ok"
