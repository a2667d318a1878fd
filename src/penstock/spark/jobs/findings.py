"""What a comparison found: numbers by kind, and the first differences in words.

    findings.count("messages", 12_000)
    findings.differ("missing", 3, ["stream orders: offset 17 is missing in the lake", …])

Rules: only ``differ`` makes the comparison fail. Sentences are kept up to a limit, numbers are not limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Final

#: Differences that are told in words.
MOST_TOLD: Final = 100


class Findings:
    """Of one comparison."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: the first differences, a sentence each
        self.told: list[str] = []
        self.differences = 0

    def count(self, kind: str, number: int = 1) -> None:
        """Something that is as it may be."""
        self.counts[kind] += number

    def differ(self, kind: str, number: int, sentences: Iterable[str]) -> None:
        """Something that should not be."""
        self.counts[kind] += number
        self.differences += number
        self.told += islice(sentences, max(0, MOST_TOLD - len(self.told)))

    def notes(self) -> dict[str, int | str]:
        return {kind: number for kind, number in self.counts.items() if number}

    def __repr__(self) -> str:
        return f"<Findings {self.differences} differences, {dict(self.counts)}>"
