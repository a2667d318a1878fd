"""Ended transactions for tests of the archive, made without a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.transactions.archive import ArchiveBatch, ArchivedRecord
from penstock.transactions.model import TrailEntry, entry_to

NOON_MS = 1_794_744_000_000
DAY_MS = 86_400_000


def id_of(number: int, start_ms: int = NOON_MS, partition: int = 0) -> str:
    return f"tx-{partition}-{start_ms:011x}{number:020x}"


def record(tx: str, **fields: Any) -> ArchivedRecord:
    """A transaction that succeeded; ``fields`` say what is different."""
    known: dict[str, Any] = {
        "state": "ended",
        "status": "success",
        "owner": "acme",
        "pipeline": "checkout",
        "version": "v1",
        "group": "shop",
        "created_ms": NOON_MS,
        "queued_ms": NOON_MS,
        "ended_ms": NOON_MS + 5,
        "d:0": '{"cart":42}',
        "d:1": '{"paid":true}',
        "data": 1,
        "step": 1,
        "note": "fine",
        **fields,
    }
    trail = [
        entry_to(TrailEntry("step", at_ms=NOON_MS + 1, step=0, name="charge", status="success", attempt=1)),
        entry_to(TrailEntry("note", note="as it was")),
    ]
    return ArchivedRecord(tx, {name.encode(): str(value).encode() for name, value in fields_of(known)}, trail)


def fields_of(known: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in known.items() if value is not None]


def batch(
    number: int,
    records: Iterable[ArchivedRecord],
    *,
    again: dict[str, int] | None = None,
    partition: int = 0,
    source: str = "store1",
) -> ArchiveBatch:
    """As an archiver makes it: each record names the batch."""
    marked = [
        ArchivedRecord(one.id, {**one.fields, b"archive_batch": b"%d" % number}, one.trail) for one in records
    ]
    return ArchiveBatch(source, partition, number, marked, again or {})
