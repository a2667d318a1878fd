"""One connection beside the shared ones, for questions about the servers themselves.

It serves CLUSTER SLOTS. It is opened when it is first needed and stays where it is until another
server answers, or the one it leads to fails. (What must get through to one certain server while
a shared connection waits, such as CLIENT UNBLOCK, goes through ``PrivateLinks.tell``.)

Rules: one question at a time, nothing is pipelined. ``ask`` takes whoever answers: the
candidates are tried in order, each with a head start on the next, so that one that is
silent costs a moment and not a timeout. A connection found dead when it is used again is
replaced once, so what is asked must be harmless when asked twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.client.config import Settings
from penstock.client.connection import Connection, Slot
from penstock.client.dialing import Dialer
from penstock.client.router.racing import first_answer
from penstock.client.targets import Address
from penstock.client.transports.base import Arguments
from penstock.errors import (
    AuthenticationError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    ConfigError,
    ConnectionLostError,
    NotSentError,
    OutcomeUnknownError,
)
from penstock.protocol.replies import Reply

T = TypeVar("T")


def address_named(name: str) -> Address:
    """The address that is written ``host:port`` or ``[host]:port``."""
    host, colon, port = name.rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigError(f"{name!r} is no server: write host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


class Backchannel:
    """Asks servers, one question at a time."""

    def __init__(self, dialer: Dialer, settings: Settings) -> None:
        self._dialer = dialer
        self._timeout_s = settings.handshake_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        #: where the connection leads to, or led to
        self.address: Address | None = None
        self._connection: Connection | None = None
        #: connections that have not ended yet
        self._alive: set[Connection] = set()
        self._quiet = asyncio.Event()
        self._is_closed = False

    async def ask(
        self, candidates: Sequence[Address], arguments: Arguments, read: Callable[[Address, Reply], T]
    ) -> T:
        """What the first candidate answers whose reply ``read`` can make sense of.

        If none does: the error that a user has to do something about (credentials, a setting),
        else ``NotSentError`` with all of them.
        """

        async def attempt(address: Address) -> T:
            return read(address, await self._question(address, arguments))

        async with self._lock:
            self._check()
            _, answer = await first_answer(candidates, attempt, _summary)
            return answer

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError("the client is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise ClosedError("this client belongs to another event loop; open one for each loop")

    async def _question(self, address: Address, arguments: Arguments) -> Reply:
        current = self._connection
        if current is not None and current.is_open and self.address == address:
            try:
                return await self._reply(current, address, arguments)
            except ConnectionLostError:
                pass  # it may have died long ago
        connection = await self._dial(address)
        try:
            reply = await self._reply(connection, address, arguments)
        except CommandError:
            self._stay_at(address, connection)
            raise
        except BaseException:
            self._end(connection)
            raise
        self._stay_at(address, connection)
        return reply

    async def _reply(self, connection: Connection, address: Address, arguments: Arguments) -> Reply:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await connection.call(arguments)
        except TimeoutError as error:
            connection.abort()
            raise CommandTimeoutError(f"{address} did not answer within {self._timeout_s:g} s") from error

    async def _dial(self, address: Address) -> Connection:
        connection = Connection(self, self._loop, max_in_flight=16)
        self._alive.add(connection)
        try:
            await self._dialer.to(address)(connection)
        except BaseException:
            self._end(connection)
            raise
        return connection

    def _stay_at(self, address: Address, connection: Connection) -> None:
        former, self._connection, self.address = self._connection, connection, address
        if former is not None:
            self._end(former)

    def _end(self, connection: Connection) -> None:
        if connection.is_open:
            connection.abort()
        else:
            self._alive.discard(connection)

    async def close(self) -> None:
        """End the connection; whoever waits for an answer is told. Idempotent."""
        self._is_closed = True
        for connection in list(self._alive):
            self._end(connection)
        while self._alive:
            self._quiet.clear()
            await self._quiet.wait()

    # ------------------------------------------------ what a connection reports

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, connection: Connection, push: list[Any]) -> None:
        """Nothing is subscribed to here."""

    def on_room(self, connection: Connection) -> None:
        """Nobody waits for room: there is one question at a time."""

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        self._alive.discard(connection)
        self._quiet.set()
        why = error or "the server closed it"
        for slot in unanswered:
            slot.future.set_exception(OutcomeUnknownError(f"the backchannel ended before the reply: {why}"))
        for slot in unsent:
            slot.future.set_exception(NotSentError(f"the backchannel ended: {why}"))

    def __repr__(self) -> str:
        is_open = self._connection is not None and self._connection.is_open
        return f"<Backchannel {self.address if is_open else 'not connected'}>"


def _summary(errors: dict[Address, Exception]) -> Exception:
    for error in errors.values():
        if isinstance(error, AuthenticationError | ConfigError):
            return error
    reasons = "; ".join(f"{address}: {error}" for address, error in errors.items())
    return NotSentError(f"no server answers ({reasons})")
