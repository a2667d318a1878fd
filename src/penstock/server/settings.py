"""What a server can be told, checked before anything is opened."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one listener. Sizes in bytes, times in seconds."""

    host: str = "127.0.0.1"
    port: int | None = 6380
    unix_socket: Path | None = None
    password: str | None = None
    #: Refuse to listen beyond this machine without a password.
    protected: bool = True
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_clients: int = 10_000
    #: A client whose unread replies exceed this is disconnected.
    output_limit_bytes: int = 256 * 1024 * 1024
    #: The same for clients that subscribe: they cannot be slowed down.
    pubsub_output_limit_bytes: int = 32 * 1024 * 1024
    max_bulk_bytes: int = 512 * 1024 * 1024
    #: Scripts that run longer are moved off the event loop, so that the server stays responsive.
    script_inline_limit_s: float = 0.02
    #: After this time other clients are told that a script keeps the server busy.
    busy_reply_after_s: float = 5.0
    shutdown_timeout_s: float = 5.0

    def check(self) -> None:
        """Raise :class:`ConfigError` naming the setting that makes no sense."""
        if self.port is None and self.unix_socket is None:
            raise ConfigError("port and unix_socket are both off: nothing to listen on")
        if self.port is not None and not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535, not {self.port}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("tls_certificate and tls_key belong together: give both or none")
        if self.max_clients < 1:
            raise ConfigError(f"max_clients must be at least 1, not {self.max_clients}")
        if self.protected and self.port is not None and not self.password and not _is_loopback(self.host):
            raise ConfigError(
                f"host {self.host} can be reached from other machines and no password is set:"
                " give a password (--requirepass), listen on 127.0.0.1, or turn protection off"
                " (--protected-mode no) if the network is trusted"
            )

    def ssl_context(self) -> ssl.SSLContext | None:
        if self.tls_certificate is None or self.tls_key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.tls_certificate, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"tls_certificate or tls_key cannot be used: {error}") from error
        return context


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
