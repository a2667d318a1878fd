"""From an address and settings to a connection that is ready for use: what a link calls to connect.

    dial = socket_dial(Address("127.0.0.1", 6379), settings)
    link = Link("127.0.0.1:6379", owner, dial, settings)

Two time limits, one after the other: ``connect_timeout_ms`` for the socket,
``handshake_timeout_ms`` for everything said on it. Credentials are asked for anew for each
connection. Which address is right, and when to dial, is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from penstock.client.config import Address, Settings
from penstock.client.connection import Connection
from penstock.client.handshake import Introduction, ServerFacts, shake_hands
from penstock.client.link import Dial
from penstock.client.transports.base import Transport
from penstock.client.transports.sockets import connect_tcp, connect_unix, tls_context
from penstock.errors import NotSentError

#: Opens a transport that reports to the connection.
Connect: TypeAlias = Callable[[Connection], Awaitable[Transport]]


def socket_dial(
    place: Address | Path,
    settings: Settings,
    *,
    uses_tls: bool = False,
    expects_cluster: bool = False,
    reads_from_replica: bool = False,
) -> Dial:
    """A dial to a host, or to a unix socket by its path."""
    encoding = "utf-8" if settings.decode_responses else None
    tls = tls_context(settings) if uses_tls else None

    async def connect(connection: Connection) -> Transport:
        if isinstance(place, Path):
            return await connect_unix(connection, place, encoding=encoding)
        return await connect_tcp(
            connection,
            place.host,
            place.port,
            tls=tls,
            server_hostname=settings.tls_server_name,
            encoding=encoding,
            keepalive=settings.tcp_keepalive,
        )

    address = Address(str(place), 0) if isinstance(place, Path) else place
    return dial_by(
        connect,
        address,
        settings,
        expects_cluster=expects_cluster,
        reads_from_replica=reads_from_replica,
    )


def dial_by(
    connect: Connect,
    address: Address,
    settings: Settings,
    *,
    expects_cluster: bool = False,
    reads_from_replica: bool = False,
) -> Dial:
    """A dial over any transport that ``connect`` opens."""
    name = str(address) if address.port else address.host

    async def dial(connection: Connection) -> ServerFacts:
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                transport = await connect(connection)
        except TimeoutError:
            raise NotSentError(f"cannot connect to {name} within connect_timeout_ms") from None
        connection.attach(transport)
        try:
            async with asyncio.timeout(settings.handshake_timeout_ms / 1000):
                username, password = await _login(settings, address)
                intro = Introduction(
                    protocol=settings.protocol,
                    username=username,
                    password=password,
                    db=settings.db,
                    client_name=settings.client_name,
                    expects_cluster=expects_cluster,
                    reads_from_replica=reads_from_replica,
                )
                return await shake_hands(connection, intro, name)
        except TimeoutError:
            raise NotSentError(f"{name} did not complete the handshake within handshake_timeout_ms") from None

    return dial


async def _login(settings: Settings, address: Address) -> tuple[str | None, str | None]:
    if settings.credential_provider is None:
        return settings.username, settings.password
    return await settings.credential_provider(address)
