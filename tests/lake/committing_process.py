"""A process that commits batches to a table, for tests that run several of them or kill one.

    python -m tests.lake.committing_process <lake> <batches> <go>

Batch b has the windows 10*b to 10*b+9 and progress ``test`` b. It begins when the file ``go`` is there, and
says a line a batch: ``<batch> new`` or ``<batch> old``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock.lake import Lake
from tests.lake.rows import put, windows


def main(root: str, batches: int, go: Path) -> None:
    table = Lake.open(root).table("stream_stats_5s")
    say("ready")
    while not go.exists():
        time.sleep(0.001)
    for batch in range(1, batches + 1):
        result = table.commit(put(table, windows(table, 10 * batch, 10)), progress={"test": batch})
        say(f"{batch} {'new' if result.is_new else 'old'}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
