"""The crew of transactions: starters, workers, somebody who sets switches, a sender of webhooks, archivers.

Work, pipelines and the six promises are those of ``tests/crash`` (``transaction_workers``,
``transaction_ledger``).

The archive is the lake of the scene, and so is that of the crew ``spark``: a store hands out what has ended
to one node at a time, whatever its pipeline is, so two archives of one store would share what they get by
chance. One lake is sound: archivers and the archive job of Spark write into its table under the same locks
and by the same numbers. Each crew is judged by the rows of its own pipelines.

Webhooks are received by a thread of the process that judges: a receiver that is killed is the concern of
``tests/webhooks``. It writes down what it gets before it answers.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import penstock
import penstock.lake  # what it has is loaded when it is used: not every member needs delta-rs
from tests.chaos.crews.members import member
from tests.chaos.model import Member, Scene, Verdict
from tests.crash import transaction_ledger, transaction_workers
from tests.crash.stream_workers import StreamLog
from tests.crash.transaction_ledger import Books
from tests.webhooks.receiver import Received, Receiver

NAME: Final = "transactions"
#: Longer than members are stopped, and than a command of theirs waits for its reply, together.
OVERTAKEN_NS: Final = 20_000_000_000
#: Killed drivers and workers are no reason to give a transaction up here.
SETTINGS: Final = {"archive_delay_ms": 500, "max_losses": 1_000}
#: How many times as long archivers wait as in the crash test: each batch is a version of the lake.
_SLOWER: Final = "10"
_STARTS_WITHIN_S: Final = 30.0


def lake_of(scene: Scene) -> Path:
    """One for all crews."""
    return scene.directory / "lake"


class Post:
    """Receives webhooks in a thread of its own."""

    def __init__(self, log: Path) -> None:
        self._diary = StreamLog(log)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        if not self._ready.wait(_STARTS_WITHIN_S):
            raise RuntimeError(f"nobody receives webhooks after {_STARTS_WITHIN_S:g} s")

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with Receiver(self._note) as receiver:
            self.url = receiver.url
            self._ready.set()
            await self._end.wait()

    def _note(self, request: Received) -> int:
        self._diary.write("webhook", json.loads(request.body)["data"]["metadata"]["txId"], request.id)
        return 200

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


class TransactionCrew:
    name = NAME

    def __init__(self) -> None:
        self._post: Post | None = None
        self._state = "at work"

    def __repr__(self) -> str:
        return f"<TransactionCrew {self._state}>"

    @property
    def members(self) -> Sequence[Member]:
        make = partial(member, NAME, extra=self._extra)
        roles = transaction_workers
        return [
            *(make(name, roles.start, pause_s=0.15, is_maker=True) for name in ("s0", "s1")),
            *(make(name, roles.work, pause_s=0) for name in ("w0", "w1")),
            make("t0", roles.set_switches, pause_s=0.2),
            make("n0", roles.notify, pause_s=0),
            *(make(name, roles.archive, pause_s=0) for name in ("a0", "a1")),
        ]

    def _extra(self, scene: Scene) -> dict[str, str]:
        assert self._post is not None, "prepare comes before members live"
        return {"webhook": self._post.url, "archive": str(lake_of(scene)), "slower": _SLOWER}

    async def prepare(self, scene: Scene, ps: penstock.Penstock) -> None:
        penstock.lake.Lake.open(lake_of(scene))
        self._post = Post(scene.log_of(f"{NAME}-post"))
        await ps.transactions.deploy(transaction_workers.app_of(ps, None))  # type: ignore[arg-type]
        await ps.transactions.store.configure(**SETTINGS)

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        overview = await ps.transactions.looking.overview()
        self._state = str(overview)
        return not any((overview.total, overview.webhooks, overview.outbox))

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        if self._post is not None:
            await asyncio.to_thread(self._post.close)
        books = await asyncio.to_thread(Books, scene.logs, f"{NAME}-")
        await books.complete(ps, lake_of(scene))
        counts = {
            "starts confirmed": len(books.started),
            "transactions archived": len(books.archived),
            "effects": len(books.effects),
            "messages of steps": books.told.total(),
            "webhooks": len(books.webhooks),
        }
        return Verdict(NAME, counts, transaction_ledger.judge(books, OVERTAKEN_NS))
