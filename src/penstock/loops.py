"""The event loop that we start where nobody has started one: uvloop where it installs."""

from __future__ import annotations

import asyncio
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
