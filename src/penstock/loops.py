"""The event loop that we start where nobody has started one, and the memory of processes that serve."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from typing import Final

from penstock.errors import ConfigError

#: Names the event loop: ``uvloop`` (the default where it is installed) or ``asyncio``.
LOOP_VARIABLE: Final = "PENSTOCK_LOOP"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it installs; asyncio's own loop elsewhere, or if the environment asks for it."""
    wanted = os.environ.get(LOOP_VARIABLE, "")
    if wanted not in ("", "uvloop", "asyncio"):
        raise ConfigError(f"{LOOP_VARIABLE} must be uvloop or asyncio, not {wanted!r}")
    if wanted == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def settle_memory() -> None:
    """For a process of our own that serves from now on: what exists now stays, and is not looked through
    again and again; requests make many objects that are gone at once, so looking is worth it less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
