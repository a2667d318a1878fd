"""Where a client connects to, and how it behaves: URLs and settings, checked before anything is opened.

A URL names one of these:

============  =======================================================================
kind          spelled
============  =======================================================================
``embedded``  ``./shop.pen``, a ``Path``, ``embedded:///abs/path``, ``embedded:rel/path``
``server``    ``redis://user:password@host:6379/db``; ``valkey://``; with TLS ``rediss://``,
              ``valkeys://``
``unix``      ``unix:///path/to/socket?db=1``, also ``redis+unix://``, ``valkey+unix://``
``cluster``   ``redis-cluster://host1:6379,host2`` and the like of the four names above
``sentinel``  ``redis-sentinel://host1:26379,host2/service/db``, likewise
============  =======================================================================

Every setting can stand in the query of a URL (``?command_timeout_ms=500``) or be passed as
an argument, which wins. A plain path has no query: all of it is the path.

Rules: nothing is opened, looked up or read here. What makes no sense is a ``ConfigError``
of one sentence that names the part and never shows a secret. Settings that mean nothing to
a kind of target are ignored, so that a program runs elsewhere by changing its URL alone;
the exception is TLS settings where there is no TLS, which would give a false sense of
safety.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from penstock.client.policies import Exponential, ReconnectPolicy, parse_policy
from penstock.errors import ConfigError

TargetKind: TypeAlias = Literal["embedded", "server", "unix", "cluster", "sentinel"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379

_MAX_PORT: Final = 65535
_MAX_INT: Final = (1 << 31) - 1


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Credentials(NamedTuple):
    #: None: the server's default user.
    username: str | None
    password: str

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, password='***')"


#: Asked before each connection is authenticated, with the server it leads to. A unix socket
#: is its path with port 0.
CredentialProvider: TypeAlias = Callable[[Address], Awaitable[Credentials]]


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """What a URL says about the place. ``repr`` shows no secrets."""

    kind: TargetKind
    #: In the order of the URL; one for a server, none for embedded and unix.
    addresses: tuple[Address, ...] = ()
    #: The directory of an embedded store, or the unix socket.
    path: Path | None = None
    uses_tls: bool = False
    #: The primary's name at the sentinels.
    service: str = ""
    username: str | None = None
    password: str | None = None
    db: int = 0
    #: Settings in the query, as they were written.
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def redacted(self) -> str:
        """A URL of the same meaning with ``***`` for secrets, for logs."""
        if self.kind == "embedded":
            place = f"embedded:{quote(str(self.path))}"
        else:
            scheme = {"server": "redis", "unix": "unix"}.get(self.kind, f"redis-{self.kind}")
            scheme = scheme.replace("redis", "rediss") if self.uses_tls else scheme
            hosts = ",".join(map(str, self.addresses))
            path = (
                quote(str(self.path))
                if self.path
                else f"/{quote(self.service, safe='')}"
                if self.service
                else ""
            )
            db = f"/{self.db}" if self.db and self.kind != "unix" else ""
            place = f"{scheme}://{self._redacted_login()}{hosts}{path}{db}"
        options = {name: "***" if name in _SECRETS else quote(text) for name, text in self.options.items()}
        if self.db and self.path:
            options["db"] = str(self.db)
        query = "&".join(f"{name}={text}" for name, text in options.items())
        return f"{place}?{query}" if query else place

    def _redacted_login(self) -> str:
        if self.username is None and self.password is None:
            return ""
        password = ":***" if self.password is not None else ""
        return f"{quote(self.username or '', safe='')}{password}@"

    def __repr__(self) -> str:
        return f"<Target {self.redacted}>"


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
                shown = "" if name in _SECRETS else f", not {value!r}"
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
        ("db max_attempts max_redirections cluster_refresh_delay_ms", _number(0)),
        ("decode_responses tcp_keepalive fail_fast retry_idempotent_writes split_multi_key", _FLAG),
        ("when_full", _choice("wait", "error")),
        ("reconnect", _POLICY),
        ("blocking_policy", _choice("dedicated", "block", "error", "interrupt")),
        ("pubsub_overflow", _choice("drop_oldest", "drop_newest", "close")),
        ("read_from", _choice("primary", "replica", "prefer_replica")),
        ("tls_ca_file tls_cert_file tls_key_file", _FILE),
        ("tls_key_password tls_server_name", _TEXT),
        ("tls_verify tls_check_hostname", _FLAG),
    )
    for name in names.split()
}

_SECRETS: Final = frozenset({"password", "sentinel_password", "tls_key_password"})


def open_settings(url: str | os.PathLike[str], **overrides: Any) -> tuple[Target, Settings]:
    """Where to connect to and how to behave, from a URL and settings by name, which win over it.

    Connections read the login and the database from the settings, not from the target.
    """
    target = parse_url(url)
    values: dict[str, Any] = {"username": target.username, "password": target.password, "db": target.db}
    for name, text in target.options.items():
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
        shown = "" if name in _SECRETS else f", not {text!r}"
        raise ConfigError(f"{name} must be {rule.wanted}{shown}") from None


# ------------------------------------------------------------------- URLs

_SUFFIXES: Final[Mapping[str, TargetKind]] = {"": "server", "-cluster": "cluster", "-sentinel": "sentinel"}

#: Scheme to the kind of target and whether it uses TLS.
_SCHEMES: Final[Mapping[str, tuple[TargetKind, bool]]] = {
    "embedded": ("embedded", False),
    **dict.fromkeys(("unix", "redis+unix", "valkey+unix"), ("unix", False)),
    **{
        name + suffix: (kind, uses_tls)
        for suffix, kind in _SUFFIXES.items()
        for name, uses_tls in (("redis", False), ("rediss", True), ("valkey", False), ("valkeys", True))
    },
}

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?P<fragment>\#.*)?",
    re.DOTALL,
)
_BARE_ADDRESS: Final = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}(/[0-9]*)?")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_HOST: Final = re.compile(r"""[\x00-\x20\x7f\[\]<>%^|\\"'`{}@]""")


def parse_url(url: str | os.PathLike[str]) -> Target:
    """The place that a URL or a path names."""
    if isinstance(url, os.PathLike):
        return _embedded(os.fspath(url), {})
    if not isinstance(url, str):
        raise ConfigError(f"the URL must be text or a path, not {type(url).__name__}")
    match = _URL.fullmatch(url)
    if match is None:
        return _parse_path(url)
    kind, uses_tls = _SCHEMES.get(match["scheme"].lower(), (None, False))
    if kind is None:
        raise ConfigError(f"unknown scheme {match['scheme']!r}: use one of {', '.join(_SCHEMES)}, or a path")
    authority, path, query = match["authority"], match["path"], match["query"] or ""
    if kind in ("embedded", "unix"):
        words: list[str] = []
    else:
        _check_delimiters(authority, path, query)
        words = [_decode(word, "path") for word in path.strip("/").split("/") if word or path.strip("/")]
    if match["fragment"]:
        raise ConfigError("a URL of a store has no '#' part: write %23 for a '#' in a name or a password")
    options = _parse_query(query)
    if kind == "embedded":
        if authority:
            raise ConfigError("an embedded URL has no host: write embedded:rel/path or embedded:///abs/path")
        return _embedded(_decode(path, "path"), options)
    login, _, hosts = authority.rpartition("@")
    username, password = _parse_login(login)
    return Target(
        kind=kind,
        addresses=() if kind == "unix" else _parse_addresses(hosts, kind),
        path=_parse_socket(hosts, path) if kind == "unix" else None,
        uses_tls=uses_tls,
        service=_take_service(kind, words, options),
        username=username,
        password=password,
        db=_take_db(kind, words, options),
        options=options,
    )


def _parse_path(text: str) -> Target:
    """``embedded:…``, or all of it is a path; but not what was surely meant as an address."""
    name, colon, rest = text.partition(":")
    if colon and name.lower() == "embedded":
        path, _, query = rest.partition("?")
        return _embedded(_decode(path, "path"), _parse_query(query))
    if colon and name.lower() in _SCHEMES:
        raise ConfigError(f"'{name}:' must be followed by two slashes, as in {name}://host")
    if _BARE_ADDRESS.fullmatch(text):
        raise ConfigError(
            f"{text!r} looks like a host and port: write redis://{text}, or ./{text} for a path"
        )
    return _embedded(text, {})


def _embedded(path: str, options: dict[str, str]) -> Target:
    if not path:
        raise ConfigError("the path of the embedded store is empty")
    if "\0" in path:
        raise ConfigError("the path of the embedded store contains a NUL character")
    if path.partition("/")[0] == "~":
        raise ConfigError(f"'~' in {path!r} is not expanded: use Path(…).expanduser()")
    _take_service("embedded", [], options)
    return Target(kind="embedded", path=Path(path), db=_take_db("embedded", [], options), options=options)


def _parse_socket(host: str, path: str) -> Path:
    if host:
        raise ConfigError(f"{host!r} is no socket: its path starts with a slash, as in unix:///tmp/socket")
    socket = Path(_decode(path, "path"))
    if not socket.name or "\0" in str(socket):
        raise ConfigError("the path of the unix socket is missing: write unix:///path/to/socket")
    return socket


def _check_delimiters(authority: str, path: str, query: str) -> None:
    """A password with / or ? in it cuts the URL in the wrong places. Its parts are not shown."""
    cut_short = "@" not in authority and ":" in authority and not authority.rpartition(":")[2].isdigit()
    if "@" in path or (cut_short and "@" in query):
        raise ConfigError(
            "in a user name or password write %2F for '/', %3F for '?', %23 for '#', %40 for '@'"
        )


def _parse_query(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, text = part.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError("a part of the query is not of the form name=value")
        if name != "service":
            _check_name(name)
        if name in options:
            raise ConfigError(f"{name} stands twice in the query")
        options[name] = _decode(text, f"value of {name}")
    return options


def _parse_login(login: str) -> tuple[str | None, str | None]:
    """User and password; ``user:`` is a user with an empty password, ``:`` is nobody."""
    name, colon, secret = login.partition(":")
    username = _decode(name, "user name") or None
    password = _decode(secret, "password") if colon else None
    return username, password if username or password else None


def _parse_addresses(hosts: str, kind: TargetKind) -> tuple[Address, ...]:
    default_port = DEFAULT_SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
    addresses = tuple(_parse_address(text, default_port) for text in hosts.split(","))
    if len(addresses) > 1 and kind == "server":
        raise ConfigError(
            "several hosts are a cluster or sentinels: use redis-cluster:// or redis-sentinel://"
        )
    return addresses


def _parse_address(text: str, default_port: int) -> Address:
    if text.startswith("["):
        host, closed, rest = _decode(text[1:], "host").partition("]")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigError(f"host {host!r} is not an IPv6 address") from None
        if not closed or rest[:1] not in ("", ":"):
            raise ConfigError(f"host {text!r} must be of the form [address]:port")
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            raise ConfigError(f"an IPv6 address must stand in brackets: {text!r}")
        if _BAD_HOST.search(host):
            raise ConfigError(f"host {host!r} contains a character that no host has")
    if colon and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= _MAX_PORT):
        raise ConfigError(f"port {port!r} is not a number between 1 and {_MAX_PORT}")
    return Address(host or DEFAULT_HOST, int(port) if colon else default_port)


def _take_service(kind: TargetKind, words: list[str], options: dict[str, str]) -> str:
    """The service that sentinels watch: ``?service=…``, or the first word of the path."""
    given = options.pop("service", None)
    if kind != "sentinel":
        if given is not None:
            raise ConfigError("service is for sentinels: use redis-sentinel://")
        return ""
    # With ?service=…, a path of one word that is a number is the database.
    in_path = words.pop(0) if words and not (given and words[0].isdigit()) else None
    if given and in_path and given != in_path:
        raise ConfigError(f"two services: {in_path!r} in the path and {given!r} in the query")
    service = given or in_path
    if not service:
        raise ConfigError("the service name is missing: write redis-sentinel://host/service or ?service=…")
    return service


def _take_db(kind: TargetKind, words: list[str], options: dict[str, str]) -> int:
    """The database: ``?db=…``, or what is left of the path."""
    given = options.pop("db", None)
    in_path = "/".join(words) or None
    for text in (in_path, given):
        if text is not None and not (re.fullmatch(r"[0-9]{1,10}", text) and int(text) <= _MAX_INT):
            raise ConfigError(f"database {text!r} is not a number from 0 on")
    if in_path is not None and given is not None and int(in_path) != int(given):
        raise ConfigError(f"two databases: /{in_path} in the path and db={given} in the query")
    db = int(given or in_path or 0)
    if db and kind == "cluster":
        raise ConfigError(f"a cluster has no databases: remove {f'/{in_path}' if in_path else f'db={given}'}")
    return db


def _decode(text: str, part: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise ConfigError(f"the {part} contains a '%' that starts no escape: write %25")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigError(f"the {part} contains escapes that are not UTF-8") from None
