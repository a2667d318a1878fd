"""What is said on a new connection before anybody may use it.

In this order, each step answered before the next (they decide on one another):

1. ``HELLO 3 [AUTH user password]`` for RESP3; ``AUTH`` or ``PING`` for RESP2.
   A server that knows no HELLO is spoken to in RESP2.
2. ``SELECT`` where a database was asked for
3. ``CLIENT SETNAME`` where we have a name
4. ``CLIENT ID`` (needed to unblock a blocking call; a refusal is tolerated)
5. ``INFO server`` for the version (a refusal is tolerated)
6. ``CLUSTER INFO`` must say ``cluster_state:ok`` where a cluster was asked for
7. ``READONLY`` on a replica
8. ``CLIENT TRACKING ON`` where replies are cached; it must be RESP3

What comes out of a refusal:

=======================  ==============================================================
``AuthenticationError``  wrong, missing or insufficient credentials
``ConfigError``          the database or the client name is refused; it is no cluster; it cannot
                         tell of changes
``NotSentError``         the server is loading, or the cluster is not ready: try later
``ConnectionLostError``  any other refusal
=======================  ==============================================================

It knows neither addresses nor timeouts, and never shows a password.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.connection import Connection
from penstock.client.policies import ErrorClass, classify_error
from penstock.errors import AuthenticationError, CommandError, ConfigError, ConnectionLostError, NotSentError


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a connection says about us."""

    protocol: int = 3
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    client_name: str | None = None
    expects_cluster: bool = False
    reads_from_replica: bool = False
    #: the server shall tell of changes to what was read here
    tracks: bool = False


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server says about itself."""

    protocol: int = 3
    #: None where CLIENT ID was refused
    client_id: int | None = None
    #: of Redis's interface, such as (7, 0, 15); empty where INFO was refused
    version: tuple[int, ...] = ()
    #: ``redis``, ``valkey``, … as the server calls itself
    product: str = "redis"
    #: ``standalone``, ``cluster``, ``sentinel``; empty where INFO was refused
    mode: str = ""


async def shake_hands(connection: Connection, intro: Introduction, name: str) -> ServerFacts:
    """Go through the steps; raises what makes the connection useless."""
    try:
        protocol = await _greet(connection, intro)
        connection.speak(protocol)
        if intro.database:
            await _set_up(
                connection, f"database {intro.database} cannot be selected", "SELECT", str(intro.database)
            )
        if intro.client_name:
            what = f"client_name '{intro.client_name}' cannot be set"
            await _set_up(connection, what, "CLIENT", "SETNAME", intro.client_name)
        client_id = await _tolerant(connection, "CLIENT", "ID")
        info = _parse_info(await _tolerant(connection, "INFO", "server"))
        if intro.expects_cluster:
            await _check_cluster(connection, name)
        if intro.reads_from_replica:
            await _read_only(connection)
        if intro.tracks:
            await _track(connection, protocol, name)
    except CommandError as error:
        raise _translated(error, name) from error
    return ServerFacts(
        protocol,
        client_id if isinstance(client_id, int) else None,
        _version(info.get("redis_version", "")),
        info.get("server_name", "redis"),
        info.get("redis_mode") or info.get("server_mode", ""),
    )


async def _greet(connection: Connection, intro: Introduction) -> int:
    """Authenticate and agree on a protocol."""
    login: tuple[str, ...] = ()
    if intro.password is not None:
        login = ("AUTH", intro.username or "default", intro.password)
    if intro.protocol == 3:
        try:
            await connection.call(("HELLO", "3", *login))
        except CommandError as error:
            if not str(error).startswith(_NO_HELLO):
                raise
        else:
            return 3
    if intro.password is None:
        await _ping(connection)
    elif intro.username is None:
        # Before Redis 6 there are no users, and AUTH takes the password alone.
        await connection.call(("AUTH", intro.password))
    else:
        await connection.call(("AUTH", intro.username, intro.password))
    return 2


async def _ping(connection: Connection) -> None:
    """A sign of life. A server that runs a script gives one, too: somebody may want to end that from here."""
    try:
        await connection.call(("PING",))
    except CommandError as error:
        if classify_error(str(error)).kind is not ErrorClass.BUSY:
            raise


#: A server before 6.0, or one that has no RESP3.
_NO_HELLO: Final = ("ERR unknown command", "NOPROTO")


async def _set_up(connection: Connection, what: str, *arguments: str) -> None:
    """A step whose refusal is the fault of a setting."""
    try:
        await connection.call(arguments)
    except CommandError as error:
        if classify_error(str(error)).kind is ErrorClass.OTHER:
            raise ConfigError(f"{what}: {error}") from error
        raise


async def _tolerant(connection: Connection, *arguments: str) -> Any:
    try:
        return await connection.call(arguments)
    except CommandError as error:
        if classify_error(str(error)).kind is ErrorClass.NOAUTH:
            raise  # a server that wants a password refuses everything
        return None


async def _check_cluster(connection: Connection, name: str) -> None:
    try:
        state = _parse_info(await connection.call(("CLUSTER", "INFO"))).get("cluster_state")
    except CommandError as error:
        if "cluster support disabled" in str(error):
            raise ConfigError(
                f"{name} is a plain server, not a cluster: use redis:// instead of redis-cluster://"
            ) from error
        if classify_error(str(error)).kind is ErrorClass.BUSY:
            return  # it runs a script, which somebody may want to end through this connection
        raise
    if state != "ok":
        raise NotSentError(f"the cluster at {name} is not ready (cluster_state:{state})")


async def _read_only(connection: Connection) -> None:
    try:
        await connection.call(("READONLY",))
    except CommandError as error:
        # A replica outside a cluster answers reads without it.
        if "cluster support disabled" not in str(error):
            raise


async def _track(connection: Connection, protocol: int, name: str) -> None:
    what = f"client_cache_entries cannot be used, since {name} does not tell of changes"
    if protocol != 3:
        raise ConfigError(f"{what}: it knows no RESP3")
    await _set_up(connection, what, "CLIENT", "TRACKING", "ON")


def _translated(error: CommandError, name: str) -> Exception:
    text = str(error)
    kind = classify_error(text).kind
    if kind in _CREDENTIALS or text.startswith(_OLD_AUTH_ERRORS):
        return AuthenticationError(f"{name} refused the credentials: {text}")
    if kind in _LATER:
        return NotSentError(f"{name} is not ready: {text}")
    return ConnectionLostError(f"{name} refused the handshake: {text}")


_CREDENTIALS: Final = (ErrorClass.WRONGPASS, ErrorClass.NOAUTH, ErrorClass.NOPERM)
_LATER: Final = (ErrorClass.LOADING, ErrorClass.MASTERDOWN, ErrorClass.CLUSTERDOWN, ErrorClass.BUSY)
#: Texts without a code word: no password is set, and what servers before 6.0 say.
_OLD_AUTH_ERRORS: Final = (
    "ERR AUTH <password> called without any password configured",
    "ERR Client sent AUTH, but no password is set",
    "ERR invalid password",
)


def _parse_info(text: Any) -> dict[str, str]:
    """The ``name:value`` lines of INFO and CLUSTER INFO."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    if not isinstance(text, str):
        return {}
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key: value.strip() for key, _, value in pairs}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
