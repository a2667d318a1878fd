"""Where a test of the spark room runs: embedded, unless it says more.

@EVERYWHERE
def test_something(spark, url): ...
"""

from __future__ import annotations

from typing import Final

import pytest

#: Where the way to the store differs: native commands, scripts, scripts on a cluster.
PLACES: Final = ("embedded", "server", "cluster")

EVERYWHERE: Final = pytest.mark.parametrize("url", PLACES, indirect=True)
