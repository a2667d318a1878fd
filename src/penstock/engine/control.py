"""Instructions that travel to a session's sink in order with its replies.

A switch of protocol takes effect exactly between the replies before and after it, and
a connection closes after the replies that were answered before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Control:
    """Not a reply: something the owner of the sink must do."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SwitchProtocol(Control):
    """From here on encode as RESP ``version``."""

    version: int


class ReplyMode(Control, Enum):
    """Which of the replies after this are sent (CLIENT REPLY). Pushes always are."""

    ON = b"ON"
    OFF = b"OFF"
    #: all but the next one
    SKIP = b"SKIP"


@dataclass(frozen=True, slots=True)
class Close(Control):
    """Close the connection once everything before this is written."""


@dataclass(frozen=True, slots=True)
class Overflow(Control):
    """So many pushes were dropped because their reader was too slow."""

    dropped: int


class SlowScriptError(Exception):
    """A script ran longer than the caller can wait here; its batch was undone as if it never ran."""


class MustUndoScriptError(Exception):
    """A script failed after it had written, without a savepoint: its batch has to be done again."""
