"""What scripts that write parts of the documentation share: write a page, or say that it is not current.

Used by the scripts ``make_*_reference.py``. Rules: a page that is current is not touched; with ``--check``
nothing is. Knows nothing of what is in a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"


def write_or_check(page: Path, text: str, script: str, arguments: Sequence[str]) -> int:
    """The status to end with; ``script`` is what a reader of the complaint should run."""
    before = page.read_text("utf-8") if page.exists() else ""
    if text == before:
        return 0
    if "--check" in arguments:
        print(f"{page.relative_to(ROOT)} is not up to date: run python scripts/{script}")
        return 1
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")
    return 0


def write_part_or_check(page: Path, part: str, text: str, script: str, arguments: Sequence[str]) -> int:
    """The same for what stands between the two marks of a part; the rest of the page is written by people."""
    begin, end = f"<!-- begin: {part}, written by scripts/{script} -->\n", f"<!-- end: {part} -->\n"
    head, _, rest = page.read_text("utf-8").partition(begin)
    _, _, tail = rest.partition(end)
    return write_or_check(page, f"{head}{begin}\n{text}\n{end}{tail}", script, arguments)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, as the other pages have it."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
