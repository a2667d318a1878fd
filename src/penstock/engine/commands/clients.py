"""CLIENT and its subcommands: names, lists, killing, unblocking, pausing, reply modes.

It speaks of the sessions of this process; other processes on the store have their own.
CLIENT TRACKING and its relatives are in ``client_tracking``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.connection import check_name, hang_up
from penstock.engine.commands.registry import Argv, command
from penstock.engine.control import ReplyMode
from penstock.engine.pausing import Pause, is_held
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import NO_REPLY, OK, Reply, Verbatim

_TYPES: Final = (b"normal", b"master", b"replica", b"slave", b"pubsub")


def describe(session: Session) -> bytes:
    """One line of CLIENT LIST."""
    now = session.engine.clock.now_ms()
    redirect = -1 if session.tracking is None else session.tracking.redirect
    queued = -1 if session.queue is None else len(session.queue)
    # A command that was refused by its name has an entry without one.
    command = (session.last_entry and session.last_entry.name.lower()) or b"NULL"
    return (
        f"id={session.number} addr={_text(session.address)} laddr={_text(session.local_address)} fd=-1"
        f" name={_text(session.name)} age={(now - session.created_ms) // 1000}"
        f" idle={max(now - session.last_used_ms, 0) // 1000} flags={_flags(session)} db={session.ks.index}"
        f" sub={len(session.channels)} psub={len(session.patterns)} ssub={len(session.shard_channels)}"
        f" multi={queued} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0"
        f" events=r cmd={_text(command)} user=default redir={redirect} resp={session.protocol}"
    ).encode("utf-8", "surrogateescape")


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")


def _flags(session: Session) -> str:
    states = {
        "O": session.monitoring,
        "P": session.is_subscribed,
        "x": session.queue is not None,
        "b": session.blocked is not None,
        "t": session.tracking is not None,
        "R": session.tracking is not None and session.tracking.broken,
        "B": session.tracking is not None and session.tracking.prefixes is not None,
        "c": session.hanging_up,
        "U": session.address.startswith(b"/"),
        "e": session.no_evict,
    }
    return "".join(letter for letter, holds in states.items() if holds) or "N"


def _type_of(session: Session) -> bytes:
    return b"pubsub" if session.is_subscribed else b"normal"


def _client_type(word: bytes) -> bytes:
    if word.lower() not in _TYPES:
        raise CommandError(f"ERR Unknown client type '{_text(word)}'")
    return word.lower()


def _too_many(argv: Argv) -> CommandError:
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{_text(argv[1])}'. Try CLIENT HELP."
    )


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
    option = argv[2].upper() if len(argv) > 3 else b""
    if option == b"TYPE" and len(argv) == 4:
        wanted = _client_type(argv[3])
        sessions = [session for session in sessions if _type_of(session) == wanted]
    elif option == b"ID":
        numbers = [integer(word, "ERR Invalid client ID") for word in argv[3:]]
        sessions = [s.engine.sessions[number] for number in numbers if number in s.engine.sessions]
    elif len(argv) != 2:
        raise syntax_error()
    return Verbatim(b"".join(describe(session) + b"\n" for session in sessions))


# -------------------------------------------------------------------------------- kill


@command("CLIENT|KILL")
def client_kill(s: Session, argv: Argv) -> Reply:
    if len(argv) == 3:
        if not _kill(s, lambda session: session.address == argv[2]):
            raise CommandError("ERR No such client")
        return OK
    tests: list[Callable[[Session], bool]] = []
    skip_me = True
    for index in range(2, len(argv), 2):
        if index + 1 == len(argv):
            raise syntax_error()
        word, value = argv[index].upper(), argv[index + 1]
        if word == b"SKIPME" and value.upper() in (b"YES", b"NO"):
            skip_me = value.upper() == b"YES"
        else:
            tests.append(_kill_test(word, value))
    if skip_me:
        tests.append(lambda session: session is not s)
    return _kill(s, lambda session: all(test(session) for test in tests))


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
        wanted = _client_type(value)
        return lambda session: _type_of(session) == wanted
    if word == b"USER":
        if value != b"default":
            raise CommandError(f"ERR No such user '{_text(value)}'")
        return lambda session: True
    raise syntax_error()


def _kill(s: Session, is_chosen: Callable[[Session], bool]) -> int:
    """Close the connections chosen; answers how many. A local session has none to close."""
    killed = 0
    for session in list(s.engine.sessions.values()):
        if session.kill is None or not is_chosen(session):
            continue
        if session is s:
            hang_up(s)
        else:
            s.engine.dispatcher.after_commit.append(session.kill)
        killed += 1
    return killed


# -------------------------------------------------------------------- blocking, pausing


@command("CLIENT|UNBLOCK")
def client_unblock(s: Session, argv: Argv) -> Reply:
    if len(argv) > 4:
        raise _too_many(argv)
    mode = argv[3].upper() if len(argv) == 4 else b"TIMEOUT"
    if mode not in (b"TIMEOUT", b"ERROR"):
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    session = s.engine.sessions.get(integer(argv[2]))
    if session is None or session.blocked is None or is_held(session):
        return 0
    if mode == b"TIMEOUT":
        s.engine.waiting.time_out(session)
    else:
        s.engine.waiting.interrupt(session, CommandError("UNBLOCKED client unblocked via CLIENT UNBLOCK"))
    return 1


@command("CLIENT|PAUSE")
def client_pause(s: Session, argv: Argv) -> Reply:
    if len(argv) > 4:
        raise _too_many(argv)
    mode = argv[3].upper() if len(argv) == 4 else b"ALL"
    if mode not in (b"WRITE", b"ALL"):
        raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
    timeout_ms = integer(argv[2], "ERR timeout is not an integer or out of range")
    if timeout_ms < 0:
        raise CommandError("ERR timeout is negative")
    pause = Pause(s.engine.unit.now_ms + timeout_ms, mode == b"WRITE")
    before = s.engine.pause
    if before is not None:
        # A second pause makes the first longer or stricter, never shorter.
        pause = Pause(max(pause.until_ms, before.until_ms), pause.writes_only and before.writes_only)
    _set_pause(s, pause)
    return OK


@command("CLIENT|UNPAUSE")
def client_unpause(s: Session, argv: Argv) -> Reply:
    if s.engine.pause is not None:
        _set_pause(s, None)
        for session in list(s.engine.sessions.values()):
            if is_held(session):
                s.engine.waiting.set_blocked(session, None)
    return OK


def _set_pause(s: Session, pause: Pause | None) -> None:
    before = s.engine.pause
    s.engine.set_pause(pause)
    s.remember(lambda: s.engine.set_pause(before))


# ------------------------------------------------------------------------------- modes


@command("CLIENT|REPLY")
def client_reply(s: Session, argv: Argv) -> Reply:
    try:
        mode = ReplyMode(argv[2].upper())
    except ValueError:
        raise syntax_error() from None
    if mode is ReplyMode.SKIP and s.reply_mode is ReplyMode.OFF:
        return NO_REPLY
    s.push(mode)
    if mode is not ReplyMode.SKIP:
        s.assign(reply_mode=mode)
    return OK if mode is ReplyMode.ON else NO_REPLY


@command("CLIENT|NO-EVICT")
def client_no_evict(s: Session, argv: Argv) -> Reply:
    mode = argv[2].upper()
    if mode not in (b"ON", b"OFF"):
        raise syntax_error()
    s.assign(no_evict=mode == b"ON")
    return OK
