"""From an address to a connection that may be used: socket, TLS, credentials, handshake.

One dialer a client. It keeps no connections; links, blocking calls and subscriptions
each ask it for theirs.
"""

from __future__ import annotations

import asyncio
import ssl

from penstock.client.config import Address, Settings, Target
from penstock.client.connection import Connection
from penstock.client.handshake import Introduction, ServerFacts, shake_hands
from penstock.client.link import Dial
from penstock.client.transports.sockets import connect_tcp, connect_unix
from penstock.errors import ConfigError, NotSentError


class Dialer:
    """Knows everything about reaching a server but its address."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self._target = target
        self._settings = settings
        self._tls = _tls_context(target, settings)
        self._encoding = "utf-8" if settings.decode_responses else None

    def to(self, address: Address | None, *, reads_from_replica: bool = False) -> Dial:
        """How to reach this address (None: the unix socket of the target)."""

        async def dial(connection: Connection) -> ServerFacts:
            await self._connect(connection, address)
            return await self._shake_hands(connection, address, reads_from_replica)

        return dial

    def name_of(self, address: Address | None) -> str:
        return str(self._target.path) if address is None else str(address)

    async def _connect(self, connection: Connection, address: Address | None) -> None:
        timeout_ms = self._settings.connect_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if address is None:
                    assert self._target.path is not None
                    transport = await connect_unix(connection, self._target.path, encoding=self._encoding)
                else:
                    transport = await connect_tcp(
                        connection,
                        address.host,
                        address.port,
                        tls=self._tls,
                        server_hostname=self._settings.tls_server_name if self._tls else None,
                        encoding=self._encoding,
                        keepalive=self._settings.tcp_keepalive,
                    )
        except TimeoutError as error:
            name = self.name_of(address)
            raise NotSentError(f"{name} did not accept a connection within {timeout_ms} ms") from error
        connection.attach(transport)

    async def _shake_hands(
        self, connection: Connection, address: Address | None, reads_from_replica: bool
    ) -> ServerFacts:
        timeout_ms = self._settings.handshake_timeout_ms
        name = self.name_of(address)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                introduction = await self._introduction(address, reads_from_replica)
                return await shake_hands(connection, introduction, name)
        except TimeoutError as error:
            raise NotSentError(f"{name} did not answer the handshake within {timeout_ms} ms") from error

    async def _introduction(self, address: Address | None, reads_from_replica: bool) -> Introduction:
        settings = self._settings
        username, password = settings.username, settings.password
        if settings.credential_provider is not None:
            credentials = await settings.credential_provider(address or Address(str(self._target.path), 0))
            username, password = credentials.username, credentials.password
        is_cluster = self._target.kind == "cluster"
        return Introduction(
            protocol=settings.protocol,
            username=username,
            password=password,
            database=0 if is_cluster else settings.db,
            client_name=settings.client_name,
            expects_cluster=is_cluster,
            reads_from_replica=reads_from_replica,
        )


def _tls_context(target: Target, settings: Settings) -> ssl.SSLContext | None:
    if not target.uses_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
        if settings.tls_cert_file is not None:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, settings.tls_key_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls_ca_file, tls_cert_file or tls_key_file cannot be used: {error}") from error
    context.check_hostname = settings.tls_check_hostname and settings.tls_verify
    if not settings.tls_verify:
        context.verify_mode = ssl.CERT_NONE
    return context
