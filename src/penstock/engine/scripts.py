"""Scripts inside the engine: the cache that all processes share, atomic runs, time limits, killing.

A script runs inside a savepoint of its batch: an error takes back everything it did.
The interpreter is the scripting room's; this module gives it commands to call.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.errors import CommandError
from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.session import Session

log = logging.getLogger("penstock.script")


class SlowScriptError(Exception):
    """A script ran longer than the caller can wait here; its batch was undone as if it never ran."""


class Scripts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.inline_limit_s: float | None = None
