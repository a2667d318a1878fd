"""CLIENT PAUSE: clients of this server are held back until a time, or until CLIENT UNPAUSE.

A held client waits as a blocked one does, for no key and with the end of the pause as
its deadline; what it sent is deferred and runs afterwards, in order. So whoever owns
the connection needs to know nothing new.

Only sessions that came over a socket are held: a local caller would wait for itself.
Other processes on the same store are not held either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.session import Session, Waiter
from penstock.protocol.replies import NO_REPLY

if TYPE_CHECKING:
    from penstock.engine.table import Entry


@dataclass(frozen=True, slots=True)
class Pause:
    until_ms: int
    #: False: every command is held
    writes_only: bool

    def holds(self, session: Session, entry: Entry) -> bool:
        if not session.is_remote:
            return False
        return not self.writes_only or _may_write(session, entry)

    def waiter(self, session: Session) -> Waiter:
        return Waiter([], [], session.ks.index, 0, self.until_ms, NO_REPLY)


def is_held(session: Session) -> bool:
    """Whether it is a pause that the session waits for, rather than a key."""
    return session.blocked is not None and not session.blocked.keys


def _may_write(session: Session, entry: Entry) -> bool:
    if entry.name == b"EXEC":
        return any(_may_write(session, queued) for _, queued in session.queue or ())
    return entry.spec.is_write or entry.spec.may_replicate
