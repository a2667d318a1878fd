"""TCP, TLS and unix sockets: RESP through hiredis, one write a tick.

A protocol error ends the connection: after it nobody knows where a reply begins, and
guessing would give one caller another's data.
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
from penstock.errors import CommandError, NotSentError, ProtocolError

_HIGH_WATER_BYTES: Final = 1 << 20


class SocketTransport(asyncio.Protocol):
    """One socket. Made by :func:`connect_tcp` or :func:`connect_unix`."""

    def __init__(self, receiver: Receiver, encoding: str | None) -> None:
        self.push_type = hiredis.PushNotification
        self._receiver = receiver
        self._lost_because: Exception | None = None
        self._socket: asyncio.Transport | None = None
        self._reader = hiredis.Reader(
            protocolError=ProtocolError,
            replyError=CommandError,
            notEnoughData=NO_MORE,
            **({"encoding": encoding, "errors": "surrogateescape"} if encoding else {}),  # type: ignore[arg-type]
        )
        self.encode: Callable[[Any], bytes] = hiredis.pack_command
        self.bytes_sent = 0
        self.bytes_received = 0

    # ----------------------------------------------------------- for the owner

    def write(self, encoded: list[bytes]) -> None:
        data = encoded[0] if len(encoded) == 1 else b"".join(encoded)
        self.bytes_sent += len(data)
        if self._socket is not None:
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

    def data_received(self, data: bytes) -> None:
        self.bytes_received += len(data)
        try:
            self._reader.feed(data)
            self._receiver.replies_ready(self._reader.gets)
        except ProtocolError as error:
            self._lost_because = error
            self.abort()

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._socket = None
        self._receiver.transport_lost(self._lost_because or error)


async def connect_tcp(
    receiver: Receiver,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    encoding: str | None = None,
) -> SocketTransport:
    """A socket to a host; :class:`NotSentError` if there is none to be had."""
    loop = asyncio.get_running_loop()
    try:
        _, transport = await loop.create_connection(
            lambda: SocketTransport(receiver, encoding), host, port, ssl=tls, server_hostname=server_hostname
        )
    except (OSError, ssl.SSLError) as error:
        raise NotSentError(f"cannot connect to {host}:{port}: {_reason(error)}") from error
    if transport._socket is not None:
        _keep_alive(transport._socket.get_extra_info("socket"))
    return transport


async def connect_unix(receiver: Receiver, path: Path, *, encoding: str | None = None) -> SocketTransport:
    loop = asyncio.get_running_loop()
    try:
        _, transport = await loop.create_unix_connection(
            lambda: SocketTransport(receiver, encoding), str(path)
        )
    except OSError as error:
        raise NotSentError(f"cannot connect to unix socket {path}: {_reason(error)}") from error
    return transport


def _keep_alive(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
