"""To be alone with a piece of work on a lake, among all processes that share its directory.

    with alone(lake, "derive-steps") as is_mine:
        if is_mine: …                               # else another process is at it, and this one need not be

Who reads how far a table is, works on what follows, and commits that, must be alone from the first to the
last of these: two that begin at the same place and come to different ends would both be believed.

Rules: nobody waits. The lock is a file under ``<root>/_penstock/locks/``; the kernel frees it when its holder
dies. Names are of letters, digits, ``-``, ``_`` and ``.``. Nothing here knows what work there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from penstock.errors import StoreBusyError
from penstock.lake.delta import translated
from penstock.lake.files import check_name
from penstock.lake.lake import PRIVATE, Lake
from penstock.transactions.archive.disk import locked

_LOCKS: Final = "locks"


@contextmanager
def alone(lake: Lake, work: str) -> Iterator[bool]:
    """Whether this is the only one at it until the end of the block."""
    path = lake.root / PRIVATE / _LOCKS / f"{check_name(work)}.lock"
    with ExitStack() as held:
        try:
            with translated(f"{work} cannot be begun"):
                held.enter_context(locked(path, wait_ms=0))
        except StoreBusyError:
            is_mine = False
        else:
            is_mine = True
        yield is_mine
