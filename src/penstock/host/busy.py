"""What is answered while a slow script keeps the engine busy.

The engine runs in its own thread then, so nothing here may wait for it or change what it
uses: only the session's own state. As in Redis, one may authenticate, kill the script
or shut the server down; everything else is refused, and spoils an open transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from penstock.engine import Engine, Session
from penstock.engine.control import Close
from penstock.engine.table import Entry
from penstock.errors import CommandError
from penstock.host.guest import Guest
from penstock.protocol.replies import OK, Reply

BUSY: Final = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
_NO_AUTH: Final = "NOAUTH Authentication required."
_CONNECTION_ONLY: Final = frozenset({b"AUTH", b"HELLO"})


def answers_while_busy(
    engine: Engine, guest: Guest, commands: list[list[bytes]], shut_down: Callable[[], None] | None
) -> list[Reply]:
    """What to hand out to a guest that has nothing to do with the running script."""
    items: list[Reply] = []
    session = guest.session
    assert session is not None
    if guest.closing:
        return items
    for argv in commands:
        entry = engine.dispatcher.resolve(argv)
        try:
            _answer(engine, session, argv, entry, items.append, shut_down)
        except CommandError as error:
            items.append(_spoil_transaction(session, entry.name, error))
        if entry.name == b"QUIT":
            break
    return items


def _answer(
    engine: Engine,
    session: Session,
    argv: list[bytes],
    entry: Entry,
    send: Callable[[Reply], None],
    shut_down: Callable[[], None] | None,
) -> None:
    if entry.name == b"QUIT":
        send(OK)
        send(Close())
    elif entry.name in _CONNECTION_ONLY:
        send(entry.handler(cast(Session, _Aside(session, send)), argv))
    elif not session.authenticated:
        raise CommandError(_NO_AUTH)
    elif entry.name == b"":
        entry.handler(session, argv)  # raises what is wrong with name or arity
    elif entry.name == b"SCRIPT|KILL":
        send(engine.scripts.kill_running())
    elif entry.name == b"SHUTDOWN" and shut_down is not None and _is_nosave(argv):
        engine.scripts.kill()
        shut_down()
    else:
        raise CommandError(BUSY)


def _is_nosave(argv: list[bytes]) -> bool:
    return b"NOSAVE" in (word.upper() for word in argv[1:])


def _spoil_transaction(session: Session, name: bytes, error: CommandError) -> CommandError:
    """A refused command makes EXEC fail; a refused EXEC ends the transaction."""
    if session.queue is None:
        return error
    if name != b"EXEC":
        session.queue_broken = True
        return error
    session.queue, session.queue_broken, session.watches = None, False, {}
    session.refresh_gate()
    return CommandError(f"EXECABORT Transaction discarded because of: {error}")


class _Aside:
    """A session for handlers that only change it: at once, since no unit could undo it."""

    def __init__(self, session: Session, send: Callable[[Reply], None]) -> None:
        self._session = session
        self.push = send

    def assign(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self._session, name, value)
        self._session.refresh_gate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
