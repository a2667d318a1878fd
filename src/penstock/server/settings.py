"""What a server can be told, checked before anything is opened."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ConfigError

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one listener. Sizes in bytes, times in seconds."""

    host: str = "127.0.0.1"
    #: 0: any free port; None: no TCP at all
    port: int | None = 6380
    unix_socket: Path | None = None
    password: str | None = None
    #: Serve nobody beyond this machine without a password.
    protected: bool = True
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_clients: int = 10_000
    #: A client whose unread replies exceed this is disconnected. More than the largest value,
    #: or nobody could read that.
    output_limit_bytes: int = 1024 * _MIB
    #: The same for clients that subscribe or monitor: they cannot be slowed down.
    pubsub_output_limit_bytes: int = 32 * _MIB
    #: What a blocked client may send ahead before it is disconnected.
    ahead_limit_bytes: int = 256 * _MIB
    max_bulk_bytes: int = 512 * _MIB
    #: Scripts that run longer are moved off the event loop, so that the server stays responsive.
    script_inline_limit_s: float = 0.02
    #: How long a stop waits for a slow script, and for clients to read their last replies.
    shutdown_timeout_s: float = 5.0

    def check(self) -> None:
        """Raise :class:`ConfigError` naming the setting that makes no sense."""
        if self.port is None and self.unix_socket is None:
            raise ConfigError("port and unix_socket are both off: nothing to listen on")
        if self.port is not None and not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535, not {self.port}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("a TLS certificate and its private key belong together: give both or none")
        if self.max_clients < 1:
            raise ConfigError(f"maxclients must be at least 1, not {self.max_clients}")
        if self.protected and self.port is not None and not self.password and not is_loopback(self.host):
            raise ConfigError(
                f"{self.host or 'every address'} can be reached from other machines and no password is set:"
                " give one (--requirepass), listen on 127.0.0.1, or turn the protection off"
                " (--protected-mode no) if the network is trusted"
            )

    def ssl_context(self) -> ssl.SSLContext | None:
        """What TLS needs, or None without TLS."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        for path in (self.tls_certificate, self.tls_key):
            if not path.is_file():
                raise ConfigError(f"the TLS file {path} does not exist or is not a file")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # An encrypted key is refused; without a password here, OpenSSL would ask the terminal.
            context.load_cert_chain(self.tls_certificate, self.tls_key, password="")
        except OSError as error:
            raise ConfigError(
                f"the certificate {self.tls_certificate} cannot be used with the key {self.tls_key}: {error}"
            ) from error
        return context


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # A listener on :: sees clients of IPv4 as ::ffff:127.0.0.1.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
