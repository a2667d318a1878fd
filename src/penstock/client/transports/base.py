"""The port between a connection and whatever answers it: commands out, replies and pushes in.

A transport carries commands and replies, not bytes. It knows nothing of futures, retries
or routing. Everything happens on one event loop:

===================  ==========================================================
the connection       calls ``encode`` for each command and ``write`` with what
                     was encoded, once a tick; never while ``is_closing``
the transport        calls ``receiver.replies_ready(take)`` when there are
                     replies; ``take`` answers one each time, then ``NO_MORE``.
                     If that raises, the transport must end: nobody knows any
                     more which reply is whose
the transport        calls ``receiver.pause_writing`` when it has enough to send,
                     from within ``write`` at the earliest, and later
                     ``receiver.resume_writing``
the transport        calls ``receiver.transport_lost`` exactly once, at the end,
                     but never from within ``encode``, ``write``, ``close`` or
                     ``abort``
===================  ==========================================================

Replies come in the order of the commands. A refused command is a ``CommandError`` value;
a push is a list of the transport's ``push_type``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

Argument: TypeAlias = bytes | str | int | float | memoryview
#: A whole command, its name first. Must not change until the reply is there.
Arguments: TypeAlias = tuple[Argument, ...]


class _NoMore:
    def __repr__(self) -> str:
        return "NO_MORE"


#: What ``take`` answers when there is no whole reply.
NO_MORE: Final = _NoMore()


class Receiver(Protocol):
    """What a transport reports to."""

    def replies_ready(self, take: Callable[[], Any]) -> None: ...

    def transport_lost(self, error: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class Transport(Protocol):
    """One way to one server."""

    #: the type of a push among the values that ``take`` answers
    push_type: type[list[Any]]
    #: so far; 0 where nothing travels as bytes
    bytes_sent: int
    bytes_received: int

    def encode(self, arguments: Arguments) -> Any:
        """One command in the transport's own form; raises TypeError for what is no argument."""

    def write(self, encoded: list[Any]) -> None:
        """Send what was encoded this tick."""

    def is_closing(self) -> bool:
        """Whether it has ended, or is about to: what is written now will not be sent."""

    def close(self) -> None:
        """Send what was written, then end; ``transport_lost`` follows."""

    def abort(self) -> None:
        """End now; ``transport_lost`` follows."""
