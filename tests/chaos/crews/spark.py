"""The crew of the data pipeline: somebody who writes and starts, and a Spark driver that does the rest.

``load`` is the only one who writes the stream ``orders`` and starts transactions of the pipeline ``scored``.
Its lines:

    ["write", number, count]          before messages of these numbers are sent; their bytes follow from them
    ["wrote", number, count, last]    after it was confirmed, with the offset of the last one
    ["start", n]                      before a transaction is started …
    ["started", n, tx]                … and after it was confirmed

What was not confirmed is repeated under the same number, also by the next life, and so is there once. The
driver exports, copies, scores and archives (``tests.crash.spark_driver``); it ends when its store is away,
and is started again.

Promise: the lake has exactly these rows, read by us, by DuckDB and by delta-rs
(``tests.crash.spark_ledger``). It is shared with the crew ``transactions``, which tells why.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import penstock
import penstock.lake  # what it has is loaded when it is used: not every member needs delta-rs
from penstock.transactions.archive import ArchiveQuery
from tests.chaos.crews.members import member
from tests.chaos.crews.transactions import SETTINGS, lake_of
from tests.chaos.model import Member, Running, Scene, Verdict
from tests.crash.lives import Life, persistently
from tests.crash.spark_process import Driver
from tests.crash.stream_workers import read_lines

if TYPE_CHECKING:
    from tests.crash.spark_ledger import Record

NAME: Final = "spark"
STREAM: Final = "orders"
COPY: Final = "copy"
PIPELINE: Final = "scored"
LOAD: Final = f"{NAME}-load"

#: A JVM takes long to start, and is to do something before it dies.
_DRIVER_WEIGHT: Final = 0.3


def pairs_of(number: int, count: int) -> list[tuple[bytes, bytes]]:
    """Tags and bytes of messages, which follow from their numbers."""
    chance = random.Random(number)
    return [
        (f"tag {chance.randrange(9)}".encode(), chance.randbytes(chance.randrange(40))) for _ in range(count)
    ]


def external_id_of(n: int) -> str:
    return f"{PIPELINE}-{n}"


@dataclass
class Book:
    """What the log of ``load`` says."""

    #: number -> how many messages, offset of the last one; None: nobody knows
    writes: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    #: n -> id; None: nobody knows
    starts: dict[int, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[list[Any]]) -> Book:
        book = cls()
        for line in lines:
            match line:
                case ["write", number, count]:
                    book.writes[number] = (count, None)
                case ["wrote", number, count, last]:
                    book.writes[number] = (count, last)
                case ["start", n]:
                    book.starts[n] = None
                case ["started", n, tx]:
                    book.starts[n] = tx
        return book

    def next_number(self) -> int:
        number, (count, _) = max(self.writes.items(), default=(1, (0, None)))
        return number + count


# ---------------------------------------------------------------------------------- members


async def load(life: Life) -> None:
    book = Book.of(read_lines(life.diary.path))
    for number, (count, last) in book.writes.items():
        if last is None:
            await _write(life, number, count)
    for n, tx in book.starts.items():
        if tx is None:
            await _start(life, n)
    number, n = book.next_number(), len(book.starts)
    while True:
        count = life.chance.randrange(1, 40)
        await _write(life, number, count)
        number += count
        for _ in range(life.chance.randrange(3)):
            await _start(life, n)
            n += 1
        await life.pause()


async def _write(life: Life, number: int, count: int) -> None:
    life.diary.write("write", number, count)
    write = partial(life.ps.stream(STREAM).write_many, pairs_of(number, count), producer=(life.name, number))
    life.diary.write("wrote", number, count, await persistently(write))


async def _start(life: Life, n: int) -> None:
    life.diary.write("start", n)
    start = partial(life.ps.transactions.start, PIPELINE, {"n": n}, external_id=external_id_of(n))
    life.diary.write("started", n, (await persistently(start)).id)


def _drive(scene: Scene, seed: int) -> Running:
    words = [
        "tests.chaos.crews.spark_driver",
        str(scene.clock_file),
        scene.url,
        str(lake_of(scene)),
        "local[2]",
    ]
    return Driver(words, scene.logs / f"{NAME}-driver.output")


# ------------------------------------------------------------------------------------- crew


class SparkCrew:
    name = NAME

    def __init__(self) -> None:
        self._state = "at work"

    def __repr__(self) -> str:
        return f"<SparkCrew {self._state}>"

    @property
    def members(self) -> Sequence[Member]:
        return [
            member(NAME, "load", load, pause_s=0.5, is_maker=True),
            Member(f"{NAME}-driver", _drive, weight=_DRIVER_WEIGHT, may_end=True),
        ]

    async def prepare(self, scene: Scene, ps: penstock.Penstock) -> None:
        # Scenes without this crew need no PySpark.
        from tests.crash.spark_driver import app

        penstock.lake.Lake.open(lake_of(scene))
        for pipeline in app.pipelines:
            await ps.transactions.deploy(pipeline)
        await ps.transactions.store.configure(**SETTINGS)

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        written = await _last_of(ps, STREAM)
        overview = await ps.transactions.looking.overview()
        arrived = {
            "in the lake": await asyncio.to_thread(_rows_of_messages, scene),
            "copied": await _last_of(ps, COPY),
        }
        self._state = f"{written} written, {arrived}, {overview}"
        return set(arrived.values()) == {written} and not overview.total

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        from tests.crash import spark_ledger

        book = await asyncio.to_thread(lambda: Book.of(read_lines(scene.log_of(LOAD))))
        lake = penstock.lake.Lake.open(lake_of(scene))
        record, wrong = recorded(
            book, await _last_of(ps, STREAM), await asyncio.to_thread(_found, book, lake)
        )
        copies = [(one.tag, one.entry) async for one in ps.stream(COPY).read()]
        wrong += await asyncio.to_thread(spark_ledger.judge, record, copies, lake)
        counts = {"messages in the lake": len(record.messages), "transactions": len(record.transactions)}
        return Verdict(NAME, counts, wrong)


async def _last_of(ps: penstock.Penstock, stream: str) -> int:
    return (await ps.stream(stream).info()).last if await ps.exists(stream) else 0


def _rows_of_messages(scene: Scene) -> int:
    return sum(file.rows for file in penstock.lake.Lake.open(lake_of(scene)).table("messages").files())


def _found(book: Book, lake: penstock.lake.Lake) -> dict[int, str]:
    """Those of the starts that nobody confirmed that have happened."""
    archive = penstock.lake.LakeArchive(lake)
    found: dict[int, str] = {}
    for n in (n for n, tx in book.starts.items() if tx is None):
        page = archive.search(ArchiveQuery(external_id=external_id_of(n)))
        found.update((n, record.id) for record in page.items)
    return found


def recorded(book: Book, last: int, found: dict[int, str]) -> tuple[Record, list[str]]:
    """What must be in the lake, and what is wrong with the stream.

    ``last``: offset of the last message; what nobody confirmed is behind all others, if it is there.
    ``found``: n -> id of starts that nobody confirmed, and that happened.
    """
    from tests.crash.spark_ledger import Record

    record = Record()
    wrong: list[str] = []
    expected = 0
    for number, (count, confirmed) in book.writes.items():
        if confirmed is None and expected == last:
            continue
        expected += count
        if confirmed not in (None, expected):
            wrong.append(f"messages {number} were confirmed up to offset {confirmed}, not {expected}")
        record.messages.update(enumerate(pairs_of(number, count), expected - count + 1))
    if expected != last:
        wrong.append(f"the stream {STREAM} ends at {last}, and {expected} messages were written")
    starts = {**book.starts, **found}
    record.transactions = {tx: n for n, tx in starts.items() if tx is not None}
    return record, wrong
