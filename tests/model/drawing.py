"""Sequences of commands as Hypothesis draws and shrinks them, and how many it tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.effort import IS_CI
from tests.model.templates import Argv, Drawn, Source

#: Rounds of a test of many minutes. Each starts anew: Hypothesis remembers all that it drew in
#: one round, which is gigabytes if there is no end to it.
_SOAK_ROUNDS: Final = 100

#: One round as part of every test run, many for those who have time.
how_long = pytest.mark.parametrize(
    "rounds",
    [1, pytest.param(_SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(0)])],
    ids=["briefly", "for-long"],
)

#: A drawn sequence has so many steps; those that do not matter shrink to nothing at all.
_STEPS: Final = (20, 60)
_NOTHING_EVERY: Final = 40


class Step:
    """One command of one client; ``joined`` puts it into the transaction of the step before."""

    __slots__ = ("argv", "client", "joined")

    def __init__(self, argv: Argv, client: int, joined: bool) -> None:
        self.argv = argv
        self.client = client
        self.joined = joined

    def __repr__(self) -> str:
        return f"{'+' if self.joined else ''}{self.client}"


@st.composite
def steps(draw: Callable[[st.SearchStrategy[int]], int], source: Source, clients: int) -> Step | None:
    chooser = Drawn(draw)
    if chooser.below(_NOTHING_EVERY) == 0:
        return None
    return Step(source.command(chooser), chooser.below(clients), chooser.below(3) == 2)


def sequences(source: Source, clients: int = 1) -> st.SearchStrategy[list[Step | None]]:
    low, high = _STEPS
    return st.lists(steps(source, clients), min_size=low, max_size=high)


def batches(sequence: list[Step | None]) -> list[list[tuple[int, Argv]]]:
    """What runs in one go: commands and their clients."""
    found: list[list[tuple[int, Argv]]] = []
    for step in sequence:
        if step is None:
            continue
        if step.joined and found:
            found[-1].append((step.client, step.argv))
        else:
            found.append([(step.client, step.argv)])
    return found


def tries(examples: int) -> settings:
    """So many sequences, different ones in every run (but in CI), without a limit of time for any.

    Failures are not kept for the next run: tests of one function with other commands would
    try them too, and not understand them. What is printed repeats them.
    """
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=IS_CI,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
