"""How ``penstock top`` looks: a frame as tables of ``rich``, which is used here and nowhere else.

Rules: what there is none of is not shown. Everything fits a terminal of 80 columns; more columns put more
side by side. Nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli import showing
from penstock.cli.top_figures import Frame, Slot, Statistics

__all__ = ["Console", "Live", "view"]

_BARS: Final = "▁▂▃▄▅▆▇█"
_SLOT_S: Final = {"5s": 5, "60s": 60, "600s": 600}
_KEPT: Final = {"5s": "5 minutes", "60s": "2 hours", "600s": "24 hours"}
#: Columns from which on panels stand side by side, and tables.
_NARROW: Final = 78
_WIDE: Final = 100
_ROWS: Final = 12


def view(frame: Frame, *, width: int, trouble: str = "", is_live: bool = False) -> RenderableType:
    """All of a frame; ``trouble`` is why there is no newer one."""
    parts: list[RenderableType] = [_head(frame, is_live=is_live)]
    if trouble:
        parts.append(Text(trouble, style="bold red"))
    panels = [_counts(frame), _rates(frame.statistics), _store(frame)]
    parts.append(_beside(panels, is_wide=width >= _NARROW, ratio=None))
    if frame.statistics is not None:
        bars = _bars([slot.ended_total for slot in frame.statistics.slots], width - 10)
        parts.append(Text.assemble((" ended  ", "dim"), (bars, "green")))
    tables = [
        _pipelines(frame.statistics),
        _node_groups(frame),
        _workers(frame),
        _streams(frame),
        _jobs(frame),
    ]
    known = [table for table in tables if table is not None]
    parts += [_beside(known[at : at + 2], is_wide=width >= _WIDE, ratio=1) for at in range(0, len(known), 2)]
    return Group(*parts)


def _beside(parts: Sequence[RenderableType | None], *, is_wide: bool, ratio: int | None) -> RenderableType:
    """Side by side where there is room, else one below the other."""
    known = [part for part in parts if part is not None]
    if not is_wide:
        return Group(*known)
    grid = Table.grid(expand=ratio is not None)
    for _ in known:
        grid.add_column(ratio=ratio)
    grid.add_row(*known)
    return grid


def _head(frame: Frame, *, is_live: bool) -> Text:
    """One line; of a long address only the beginning."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("penstock top", style="bold")
    text.append(f"  {(showing.moment(frame.now_ms) or '')[11:19]}  ")
    for key, level in enumerate(_SLOT_S, 1):
        text.append(f" {key}:{level} ", style="reverse" if level == frame.level else "dim")
    if is_live:
        text.append("  q ends it", style="dim")
    text.append(f"  {frame.where}")
    return text


# ------------------------------------------------------------------------------------------ panels


def _counts(frame: Frame) -> Panel | None:
    counts = frame.transactions
    if counts is None:
        return None
    names = ("queued", "running", "sleeping", "waiting", "dead", "to_archive", "webhooks", "outbox", "total")
    rows = []
    for name in names:
        value = getattr(counts, name)
        style = "bold red" if name == "dead" and value else ""
        rows.append((name.replace("_", " "), Text(f"{value:,}", style=style)))
    return _facts("transactions", rows)


def _rates(statistics: Statistics | None) -> Panel | None:
    if statistics is None:
        return None
    slot_s = _SLOT_S[statistics.level]
    last = statistics.slots[-2] if len(statistics.slots) > 1 else Slot()
    rows: list[tuple[str, RenderableType]] = [
        (f"{name}/s", Text(f"{_of(last, name) / slot_s:,.1f}"))
        for name in ("queued", "started", "ended", "retried", "lost")
    ]
    total = statistics.total
    for name, found in (("wait", total.wait), ("latency", total.latency)):
        values = (None, None) if found is None else (found.p50_ms, found.p99_ms)
        rows.append((f"{name} p50, p99", Text(" ".join(map(_took, values)))))
    return _facts(f"of {_KEPT[statistics.level]}", rows)


def _of(slot: Slot, name: str) -> int:
    return slot.ended_total if name == "ended" else int(getattr(slot, name))


def _store(frame: Frame) -> Panel | None:
    store = frame.store
    if store is None:
        return None
    free = None if store.disk_free_bytes is None else showing.size(store.disk_free_bytes)
    rows = [
        ("kind", store.kind),
        ("durability", store.durability),
        ("commands/s", f"{store.commands_per_s:,.0f}"),
        ("clients", f"{store.clients:,}"),
        ("keys", f"{store.keys:,}"),
        ("used", showing.size(store.used_bytes)),
        ("memory", showing.size(store.memory_bytes)),
        ("disk free", free),
    ]
    return _facts("store", [(name, Text(value)) for name, value in rows if value is not None])


def _facts(title: str, rows: Iterable[tuple[str, RenderableType]]) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    for row in rows:
        grid.add_row(*row)
    return Panel(grid, title=title, title_align="left", border_style="dim", expand=False)


# ------------------------------------------------------------------------------------------ tables


def _pipelines(statistics: Statistics | None) -> Table | None:
    parts = sorted((statistics.parts if statistics else {}).items(), key=lambda part: -part[1].started)
    rows = [
        (
            name, slot.queued, slot.started, slot.ended_total, slot.ended.get("success", 0), slot.retried,
            _took(slot.latency.p99_ms if slot.latency else None),
        )
        for name, slot in parts
    ]  # fmt: skip
    return _table("pipelines", ("pipeline", "queued", "started", "ended", "success", "retried", "p99"), rows)


def _node_groups(frame: Frame) -> Table | None:
    rows = [
        (
            group.name, group.admin + group.out + group.in_, group.held, group.running, group.workers,
            "paused" if group.is_paused else _age(frame.now_ms, group.oldest_ms),
        )
        for group in frame.node_groups
    ]  # fmt: skip
    return _table("node groups", ("group", "queued", "held", "running", "workers", "oldest"), rows)


def _workers(frame: Frame) -> Table | None:
    rows = [
        (
            worker.id, worker.state, " ".join(worker.node_groups), f"{worker.running}/{worker.concurrency}",
            worker.ended,
        )
        for worker in frame.workers
    ]  # fmt: skip
    return _table("workers", ("worker", "state", "groups", "running", "ended"), rows)


def _streams(frame: Frame) -> Table | None:
    rows = [
        (
            stream.name, "-" if stream.rate is None else f"{stream.rate:,.1f}", f"{stream.messages:,}",
            showing.size(stream.bytes), stream.groups,
        )
        for stream in frame.streams
    ]  # fmt: skip
    return _table("streams", ("stream", "new/s", "messages", "size", "groups"), rows)


def _jobs(frame: Frame) -> Table | None:
    rows = [
        (
            job.job, job.node, job.state if job.is_alive or job.state == "stopped" else "gone", job.passes,
            f"{job.report.rows:,}" if job.report else "-", f"{job.report.lag:,}" if job.report else "-",
            job.error if job.failures else "",
        )
        for job in frame.jobs
    ]  # fmt: skip
    return _table("jobs", ("job", "node", "state", "passes", "rows", "behind", "error"), rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table | None:
    if not rows:
        return None
    more = f" ({len(rows) - _ROWS} more)" if len(rows) > _ROWS else ""
    table = Table(title=title + more, title_justify="left", expand=True, header_style="bold", box=None)
    for at, column in enumerate(columns):
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=2 if not at else None)
    for row in rows[:_ROWS]:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


# ------------------------------------------------------------------------------------------- cells


def _bars(values: Sequence[int], width: int) -> str:
    shown = values[-max(width, 1) :]
    most = max(shown, default=0)
    return "".join(
        _BARS[(value * (len(_BARS) - 1) + most - 1) // most] if most else _BARS[0] for value in shown
    )


def _took(took_ms: float | None) -> str:
    if took_ms is None:
        return "-"
    return f"{took_ms:,.0f} ms" if took_ms < 10_000 else f"{took_ms / 1_000:,.0f} s"


def _age(now_ms: int, at_ms: int | None) -> str:
    return "-" if at_ms is None else _took(max(0.0, now_ms - at_ms))
