"""Several commands at once: pipelines, which save round trips, and transactions, which are atomic.

    pipe = ps.pipeline()                 tx = ps.transaction()
    pipe.set("a", 1)                     tx.incr("a")
    count = pipe.incr("n")               tx.rpush("log", "a")
    await pipe.all()                     replies = await tx.all()
    await count                          # each command's own reply, once it ran

==========  ===============================================================
``all``     the replies; the first command that failed raises
``try_all`` the replies, errors among them
``last``    the reply to the last command; the first that failed raises
==========  ===============================================================

Rules: what was queued stays queued, so that it can run again; ``clear`` empties it. A
pipeline is pipelined with what other tasks send, and nothing of it is undone if a part
fails. A transaction leaves in one piece and is never sent a second time unless the server
refused all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.client._batch_commands import BatchCommands
from penstock.client.commands.base import converted
from penstock.client.connection import ReplyFuture
from penstock.client.facts import Kind, blocking_timeout_ms, exclusive_hint, keys_of, kind_of, to_bytes
from penstock.client.link import Link
from penstock.client.refusals import Refusals
from penstock.client.transports.base import Argument, Arguments
from penstock.errors import CommandError, CommandTimeoutError, PenstockError, UsageError, WatchError
from penstock.protocol.replies import Reply
from penstock.protocol.slots import key_slot

if TYPE_CHECKING:
    from penstock.client.core import Core

T = TypeVar("T")
Convert = Callable[[Any], Any]

_NOT_YET: Final = object()


class Later(Generic[T]):
    """The reply to a queued command, to be had by ``await`` or ``result()`` once it ran."""

    __slots__ = ("_name", "_outcome")

    def __init__(self, name: str) -> None:
        self._name = name
        self._outcome: Any = _NOT_YET

    def settle(self, outcome: Any) -> None:
        self._outcome = outcome

    def result(self) -> T:
        if self._outcome is _NOT_YET:
            raise UsageError(f"{self._name} was queued and has not run: await all(), try_all() or last()")
        if isinstance(self._outcome, Exception):
            raise self._outcome
        reply: T = self._outcome
        return reply

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()  # an await needs a generator, if an empty one
        return self.result()

    def __repr__(self) -> str:
        state = "queued" if self._outcome is _NOT_YET else f"{self._outcome!r:.80}"
        return f"<Later {self._name}: {state}>"


class Batch(BatchCommands):
    """What pipelines and transactions have in common: a queue, and three ways to run it."""

    def __init__(self) -> None:
        self._commands: list[Arguments] = []
        self._converts: list[Convert | None] = []
        self._laters: list[Later[Any]] = []

    def execute(self, *arguments: Argument) -> Later[Any]:
        """Queue any command."""
        return self._queue(arguments, None)

    def _call(self, arguments: Arguments, convert: Convert | None = None) -> Any:
        return self._queue(arguments, convert)

    def _queue(self, arguments: Arguments, convert: Convert | None) -> Later[Any]:
        if not arguments:
            raise TypeError("a command needs at least its name")
        self._check(arguments)
        later: Later[Any] = Later(_name_of(arguments))
        self._commands.append(arguments)
        self._converts.append(convert)
        self._laters.append(later)
        return later

    def _check(self, arguments: Arguments) -> None:
        """Raise for a command that must not be queued."""
        if kind_of(arguments[0]) is Kind.SUBSCRIBE:
            raise UsageError(f"{_name_of(arguments)} cannot be queued: use pubsub()")
        hint = exclusive_hint(arguments)
        if hint is not None:
            raise UsageError(f"{_name_of(arguments)} cannot be queued: {hint}")

    def clear(self) -> None:
        self._commands.clear()
        self._converts.clear()
        self._laters.clear()

    def __len__(self) -> int:
        return len(self._commands)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} commands>"

    # ------------------------------------------------------------------------ run

    async def all(self, *, timeout_ms: int | None = None) -> list[Any]:
        """Run it; the replies in order. The first error raises, after everything ran."""
        outcomes = await self.try_all(timeout_ms=timeout_ms)
        for position, outcome in enumerate(outcomes):
            if isinstance(outcome, Exception):
                outcome.add_note(f"command {position + 1} of {len(self)}: {self._commands[position]!r:.200}")
                raise outcome
        return outcomes

    async def try_all(self, *, timeout_ms: int | None = None) -> list[Any]:
        """Run it; the replies in order, errors in their places."""
        if not self._commands:
            return []
        if timeout_ms is None:
            replies = await self._run()
        else:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    replies = await self._run()
            except TimeoutError as error:
                if isinstance(error, CommandTimeoutError):
                    raise
                raise CommandTimeoutError(
                    f"{len(self)} commands were not all answered within {timeout_ms} ms; they may still run"
                ) from None
        outcomes = [
            reply if convert is None or isinstance(reply, Exception) else converted(arguments, convert, reply)
            for arguments, reply, convert in zip(self._commands, replies, self._converts, strict=True)
        ]
        for later, outcome in zip(self._laters, outcomes, strict=True):
            later.settle(outcome)
        return outcomes

    async def last(self, *, timeout_ms: int | None = None) -> Any:
        """Run it; the reply to the last command. The first error raises."""
        outcomes = await self.all(timeout_ms=timeout_ms)
        return outcomes[-1] if outcomes else None

    async def _run(self) -> list[Reply]:
        raise NotImplementedError


class Pipeline(Batch):
    """Commands that leave together, each to the server that it belongs to."""

    def __init__(self, core: Callable[[], Core]) -> None:
        super().__init__()
        self._core = core

    def _check(self, arguments: Arguments) -> None:
        super()._check(arguments)
        if blocking_timeout_ms(arguments) is not None:
            raise UsageError(
                f"{_name_of(arguments)} would keep everybody on the connection waiting: call it by itself"
            )

    async def _run(self) -> list[Reply]:
        call = self._core().call
        futures = [call(arguments) for arguments in self._commands]
        try:
            return [await _outcome(future) for future in futures]
        except BaseException:
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # nobody will ask
            raise


class Transaction(Batch):
    """Commands that run together or not at all: MULTI … EXEC in one piece."""

    def __init__(self, core: Callable[[], Core], link: Link | None = None) -> None:
        super().__init__()
        self._core = core
        #: where keys are watched; None: wherever the keys are
        self._link = link

    async def _run(self) -> list[Reply]:
        core = self._core()
        if core.is_cluster:
            _check_one_slot(self._commands)
        burst = (("MULTI",), *self._commands, ("EXEC",))
        placed_by = next((arguments for arguments in self._commands if keys_of(arguments)), ("PING",))
        for arguments in self._commands:
            core.touch(arguments)
        try:
            return await self._run_within(core, burst, placed_by)
        finally:
            for arguments in self._commands:
                core.touch(arguments)

    async def _run_within(
        self, core: Core, burst: tuple[Arguments, ...], placed_by: Arguments
    ) -> list[Reply]:
        if self._link is not None:
            return _replies_of(await self._link.call_burst(burst))
        timeout_ms = core.settings.command_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                return await self._run_anywhere(core, burst, placed_by)
        except TimeoutError as error:
            if isinstance(error, CommandTimeoutError):
                raise
            raise CommandTimeoutError(
                f"the transaction was not answered within {timeout_ms} ms; it may have run"
            ) from None

    async def _run_anywhere(
        self, core: Core, burst: tuple[Arguments, ...], placed_by: Arguments
    ) -> list[Reply]:
        """Where the keys are; again, as long as the servers say that they are elsewhere or not ready."""
        link = core.router.link_for(placed_by)
        refusals = Refusals(core.router, core.settings)
        while True:
            try:
                return _replies_of(await link.call_burst(burst))
            except CommandError as error:
                redirection = await refusals.survive(error)
                link = core.router.link_for(placed_by) if redirection is None else redirection.link


def _replies_of(burst: list[Reply]) -> list[Reply]:
    """What EXEC answered; raises why nothing ran."""
    executed = burst[-1]
    if executed is None:
        raise WatchError("watched keys have changed, so nothing ran: read again and try again")
    if isinstance(executed, CommandError):
        # EXEC itself only says that something was refused; that something says why.
        raise next((reply for reply in burst[:-1] if isinstance(reply, CommandError)), executed)
    replies: list[Reply] = executed
    return replies


def _check_one_slot(commands: list[Arguments]) -> None:
    slots = {key_slot(key) for arguments in commands for key in keys_of(arguments)}
    if len(slots) > 1:
        raise CommandError(
            "CROSSSLOT Keys in request don't hash to the same slot: give them a common {hash tag}"
        )


async def _outcome(future: ReplyFuture) -> Reply:
    try:
        return await future
    except PenstockError as error:
        return error


def _name_of(arguments: Arguments) -> str:
    return to_bytes(arguments[0]).decode(errors="replace").upper()
