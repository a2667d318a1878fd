"""CLIENT and its subcommands: names, lists, killing, unblocking, reply modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.connection import check_name
from penstock.engine.commands.registry import Argv, command
from penstock.engine.control import Close
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import NO_REPLY, OK, Reply, Verbatim

_HELP: Final = (
    b"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"GETNAME, SETNAME <name>, ID, INFO, LIST [options ...], KILL <ip:port> | options ...,",
    b"UNBLOCK <id> [TIMEOUT|ERROR], NO-EVICT ON|OFF, REPLY ON|OFF|SKIP, HELP",
)
_TYPES: Final = (b"normal", b"master", b"replica", b"slave", b"pubsub")


def describe(session: Session) -> bytes:
    """One line of CLIENT LIST."""
    now = session.engine.clock.now_ms()
    queue = -1 if session.queue is None else len(session.queue)
    return (
        f"id={session.number} addr={session.address.decode()} laddr={session.local_address.decode()} fd=-1"
        f" name={session.name.decode()} age={(now - session.created_ms) // 1000}"
        f" idle={(now - session.last_used_ms) // 1000} flags={_flags(session)} db={session.ks.index}"
        f" sub={len(session.channels)} psub={len(session.patterns)} ssub={len(session.shard_channels)}"
        f" multi={queue} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0"
        f" events=r cmd={session.last_command.decode()} user=default redir=-1 resp={session.protocol}"
    ).encode()


def _flags(session: Session) -> str:
    letters = ""
    if session.monitoring:
        letters += "O"
    if session.is_subscribed:
        letters += "P"
    if session.queue is not None:
        letters += "x"
    if session.blocked is not None:
        letters += "b"
    if session.no_evict:
        letters += "e"
    return letters or "N"


def _type_of(session: Session) -> bytes:
    return b"pubsub" if session.is_subscribed else b"normal"


@command("CLIENT|ID")
def client_id(s: Session, argv: Argv) -> Reply:
    return s.number


@command("CLIENT|GETNAME")
def client_getname(s: Session, argv: Argv) -> Reply:
    return s.name or None


@command("CLIENT|SETNAME")
def client_setname(s: Session, argv: Argv) -> Reply:
    s.assign(name=check_name(argv[2]))
    return OK


@command("CLIENT|INFO")
def client_info(s: Session, argv: Argv) -> Reply:
    return Verbatim(describe(s) + b"\n")


@command("CLIENT|LIST")
def client_list(s: Session, argv: Argv) -> Reply:
    sessions = list(s.engine.sessions.values())
    if len(argv) == 4 and argv[2].upper() == b"TYPE":
        wanted = argv[3].lower()
        if wanted not in _TYPES:
            raise CommandError(f"ERR Unknown client type '{argv[3].decode(errors='replace')}'")
        sessions = [session for session in sessions if _type_of(session) == wanted]
    elif len(argv) > 3 and argv[2].upper() == b"ID":
        numbers = {integer(word, "ERR Invalid client ID") for word in argv[3:]}
        sessions = [session for session in sessions if session.number in numbers]
    elif len(argv) != 2:
        raise syntax_error()
    return Verbatim(b"".join(describe(session) + b"\n" for session in sessions))


# ------------------------------------------------------------------------------ kill


@command("CLIENT|KILL")
def client_kill(s: Session, argv: Argv) -> Reply:
    if len(argv) == 3:
        found = [session for session in s.engine.sessions.values() if session.address == argv[2]]
        if not found:
            raise CommandError("ERR No such client")
        return _kill(s, found, OK)
    if len(argv) % 2:
        raise syntax_error()
    tests: list[Callable[[Session], bool]] = []
    skip_me = True
    for index in range(2, len(argv), 2):
        word, value = argv[index].upper(), argv[index + 1]
        if word == b"SKIPME" and value.upper() in (b"YES", b"NO"):
            skip_me = value.upper() == b"YES"
        else:
            tests.append(_kill_test(word, value))
    chosen = [
        session
        for session in list(s.engine.sessions.values())
        if all(test(session) for test in tests) and not (skip_me and session is s)
    ]
    return _kill(s, chosen, len(chosen))


def _kill_test(word: bytes, value: bytes) -> Callable[[Session], bool]:
    if word == b"ID":
        number = integer(value, "ERR client-id should be greater than 0")
        if number < 1:
            raise CommandError("ERR client-id should be greater than 0")
        return lambda session: session.number == number
    if word == b"ADDR":
        return lambda session: session.address == value
    if word == b"LADDR":
        return lambda session: session.local_address == value
    if word == b"TYPE":
        wanted = value.lower()
        if wanted not in _TYPES:
            raise CommandError(f"ERR Unknown client type '{value.decode(errors='replace')}'")
        return lambda session: _type_of(session) == wanted
    if word == b"USER":
        if value != b"default":
            raise CommandError(f"ERR No such user '{value.decode(errors='replace')}'")
        return lambda session: True
    raise syntax_error()


def _kill(s: Session, chosen: list[Session], reply: Reply) -> Reply:
    for session in chosen:
        if session is s:
            s.push(reply)
            return Close()
        if session.kill is not None:
            s.engine.dispatcher.after_commit.append(session.kill)
    return reply


# ----------------------------------------------------------------- blocking, replies


@command("CLIENT|UNBLOCK")
def client_unblock(s: Session, argv: Argv) -> Reply:
    number = integer(argv[2])
    mode = argv[3].upper() if len(argv) > 3 else b"TIMEOUT"
    if mode not in (b"TIMEOUT", b"ERROR") or len(argv) > 4:
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    session = s.engine.sessions.get(number)
    if session is None or session.blocked is None:
        return 0
    if mode == b"TIMEOUT":
        s.engine.waiting.time_out(session)
    else:
        s.engine.waiting.interrupt(session, CommandError("UNBLOCKED client unblocked via CLIENT UNBLOCK"))
    return 1


@command("CLIENT|REPLY")
def client_reply(s: Session, argv: Argv) -> Reply:
    mode = argv[2].upper()
    if mode not in (b"ON", b"OFF", b"SKIP"):
        raise syntax_error()
    s.assign(reply_mode=mode)
    return OK if mode == b"ON" else NO_REPLY


@command("CLIENT|NO-EVICT")
def client_no_evict(s: Session, argv: Argv) -> Reply:
    mode = argv[2].upper()
    if mode not in (b"ON", b"OFF"):
        raise syntax_error()
    s.assign(no_evict=mode == b"ON")
    return OK


@command("CLIENT|HELP")
def client_help(s: Session, argv: Argv) -> Reply:
    return list(_HELP)
