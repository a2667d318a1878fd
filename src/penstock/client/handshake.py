"""What is said on a new connection before anybody may use it.

In this order, each step answered before the next (they decide on one another):

1. ``HELLO 3 [AUTH user password] [SETNAME name]`` for RESP3; ``AUTH`` or ``PING`` for RESP2.
   A server that knows no HELLO is spoken to in RESP2.
2. ``SELECT`` where a database was asked for
3. ``CLIENT SETNAME`` where HELLO did not say it
4. ``CLIENT ID`` (needed to unblock a blocking call; a refusal is tolerated)
5. ``INFO server`` for the version (a refusal is tolerated)
6. ``CLUSTER INFO`` must say ``cluster_state:ok`` where a cluster was asked for
7. ``READONLY`` on a replica
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.client.connection import Connection
from penstock.client.policies import ErrorClass, classify_error
from penstock.errors import AuthenticationError, CommandError, ConfigError, ConnectionLostError, NotSentError


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a connection says about us."""

    protocol: int = 3
    username: str | None = None
    password: str | None = None
    database: int = 0
    client_name: str | None = None
    expects_cluster: bool = False
    reads_from_replica: bool = False


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server says about itself."""

    protocol: int
    client_id: int | None
    version: tuple[int, ...]
    mode: str


async def shake_hands(connection: Connection, intro: Introduction, name: str) -> ServerFacts:
    """Go through the steps; raises what makes the connection useless."""
    try:
        protocol = await _greet(connection, intro)
        if intro.database:
            await _select(connection, intro.database)
        if intro.client_name:
            await connection.call(("CLIENT", "SETNAME", intro.client_name))
        client_id = await _tolerant(connection, "CLIENT", "ID")
        info = _parse_info(await _tolerant(connection, "INFO", "server"))
        if intro.expects_cluster:
            await _check_cluster(connection, name)
        if intro.reads_from_replica:
            await connection.call(("READONLY",))
    except CommandError as error:
        raise _translated(error, name) from error
    return ServerFacts(
        protocol,
        client_id if isinstance(client_id, int) else None,
        _version(info),
        info.get("redis_mode", ""),
    )


async def _greet(connection: Connection, intro: Introduction) -> int:
    credentials: tuple[str, ...] = ()
    if intro.password is not None:
        credentials = ("AUTH", intro.username or "default", intro.password)
    if intro.protocol == 3:
        try:
            await connection.call(("HELLO", "3", *credentials))
        except CommandError as error:
            if not str(error).startswith(("ERR unknown command", "NOPROTO")):
                raise
        else:
            return 3
    if intro.password is None:
        await connection.call(("PING",))
    elif intro.username is None:
        await connection.call(("AUTH", intro.password))
    else:
        await connection.call(("AUTH", intro.username, intro.password))
    return 2


async def _select(connection: Connection, database: int) -> None:
    try:
        await connection.call(("SELECT", database))
    except CommandError as error:
        raise ConfigError(f"database {database} cannot be selected: {error}") from error


async def _tolerant(connection: Connection, *arguments: str) -> Any:
    try:
        return await connection.call(arguments)
    except CommandError:
        return None


async def _check_cluster(connection: Connection, name: str) -> None:
    try:
        state = _parse_info(await connection.call(("CLUSTER", "INFO"))).get("cluster_state")
    except CommandError as error:
        if "cluster support disabled" in str(error):
            raise ConfigError(
                f"{name} is a plain server, not a cluster: use redis:// instead of redis-cluster://"
            ) from error
        raise
    if state != "ok":
        raise NotSentError(f"the cluster at {name} is not ready (cluster_state:{state})")


def _translated(error: CommandError, name: str) -> Exception:
    kind = classify_error(str(error)).kind
    if kind in (ErrorClass.WRONGPASS, ErrorClass.NOAUTH, ErrorClass.NOPERM) or "AUTH" in str(error):
        return AuthenticationError(f"{name} refused the credentials: {error}")
    if kind is ErrorClass.LOADING:
        return NotSentError(f"{name} is loading its data: {error}")
    return ConnectionLostError(f"{name} refused the handshake: {error}")


def _parse_info(text: Any) -> dict[str, str]:
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    if not isinstance(text, str):
        return {}
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key: value.strip() for key, _, value in pairs}


def _version(info: dict[str, str]) -> tuple[int, ...]:
    text = info.get("valkey_version") or info.get("redis_version") or ""
    return tuple(int(part) for part in text.split(".") if part.isdigit())
