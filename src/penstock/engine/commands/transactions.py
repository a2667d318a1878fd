"""MULTI, EXEC, DISCARD, WATCH, UNWATCH.

EXEC runs its commands inside the transaction of its batch, so they are atomic with
everything that needs to be. WATCH is optimistic and works across processes: the keyspace
keeps a revision for every watched key (see ``Keyspace.watch``).
"""

from __future__ import annotations

from typing import Any

from penstock.engine.commands.registry import Argv, command
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import NULL_ARRAY, OK, Reply


@command("MULTI")
def multi(s: Session, argv: Argv) -> Reply:
    if s.queue is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    s.assign(queue=[], queue_broken=False)
    return OK


@command("DISCARD")
def discard(s: Session, argv: Argv) -> Reply:
    if s.queue is None:
        raise CommandError("ERR DISCARD without MULTI")
    s.assign(queue=None, queue_broken=False, watches={})
    return OK


@command("WATCH")
def watch(s: Session, argv: Argv) -> Reply:
    if s.queue is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    watches = dict(s.watches)
    for key in argv[1:]:
        name = (s.ks.index, key)
        if name not in watches:
            watches[name] = (s.ks.watch(key), s.ks.exists(key))
    s.assign(watches=watches)
    return OK


@command("UNWATCH")
def unwatch(s: Session, argv: Argv) -> Reply:
    s.assign(watches={})
    return OK


@command("EXEC")
def exec_(s: Session, argv: Argv) -> Reply:
    queue = s.queue
    if queue is None:
        raise CommandError("ERR EXEC without MULTI")
    broken = s.queue_broken
    untouched = _watches_hold(s)
    s.assign(queue=None, queue_broken=False, watches={})
    if broken:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    if not untouched:
        return NULL_ARRAY
    s.in_exec = True
    try:
        return [_run(s, queued, entry) for queued, entry in queue]
    finally:
        s.in_exec = False


def _run(s: Session, argv: Argv, entry: Any) -> Reply:
    try:
        return s.engine.dispatcher.call(s, argv, entry)
    except CommandError as error:
        return error


def _watches_hold(s: Session) -> bool:
    """Whether no watched key changed: neither written nor expired since it was watched."""
    for (database, key), (revision, existed) in s.watches.items():
        keyspace = s.engine.keyspaces[database]
        # Looking at the key first lets an expired one be removed, which counts as a change.
        exists = keyspace.exists(key)
        if keyspace.revision(key) != revision or (existed and not exists):
            return False
    return True
