"""What the logs of processes that use transactions promise, compared with the archive and the store.

    books = Books(logs)
    await books.complete(ps, archive)           # when everything has ended
    judge(books)                                # one sentence a broken promise

1. Every start that was confirmed is one transaction, which ended as its pipeline must, and no other exists.
2. Each step has succeeded once; what failed was undone once.
3. Each side effect has happened; after ``once`` had noted it, never again.
4. The stream has what each step wrote with its success, once.
5. Each end was told by webhook, at least once, always under the same id.
6. The archive holds each transaction once, children too, and the store none.

Of 3: a worker that stood still while it was about to act (its process was stopped, its way to the store
silent) and lost its lease meanwhile acts when it goes on, and nobody can keep it from that. Where such things
are done to workers, ``overtaken_ns`` says for how long; an act that comes later is a broken promise again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import penstock
from penstock.lake import archives
from penstock.transactions.archive import ArchiveQuery
from penstock.transactions.model import Transaction
from tests.crash.stream_workers import read_lines
from tests.crash.transaction_workers import EFFECTS, ENDINGS, STREAM

_PAGE = 1_000


class Books:
    """What the processes wrote down, and what is left in the end."""

    def __init__(self, logs: Path, prefix: str = "") -> None:
        """``prefix``: how the names of these logs begin."""
        self.started: dict[str, tuple[str, str]] = {}
        self.tried: dict[str, str] = {}
        self.effects: list[tuple[int, str]] = []
        self.noted: dict[str, int] = {}
        #: transaction and id of each webhook
        self.webhooks: list[tuple[str, str]] = []
        for path in sorted(logs.glob(f"{prefix}*.log")):
            for line in read_lines(path):
                match line:
                    case ["start", _, external_id, pipeline]:
                        self.tried[external_id] = pipeline
                    case ["started", _, external_id, tx]:
                        self.started[external_id] = (tx, self.tried[external_id])
                    case ["effect", at, key]:
                        self.effects.append((at, key))
                    case ["noted", at, key]:
                        self.noted[key] = min(at, self.noted.get(key, at))
                    case ["webhook", tx, webhook_id]:
                        self.webhooks.append((tx, webhook_id))
        self.archived: list[Transaction] = []
        self.told: Counter[str] = Counter()
        self.happened: set[str] = set()

    async def complete(self, ps: penstock.Penstock, archive: Path) -> None:
        """With what is in the archive, in the stream, and of the effects."""
        self.archived = await asyncio.to_thread(_archived, archive)
        async for message in ps.stream(STREAM).read():
            assert message.entry is not None
            self.told[message.entry.decode()] += 1
        self.happened = {key.decode() for key in await ps.hgetall(EFFECTS)}


def _archived(archive: Path) -> list[Transaction]:
    """Those of our pipelines, with children: somebody else may use the same store."""
    sink = archives.open(archive)
    found: list[Transaction] = []
    cursor = None
    while True:
        page = sink.search(ArchiveQuery(limit=_PAGE, cursor=cursor))
        found += [record.transaction() for record in page.items]
        cursor = page.cursor
        if cursor is None:
            return [one for one in found if one.parent is not None or one.pipeline in ENDINGS]


def judge(books: Books, overtaken_ns: int = 0) -> list[str]:
    """Every promise that was broken."""
    roots = {tx.id: tx for tx in books.archived if tx.parent is None}
    wrong = [
        f"{tx} is in the archive {count} times"
        for tx, count in Counter(tx.id for tx in books.archived).items()
        if count > 1
    ]
    wrong += [
        f"{external_id} was confirmed and is nowhere"
        for external_id, (tx, _) in books.started.items()
        if tx not in roots
    ]
    wrong += [
        f"{tx.id} is {tx.external_id}, which nobody started"
        for tx in roots.values()
        if tx.external_id not in books.tried
    ]
    by_external = Counter(tx.external_id for tx in roots.values())
    wrong += [f"{name} is {count} transactions" for name, count in by_external.items() if count > 1]
    for transaction in books.archived:
        wrong += _judge_one(transaction, books)
    for at, key in books.effects:
        if at > books.noted.get(key, at) + overtaken_ns:
            wrong.append(f"{key} acted after it was noted")
    return wrong + _judge_webhooks(books, roots)


def _judge_webhooks(books: Books, roots: dict[str, Transaction]) -> list[str]:
    told = set(books.webhooks)
    wrong = [f"{tx} was not told of" for tx in roots.keys() - {tx for tx, _ in told}]
    ids = Counter(tx for tx, _ in told)
    return wrong + [f"{tx} was told of under {count} ids" for tx, count in ids.items() if count > 1]


def _judge_one(transaction: Transaction, books: Books) -> list[str]:
    wrong = []
    expected = "success" if transaction.parent else ENDINGS[transaction.pipeline]
    if transaction.status != expected:
        wrong.append(
            f"{transaction.id} ({transaction.pipeline}) ended as {transaction.status}: {transaction.note}"
        )
    done = Counter((entry.kind, entry.step) for entry in transaction.trail if entry.status == "success")
    wrong += [
        f"{transaction.id}: {step} succeeded {count} times" for step, count in done.items() if count > 1
    ]
    if transaction.pipeline == "sad" and done["undo", 0] != 1:
        wrong.append(f"{transaction.id} was not undone")
    for entry in transaction.trail:
        if (
            entry.status != "success"
            or entry.kind != "step"
            or entry.name not in ("act", "act-2", "nap", "stumble")
        ):
            continue
        key = f"{transaction.id}:0:{entry.step}"
        if key not in books.happened:
            wrong.append(f"{key} succeeded and did nothing")
        if books.told[f"{transaction.id} {entry.step}"] != 1:
            wrong.append(f"{key} wrote {books.told[f'{transaction.id} {entry.step}']} messages")
    return wrong
