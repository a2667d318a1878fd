"""The crew of durable channels: publishers, and subscribers that fetch and acknowledge.

Promises: each confirmed message reached every subscriber of its channel, at least once, and never after an
acknowledgement that covers it was confirmed; all subscribers saw one order, in which a publication is in one
piece and behind what its publisher had published before.

Work and judgement are those of ``tests/crash`` (``channel_workers``, ``channel_ledger``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import penstock
from tests.chaos.crews.members import member
from tests.chaos.model import Member, Scene, Verdict
from tests.crash import channel_ledger
from tests.crash.channel_ledger import Books
from tests.crash.channel_workers import PUBLISHERS, SUBSCRIBERS, publish, subscribe

NAME: Final = "channels"


class ChannelCrew:
    name = NAME

    def __init__(self) -> None:
        self._unread: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ChannelCrew unread {self._unread}>"

    @property
    def members(self) -> Sequence[Member]:
        return [
            *(member(NAME, name, publish, pause_s=0.08, is_maker=True) for name in PUBLISHERS),
            *(member(NAME, name, subscribe, pause_s=0.05) for name in SUBSCRIBERS),
        ]

    async def prepare(self, scene: Scene, ps: penstock.Penstock) -> None:
        for subscriber, channel in SUBSCRIBERS.items():
            await ps.channel(channel).subscribe(subscriber)

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        for subscriber, channel in SUBSCRIBERS.items():
            backlog = await ps.channel(channel).subscription(subscriber).backlog(limit=1)
            self._unread[subscriber] = backlog.unread
        return not any(self._unread.values())

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        books = await asyncio.to_thread(Books.read, scene.logs, f"{NAME}-")
        tried = [is_confirmed for tries in books.tried.values() for _, is_confirmed in tries]
        lines = [line for each in books.lines.values() for line in each]
        counts = {
            "publications confirmed": sum(tried),
            "publications of which nobody knows": len(tried) - sum(tried),
            "messages received": sum(len(line[1]) for line in lines if line[0] == "got"),
            "acknowledgements confirmed": sum(line[0] == "acked" for line in lines),
        }
        return Verdict(NAME, counts, channel_ledger.judge(books))
