"""SIGKILL of forwarders at every point of their work: nothing is lost, nothing is doubled.

Forwarders are processes of their own, this file run as a program:

    python -m tests.transactions.test_outbox_kill STORE-URL PARTITION WHERE CALL

It kills itself ``before`` or ``after`` its so-manieth call of an outlet, or its first burial (``unburied``,
``buried``); or not at all (``never``, ``slowly``), when it ends as soon as the outbox is empty.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock
from penstock.channels import ChannelStore
from penstock.delivering import StoreOutlet
from penstock.streams import StreamCommands
from penstock.transactions.keys import partition_of, prefix_of
from penstock.transactions.model import Settlement
from penstock.transactions.outbox import (
    OutboxEntry,
    OutboxForwarder,
    OutboxSettings,
    channel_destination,
    encode_channel_message,
    encode_stream_message,
    stream_destination,
)
from penstock.transactions.store import TransactionStore

ROOT = Path(__file__).parents[2]
LOCK_MS = 100


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal:
    """An outlet during whose so-manieth call the process dies."""

    def __init__(self, outlet: StoreOutlet, where: str, call: int) -> None:
        self._outlet = outlet
        self._where = where
        self._left = call

    async def send(self, entries: Sequence[OutboxEntry]) -> int:
        self._left -= 1
        is_last = self._left <= 0  # some calls are refused, and do not get to their end
        if self._where == "before" and is_last:
            die()
        if self._where == "slowly":  # so that a machine that stands still for a second does not finish
            await asyncio.sleep(0.01)
        count = await self._outlet.send(entries[:4])
        if self._where == "after" and is_last:
            die()
        return count


class MortalForwarder(OutboxForwarder):
    where = ""

    async def _bury(self, partition: int, count: int, dead: list[Any]) -> bool:
        if self.where == "unburied":
            die()
        is_buried = await super()._bury(partition, count, dead)
        if self.where == "buried":
            die()
        return is_buried


async def forward(url: str, partition: str, where: str, call: str) -> None:
    async with penstock.open(url) as client:
        channels = ChannelStore(client)
        outlet = Mortal(StoreOutlet(StreamCommands(client), channels), where, int(call))
        settings = OutboxSettings(batch=9, lock_ms=LOCK_MS, first_pause_ms=1, max_pause_ms=2, tries=2)
        forwarder = MortalForwarder(TransactionStore(client), outlet, "n1", settings)
        forwarder.where = where
        key = f"{prefix_of(int(partition))}outboxL"
        while await client.execute("LLEN", key):
            forwarder.look(int(partition), 1)
            await asyncio.sleep(0.002)
        await forwarder.close()
        await channels.close()


if __name__ == "__main__":
    asyncio.run(forward(*sys.argv[1:]))
else:
    import pytest

    from tests.transactions.conftest import put_pipeline

    pytestmark = [
        pytest.mark.crash,
        pytest.mark.slow,
        pytest.mark.parametrize("url", ["embedded-3", "server-3"], indirect=True),
    ]

    MESSAGES = 60
    MANY = 600

    async def start(url: str, partition: int, where: str, call: int = 0) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, url, str(partition), where, str(call), cwd=ROOT
        )

    async def fill(store: TransactionStore, messages: int) -> int:
        """Messages for two streams, a channel, and a key that is no stream; the partition."""
        await put_pipeline(store, "noop")
        started = await store.start("noop", b"{}", owner="acme")
        partition = partition_of(started.id)
        taken = await store.dequeue(partition, "w1", ["shop"], limit=1, lease_ms=600_000)
        record = taken.records[0]
        words: list[Any] = []
        for number in range(messages):
            words += [stream_destination(f"s{number % 2}"), encode_stream_message("", b"%d" % number)]
            words += [channel_destination("room"), encode_channel_message(f"m-{number}", number)]
            if number in (7, 27, 47):
                words += [stream_destination("wrong"), encode_stream_message("", b"%d" % number)]
        settlement = Settlement("keep", record.id, record.token, 1, outbox=words)
        assert await store.settle(partition, [settlement]) == ["ok"]
        return partition

    async def test_killed_forwarders_lose_and_double_nothing(
        url: str, ps: penstock.Penstock, store: TransactionStore
    ) -> None:
        await ps.execute("SET", "wrong", "text")
        alice = await ps.channel("room").subscribe("alice")
        partition = await fill(store, MESSAGES)
        deaths = [("before", 1), ("after", 1), ("unburied", 0), ("after", 5), ("buried", 0), ("before", 7)]
        for where, call in deaths:
            process = await start(url, partition, where, call)
            async with asyncio.timeout(60):
                assert await process.wait() == -signal.SIGKILL, (where, call)
        left: Any = await ps.execute("LLEN", f"{prefix_of(partition)}outboxL")
        assert left > 0, "all were killed in the middle"
        last = await start(url, partition, "never")
        async with asyncio.timeout(60):
            assert await last.wait() == 0
        await _assert_all_once(ps, store, alice, partition, MESSAGES)

    async def test_forwarders_killed_at_any_time(
        url: str, ps: penstock.Penstock, store: TransactionStore
    ) -> None:
        """Two at a time, each killed a few random ms after it began to send."""
        await ps.execute("SET", "wrong", "text")
        alice = await ps.channel("room").subscribe("alice")
        partition = await fill(store, MANY)
        chance = random.Random(4)
        outbox = f"{prefix_of(partition)}outboxL"
        for _ in range(5):
            before: Any = await ps.execute("LLEN", outbox)
            assert before > 0, "all were killed in the middle"
            pair = [await start(url, partition, "slowly") for _ in range(2)]
            async with asyncio.timeout(60):
                while await ps.execute("LLEN", outbox) == before:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(chance.random() * 0.02)
                for process in pair:
                    process.kill()
                    await process.wait()
        last = await start(url, partition, "never")
        async with asyncio.timeout(60):
            assert await last.wait() == 0
        await _assert_all_once(ps, store, alice, partition, MANY)

    async def _assert_all_once(
        ps: penstock.Penstock, store: TransactionStore, alice: Any, partition: int, messages: int
    ) -> None:
        for parity in range(2):
            reply: Any = await StreamCommands(ps).execute("TREAD", f"s{parity}", 0, 10_000)
            assert [int(entry) for _, _, entry in reply] == list(range(parity, messages, 2))
        found = [message.content for message in (await alice.fetch(limit=1_000)).messages]
        assert found == list(range(messages))
        outlet: Any = None
        dead = await OutboxForwarder(store, outlet, "reader").dead(partition)
        assert [(each.destination, each.number) for each in dead] == [
            ("stream:wrong", number) for number in (1, 2, 3)
        ]
