"""An archive full of transactions, and what a search in it has to find; for every kind of archive."""

from __future__ import annotations

from typing import Any

from penstock.transactions.archive import ArchivePage, ArchiveQuery, ArchiveSink
from tests.unit.transactions.archive.samples import DAY_MS, NOON_MS, batch, id_of, record

#: id, owner, status, pipeline
Fact = tuple[str, str, str, str]


def fill(archive: ArchiveSink) -> list[Fact]:
    """600 over six days and two partitions, in batches whose times overlap."""
    facts: list[Fact] = []
    by_partition: tuple[list[int], list[int]] = ([], [])
    for number in range(600):
        # Neighbours are hours apart, so that each batch has several days and many times.
        start_ms = NOON_MS - (number * 7919 % 600) * (DAY_MS // 100)
        tx = id_of(number, start_ms, number % 2)
        facts.append((tx, f"owner{number % 3}", ("success", "failed")[number % 7 == 0], f"p{number % 5}"))
        by_partition[number % 2].append(number)
    for partition, numbers in enumerate(by_partition):
        for place in range(0, len(numbers), 50):
            records = [
                record(tx, owner=owner, status=status, pipeline=pipeline, external_id=f"order-{number}")
                for number in numbers[place : place + 50]
                for tx, owner, status, pipeline in [facts[number]]
            ]
            archive.write(batch(place // 50 + 1, records, partition=partition))
    return facts


def ids(page: ArchivePage) -> list[str]:
    return [item.id for item in page.items]


def expected(facts: list[Fact], **wanted: str) -> list[str]:
    """Newest first."""
    names = ("owner", "status", "pipeline")
    matching = [
        tx
        for tx, *values in facts
        if all(dict(zip(names, values, strict=True))[key] == wanted[key] for key in wanted)
    ]
    return sorted(matching, key=lambda tx: (tx.split("-")[2][:11], tx), reverse=True)


def all_pages(archive: ArchiveSink, limit: int, **query: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = archive.search(ArchiveQuery(limit=limit, cursor=cursor, **query))
        assert len(page.items) <= limit
        found += ids(page)
        cursor = page.cursor
        if cursor is None:
            return found
