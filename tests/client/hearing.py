"""What a subscriber has heard of a channel of PUB/SUB, compared with what was published there.

    channel = Channel()
    channel.published[7] = "ok"                 # or what else came of it: see ``tests.client.workload``
    channel.heard += [6, None, 7]               # numbers in the order in which they came, None for a gap
    channel.strangers() + channel.repetitions() + channel.breaches()

Messages are numbered by their only publisher, who sends one after the other. Must not import pytest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Channel:
    """The messages of one channel: what was published, and what a subscriber has found."""

    published: dict[int, str] = field(default_factory=dict)
    #: numbers, and None for a gap
    heard: list[int | None] = field(default_factory=list)

    def strangers(self) -> list[str]:
        return [
            f"message {n} was never sent" for n in self.heard if n is not None and n not in self.published
        ]

    def repetitions(self) -> list[str]:
        counts = Counter(number for number in self.heard if number is not None)
        return [f"message {n} came twice" for n, times in counts.items() if times > 1]

    def breaches(self) -> list[str]:
        """What came in another order, or is missing although no gap was told of at its place."""
        found: list[str] = []
        sure = [n for n in self.heard if n is not None and self.published.get(n) == "ok"]
        if sure != sorted(sure):
            found.append("messages came in another order")
        numbers = set(self.heard)
        last = -1
        had_gap = True  # what came before the subscription
        for number in self.heard:
            if number is None:
                had_gap = True
            elif self.published.get(number) == "ok":
                unheard = (n for n in range(last + 1, number) if n not in numbers)
                missing = [n for n in unheard if self.published.get(n) == "ok"]
                if missing and not had_gap:
                    found.append(f"messages {missing} are missing before {number} without a gap")
                last, had_gap = number, False
        return found
