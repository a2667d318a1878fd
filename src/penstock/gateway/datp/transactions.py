"""The routes of the DATP API, below ``/`` and below ``/datp/1.0/``.

=======  =========================================  =================================================
method   path                                       answer
=======  =========================================  =================================================
PUT      ``tx/start/{transactionType}``             200, the reply; 409 if the external id is taken
GET      ``tx/status/{txId}``                       200, the reply; 404 if there is none
GET      ``tx/statusByExternalId/{externalId}``     the same
=======  =========================================  =================================================

Body of a start: ``{"metadata": {"externalId", "poll", "webhook", "progressReports",
"pollReplyCancelsWebhook"}, "data"}``; whatever else ``metadata`` has is kept with the transaction. ``poll``
is ``short`` or ``long``; ``?reply=longpoll`` does the same for a status. A long poll waits for
:data:`LONG_POLL_MS`.

Rules: owners, scopes and limits are those of ``/v1/transactions``. Nothing here has a meaning of its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from penstock.errors import UsageError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.auth.owners import Caller
from penstock.gateway.datp import documents
from penstock.gateway.datp.answers import answer, refuse
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.polls import while_connected
from penstock.gateway.services import Services
from penstock.gateway.v1.reading import bad, read_json
from penstock.gateway.v1.transaction_requests import admit, admit_change, json_of, service_of, start
from penstock.transactions import keys
from penstock.transactions.model import Transaction

LONG_POLL_MS: Final = 15_000
_BELOW: Final = ("", "/datp/1.0")
_LONG: Final = frozenset({"long", "longpoll"})
_SHORT: Final = frozenset({"", "short", "shortpoll"})


class _Poll(NamedTuple):
    is_long: bool
    webhook: str | None


class DatpRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._service = service_of(services)
        self._facility = self._service.facility
        self._long_poll_ms = min(LONG_POLL_MS, self._service.max_wait_ms)

    def routes(self) -> list[Route]:
        table = (
            ("PUT", "/tx/start/{transactionType}", self.start, documents.START),
            ("GET", "/tx/status/{txId}", self.status, documents.STATUS),
            ("GET", "/tx/statusByExternalId/{externalId}", self.status_by_external_id, documents.FIND),
        )
        return [
            Route(method, below + path, handler, refuse, doc)
            for below in _BELOW
            for method, path, handler, doc in table
        ]

    async def start(self, request: Request) -> Response:
        caller = await admit_change(self._services, request, Action.START)
        wish = await read_json(request, documents.DatpStart)
        metadata = wish.metadata
        poll = _poll_of(metadata)
        begun = await start(
            self._services,
            request,
            request.params["transactionType"],
            json_of("data", wish.data),
            owner=caller.owner,
            timeout_ms=self._long_poll_ms if poll.is_long else 0,
            external_id=_text(metadata, "externalId"),
            webhook=poll.webhook,
            webhook_progress=_flag(metadata, "progressReports"),
            poll_cancels_webhook=_flag(metadata, "pollReplyCancelsWebhook"),
            metadata=metadata or None,
        )
        return self._reply(begun.transaction)

    async def status(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        tx = request.params["txId"]
        try:
            keys.partition_of(tx)
        except UsageError as error:
            raise Refusal(404, "transaction-not-found", str(error)) from None
        return await self._status(request, caller, tx, None if caller.sees_all else caller.owner)

    async def status_by_external_id(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        found = await self._facility.find(request.params["externalId"], owner=caller.owner)
        return await self._status(request, caller, found.id, caller.owner)

    async def _status(self, request: Request, caller: Caller, tx: str, owner: str | None) -> Response:
        reply = request.query.get("reply", "")
        if reply not in _LONG | _SHORT:
            raise bad("reply", "longpoll or shortpoll", reply)
        await request.body()  # there is none; who has gone is heard behind it
        if reply in _LONG:
            waiting = self._facility.wait(
                tx, timeout_ms=self._long_poll_ms, owner=owner, is_reply=not caller.is_observer
            )
            return self._reply(await while_connected(self._services, request, waiting))
        return self._reply(await self._facility.get(tx, owner=owner))

    def _reply(self, found: Transaction) -> Response:
        status, body = self._service.converter.reply(found)
        return answer(body, status)


# ------------------------------------------------------------------------- values of requests


def _poll_of(metadata: dict[str, Any]) -> _Poll:
    """How the client wants to hear of the end. ``reply`` is an older name, and may be a URL, too."""
    webhook = _text(metadata, "webhook")
    name = "poll" if "poll" in metadata else "reply"
    wish = _text(metadata, name) or ""
    if name == "reply" and wish.startswith(("http://", "https://")):
        return _Poll(False, webhook or wish)
    if wish not in _LONG | _SHORT:
        raise bad(f"metadata.{name}", "short or long", wish)
    return _Poll(wish in _LONG, webhook)


def _text(metadata: dict[str, Any], name: str) -> str | None:
    value = metadata.get(name)
    if value is not None and not isinstance(value, str):
        raise bad(f"metadata.{name}", "text", msgspec.json.encode(value).decode())
    return value or None


def _flag(metadata: dict[str, Any], name: str) -> bool:
    value = metadata.get(name, False)
    if not isinstance(value, bool):
        raise bad(f"metadata.{name}", "true or false", msgspec.json.encode(value).decode())
    return value
