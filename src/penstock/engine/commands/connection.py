"""Commands about the connection itself: PING, HELLO, AUTH, SELECT, RESET, QUIT.

A password counts only for sessions that came over a socket: whoever has the directory
open has the data anyway.
"""

from __future__ import annotations

import hmac
from typing import Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.pubsub import unsubscribe_everything
from penstock.engine.commands.registry import Argv, command
from penstock.engine.control import Close, ReplyMode, SwitchProtocol
from penstock.engine.information import COMPATIBLE_VERSION
from penstock.engine.session import Session
from penstock.engine.storage.layout import DATABASES
from penstock.errors import CommandError
from penstock.protocol.catalogue import arity_error
from penstock.protocol.replies import OK, PONG, Reply, Status

_MAX_INT: Final = (1 << 31) - 1


@command("PING")
def ping(s: Session, argv: Argv) -> Reply:
    if len(argv) > 2:
        raise arity_error(b"ping")
    if s.protocol == 2 and s.is_subscribed:
        return [b"pong", argv[1] if len(argv) > 1 else b""]
    return argv[1] if len(argv) > 1 else PONG


@command("ECHO")
def echo(s: Session, argv: Argv) -> Reply:
    return argv[1]


@command("SELECT")
def select(s: Session, argv: Argv) -> Reply:
    index = integer(argv[1])
    if not -_MAX_INT - 1 <= index <= _MAX_INT:
        raise CommandError(f"ERR value is out of range, value must between {-_MAX_INT - 1} and {_MAX_INT}")
    if not 0 <= index < DATABASES:
        raise CommandError("ERR DB index is out of range")
    s.select(index)
    return OK


@command("QUIT")
def quit_(s: Session, argv: Argv) -> Reply:
    hang_up(s)
    return OK


def hang_up(s: Session) -> None:
    """Close the connection once the reply of this command is sent; what the client sent after it is ignored.

    A local session has no connection and goes on.
    """
    if s.is_remote:
        s.assign(hanging_up=True)
        s.engine.dispatcher.after_delivery.append((_close, s))


def _close(s: Session) -> None:
    s.sink(Close())


# ---------------------------------------------------------------------- authentication


@command("AUTH")
def auth(s: Session, argv: Argv) -> Reply:
    if len(argv) > 3:
        raise syntax_error()
    if len(argv) == 2 and not s.engine.config.requirepass:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user."
            " Are you sure your configuration is correct?"
        )
    user, password = (b"default", argv[1]) if len(argv) == 2 else (argv[1], argv[2])
    _check_password(s, user, password)
    s.assign(authenticated=True)
    return OK


def _check_password(s: Session, user: bytes, password: bytes) -> None:
    expected = s.engine.config.requirepass.encode("utf-8", "surrogateescape")
    right = not expected or hmac.compare_digest(password, expected)
    if user != b"default" or not right:
        raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")


@command("HELLO")
def hello(s: Session, argv: Argv) -> Reply:
    version = s.protocol
    index = 1
    if len(argv) > 1:
        version = integer(argv[1], "ERR Protocol version is not an integer or out of range")
        if version not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
        index = 2
    authenticated = s.authenticated
    name = s.name
    while index < len(argv):
        left = len(argv) - index - 1
        word = argv[index].upper()
        if word == b"AUTH" and left >= 2:
            _check_password(s, argv[index + 1], argv[index + 2])
            authenticated = True
            index += 3
        elif word == b"SETNAME" and left >= 1:
            name = check_name(argv[index + 1])
            index += 2
        else:
            shown = argv[index].decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR Syntax error in HELLO option '{shown}'")
    if not authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH"
            " <user> <pass> option can be used to authenticate the client and select the RESP protocol"
            " version at the same time"
        )
    _switch_protocol(s, version)
    s.assign(authenticated=True, name=name)
    return _greeting(s)


def _switch_protocol(s: Session, version: int) -> None:
    if version != s.protocol:
        s.push(SwitchProtocol(version))
        s.assign(protocol=version)


def _greeting(s: Session) -> Reply:
    return {
        b"server": b"redis",
        b"version": COMPATIBLE_VERSION.encode(),
        b"proto": s.protocol,
        b"id": s.number,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [],
    }


def check_name(name: bytes) -> bytes:
    if any(not 33 <= byte <= 126 for byte in name):
        raise CommandError("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


# ------------------------------------------------------------------------------- reset


@command("RESET")
def reset(s: Session, argv: Argv) -> Reply:
    """Back to the state of a new session; only NO-EVICT stays, as in Redis."""
    if s.is_subscribed:
        unsubscribe_everything(s)
    stop_monitoring(s)
    s.engine.tracking.stop(s)
    _switch_protocol(s, 2 if s.is_remote else 3)
    if s.reply_mode is not ReplyMode.ON:
        s.push(ReplyMode.ON)
    s.assign(
        queue=None,
        queue_broken=False,
        watches={},
        name=b"",
        reply_mode=ReplyMode.ON,
        ks=s.engine.keyspaces[0],
        authenticated=not s.engine.config.requirepass or not s.is_remote,
    )
    return Status(b"RESET")


def start_monitoring(s: Session) -> None:
    s.assign(monitoring=True)
    s.engine.set_monitoring(s, True)
    s.remember(lambda: s.engine.set_monitoring(s, False))


def stop_monitoring(s: Session) -> None:
    if s.monitoring:
        s.assign(monitoring=False)
        s.engine.set_monitoring(s, False)
        s.remember(lambda: s.engine.set_monitoring(s, True))


@command("READONLY", "READWRITE", "ASKING")
def cluster_state(s: Session, argv: Argv) -> Reply:
    raise CommandError("ERR This instance has cluster support disabled")
