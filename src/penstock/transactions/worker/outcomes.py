"""What comes out of performing a step, as data. Who performs decides; ``flow`` turns it into what is
written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.transactions.model import MAX_NOTE, Ending


class Done(NamedTuple):
    """It succeeded. ``output`` is JSON; None: what came in goes on."""

    output: bytes | None = None
    note: str = ""
    #: the pipeline ends here, with this (a fixed reply)
    ends: Ending | None = None


class Failed(NamedTuple):
    """It did not."""

    status: Ending
    note: str
    #: by which retry policies know it
    names: Sequence[str] = ()
    output: bytes | None = None
    #: nobody expected this: somebody should look at it
    is_fault: bool = False
    #: False: another attempt would come to the same, unless a policy names this very error
    is_retryable: bool = True
    #: the other side asked for a longer pause
    pause_ms: int = 0


class Suspended(NamedTuple):
    """It goes on later; ``kind`` and ``arguments`` are those of ``lua/settle.lua``."""

    kind: str
    arguments: Sequence[Any]
    fields: Sequence[Any] = ()
    note: str = ""


class HandedBack(NamedTuple):
    """Somebody else is to do it: the worker stops."""


Outcome = Done | Failed | Suspended | HandedBack


def printable(text: str) -> str:
    """What a step says, as it can be kept: not too long, and without halves of characters."""
    return str(text)[:MAX_NOTE].encode("utf-8", "replace").decode()


class Suspend(BaseException):
    """Leaves a step function from inside ``sleep`` or ``wait_for_switch``; nobody's ``except Exception``
    holds it."""

    def __init__(self, outcome: Suspended) -> None:
        super().__init__(outcome.kind)
        self.outcome = outcome
