"""Where a test runs: one way to name places, to empty them, to wait for what must happen on them.

    @pytest.fixture(params=("embedded-3", "served-3", "server-2", "redis-3", "cluster-3"))
    def url(request): return url_of(request.param, request)

==============  ================================================================================
embedded        a directory of the test's own
served          ``penstock serve``, one process for the session
server, valkey  a real Valkey, one for the session
redis           a real Redis, likewise
cluster         three nodes of Valkey, likewise
==============  ================================================================================

The number behind the dash is the version of RESP; without it the client chooses. Rules: a place is empty when
its address is given out, and processes start at first use (the fixtures are in ``tests/conftest.py``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest


def url_of(name: str, request: pytest.FixtureRequest) -> str:
    """The address of an empty place. Only what is embedded gets a directory: making one takes its time."""
    kind, _, protocol = name.partition("-")
    settings = [f"protocol={protocol}"] if protocol else []
    if kind == "embedded":
        settings.append("durability=relaxed")
        address = f"embedded:{request.getfixturevalue('tmp_path') / 'store.pen'}"
    elif kind == "served":
        address = request.getfixturevalue("own_server").url
    elif kind == "cluster":
        address = request.getfixturevalue("own_cluster").url.replace("redis://", "redis-cluster://")
    else:
        servers = request.getfixturevalue("real_servers")
        address = servers.get("redis" if kind == "redis" else "valkey").url
    return "?".join([address, *filter(None, ["&".join(settings)])])


def only_on(places: Sequence[str], *kinds: str) -> pytest.MarkDecorator:
    """For tests of what only these kinds of places have, or for which a few are enough."""
    chosen = [name for name in places if name.partition("-")[0] in kinds]
    return pytest.mark.parametrize("url", chosen, indirect=True)


async def until(condition: Callable[[], Any], limit_s: float = 60) -> None:
    """Wait for something that must come true; it may have to be asked for."""
    async with asyncio.timeout(limit_s):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.002)


def wait_until(condition: Callable[[], Any], limit_s: float = 60) -> Any:
    """``until`` where no loop runs. What the condition gives, as soon as that is true."""
    end_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not come true"
        time.sleep(0.01)
    return found
