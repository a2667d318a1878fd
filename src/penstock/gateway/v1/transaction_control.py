"""What is done to a transaction that runs, sleeps, waits or has ended: control, and its switches.

=======  ===================================  ====================================================
method   path below ``…/{transaction}``       answer
=======  ===================================  ====================================================
POST     ``/cancel`` ``/retry`` ``/replay``   200, the transaction as it is then
         ``/wake`` ``/priority``
GET      ``/switches/{switch}``               200, its value; 404 if it is not set
PUT      the same                             200, whether that woke the transaction
DELETE   the same                             204; 404 if it was not set
=======  ===================================  ====================================================

Who did it, and why, is in the trail. 409: the transaction is not in a state for this.
"""

from __future__ import annotations

from penstock.gateway.auth.decisions import Action
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1 import transaction_documents as documents
from penstock.gateway.v1.bodies import read_optional_json
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import read_json
from penstock.gateway.v1.transaction_requests import admit, admit_change, seen_by, service_of, transaction_of
from penstock.gateway.v1.transactions import TRANSACTION

_SWITCH = TRANSACTION + "/switches/{switch}"


class TransactionControlRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._facility = service_of(services).facility

    def routes(self) -> list[Route]:
        table = (
            ("POST", TRANSACTION + "/cancel", self.cancel, documents.CANCEL),
            ("POST", TRANSACTION + "/retry", self.retry, documents.RETRY),
            ("POST", TRANSACTION + "/replay", self.replay, documents.REPLAY),
            ("POST", TRANSACTION + "/wake", self.wake, documents.WAKE),
            ("POST", TRANSACTION + "/priority", self.priority, documents.PRIORITY),
            ("GET", _SWITCH, self.get_switch, documents.GET_SWITCH),
            ("PUT", _SWITCH, self.put_switch, documents.PUT_SWITCH),
            ("DELETE", _SWITCH, self.delete_switch, documents.DELETE_SWITCH),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- control

    async def cancel(self, request: Request) -> Response:
        tx, owner, by = await self._subject(request)
        wish = await read_optional_json(request, documents.ControlWish)
        await self._facility.cancel(tx, wish.reason, owner=owner, by=by)
        return await self._now(tx, owner)

    async def retry(self, request: Request) -> Response:
        tx, owner, by = await self._subject(request)
        wish = await read_optional_json(request, documents.ControlWish)
        await self._facility.retry(tx, wish.reason, owner=owner, by=by)
        return await self._now(tx, owner)

    async def replay(self, request: Request) -> Response:
        tx, owner, by = await self._subject(request)
        wish = await read_optional_json(request, documents.ReplayWish)
        await self._facility.replay(tx, wish.step, wish.reason, owner=owner, by=by)
        return await self._now(tx, owner)

    async def wake(self, request: Request) -> Response:
        tx, owner, by = await self._subject(request)
        wish = await read_optional_json(request, documents.ControlWish)
        await self._facility.wake(tx, wish.reason, owner=owner, by=by)
        return await self._now(tx, owner)

    async def priority(self, request: Request) -> Response:
        tx, owner, by = await self._subject(request)
        wish = await read_json(request, documents.PriorityWish)
        await self._facility.set_priority(tx, wish.priority, owner=owner, by=by)
        return await self._now(tx, owner)

    # ------------------------------------------------------------------------- switches

    async def get_switch(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        tx, name = transaction_of(request), request.params["switch"]
        value = await self._facility.get_switch(tx, name, owner=seen_by(caller, request))
        if value is None:
            raise _not_set(name)
        return answer(documents.Switch(name, value))

    async def put_switch(self, request: Request) -> Response:
        tx, owner, by = await self._subject(request)
        wish = await read_json(request, documents.SwitchWish)
        name = request.params["switch"]
        outcome = await self._facility.set_switch(tx, name, wish.value, owner=owner, by=by)
        return answer(documents.SwitchSet(name, outcome))

    async def delete_switch(self, request: Request) -> Response:
        tx, owner, by = await self._subject(request)
        name = request.params["switch"]
        if await self._facility.set_switch(tx, name, None, owner=owner, by=by) == "nochange":
            raise _not_set(name)
        return Response(204, b"", ())

    # ------------------------------------------------------------------------- inside

    async def _subject(self, request: Request) -> tuple[str, str | None, str]:
        """Which transaction, of which owner it must be, and who does it."""
        caller = await admit_change(self._services, request, Action.CONTROL)
        return transaction_of(request), seen_by(caller, request), caller.principal.name

    async def _now(self, tx: str, owner: str | None) -> Response:
        return answer(await self._facility.get(tx, owner=owner))


def _not_set(name: str) -> Refusal:
    return Refusal(404, "switch-not-set", f"the transaction has no switch {name!r}")
