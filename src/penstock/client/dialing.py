"""From an address to a connection that may be used: socket or store, TLS, credentials, handshake.

One dialer a client. It keeps no connections; links, blocking calls and subscriptions
each ask it for theirs.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.handshake import Introduction, ServerFacts, shake_hands
from penstock.client.link import Dial
from penstock.client.targets import Address, Target
from penstock.client.transports.sockets import connect_tcp, connect_unix
from penstock.errors import ConfigError, NotSentError


class Dialer:
    """Knows everything about reaching a server but its address."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self._target = target
        self._settings = settings
        self._tls = _tls_context(target, settings)
        self._encoding = "utf-8" if settings.decode_responses else None
        #: the directory of an embedded store; where it is must not depend on a later chdir
        self._store = target.path.absolute() if target.kind == "embedded" and target.path else None

    def to(
        self, address: Address | None, *, reads_from_replica: bool = False, is_shared: bool = False
    ) -> Dial:
        """How to reach this address (None: the path of the target, a unix socket or a store).

        On shared connections the server tells of changes, where replies are cached.
        """
        tracks = is_shared and self._settings.client_cache_entries > 0

        async def dial(connection: Connection) -> ServerFacts:
            await self._connect(connection, address)
            return await self._shake_hands(
                connection, address, reads_from_replica=reads_from_replica, tracks=tracks
            )

        return dial

    def to_sentinel(self, address: Address) -> Dial:
        """How to reach a sentinel at this address: it has credentials of its own, and no databases."""

        async def dial(connection: Connection) -> ServerFacts:
            await self._connect(connection, address)
            return await self._shake_hands(connection, address, is_sentinel=True)

        return dial

    def name_of(self, address: Address | None) -> str:
        return str(self._target.path) if address is None else str(address)

    async def _connect(self, connection: Connection, address: Address | None) -> None:
        if self._store is not None:
            self._open_store(connection, self._store)
            return
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

    def _open_store(self, connection: Connection, path: Path) -> None:
        # Here, since who speaks to servers alone need not load the engine.
        from penstock.client.transports.embedded import connect_embedded

        durability = self._settings.durability
        connection.attach(connect_embedded(connection, path, durability=durability, encoding=self._encoding))

    async def _shake_hands(
        self,
        connection: Connection,
        address: Address | None,
        *,
        reads_from_replica: bool = False,
        tracks: bool = False,
        is_sentinel: bool = False,
    ) -> ServerFacts:
        timeout_ms = self._settings.handshake_timeout_ms
        name = self.name_of(address)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if is_sentinel:
                    introduction = self._introduction_to_sentinel()
                else:
                    introduction = await self._introduction(address, reads_from_replica, tracks)
                facts = await shake_hands(connection, introduction, name)
        except TimeoutError as error:
            raise NotSentError(f"{name} did not answer the handshake within {timeout_ms} ms") from error
        _check_mode(facts, name, is_sentinel)
        return facts

    def _introduction_to_sentinel(self) -> Introduction:
        settings = self._settings
        return Introduction(
            protocol=settings.protocol,
            username=settings.sentinel_username,
            password=settings.sentinel_password,
            client_name=settings.client_name,
        )

    async def _introduction(
        self, address: Address | None, reads_from_replica: bool, tracks: bool
    ) -> Introduction:
        settings = self._settings
        username, password = settings.username, settings.password
        if self._store is not None:
            username = password = None  # who may use the directory needs no password
        elif settings.credential_provider is not None:
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
            tracks=tracks,
        )


def _check_mode(facts: ServerFacts, name: str, is_sentinel: bool) -> None:
    """Whether it is what the URL says it is, as far as it tells."""
    if facts.mode == "sentinel" and not is_sentinel:
        raise ConfigError(f"{name} is a sentinel: use redis-sentinel://{name}/service instead of redis://")
    if facts.mode not in ("sentinel", "") and is_sentinel:
        what, scheme = (
            ("a cluster", "redis-cluster") if facts.mode == "cluster" else ("a plain server", "redis")
        )
        raise ConfigError(f"{name} is {what}, not a sentinel: use {scheme}:// instead of redis-sentinel://")


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
