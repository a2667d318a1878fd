"""``penstock tx archive``: moves what has ended from the store to an archive, once or for ever.

Any number of processes may do that at the same time; ``penstock worker --archive`` does it beside its work.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from penstock.cli.asking import Actions, Bench, add_action, positive
from penstock.transactions.archive import Archiver

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_actions(actions: _SubParsersAction[Actions]) -> None:
    archive = add_action(
        actions,
        "archive",
        _archive,
        "move what has ended to an archive, until Ctrl-C or SIGTERM",
        "tx archive --archive ./archive --once",
    )
    archive.add_argument("--archive", metavar="DIR", required=True, help="where to; made if there is none")
    archive.add_argument("--once", action="store_true", help="stop when nothing more is due")
    archive.add_argument("--batch", type=positive, default=500, metavar="N", help="at once (default: 500)")


def archiver_of(store: Any, sink: Any, **options: Any) -> Archiver:
    """With a name that no other process has."""
    return Archiver(store, sink, node=f"{socket.gethostname()}-{os.getpid()}", **options)


def _archive(bench: Bench) -> None:
    sink = bench.transactions.archive
    assert sink is not None
    archiver = archiver_of(bench.transactions.store, sink, batch=bench.arguments.batch)
    bench.run(_all_that_is_due(archiver) if bench.arguments.once else _until_told(archiver))
    count = archiver.statistics().archived
    bench.show({"archived": count}, f"{count}")


async def _all_that_is_due(archiver: Archiver) -> None:
    while await archiver.run_once():
        pass


async def _until_told(archiver: Archiver) -> None:
    loop = asyncio.get_running_loop()
    working = asyncio.create_task(archiver.run())
    stopping: set[asyncio.Task[None]] = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: stopping.add(asyncio.create_task(archiver.stop())))
    await working
    await asyncio.gather(*stopping)
