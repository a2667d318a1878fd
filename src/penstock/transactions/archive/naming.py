"""Names of files in an archive directory. A name tells enough to leave most files unopened.

    <root>/day=2026-11-16/p0-000123-018c2f5a7b3-018c2f5a9ff-r0-5b1f0c….parquet
           │              │  │      │           │           │  └ digest of what it holds
           │              │  │      │           │           └ highest run: above 0, some were replayed
           │              │  │      └───────────┴ first and last start (ms, hex), as ids tell
           │              │  └ number of the batch
           │              └ partition
           └ day of the start (UTC); all runs of a transaction, and its children, are in one day
    <root>/_penstock/p0-<source>.lock    who writes; holds the number of the newest batch (parquet.py)
    <root>/_penstock/p0-<source>.tmp     a file that does not count yet

What begins with ``_`` is left out by Spark and other readers of directories. A ``.parquet`` file with
another name (somebody merged several) is read as well: nothing is known about it until it is opened.

Nothing here opens a file.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

SUFFIX: Final = ".parquet"
PRIVATE: Final = "_penstock"
DAY_MS: Final = 86_400_000
_DAY: Final = re.compile(r"day=(\d{4})-(\d\d)-(\d\d)")
_NAME: Final = re.compile(
    r"p(\d{1,4})-(\d{6,20})-([0-9a-f]{11})-([0-9a-f]{11})-r(\d{1,19})-([0-9a-f]{16})\.parquet"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FileName(NamedTuple):
    partition: int
    batch: int
    first_ms: int
    last_ms: int
    run: int
    digest: str

    def __str__(self) -> str:
        return (
            f"p{self.partition}-{self.batch:06d}-{self.first_ms:011x}-{self.last_ms:011x}"
            f"-r{self.run}-{self.digest}{SUFFIX}"
        )


def parsed(name: str) -> FileName | None:
    """None for a name that is not ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    partition, batch, first, last, run, digest = found.groups()
    return FileName(int(partition), int(batch), int(first, 16), int(last, 16), int(run), digest)


def day_name(start_ms: int) -> str:
    """The directory of those that were started then."""
    return f"day={_EPOCH + timedelta(days=start_ms // DAY_MS):%Y-%m-%d}"


def day_start_ms(name: str) -> int | None:
    """When a day began; None for a directory that is none."""
    found = _DAY.fullmatch(name)
    if found is None:
        return None
    year, month, day = map(int, found.groups())
    try:
        return (datetime(year, month, day, tzinfo=UTC) - _EPOCH).days * DAY_MS
    except ValueError:
        return None
