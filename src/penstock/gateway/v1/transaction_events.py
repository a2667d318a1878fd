"""A transaction as server-sent events: ``state`` and ``progress`` as they change, ``end`` when it has ended.

    event: state
    data: {"id":"tx-0-…","state":"running","status":"running",…}
    id: 5f2c…

The id of an event stands for what the transaction was like. Who comes again with the last one is not told the
same again, and gets 204 if nothing can come any more: that makes an ``EventSource`` stop.

Rules: a follower survives a store that is away, hears of the worker's end at once, and shows its credential
again now and then. It holds one state; what changes while its client does not read is told as it is then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec

from penstock.errors import PenstockError, TransactionNotFoundError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response, Streaming
from penstock.gateway.http.routing import Answer, Route
from penstock.gateway.services import Services
from penstock.gateway.v1 import events
from penstock.gateway.v1 import transaction_documents as documents
from penstock.gateway.v1.feeds import CREDENTIAL_S, FeedEnded
from penstock.gateway.v1.following import Follower, Terms, stopping
from penstock.gateway.v1.problems import refuse
from penstock.gateway.v1.staying import check_room, place
from penstock.gateway.v1.streams import duration_ms_of
from penstock.gateway.v1.transaction_requests import admit, seen_by, service_of, transaction_of
from penstock.gateway.v1.transactions import TRANSACTION
from penstock.transactions.model import Transaction

_ID_DIGITS: Final = 16

_encode: Final = msgspec.json.Encoder().encode
#: Gives what the transaction is like, again whenever it changes.
Changes = Callable[[], AsyncIterator[Transaction]]


class TransactionEventRoutes:
    """The handlers of one worker."""

    def __init__(
        self,
        services: Services,
        *,
        heartbeat_ms: int = events.HEARTBEAT_MS,
        credential_s: float = CREDENTIAL_S,
    ) -> None:
        self._services = services
        self._facility = service_of(services).facility
        self._heartbeat_ms = heartbeat_ms
        self._credential_s = credential_s

    def routes(self) -> list[Route]:
        return [Route("GET", TRANSACTION + "/events", self.follow, refuse, documents.EVENTS)]

    async def follow(self, request: Request) -> Answer:
        caller = await admit(self._services, request, Action.LOOK)
        tx, owner = transaction_of(request), seen_by(caller, request)
        duration_ms = duration_ms_of(request)
        check_room(self._services)
        await request.body()
        now = await self._facility.get(tx, owner=owner)
        known = request.header(b"last-event-id")
        if now.has_ended and known == _mark(now):
            return Response(204, b"", ())
        ends_s = asyncio.get_running_loop().time() + duration_ms / 1_000
        follower = TransactionFollower(
            self._services,
            partial(self._facility.changes, tx, owner=owner),
            lambda: admit(self._services, request, Action.LOOK),
            Terms(ends_s, self._heartbeat_ms, self._credential_s),
        )
        return Streaming(follower.events(known), events.HEADERS)


class TransactionFollower(Follower):
    """One follower of one transaction."""

    def __init__(
        self,
        services: Services,
        changes: Changes,
        show_credential: Callable[[], Awaitable[object]],
        terms: Terms,
    ) -> None:
        super().__init__(services, show_credential, terms, "a transaction")
        self._changes = changes
        self._last: Transaction | None = None

    async def events(self, known: str | None) -> AsyncIterator[bytes]:
        """``known``: the id of the last event that the client has."""
        with place(self._services):
            yield events.PREAMBLE
            try:
                while True:
                    try:
                        async with aclosing(self._follow(known)) as chunks:
                            async for chunk in chunks:
                                yield chunk
                    except (PenstockError, Refusal) as error:
                        await self.survive(error)
                        yield events.HEARTBEAT
            except FeedEnded as end:
                yield events.end(end.reason, end.detail)

    async def _follow(self, known: str | None) -> AsyncGenerator[bytes, None]:
        """Events until something ends them; raises FeedEnded, or what the store does."""
        async with _followed(self._changes()) as take:
            while True:
                left_s = self.left_s()
                if left_s <= 0:
                    raise FeedEnded("time-over", "the time that was asked for is over; come again")
                await self.check_credential()
                pause_s = min(left_s, self._terms.heartbeat_ms / 1_000, self._terms.credential_s)
                found = await take(pause_s)
                if found is None:
                    yield events.HEARTBEAT
                    continue
                self.note_success()
                chunk = b"" if _mark(found) == known else self._spelt(found)
                self._last, known = found, None
                if chunk:
                    yield chunk
                if found.has_ended:
                    raise FeedEnded("ended", f"the transaction has ended: {found.status}")

    def _spelt(self, found: Transaction) -> bytes:
        """What is new."""
        last, mark = self._last, _mark(found)
        chunks: list[bytes] = []
        if found.progress is not None and (last is None or found.progress != last.progress):
            report = documents.ProgressReport(found.id, found.progress)
            chunks.append(events.event("progress", _encode(report), mark))
        if last is None or _shown(found, progress=None) != _shown(last, progress=None):
            chunks.append(events.event("state", _encode(_shown(found)), mark))
        return b"".join(chunks)

    async def survive(self, error: PenstockError | Refusal) -> None:
        if isinstance(error, TransactionNotFoundError):
            raise FeedEnded("transaction-removed", str(error)) from None
        await super().survive(error)


@asynccontextmanager
async def _followed(
    changes: AsyncIterator[Transaction],
) -> AsyncIterator[Callable[[float], Awaitable[Transaction | None]]]:
    """Gives a function that waits for the next change, for so many seconds; None: there was none.

    A wait that is over goes on with the next call, so that nothing is missed.
    """
    waiting: asyncio.Future[Transaction] | None = None

    async def take(timeout_s: float) -> Transaction | None:
        nonlocal waiting
        if waiting is None:
            waiting = asyncio.ensure_future(_next(changes))
        done, _ = await asyncio.wait((waiting,), timeout=timeout_s)
        if not done:
            return None
        found, waiting = waiting, None
        return found.result()

    try:
        yield take
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        close: Any = getattr(changes, "aclose", None)
        if close is not None:
            await close()


async def _next(changes: AsyncIterator[Transaction]) -> Transaction:
    try:
        return await anext(changes)
    except StopAsyncIteration:
        # It ends by itself only when it was released.
        raise stopping() from None


def _shown(found: Transaction, **changes: Any) -> Transaction:
    """Without what is large and does not change."""
    return msgspec.structs.replace(found, input=None, trail=[], notified_ms=None, **changes)


def _mark(found: Transaction) -> str:
    return hashlib.sha256(_encode(_shown(found))).hexdigest()[:_ID_DIGITS]
