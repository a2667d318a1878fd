"""How much random tests try, and by which dice: little in every run, more for those who have time.

    PENSTOCK_TEST_EFFORT   a factor for the number of their tries; 1 unless given, `make soak` gives more

In CI (``CI=true``) the dice fall alike in every run, so that it judges the change and not the dice. Elsewhere
they do not; what a test prints when it fails repeats the run.
"""

from __future__ import annotations

import os
import random
from typing import Final

IS_CI: Final = os.environ.get("CI") == "true"
EFFORT: Final = float(os.environ.get("PENSTOCK_TEST_EFFORT", "1"))


def scaled(count: int) -> int:
    """So many tries, seeds or examples, by the effort that is wanted; at least one."""
    return max(1, round(count * EFFORT))


def seed_of(variable: str) -> int:
    """The seed that this environment variable names, or one of this run."""
    given = os.environ.get(variable)
    if given is not None:
        return int(given)
    return 0 if IS_CI else random.randrange(1 << 32)
