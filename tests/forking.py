"""Processes of tests, forked from one that has imported everything already: they start in milliseconds.

    process = CONTEXT.Process(target=workers.work, args=(…))

That one is started with the first process and knows what is listed here; what is missing is imported anew by
every process. One list for all suites, since the first of them would decide for the others. Must not import
pytest, nor what it lists.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Final

__all__ = ["CONTEXT", "ForkServerProcess"]

_PRELOADED: Final = [
    "tests.chaos.crews",
    "tests.client.workload_peers",
    "tests.crash.channel_workers",
    "tests.crash.gateway_clients",
    "tests.crash.stream_workers",
    "tests.crash.transaction_workers",
    "tests.crash.workers",
    "tests.integration.peers",
]

CONTEXT: Final[ForkServerContext] = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(_PRELOADED)
