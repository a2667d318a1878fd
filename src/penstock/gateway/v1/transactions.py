"""Transactions: start, look, wait, list.

=======  ============================================  ============================================
method   path below ``/v1/transactions``               answer
=======  ============================================  ============================================
POST                                                   202, it is started; 200 if it has ended
GET                                                    200, newest first, by pages
GET      ``/{transaction}``                            200, as it is; with ``wait`` when it has ended
GET      ``/by-external-id/{external_id}``             the same
GET      ``/{transaction}/children``                   200, what its steps have started
GET      ``/{transaction}/steps/{step}``               200, what a step got and gave
=======  ============================================  ============================================

Control is in ``transaction_control``, followers are in ``transaction_events``. What transactions are and do
is known to ``penstock.transactions`` alone.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from penstock.errors import DuplicateError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.auth.owners import Caller
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import JSON, Refusal, Response, retry_after
from penstock.gateway.http.routing import Route
from penstock.gateway.polls import while_connected
from penstock.gateway.services import Services
from penstock.gateway.v1 import transaction_documents as documents
from penstock.gateway.v1.channel_requests import next_link
from penstock.gateway.v1.openapi import is_known
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE, bad, read_json, whole_number
from penstock.gateway.v1.transaction_requests import (
    RETRY_S,
    Begun,
    admit,
    admit_change,
    is_set,
    json_of,
    location,
    moment_in,
    moment_ms,
    owner_for,
    seen_by,
    service_of,
    start,
    transaction_of,
    waiting_ms,
)
from penstock.transactions import Query
from penstock.transactions.archive import ArchiveQuery
from penstock.transactions.model import Transaction

TRANSACTIONS: Final = "/v1/transactions"
TRANSACTION: Final = TRANSACTIONS + "/{transaction}"
_BY_EXTERNAL_ID: Final = TRANSACTIONS + "/by-external-id/{external_id}"
_REPLAYED: Final = (b"idempotent-replayed", b"true")
_TAG_DIGITS: Final = 32

_encode: Final = msgspec.json.Encoder().encode


class TransactionRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._service = service_of(services)
        self._facility = self._service.facility

    def routes(self) -> list[Route]:
        table = (
            ("POST", TRANSACTIONS, self.start, documents.START),
            ("GET", TRANSACTIONS, self.list, documents.LIST),
            ("GET", _BY_EXTERNAL_ID, self.find, documents.FIND),
            ("GET", TRANSACTION, self.look, documents.LOOK),
            ("GET", TRANSACTION + "/children", self.children, documents.CHILDREN),
            ("GET", TRANSACTION + "/steps/{step}", self.step, documents.STEP),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- starting

    async def start(self, request: Request) -> Response:
        caller = await admit_change(self._services, request, Action.START)
        wish = await read_json(request, documents.StartWish)
        key = _idempotency_key(request) if wish.external_id is None else None
        try:
            begun = await self._start(request, caller, wish, wish.external_id or key)
        except DuplicateError as error:
            if key is None:
                raise
            raise Refusal(
                422, "idempotency-key-reused", f"Idempotency-Key was used with another body: {error}"
            ) from None
        return _started(request, begun)

    async def _start(
        self, request: Request, caller: Caller, wish: documents.StartWish, external_id: str | None
    ) -> Begun:
        return await start(
            self._services,
            request,
            wish.pipeline,
            json_of("input", wish.input),
            owner=owner_for(caller, wish.owner),
            timeout_ms=waiting_ms(request, self._service.max_wait_ms),
            external_id=external_id,
            webhook=wish.webhook,
            webhook_progress=wish.webhook_progress,
            poll_cancels_webhook=wish.poll_cancels_webhook,
            metadata=json_of("metadata", wish.metadata),
            version=wish.version,
            priority=wish.priority,
            delay_ms=wish.delay_ms,
            at_ms=None if wish.at is None else moment_ms("at", wish.at),
            deadline_ms=wish.deadline_ms,
        )

    # ------------------------------------------------------------------------- looking

    async def look(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        return await self._answer(request, caller, transaction_of(request), seen_by(caller, request))

    async def find(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        owner = owner_for(caller, request.query.get("owner"))
        found = await self._facility.find(request.params["external_id"], owner=owner)
        return await self._answer(request, caller, found.id, owner)

    async def _answer(self, request: Request, caller: Caller, tx: str, owner: str | None) -> Response:
        timeout_ms = waiting_ms(request, self._service.max_wait_ms)
        with_trail = is_set(request, "trail")
        await request.body()  # there is none; who has gone is heard behind it
        if timeout_ms > 0:
            cancels_webhook = is_set(request, "cancel_webhook", default=True)
            waiting = self._facility.wait(
                tx,
                timeout_ms=timeout_ms,
                owner=owner,
                cancels_webhook=cancels_webhook,
                is_reply=not caller.is_observer,
            )
            found = await while_connected(self._services, request, waiting)
        if timeout_ms <= 0 or with_trail:
            found = await self._facility.get(tx, owner=owner, trail=with_trail)
        return tagged(request, found)

    async def children(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        tx = transaction_of(request)
        parent = await self._facility.get(tx, owner=seen_by(caller, request))
        found = [] if parent.is_archived else await self._facility.children(tx)
        return answer(documents.Children([*found]))

    async def step(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        tx, text = transaction_of(request), request.params["step"]
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise bad("step", "the number of a step", text)
        return answer(await self._facility.step_data(tx, int(text), owner=seen_by(caller, request)))

    # ------------------------------------------------------------------------- listing

    async def list(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        owner = seen_by(caller, request)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        cursor = request.query.get("cursor") or None
        items: list[Transaction]
        if is_set(request, "archived"):
            query = self._archive_query(request, owner, limit, cursor)
            items, following = await self._facility.search_archive(query)
        else:
            items, following = await self._facility.list(_query(request, owner), limit=limit, cursor=cursor)
        headers = [next_link(request, following)] if following else ()
        return answer(documents.TransactionPage(items, following), headers=headers)

    def _archive_query(
        self, request: Request, owner: str | None, limit: int, cursor: str | None
    ) -> ArchiveQuery:
        if self._facility.archive is None:
            raise Refusal(
                404,
                "archive-not-configured",
                "this gateway has no archive; see transactions.archiveDirectory",
            )
        for name in ("state", "node_group", "roots"):
            if name in request.query:
                raise bad(name, "left out where archived is true", request.query[name])
        return ArchiveQuery(
            owner=owner,
            status=request.query.get("status"),
            pipeline=request.query.get("pipeline"),
            external_id=request.query.get("external_id"),
            since_ms=moment_in(request, "since"),
            until_ms=moment_in(request, "until"),
            limit=limit,
            cursor=cursor,
        )


def _query(request: Request, owner: str | None) -> Query:
    given = request.query.get
    return Query(
        owner=owner,
        state=given("state"),
        status=given("status"),
        pipeline=given("pipeline"),
        node_group=given("node_group"),
        external_id=given("external_id"),
        since_ms=moment_in(request, "since"),
        until_ms=moment_in(request, "until"),
        roots_only=is_set(request, "roots"),
    )


# ------------------------------------------------------------------------- answers


def _idempotency_key(request: Request) -> str | None:
    """The key that makes repeating safe; it becomes the external id."""
    text = request.header(b"idempotency-key")
    if text is None:
        return None
    return text.strip().removeprefix('"').removesuffix('"')


def _started(request: Request, begun: Begun) -> Response:
    found = begun.transaction
    headers: list[Any] = [JSON, location(request, "transactions", found.id)]
    if not begun.is_new:
        headers.append(_REPLAYED)
    if not found.has_ended:
        headers.append(retry_after(RETRY_S))
    return Response(200 if found.has_ended else 202, _encode(found), headers)


def tagged(request: Request, found: Transaction) -> Response:
    """A transaction, or 304 if it is what the client has."""
    body = _encode(found)
    tag = f'"{hashlib.sha256(body).hexdigest()[:_TAG_DIGITS]}"'
    headers = [(b"etag", tag.encode())]
    if not found.has_ended:
        headers.append(retry_after(RETRY_S))
    if is_known(request.header(b"if-none-match"), tag):
        return Response(304, b"", headers)
    return Response(200, body, [JSON, *headers])
