"""What runs the commands that somebody types: one connection that remembers, as redis-cli's does.

=============  =====================================================================================
place          how
=============  =====================================================================================
one server     a connection of its own, for everything: SELECT, WATCH and MULTI mean what they mean
cluster        each command where its keys are; from WATCH or the first key after MULTI on a connection
               of its own to the server that has the key, until EXEC, DISCARD or UNWATCH
SUBSCRIBE …    the client's subscriber, until it is cancelled
MONITOR        the client's monitor, likewise
=============  =====================================================================================

Rules: whatever goes wrong is an answer, not the end. A connection that is gone is told once, with what is
forgotten with it; the next command gets another. Nothing here knows a terminal: answers go to ``write``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import penstock
from penstock.cli.shell_replies import Style, Texture, plain, quoted, shown, texture_of
from penstock.client.exclusive import Exclusive, ExclusiveConnection
from penstock.client.facts import keys_of
from penstock.client.pubsub import Dropped, Gap, Message
from penstock.client.routes import ByKey, Route
from penstock.errors import (
    CommandError,
    ConnectionLostError,
    NotSentError,
    PenstockError,
    UsageError,
)
from penstock.protocol.catalogue import arity_error, check_arity, lookup

_JOINING: Final = {b"SUBSCRIBE": "subscribe", b"PSUBSCRIBE": "psubscribe", b"SSUBSCRIBE": "ssubscribe"}
_LEAVING: Final = (b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"SUNSUBSCRIBE")
#: They run at once between MULTI and EXEC.
_UNQUEUED: Final = (b"EXEC", b"DISCARD", b"MULTI", b"WATCH", b"QUIT", b"RESET")
_GOES_ON: Final = "Reading messages... (press Ctrl-C to quit)\n"


class Session:
    """The state of one shell."""

    def __init__(self, ps: penstock.Penstock, write: Callable[[str], None], style: Style) -> None:
        self._ps = ps
        self._write = write
        self.style: Style = style
        #: whether somebody reads along, who wants to know how to stop
        self.is_watched = False
        self.database = ps.settings.db
        self._lender: Exclusive | None = None
        self._own: ExclusiveConnection | None = None
        self.is_queueing = False
        self._queued: list[Sequence[bytes]] = []

    async def run(self, words: Sequence[bytes], *, tells_errors: bool = True) -> Exception | None:
        """Run a command and write its answer; what was wrong, if something was."""
        reply: Any
        try:
            reply = await self._answer(words)
        except CommandError as error:
            self._note_refusal(words)
            reply = error
        except ConnectionLostError as error:
            reply = self._lost(error)
        except (PenstockError, TypeError, ValueError) as error:
            reply = error
        refusal = reply if isinstance(reply, Exception) else None
        if reply is not _TOLD and (refusal is None or tells_errors):
            self._write(shown(reply, self._texture(words, reply), self.style))
        if refusal is None:
            self._note(words)
        return refusal

    def refuse(self, error: PenstockError) -> None:
        """An answer to what was no command at all."""
        self._tell(error)

    async def close(self) -> None:
        await self._let_go()

    # ------------------------------------------------------------------------------- answers

    async def _answer(self, words: Sequence[bytes]) -> Any:
        name = words[0].upper()
        if name in _JOINING or name == b"MONITOR":
            _check_arity(words)
            if self.is_queueing:
                raise UsageError(f"{name.decode()} cannot be queued: EXEC or DISCARD first")
            await (self._monitor() if name == b"MONITOR" else self._listen(name, words[1:]))
            return _TOLD
        if name in _LEAVING:
            raise UsageError("nothing is subscribed to here: Ctrl-C ends a subscription")
        if name == b"CLIENT" and words[1:2] and words[1].upper() == b"REPLY":
            raise UsageError("CLIENT REPLY would silence this shell: it is of use to programs alone")
        if self._ps.is_cluster:
            return await self._answer_of_cluster(name, words)
        return await self._ask(words, None)

    async def _ask(self, words: Sequence[bytes], route: Route | None) -> Any:
        """On the connection of its own; on another if nobody heard it there."""
        has_memory = self.is_queueing or (self._own is not None and self._own.is_watching)
        try:
            return await (await self._connection(route)).execute(*words)
        except NotSentError:
            if has_memory:
                raise
        await self._let_go()
        return await (await self._connection(route)).execute(*words)

    async def _answer_of_cluster(self, name: bytes, words: Sequence[bytes]) -> Any:
        keys = keys_of(tuple(words))
        if self._own is not None or name == b"WATCH":
            return await self._answer_of_one(name, words, ByKey(keys[0]) if keys else None)
        if self.is_queueing and name not in _UNQUEUED and keys:
            # Where the transaction belongs is known now. Words without keys were kept until here.
            connection = await self._connection(ByKey(keys[0]))
            for waiting in ([b"MULTI"], *self._queued):
                await connection.execute(*waiting)
            return await connection.execute(*words)
        if self.is_queueing and name not in _UNQUEUED:
            return b"QUEUED"
        if name == b"MULTI" and not self.is_queueing:
            return b"OK"
        if self.is_queueing and name in (b"EXEC", b"DISCARD"):
            if name == b"DISCARD":
                return b"OK"
            return [await self._ps.execute(*command) for command in self._queued]
        return await self._ps.execute(*words)

    async def _answer_of_one(self, name: bytes, words: Sequence[bytes], route: Route | None) -> Any:
        """Of the server of a transaction, to which the connection leads until it is over."""
        is_over = name in (b"EXEC", b"DISCARD") or (name == b"UNWATCH" and not self.is_queueing)
        is_new = self._own is None
        try:
            return await self._ask(words, route)
        except CommandError:
            is_over |= is_new  # nothing is watched
            raise
        finally:
            if is_over:
                await self._let_go()

    async def _connection(self, route: Route | None) -> ExclusiveConnection:
        if self._own is None:
            lender = self._ps.exclusive(route=route)
            self._own = await lender.__aenter__()
            self._lender = lender
            if self.database != self._ps.settings.db:
                await self._own.execute("SELECT", self.database)
        return self._own

    async def _let_go(self) -> None:
        lender, self._lender, self._own = self._lender, None, None
        if lender is not None:
            # It may be anything by now: a database was selected, keys are watched.
            await lender.__aexit__(UsageError, UsageError("not to be used again"), None)

    # --------------------------------------------------------------------------------- state

    def _note(self, words: Sequence[bytes]) -> None:
        """What has changed after a command that worked."""
        name = words[0].upper()
        if name == b"MULTI":
            self.is_queueing, self._queued = True, []
        elif name in (b"EXEC", b"DISCARD", b"RESET"):
            self.is_queueing = False
        elif self.is_queueing and name not in _UNQUEUED:
            self._queued.append(words)
        if name == b"SELECT" and not self.is_queueing:
            self.database = int(words[1])
        elif name == b"RESET":
            self.database = 0

    def _note_refusal(self, words: Sequence[bytes]) -> None:
        if words[0].upper() == b"EXEC":
            self.is_queueing = False

    def _lost(self, error: ConnectionLostError) -> Exception:
        """What an end of the connection means; the next command gets another."""
        was_queueing, self.is_queueing = self.is_queueing, False
        self._lender = self._own = None
        if was_queueing:
            return ConnectionLostError(f"{error}; MULTI and what was queued are forgotten")
        return error

    def _texture(self, words: Sequence[bytes], reply: Any) -> Texture | list[Texture]:
        if reply == b"QUEUED" and self.is_queueing:
            return "status"
        if words[0].upper() == b"EXEC" and isinstance(reply, list) and len(reply) == len(self._queued):
            return [texture_of(command, item) for command, item in zip(self._queued, reply, strict=True)]
        return texture_of(words, reply)

    # ----------------------------------------------------------------------------- listening

    async def _listen(self, name: bytes, names: Sequence[bytes]) -> None:
        if self.is_watched:
            self._write(_GOES_ON)
        async with self._ps.pubsub() as subscriber:
            await getattr(subscriber, _JOINING[name])(*names)
            for count, each in enumerate(names, 1):
                self._tell([name.lower(), each, count])
            async for item in subscriber:
                match item:
                    case Message(channel, data, None, kind):
                        self._tell([kind.encode(), channel, data])
                    case Message(channel, data, pattern, kind):
                        self._tell([kind.encode(), pattern, channel, data])
                    case Gap(server, _, duration_s):
                        self._tell(
                            UsageError(f"messages may be missing: {duration_s:.1f} s without {server}")
                        )
                    case Dropped(count):
                        self._tell(UsageError(f"{count} messages are missing: they came too fast"))

    async def _monitor(self) -> None:
        async with self._ps.monitor() as lines:
            self._write(shown(b"OK", "status", self.style))
            async for line in lines:
                if self.style == "json":
                    facts = {
                        "time_s": line.time_s,
                        "database": line.database,
                        "client": line.client,
                        "command": plain(list(line.arguments)),
                    }
                    self._tell(facts)
                else:
                    words = " ".join(map(quoted, line.arguments))
                    self._write(f"{line.time_s:.6f} [{line.database} {line.client}] {words}\n")

    def _tell(self, value: Any) -> None:
        self._write(shown(value, "data", self.style))


#: Everything was written already.
_TOLD: Final = object()


def _check_arity(words: Sequence[bytes]) -> None:
    spec = lookup(words[0])
    if spec is not None and not check_arity(spec, len(words)):
        raise arity_error(spec.full_name)
