"""Sockets to listen on. Every failure becomes a :class:`ConfigError` of one sentence."""

from __future__ import annotations

import errno
import logging
import resource
import socket
import ssl
from typing import Final

from penstock.errors import ConfigError
from penstock.gateway.config.surroundings import TlsConfig

_LOG = logging.getLogger("penstock.gateway.server")

BACKLOG: Final = 2048
#: Descriptors beside those of clients: stores, listeners, webhooks, standard streams.
_OTHER_FILES: Final = 256


def open_listener(host: str, port: int, *, shares_port: bool = False) -> socket.socket:
    """A socket that listens; an empty host is every address of the machine.

    ``shares_port``: others may listen on the same port, and the system spreads connections among them.
    """
    everywhere = host in ("", "*")
    try:
        if everywhere and socket.has_dualstack_ipv6():
            return _listen(("::", port), socket.AF_INET6, True, shares_port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return _listen(("0.0.0.0" if everywhere else host, port), family, False, shares_port)
    except OSError as error:
        where = f"port {port}" if everywhere else f"{host}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"http.listen: {where} is in use; choose another, or stop what uses it"
            ) from error
        reason = error.strerror or error
        raise ConfigError(f"http.listen: cannot listen on {where} ({reason}); choose another") from error


def _listen(address: tuple[str, int], family: int, both_families: bool, shares_port: bool) -> socket.socket:
    listener = socket.create_server(
        address, family=family, backlog=BACKLOG, reuse_port=shares_port, dualstack_ipv6=both_families
    )
    listener.setblocking(False)
    return listener


def adopt_listener(descriptor: int) -> socket.socket:
    """The socket that a parent process listens on, for this process."""
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener


def tls_context(tls: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"http.tls: {tls.cert_file} and {tls.key_file} are not a certificate and its key ({error})"
        ) from error
    return context


def make_room_for(connections: int) -> None:
    """Raise the limit of open files for so many connections, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    reachable = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    except (OSError, ValueError):
        reachable = soft
    if reachable < needed:
        _LOG.warning("the limit of %d open files is too low for %d connections", reachable, connections)
