"""MULTI, EXEC, DISCARD, WATCH, UNWATCH.

EXEC runs its commands inside the transaction of its batch, so they are atomic with
everything that needs to be. WATCH is optimistic and works across processes: the keyspace
keeps a revision for every watched key (see ``Keyspace.watch``).

EXEC answers one element a command. Where a command answers by pushes instead (SUBSCRIBE),
the first of them is its element; other pushes to the caller follow the reply, since a
RESP2 client could not tell them from it.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from penstock.engine.commands.registry import Argv, command
from penstock.engine.control import SwitchProtocol
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import NO_REPLY, NULL_ARRAY, OK, Push, Reply


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
    _end_transaction(s)
    return OK


@command("WATCH")
def watch(s: Session, argv: Argv) -> Reply:
    if s.queue is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    watches = dict(s.watches)
    for key in argv[1:]:
        name = (s.ks.index, key)
        if name not in watches:
            # Looking first removes an expired key before the watch begins, not as a change during it.
            exists = s.ks.exists(key)
            watches[name] = (s.ks.watch(key), exists)
    s.assign(watches=watches)
    return OK


@command("UNWATCH")
def unwatch(s: Session, argv: Argv) -> Reply:
    s.assign(watches={})
    return OK


@command("EXEC")
def exec_(s: Session, argv: Argv) -> Reply:
    if len(argv) > 1:
        _end_transaction(s)
        raise CommandError(
            "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
        )
    queue = s.queue
    if queue is None:
        raise CommandError("ERR EXEC without MULTI")
    broken = s.queue_broken
    untouched = _watches_hold(s)
    _end_transaction(s)
    if broken:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    if not untouched:
        return NULL_ARRAY
    s.in_exec = True
    try:
        return _run_all(s, queue)
    finally:
        s.in_exec = False


def _end_transaction(s: Session) -> None:
    s.assign(queue=None, queue_broken=False, watches={})


def _watches_hold(s: Session) -> bool:
    """Whether no watched key changed: neither written nor expired since it was watched."""
    for (database, key), (revision, existed) in s.watches.items():
        keyspace = s.engine.keyspaces[database]
        # Looking at the key first lets an expired one be removed, which counts as a change.
        exists = keyspace.exists(key)
        if keyspace.revision(key) != revision or (existed and not exists):
            return False
    return True


# --------------------------------------------------------------------------------- run


def _run_all(s: Session, queue: list[tuple[Argv, Any]]) -> Reply:
    out = s.engine.dispatcher.out
    s.engine.statistics.commands_processed += len(queue)
    replies: list[Reply] = []
    late: list[Reply] = []
    for argv, entry in queue:
        mark = len(out)
        reply = _run(s, argv, entry)
        pushes = _take_pushes(s, mark) if len(out) > mark else []
        if reply is NO_REPLY:
            reply = pushes.pop(0) if pushes and isinstance(pushes[0], Push) else OK
        replies.append(reply)
        late += pushes
    if not late:
        return replies
    for item in (replies, *late):
        s.push(item)
    return NO_REPLY


def _run(s: Session, argv: Argv, entry: Any) -> Reply:
    engine = s.engine
    started = perf_counter_ns()
    try:
        return engine.dispatcher.call(s, argv, entry)
    except CommandError as error:
        engine.dispatcher.count_error(error)
        return error
    finally:
        took_ns = perf_counter_ns() - started
        if took_ns > engine.config.slowlog_threshold_ns:
            engine.dispatcher.log_slow(s, argv, entry, took_ns)


def _take_pushes(s: Session, mark: int) -> list[Reply]:
    """Take back what was sent to the session since ``mark``; a switch of protocol stays where it is."""
    out = s.engine.dispatcher.out
    since = out[mark:]
    own = [item for session, item in since if session is s and not isinstance(item, SwitchProtocol)]
    out[mark:] = [(to, item) for to, item in since if to is not s or isinstance(item, SwitchProtocol)]
    return own
