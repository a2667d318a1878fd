"""One engine and one executor an event loop and directory, shared and counted.

All who open a directory on one loop are guests of one executor, so what they send in one
tick is one transaction. Another loop of this process, in another thread, has an engine of
its own: the two share the LMDB environment (``engine.storage``) and reach each other's
clients as other processes do.

States of a host
----------------
========  ==========================================  ======================================
state     means                                       leaves by
========  ==========================================  ======================================
open      somebody uses it                            ``leave`` of the last: closing
closing   nobody does, but a slow script still runs;  ``open_host``: open; the script's end:
          it is killed, since nobody is left who      closed
          would take its reply or could kill it
closed    engine and executor are closed              nothing
========  ==========================================  ======================================

A host whose loop was closed without it is closed by the next ``open_host``. In a forked
child there are no hosts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from penstock.engine import Engine, Session
from penstock.engine.storage.environment import Durability
from penstock.errors import ConfigError
from penstock.host.executor import Executor

log = logging.getLogger("penstock.host")

#: Device and inode of the directory, and the loop; a host keeps its loop, so the id stays its own.
_Key: TypeAlias = tuple[int, int, int]

#: Scripts that run longer are moved off the event loop, so that it stays responsive.
SCRIPT_INLINE_LIMIT_S: Final = 0.02
_POLL_S: Final = 0.005


class Host:
    """An engine on an event loop. Get one from :func:`open_host`, give it back with :meth:`leave`."""

    def __init__(self, key: _Key, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._key = key
        self.engine = engine
        self.executor: Executor[Any] = Executor(engine, SCRIPT_INLINE_LIMIT_S)
        self.loop = loop
        self.references = 0

    def leave(self, session: Session, on_left: Callable[[], None]) -> None:
        """End a session and give the host back; ``on_left`` is called when nothing is left of either.

        For somebody who is not the last that is at once, even if the session itself has to
        wait for a slow script to end.
        """
        self.executor.leave(session)
        self.references -= 1
        self._close_if_unused(on_left)

    def _close_if_unused(self, on_left: Callable[[], None]) -> None:
        if not self.references:
            self.executor.run_now()
            if self.executor.is_away:
                # Again and again: it may be between two scripts, or just about to start one.
                self.engine.scripts.kill()
                self.loop.call_later(_POLL_S, self._close_if_unused, on_left)
                return
            self.close()
        on_left()

    def close(self) -> None:
        """Close the engine. For the last user alone."""
        _hosts.pop(self._key, None)
        self.executor.close()
        try:
            self.engine.close()
        except Exception:  # a disk that fails, say; whoever leaves must not wait for ever
            log.exception("could not close %r properly", self)

    def __repr__(self) -> str:
        return f"<Host {self.references} users {self.executor!r} {self.engine!r}>"


#: Each entry is touched by its own loop's thread only, until that loop is closed.
_hosts: Final[dict[_Key, Host]] = {}


def open_host(path: Path, durability: Durability) -> Host:
    """The host of a directory on the running loop, opened if nobody has yet; counts its users.

    Raises what opening the store raises, and :class:`ConfigError` if it is open otherwise.
    """
    _close_forgotten()
    loop = asyncio.get_running_loop()
    key = _key(path, loop)
    host = _hosts.get(key) if key is not None else None
    if host is None:
        engine = Engine.open(path, durability=durability)
        key = _key(path, loop)  # now that the directory exists
        assert key is not None
        host = _hosts[key] = Host(key, engine, loop)
    elif host.engine.env.durability != durability:
        raise ConfigError(
            f"{path} is already open in this process with durability {host.engine.env.durability!r};"
            f" open it with the same, not {durability!r}"
        )
    host.references += 1
    return host


def _key(path: Path, loop: asyncio.AbstractEventLoop) -> _Key | None:
    """None if there is no such directory, or none that we may see: opening it will tell."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, id(loop)


def _close_forgotten() -> None:
    """Close what was left open on loops that are closed: nobody can use it any more."""
    for host in list(_hosts.values()):
        if host.loop.is_closed() and not host.executor.is_away:
            host.close()


def _forget_in_child() -> None:
    for host in _hosts.values():
        host.executor.abandon()
    _hosts.clear()


os.register_at_fork(after_in_child=_forget_in_child)
