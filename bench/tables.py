"""Markdown tables, on the terminal and in the page; and how figures are written in them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


class Table:
    def __init__(self, title: str, columns: tuple[str, ...]) -> None:
        self._title = title
        self._rows: list[tuple[str, ...]] = [columns]

    def row(self, *cells: str) -> None:
        self._rows.append(cells)

    def print(self) -> None:
        print(f"### {self._title}\n\n{self.text()}\n", flush=True)

    def text(self, names: int = 1) -> str:
        """Names (so many columns) to the left, figures to the right."""
        widths = [max(3, *map(len, column)) for column in zip(*self._rows, strict=True)]
        rules = [
            "-" * (w if place < names else w - 1) + ":" * (place >= names) for place, w in enumerate(widths)
        ]
        lines = [
            [
                cell.ljust(w) if place < names else cell.rjust(w)
                for place, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            for row in self._rows
        ]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in (lines[0], rules, *lines[1:]))


def spread(values: Sequence[float | None], layout: str = ",.0f") -> str:
    """Median, and the least and the most; a dash where there is no figure."""
    found = [value for value in values if value is not None]
    if len(found) < len(values) or not found:
        return "–"
    median = format(statistics.median(found), layout)
    return f"{median} ({min(found):{layout}}–{max(found):{layout}})" if len(found) > 1 else median


def within(values: Sequence[float], digits: int = 0) -> str:
    """Median, and half the distance between the least and the most as a share of it."""
    middle = statistics.median(values)
    share = (max(values) - min(values)) / 2 / middle if middle else 0.0
    return f"{middle:,.{digits}f} ±{share:.0%}"


def figure(value: float) -> str:
    """As many digits as are worth reading."""
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
