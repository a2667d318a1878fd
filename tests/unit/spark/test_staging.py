"""Rows between a task and the driver: nothing is lost or reordered, few rows need no store."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.blocking
from penstock.blocking import Client
from penstock.errors import StoreError
from penstock.spark import staging
from penstock.spark.staging import Piece, Rows, Stager, load, remove, rows_of


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'store.pen'}?durability=relaxed"


@pytest.fixture
def ps(url: str) -> Iterator[Client]:
    with penstock.blocking.open(url) as client:
        yield client


def some(count: int, start: int = 0, *, names: bool = False, tags: bool = True) -> Rows:
    numbers = range(start, start + count)
    return Rows(
        [f"s{number % 3}" for number in numbers] if names else "orders",
        [b"t%d" % number for number in numbers] if tags else b"t",
        [None if number % 4 == 3 else b"message %d" % number for number in numbers],
    )


def everything(client: Client, pieces: tuple[Piece, ...]) -> list[tuple[str, bytes, bytes | None]]:
    return [row for piece in pieces for row in rows_of(client, piece).each()]


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("tags", [False, True])
def test_few_rows_travel_in_the_message(url: str, ps: Client, names: bool, tags: bool) -> None:
    stager = Stager(url, "x")
    for start in (0, 5, 10):
        stager.add(some(5, start, names=names, tags=tags))
    (piece,) = pickle.loads(pickle.dumps(stager.finish()))
    assert (piece.key, piece.rows, piece.tombstones) == ("", 15, 3)
    assert piece.counts == ({"s0": 5, "s1": 5, "s2": 5} if names else {"orders": 15})
    whole = some(15, names=names, tags=tags)
    assert piece.size_bytes == whole.size_bytes() == sum(len(t) + len(m or b"") for _, t, m in whole.each())
    assert everything(ps, (piece,)) == list(whole.each())
    assert ps.dbsize() == 0


def test_many_rows_become_keys_that_expire(url: str, ps: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_ROWS", 10)
    stager, other = Stager(url, "x"), Stager(url, "x")
    for start in range(0, 24, 4):
        stager.add(some(4, start))
    pieces = stager.finish()
    assert [piece.rows for piece in pieces] == [12, 12]
    assert everything(ps, pieces) == list(some(24).each())
    assert all(0 < ps.ttl(piece.key) <= 86_400 for piece in pieces)
    other.add(some(12))
    assert not {piece.key for piece in other.finish()} & {piece.key for piece in pieces}
    remove(ps, list(pieces))
    other.discard()
    assert ps.dbsize() == 0
    with pytest.raises(StoreError, match=f"the staged rows {pieces[0].key} are gone"):
        load(ps, pieces[0].key)


def test_sizes_decide(url: str, ps: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends by its bytes as well, and one that is too large for a message is put into the store."""
    monkeypatch.setattr(staging, "PIECE_BYTES", 100)
    monkeypatch.setattr(staging, "INLINE_BYTES", 50)
    stager = Stager(url, "x")
    for number in range(4):
        stager.add(Rows("orders", b"", [b"%d" % number * 60]))
    pieces = stager.finish()
    assert [piece.rows for piece in pieces] == [2, 2]
    alone = Stager(url, "x")
    alone.add(Rows("orders", b"", [b"x" * 60]))
    (piece,) = alone.finish()
    assert piece.key
    assert not piece.data
    assert Stager(url, "x").finish() == ()
