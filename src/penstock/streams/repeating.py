"""Commands that only read, sent again when the connection was lost before the answer came.

The client sends plain reads again by itself. Where scripts stand in for the stream commands it cannot
know that they only read; whoever calls this does.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.client.resending import persistently
from penstock.client.transports.base import Argument
from penstock.errors import OutcomeUnknownError
from penstock.streams.arguments import Execute

#: How long a read whose connection was lost is tried again.
_READING_MS: Final = 30_000


async def repeat(commands: Execute, name: str, *words: Argument) -> Any:
    """What a command answers that only reads."""
    return await persistently(
        name,
        lambda: commands.execute(name, *words),
        limit_ms=_READING_MS,
        is_cause=lambda error: isinstance(error, OutcomeUnknownError),
    )
