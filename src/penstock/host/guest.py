"""What the executor needs of a client, be it a socket or a caller in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from penstock.engine import Session


class Guest(Protocol):
    """One client. The executor calls everything here on its event loop.

    The session's sink is called by whichever thread runs the engine. It only keeps what it
    is given and, with the first item, puts the guest into ``Executor.dirty``.
    """

    #: set by the executor; the session itself may change in the thread before anything of it is sent
    is_blocked: bool

    @property
    def session(self) -> Session | None: ...

    @property
    def closing(self) -> bool:
        """Whether nothing more is accepted from it."""

    def flush(self) -> None:
        """Hand out what the sink kept."""

    def hold(self, on: bool) -> None:
        """Send nothing more for now, since the engine is away, or go on."""

    def wait_for_batch(self) -> None:
        """It blocked or was unblocked: go on (by ``Executor.after_batch``) once that is settled."""

    def batch_done(self) -> None:
        """What it asked ``Executor.after_batch`` for: everything handed over is answered, or blocked."""

    def write_aside(self, items: list[Reply]) -> None:
        """Hand these out now, while the engine runs elsewhere and what the sink kept is its thread's."""
