"""What was written and started for the data pipeline, compared with the lake. One sentence a broken promise.

1. ``messages`` has every message once: offset, tag, bytes. So has the copied stream, in order.
2. Every transaction is in ``transactions`` once, ended with success and the right result; its step succeeded
   once.
3. The same, read by DuckDB from the files and by delta-rs.

Transactions of other pipelines may be in the same lake: those are not looked at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow.compute as pc
from deltalake import DeltaTable

from penstock.lake import Lake
from tests.lake.duck import by_duckdb

PIPELINE: Final = "scored"
#: More of them say nothing new.
_SHOWN: Final = 10

#: tag and bytes
Pair: TypeAlias = tuple[bytes, bytes]


@dataclass
class Record:
    """What is known by whoever wrote it."""

    #: offset -> tag, message
    messages: dict[int, Pair] = field(default_factory=dict)
    #: id -> n
    transactions: dict[str, int] = field(default_factory=dict)


def judge(record: Record, copies: Sequence[tuple[bytes, bytes | None]], lake: Lake) -> list[str]:
    wrong = judge_messages(record, lake.table("messages").dataset().to_table().to_pylist())
    wanted = [record.messages[offset] for offset in sorted(record.messages)]
    if list(copies) != wanted:
        wrong.append(f"the copied stream has {len(copies)} messages, not these {len(wanted)} in their order")
    ended = lake.table("transactions").dataset().to_table(filter=pc.field("pipeline") == PIPELINE)
    wrong += judge_transactions(record, ended.to_pylist())
    return wrong + _judge_by_others(record, lake)


def judge_messages(record: Record, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of ``messages``."""
    wrong = [
        f"offset {offset} is in the lake {count} times"
        for offset, count in Counter(row["offset"] for row in rows).items()
        if count > 1
    ]
    there = {row["offset"]: (row["tag"], row["message"]) for row in rows}
    for offset in sorted(there.keys() | record.messages.keys()):
        found, written = there.get(offset), record.messages.get(offset)
        if found != written:
            wrong.append(f"offset {offset} is {found} in the lake, and {written} was written")
    return wrong[:_SHOWN]


def judge_transactions(record: Record, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of ``transactions``."""
    counts = Counter(row["id"] for row in rows)
    wrong = [f"{tx} is in the lake {count} times" for tx, count in counts.items() if count > 1]
    wrong += [f"{tx} was started and is not in the lake" for tx in record.transactions.keys() - counts.keys()]
    for row in rows:
        tx, n = row["id"], record.transactions.get(row["id"])
        if n is None:
            wrong.append(f"{tx} is in the lake, and nobody started it")
        elif row["status"] != "success" or json.loads(row["output"]) != {"n": n, "score": 2 * n}:
            wrong.append(f"{tx} ended as {row['status']} with {row['output']}")
        elif [entry["status"] for entry in row["trail"] if entry["kind"] == "step"] != ["success"]:
            wrong.append(f"the step of {tx} did not succeed once: {row['trail']}")
    return wrong[:_SHOWN]


def _judge_by_others(record: Record, lake: Lake) -> list[str]:
    """Programs that know nothing of us: DuckDB over the files, delta-rs over its own log."""
    wrong: list[str] = []
    sums = 'count(*) AS n, count(DISTINCT "offset") AS offsets, sum(octet_length(message)) AS bytes'
    messages = lake.table("messages")
    found = {"n": 0, "offsets": 0, "bytes": 0}
    if messages.paths():
        [found] = by_duckdb(messages, f"SELECT {sums} FROM files").to_pylist()
    count, size = len(record.messages), sum(len(message) for _, message in record.messages.values())
    if (found["n"], found["offsets"], found["bytes"] or 0) != (count, count, size):
        wrong.append(f"DuckDB finds {found}, and {count} messages of {size} bytes were written")
    table = DeltaTable(lake.table("transactions").root).to_pyarrow_table(columns=["id", "pipeline"])
    ids = [row["id"] for row in table.to_pylist() if row["pipeline"] == PIPELINE]
    if sorted(ids) != sorted(record.transactions):
        wrong.append(f"delta-rs finds {len(ids)} transactions, not these {len(record.transactions)}")
    return wrong
