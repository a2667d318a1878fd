"""Places a client can connect to, and the URLs that name them.

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

Rules: nothing is opened or looked up here. What makes no sense is a ``ConfigError`` of one
sentence that names the part and never shows a secret. What the settings in a URL's query mean
is not known here; they are passed on as they were written.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from penstock.errors import ConfigError

TargetKind: TypeAlias = Literal["embedded", "server", "unix", "cluster", "sentinel"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379

_MAX_PORT: Final = 65535

#: Settings whose values are never shown.
SECRETS: Final = frozenset({"password", "sentinel_password", "tls_key_password"})


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
        options = {name: "***" if name in SECRETS else quote(text) for name, text in self.options.items()}
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
        if text is not None and not (re.fullmatch(r"[0-9]{1,10}", text) and int(text) < 1 << 31):
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
