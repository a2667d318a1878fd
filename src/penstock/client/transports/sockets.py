"""TCP, TLS and unix sockets: RESP through hiredis, one write a tick.

A protocol error ends the connection: after it nobody knows where a reply begins, and
guessing would give one caller another's data.

=========================  ==================================================
what happens               reported as
=========================  ==================================================
no connection to be had    ``NotSentError``, raised
certificate not trusted    ``ConfigError``, raised
bytes that are not RESP    ``transport_lost(ProtocolError)``
end of the stream          ``transport_lost(None)``
anything else              ``transport_lost(ConnectionLostError)``
=========================  ==================================================
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import hiredis

from penstock.client.transports.base import NO_MORE, Receiver
from penstock.errors import CommandError, ConfigError, ConnectionLostError, NotSentError, ProtocolError

#: Unsent bytes at which the connection is told to wait.
_HIGH_WATER_BYTES: Final = 1 << 20
#: The system's own probes of an idle connection: first after, then every, and how many.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}


class SocketTransport(asyncio.Protocol):
    """One socket. Made by :func:`connect_tcp` or :func:`connect_unix`."""

    def __init__(self, receiver: Receiver, encoding: str | None) -> None:
        self.push_type: type[list[Any]] = hiredis.PushNotification
        self.encode: Callable[[Any], bytes] = hiredis.pack_command
        self.is_closing: Callable[[], bool] = _is_closed
        self.bytes_sent = 0
        self.bytes_received = 0
        self._receiver = receiver
        self._is_reported = False
        self._socket: asyncio.Transport | None = None
        decoding: dict[str, Any] = {"encoding": encoding, "errors": "surrogateescape"} if encoding else {}
        self._reader = hiredis.Reader(
            protocolError=ProtocolError, replyError=CommandError, notEnoughData=NO_MORE, **decoding
        )

    # ----------------------------------------------------------- for the owner

    def write(self, encoded: list[bytes]) -> None:
        data = encoded[0] if len(encoded) == 1 else b"".join(encoded)
        self.bytes_sent += len(data)
        assert self._socket is not None
        self._socket.write(data)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    # ----------------------------------------------------------------- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.is_closing = self._socket.is_closing

    def data_received(self, data: bytes) -> None:
        if self._is_reported:
            return
        self.bytes_received += len(data)
        try:
            self._reader.feed(data)
            self._receiver.replies_ready(self._reader.gets)
        except ProtocolError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - whatever a reply does to the parser, it cannot go on
            self._end(ProtocolError(f"a reply cannot be read: {error}"))

    def eof_received(self) -> None:
        """The server will not answer any more, nor read what is still to be sent."""
        self._end(None)

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._socket = None
        self.is_closing = _is_closed
        self._report(error and _translated(error))

    def _end(self, error: Exception | None) -> None:
        self.abort()
        self._report(error)

    def _report(self, error: Exception | None) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._receiver.transport_lost(error)


async def connect_tcp(
    receiver: Receiver,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    encoding: str | None = None,
    keepalive: bool = True,
) -> SocketTransport:
    """A socket to a host; :class:`NotSentError` if there is none to be had."""
    loop = asyncio.get_running_loop()
    try:
        raw, transport = await loop.create_connection(
            lambda: SocketTransport(receiver, encoding),
            host,
            port,
            ssl=tls,
            server_hostname=server_hostname if tls else None,
        )
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"the certificate of {host}:{port} is not trusted: {error.verify_message}"
            " (see tls_ca_file, tls_server_name)"
        ) from error
    except OSError as error:
        raise NotSentError(f"cannot connect to {host}:{port}: {_reason(error)}") from error
    if keepalive:
        _keep_alive(raw.get_extra_info("socket"))
    return transport


async def connect_unix(receiver: Receiver, path: Path, *, encoding: str | None = None) -> SocketTransport:
    """A unix socket; :class:`NotSentError` if there is none to be had."""
    loop = asyncio.get_running_loop()
    try:
        _, transport = await loop.create_unix_connection(
            lambda: SocketTransport(receiver, encoding), str(path)
        )
    except OSError as error:
        raise NotSentError(f"cannot connect to unix socket {path}: {_reason(error)}") from error
    return transport


def _is_closed() -> bool:
    return True


def _keep_alive(sock: socket.socket | None) -> None:
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _translated(error: Exception) -> ConnectionLostError:
    translated = ConnectionLostError(_reason(error))
    translated.__cause__ = error
    return translated


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
