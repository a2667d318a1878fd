"""How a client behaves: its settings, checked before anything is opened.

Every setting can stand in the query of a URL (``?command_timeout_ms=500``) or be passed as
an argument, which wins. A plain path has no query: all of it is the path.

Rules: nothing is opened, looked up or read here. What makes no sense is a ``ConfigError``
of one sentence that names the setting and never shows a secret. Settings that mean nothing to
a kind of target are ignored, so that a program runs elsewhere by changing its URL alone;
the exception is TLS settings where there is no TLS, which would give a false sense of
safety.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from penstock.client.policies import Exponential, ReconnectPolicy, parse_policy
from penstock.client.targets import SECRETS, Address, Target, parse_url
from penstock.errors import ConfigError

_MAX_INT: Final = (1 << 31) - 1


class Credentials(NamedTuple):
    #: None: the server's default user.
    username: str | None
    password: str

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, password='***')"


#: Asked before each connection is authenticated, with the server it leads to. A unix socket
#: is its path with port 0.
CredentialProvider: TypeAlias = Callable[[Address], Awaitable[Credentials]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client behaves. Times in milliseconds, lengths in commands or messages."""

    # ---- who we are
    #: 3 has pushes beside replies and typed values; servers before 6.0 know only 2.
    protocol: Literal[2, 3] = 3
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    #: Instead of a password: asked for each new connection, so that short-lived ones work.
    credential_provider: CredentialProvider | None = field(default=None, repr=False)
    #: What CLIENT LIST shows for our connections.
    client_name: str | None = None
    db: int = 0
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    #: bytes are what a server stores; text is a decision of the application.
    decode_responses: bool = False

    # ---- embedded stores
    #: ``always``: a reply means it is on disk. ``relaxed`` survives a killed process, not a power cut.
    durability: Literal["always", "relaxed"] = "always"

    # ---- time
    #: A host that is up answers within a round trip; 5 s allow for one lost packet sent again.
    connect_timeout_ms: int = 5_000
    #: The whole conversation before a connection is used; a server that is loading answers late.
    handshake_timeout_ms: int = 5_000
    #: Over queueing, retries and redirections together; 0: none. Longer than a failover takes
    #: to be noticed, shorter than people wait.
    command_timeout_ms: int = 10_000
    #: What the reply to a blocking command may take beyond the command's own timeout.
    blocking_margin_ms: int = 2_000
    #: A connection whose oldest command waits longer is taken for dead; 0: never. Above
    #: command_timeout_ms, so that one slow command does not cost everybody the connection.
    unresponsive_timeout_ms: int = 30_000
    #: An idle connection is asked for a sign of life this often; 0: never. Below the minute
    #: after which many firewalls forget a connection.
    idle_ping_ms: int = 15_000
    #: Have the system probe idle connections too, for those we do not ping (blocked ones).
    tcp_keepalive: bool = True
    #: How long close waits for replies that are on their way.
    close_timeout_ms: int = 5_000

    # ---- limits
    #: Commands that may wait for a connection; the memory that an outage can cost.
    max_command_buffer_len: int = 10_000
    #: Commands without a reply on one connection. Far more than fill any network, and few
    #: enough for a server's output buffer.
    max_in_flight: int = 10_000
    #: ``wait``: callers are slowed down, none fails for being early. ``error``: refuse at once.
    when_full: Literal["wait", "error"] = "wait"

    # ---- failures
    #: How often a command is sent at most; 0: until its timeout.
    max_attempts: int = 3
    #: MOVED and ASK that one command follows. Two are normal while slots move, more are a loop.
    max_redirections: int = 5
    #: Refuse commands while there is no connection, instead of keeping them until there is one.
    fail_fast: bool = False
    #: On by default and for ever: a client that stays dead after an outage needs a restart.
    reconnect: ReconnectPolicy = field(default_factory=Exponential)
    #: Send SET, DEL, SADD and the like (``facts.is_idempotent``) again when it is unknown whether
    #: they ran. Off: a write by somebody else in between would be lost, and counts in replies
    #: would be those of the second run.
    retry_idempotent_writes: bool = False

    # ---- blocking commands
    #: ``dedicated``: a connection of its own. ``block``: the shared one, everybody waits.
    #: ``error``: the shared one, others are refused meanwhile. ``interrupt``: the shared one,
    #: the next command unblocks it.
    blocking_policy: Literal["dedicated", "block", "error", "interrupt"] = "dedicated"
    #: Dedicated connections at a time; further blocking commands wait for one. A server allows
    #: 10,000 connections for all its clients.
    max_blocking_connections: int = 100

    # ---- pub/sub
    #: Messages that may wait for one subscriber.
    pubsub_queue_len: int = 10_000
    #: Which messages a subscriber that is too slow loses (it is told so), or that it is ended.
    pubsub_overflow: Literal["drop_oldest", "drop_newest", "close"] = "drop_oldest"

    # ---- caching
    #: Replies kept in this process and dropped when the server tells of a change; 0: none. Needs
    #: protocol 3. The server remembers for every client what it read, so no more than are of use.
    client_cache_entries: int = 0

    # ---- tracing
    #: An OpenTelemetry tracer: one span a command.
    tracer: Any = field(default=None, repr=False)

    # ---- cluster
    #: Reads from replicas may be stale.
    read_from: Literal["primary", "replica", "prefer_replica"] = "primary"
    #: Spread MGET, MSET, DEL, EXISTS, UNLINK and TOUCH over slots. Off: the parts are not one
    #: atomic command any more.
    split_multi_key: bool = False
    #: From a MOVED to the refresh of the whole map. The slot itself is patched at once, and
    #: slots tend to move in numbers.
    cluster_refresh_delay_ms: int = 100

    # ---- TLS
    #: Trusted certificates; None: those of the system.
    tls_ca_file: Path | None = None
    #: Our own certificate, where the server asks for one, and its key.
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    #: Off: anybody can pose as the server.
    tls_verify: bool = True
    #: Off: any holder of a trusted certificate can.
    tls_check_hostname: bool = True
    #: The name to check, where the address is not it.
    tls_server_name: str | None = None

    def check(self) -> None:
        """Raise :class:`ConfigError` naming the setting that makes no sense."""
        for name, rule in _RULES.items():
            value = getattr(self, name)
            if not rule.accepts(value):
                shown = "" if name in SECRETS else f", not {value!r}"
                raise ConfigError(f"{name} must be {rule.wanted}{shown}")
        if self.credential_provider is not None and self.password is not None:
            raise ConfigError("password and credential_provider are both set: give one of them")
        if self.username is not None and self.password is None and self.credential_provider is None:
            raise ConfigError(
                f"username {self.username!r} has no password: write user:password@host,"
                " or :password@host for the default user"
            )
        if self.sentinel_username is not None and self.sentinel_password is None:
            raise ConfigError(f"sentinel_username {self.sentinel_username!r} has no sentinel_password")
        if self.client_cache_entries and self.protocol != 3:
            raise ConfigError("client_cache_entries needs protocol 3: RESP2 cannot tell of changes")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError("tls_cert_file and tls_key_file belong together: give both or none")


# ------------------------------------------------------------------- rules of settings


class _Rule(NamedTuple):
    """What a setting accepts, in words and as a test, and how it is read from a URL.

    ``parse`` raises ValueError or KeyError for text it does not understand; None: not in a URL.
    """

    wanted: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any] | None


def _number(low: int) -> _Rule:
    return _Rule(
        f"a whole number from {low} to {_MAX_INT}",
        lambda value: type(value) is int and low <= value <= _MAX_INT,
        int,
    )


def _choice(*choices: str | int) -> _Rule:
    words = [repr(choice) for choice in choices]
    return _Rule(
        f"{', '.join(words[:-1])} or {words[-1]}",
        lambda value: isinstance(value, str | int) and not isinstance(value, bool) and value in choices,
        {str(choice): choice for choice in choices}.__getitem__,
    )


def _is_client_name(value: object) -> bool:
    """CLIENT SETNAME takes printable ASCII without spaces."""
    return value is None or (isinstance(value, str) and re.fullmatch(r"[!-~]+", value) is not None)


_BOOLEANS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_FLAG: Final = _Rule(
    "True or False", lambda value: isinstance(value, bool), lambda text: _BOOLEANS[text.lower()]
)
_TEXT: Final = _Rule("text or None", lambda value: value is None or isinstance(value, str), str)
_FILE: Final = _Rule("a Path or None", lambda value: value is None or isinstance(value, Path), Path)
_PROVIDER: Final = _Rule("an async function or None", lambda value: value is None or callable(value), None)
_POLICY: Final = _Rule(
    "a reconnect policy", lambda value: callable(getattr(value, "delay_ms", None)), parse_policy
)
_TRACER: Final = _Rule(
    "an OpenTelemetry tracer or None",
    lambda value: value is None or callable(getattr(value, "start_span", None)),
    None,
)

#: By setting; the rows group settings of one rule.
_RULES: Final[Mapping[str, _Rule]] = {
    name: rule
    for names, rule in (
        ("protocol", _choice(2, 3)),
        ("username password sentinel_username sentinel_password", _TEXT),
        ("credential_provider", _PROVIDER),
        ("client_name", _Rule("printable ASCII without spaces", _is_client_name, str)),
        ("durability", _choice("always", "relaxed")),
        ("connect_timeout_ms handshake_timeout_ms blocking_margin_ms", _number(1)),
        ("command_timeout_ms unresponsive_timeout_ms idle_ping_ms close_timeout_ms", _number(0)),
        ("max_command_buffer_len max_in_flight max_blocking_connections pubsub_queue_len", _number(1)),
        ("db max_attempts max_redirections cluster_refresh_delay_ms client_cache_entries", _number(0)),
        ("decode_responses tcp_keepalive fail_fast retry_idempotent_writes split_multi_key", _FLAG),
        ("when_full", _choice("wait", "error")),
        ("reconnect", _POLICY),
        ("tracer", _TRACER),
        ("blocking_policy", _choice("dedicated", "block", "error", "interrupt")),
        ("pubsub_overflow", _choice("drop_oldest", "drop_newest", "close")),
        ("read_from", _choice("primary", "replica", "prefer_replica")),
        ("tls_ca_file tls_cert_file tls_key_file", _FILE),
        ("tls_key_password tls_server_name", _TEXT),
        ("tls_verify tls_check_hostname", _FLAG),
    )
    for name in names.split()
}


def open_settings(url: str | os.PathLike[str], **overrides: Any) -> tuple[Target, Settings]:
    """Where to connect to and how to behave, from a URL and settings by name, which win over it.

    Connections read the login and the database from the settings, not from the target.
    """
    target = parse_url(url)
    values: dict[str, Any] = {"username": target.username, "password": target.password, "db": target.db}
    for name, text in target.options.items():
        _check_name(name)
        values[name] = _parse_setting(name, text)
    for name, value in overrides.items():
        _check_name(name)
        # Text is what an argument parser or the environment gives; a file may be named by it.
        values[name] = Path(value) if _RULES[name] is _FILE and isinstance(value, str) else value
    settings = Settings(**values)
    settings.check()
    if target.kind == "cluster" and settings.db:
        raise ConfigError(f"a cluster has no databases: remove db={settings.db}")
    if target.kind in ("server", "cluster", "sentinel") and not target.uses_tls:
        for item in fields(Settings):
            if item.name.startswith("tls_") and getattr(settings, item.name) != item.default:
                raise ConfigError(
                    f"{item.name} is set but the URL asks for no TLS: write rediss instead of redis"
                )
    return target, settings


def _check_name(name: str) -> None:
    if name in _RULES:
        return
    near = difflib.get_close_matches(name, _RULES, n=1, cutoff=0.5)
    near = near or [known for known in _RULES if name and name in known]
    raise ConfigError(f"unknown setting {name!r}" + (f": did you mean {near[0]}?" if near else ""))


def _parse_setting(name: str, text: str) -> Any:
    rule = _RULES[name]
    if rule.parse is None:
        raise ConfigError(f"{name} cannot stand in a URL: pass it as an argument")
    try:
        return rule.parse(text)
    except (ValueError, KeyError):
        shown = "" if name in SECRETS else f", not {text!r}"
        raise ConfigError(f"{name} must be {rule.wanted}{shown}") from None
