"""Commands about the connection itself: PING, HELLO, AUTH, SELECT, RESET, QUIT."""

from __future__ import annotations

import hmac
from typing import Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.pubsub import unsubscribe_everything
from penstock.engine.commands.registry import Argv, command
from penstock.engine.control import Close, SwitchProtocol
from penstock.engine.session import Session
from penstock.engine.storage.layout import DATABASES
from penstock.errors import CommandError
from penstock.protocol.replies import OK, PONG, Reply, Status

#: The Redis version whose behaviour we follow; clients choose features by it.
COMPATIBLE_VERSION: Final = b"7.0.15"
_WRONG_PASSWORD: Final = "WRONGPASS invalid username-password pair or user is disabled."


@command("PING")
def ping(s: Session, argv: Argv) -> Reply:
    if len(argv) > 2:
        raise CommandError("ERR wrong number of arguments for 'ping' command")
    if s.protocol == 2 and s.is_subscribed:
        return [b"pong", argv[1] if len(argv) > 1 else b""]
    return argv[1] if len(argv) > 1 else PONG


@command("ECHO")
def echo(s: Session, argv: Argv) -> Reply:
    return argv[1]


@command("SELECT")
def select(s: Session, argv: Argv) -> Reply:
    index = integer(argv[1])
    if not 0 <= index < DATABASES:
        raise CommandError("ERR DB index is out of range")
    s.select(index)
    return OK


@command("QUIT")
def quit_(s: Session, argv: Argv) -> Reply:
    s.push(OK)
    return Close()


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
    _authenticate(s, user, password)
    return OK


def _authenticate(s: Session, user: bytes, password: bytes) -> None:
    expected = s.engine.config.requirepass.encode("utf-8", "surrogateescape")
    right = not expected or hmac.compare_digest(password, expected)
    if user != b"default" or not right:
        raise CommandError(_WRONG_PASSWORD)
    s.assign(authenticated=True)


@command("HELLO")
def hello(s: Session, argv: Argv) -> Reply:
    version = s.protocol
    index = 1
    if len(argv) > 1:
        version = integer(argv[1], "ERR Protocol version is not an integer or out of range")
        if version not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
        index = 2
    credentials: tuple[bytes, bytes] | None = None
    name: bytes | None = None
    while index < len(argv):
        left = len(argv) - index - 1
        word = argv[index].upper()
        if word == b"AUTH" and left >= 2:
            credentials = (argv[index + 1], argv[index + 2])
            index += 3
        elif word == b"SETNAME" and left >= 1:
            name = check_name(argv[index + 1])
            index += 2
        else:
            shown = argv[index].decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR Syntax error in HELLO option '{shown}'")
    if credentials is not None:
        _authenticate(s, *credentials)
    if not s.authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the"
            " HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and"
            " select the RESP protocol version at the same time"
        )
    if name is not None:
        s.assign(name=name)
    if version != s.protocol:
        s.push(SwitchProtocol(version))
        s.assign(protocol=version)
    return _greeting(s)


def _greeting(s: Session) -> Reply:
    return {
        b"server": b"redis",
        b"version": COMPATIBLE_VERSION,
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


@command("RESET")
def reset(s: Session, argv: Argv) -> Reply:
    """Back to the state of a new connection."""
    if s.is_subscribed:
        unsubscribe_everything(s)
    s.engine.monitors.discard(s)
    if s.protocol != 2:
        s.push(SwitchProtocol(2))
    s.assign(
        queue=None,
        queue_broken=False,
        watches={},
        protocol=2,
        name=b"",
        monitoring=False,
        no_evict=False,
        ks=s.engine.keyspaces[0],
        authenticated=not s.engine.config.requirepass or not s.is_remote,
    )
    return Status(b"RESET")


@command("READONLY", "READWRITE", "ASKING")
def cluster_state(s: Session, argv: Argv) -> Reply:
    raise CommandError("ERR This instance has cluster support disabled")
