"""Markdown tables on the terminal."""

from __future__ import annotations


class Table:
    def __init__(self, title: str, columns: tuple[str, ...]) -> None:
        self._title = title
        self._rows: list[tuple[str, ...]] = [columns]

    def row(self, *cells: str) -> None:
        self._rows.append(cells)

    def print(self) -> None:
        """Names to the left, figures to the right."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        print(f"### {self._title}\n")
        for index, (name, *figures) in enumerate(self._rows):
            cells = [name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])]
            print("| " + " | ".join(cells) + " |")
            if index == 0:
                rules = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
                print("| " + " | ".join(rules) + " |")
        print(flush=True)
