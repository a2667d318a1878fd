"""How answers are shown to people: tables, facts, times, sizes; and transactions, which many commands show.

Rules: times are UTC. A cell is one line; the last column takes what the terminal has left, and everything
where stdout is no terminal. On a terminal the names of columns are bold, unless NO_COLOR is set
(https://no-color.org); elsewhere there is nothing but text. Nothing here reads a store.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from penstock.transactions import TrailEntry, Transaction

BOLD: Final = "1"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
#: What lists leave out: it is read for single transactions only.
_WHOLE: Final = ("input", "output", "switches", "trail")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows under their columns; only the columns if there are none."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    head, *rest = map(_cut, lines)
    return "\n".join([styled(head, BOLD), *rest])


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Names and values, without those that there are none of."""
    known = [(name, _cell(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in known)


def styled(text: str, style: str) -> str:
    """On a terminal whose user has nothing against it."""
    return f"\x1b[{style}m{text}\x1b[0m" if is_styled() else text


def is_styled() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell(value: Any) -> str:
    text = "-" if value is None or value == "" else str(value)
    return " ".join(text.split()) if "\n" in text or "\t" in text else text


def _cut(line: str) -> str:
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else line[: width - 1] + "…"


def moment(at_ms: int | None) -> str | None:
    """When, to the millisecond."""
    if not at_ms:
        return None
    return (
        datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def size(size_bytes: int) -> str:
    value, unit = float(size_bytes), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == _UNITS[0] else f"{value:.1f} {unit}"


def compact(value: Any) -> str | None:
    """JSON on one line; None for none."""
    return None if value is None else msgspec.json.encode(value).decode()


# -------------------------------------------------------------------------------- transactions


def as_facts(transaction: Transaction, *, is_row: bool = False) -> dict[str, Any]:
    """For programs: every field, also those that are as they begin."""
    known = msgspec.structs.asdict(transaction)
    for name in _WHOLE if is_row else ():
        del known[name]
    return known


def standing(transaction: Transaction) -> str:
    """How it ended; while it goes on, what it does."""
    return transaction.status if transaction.has_ended else transaction.state


def transaction_text(transaction: Transaction) -> str:
    """One transaction, and its trail if that was read."""
    shown = [facts(_facts_of(transaction))]
    if transaction.trail:
        shown += ["", trail_text(transaction.trail)]
    return "\n".join(shown)


def _facts_of(transaction: Transaction) -> Iterable[tuple[str, Any]]:
    yield "id", transaction.id
    yield "status", standing(transaction)
    yield "note", transaction.note
    yield "pipeline", f"{transaction.pipeline} {transaction.version}"
    yield "owner", transaction.owner
    yield "external id", transaction.external_id
    yield "parent", transaction.parent
    yield "step", transaction.step
    yield "failed before", transaction.attempt or None
    yield "run", transaction.run or None
    yield "node group", transaction.node_group
    yield "worker", transaction.worker if transaction.state == "running" else None
    yield "waits for", transaction.awaits if transaction.state == "waiting" else None
    yield "held by", transaction.held
    yield "priority", transaction.priority
    yield "created", moment(transaction.created_ms)
    yield "wakes", moment(transaction.wakes_ms) if transaction.state in ("sleeping", "waiting") else None
    yield "deadline", moment(transaction.deadline_ms)
    yield "ended", moment(transaction.ended_ms)
    yield "progress", compact(transaction.progress)
    yield "metadata", compact(transaction.metadata)
    yield "switches", " ".join(f"{name}={value}" for name, value in transaction.switches.items())
    yield "webhook", transaction.webhook
    yield "", " ".join(filter(None, (transaction.webhook_status, transaction.webhook_comment)))
    yield "input", compact(transaction.input)
    yield "output", compact(transaction.output)
    yield "archived", "yes" if transaction.is_archived else None


def transactions_table(transactions: Iterable[Transaction]) -> str:
    columns = ("id", "status", "pipeline", "owner", "external id", "step", "created", "note")
    rows = (
        (
            each.id, standing(each), each.pipeline, each.owner, each.external_id, each.step,
            moment(each.created_ms), each.note,
        )
        for each in transactions
    )  # fmt: skip
    return table(columns, rows)


def trail_text(trail: Iterable[TrailEntry]) -> str:
    columns = ("at", "what", "step", "status", "attempt", "took ms", "worker", "note")
    return table(columns, (entry_row(entry) for entry in trail))


def entry_row(entry: TrailEntry) -> Sequence[Any]:
    took_ms = entry.at_ms - entry.started_ms if entry.started_ms else None
    step = None if entry.step is None else f"{entry.step} {entry.name}"
    note = "; ".join(filter(None, (entry.note, *(f"{level}: {text}" for _, level, text in entry.logs))))
    return (
        moment(entry.at_ms), entry.kind, step, entry.status, entry.attempt or None, took_ms, entry.worker,
        note,
    )  # fmt: skip
