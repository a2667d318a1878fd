"""Schedules: transactions that are started by time. For operators.

=======  ====================================  ==========================================
method   path below ``/v1/schedules``          answer
=======  ====================================  ==========================================
GET                                            200, by name, by pages
GET      ``/{schedule}``                       200, and when it fires
PUT      the same                              200, it is this now
DELETE   the same                              204; what it has started goes on
POST     ``…/pause`` ``/resume``               200
POST     ``…/run``                             202, a transaction was started besides
=======  ====================================  ==========================================

When a schedule fires is known to ``penstock.transactions.schedules`` alone; workers start what is due.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.errors import BackpressureError
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1.channel_requests import next_link, page_of
from penstock.gateway.v1.documents import Body, Doc, Reply
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE, cursor, read_json, to_cursor, whole_number
from penstock.gateway.v1.transaction_documents import BAD, CURSOR, LIMIT, NEXT_PAGE, Name, Priority
from penstock.gateway.v1.transaction_requests import admit_operator, location, service_of, too_many
from penstock.transactions import Schedule
from penstock.transactions.model import DEFAULT_OWNER
from penstock.transactions.schedules.model import CatchUp, ScheduleInfo

SCHEDULES: Final = "/v1/schedules"
SCHEDULE: Final = SCHEDULES + "/{schedule}"
#: Fires that are foretold.
_NEXT: Final = 5

# ------------------------------------------------------------------------- bodies and answers


class ScheduleWish(msgspec.Struct, forbid_unknown_fields=True):
    """Exactly one of ``cron``, ``every_ms`` and ``at_ms``."""

    pipeline: Name
    input: Any = None
    owner: Name = DEFAULT_OWNER
    cron: Annotated[str, Meta(max_length=200)] | None = None
    every_ms: int | None = None
    at_ms: int | None = None
    #: of ``cron``
    timezone: Annotated[str, Meta(max_length=100)] = "UTC"
    #: fires that nobody was there for: none, the latest alone, each
    catch_up: CatchUp = "one"
    is_paused: bool = False
    priority: Priority | None = None
    metadata: Any = None


class ScheduleState(msgspec.Struct):
    schedule: Schedule
    #: null: there is none, or it is paused
    next_ms: int | None
    #: the last fire that was dealt with
    fired_ms: int | None
    #: transactions that it has started, and the last of them
    fires: int
    transaction: str | None
    #: why the last fire started none; empty if it did
    error: str


class ScheduleDetail(msgspec.Struct):
    state: ScheduleState
    #: the next fires, paused or not
    fires_ms: list[int]


class SchedulePage(msgspec.Struct):
    schedules: list[ScheduleState]
    cursor: str | None


class ScheduleRun(msgspec.Struct):
    #: the id of the transaction
    transaction: str


_TAG: Final = "schedules"
_NONE: Final = {404: "There is no such schedule."}
_STATED: Final = {200: Reply("As it is then.", ScheduleState)}
_LIST: Final = Doc(
    _TAG,
    "List schedules",
    {200: Reply("By name.", SchedulePage, headers=NEXT_PAGE)},
    parameters=(LIMIT, CURSOR),
    refusals=BAD,
    scope="transactions:*",
)
_LOOK: Final = Doc(
    _TAG,
    "Look at a schedule",
    {200: Reply("And when it fires.", ScheduleDetail)},
    refusals={**BAD, **_NONE},
    scope="transactions:*",
)
_PUT: Final = Doc(
    _TAG,
    "Save a schedule",
    _STATED,
    "The same timing again changes no fire.",
    body=Body(ScheduleWish),
    refusals={**BAD, 429: "There are too many schedules, or this one changes all the time."},
    scope="transactions:*",
)
_DELETE: Final = Doc(
    _TAG,
    "Remove a schedule",
    {204: Reply("What it has started goes on.")},
    refusals={**BAD, **_NONE},
    scope="transactions:*",
)
_PAUSE: Final = Doc(
    _TAG,
    "Pause a schedule",
    _STATED,
    "It fires no more until it is resumed.",
    refusals={**BAD, **_NONE},
    scope="transactions:*",
)
_RESUME: Final = Doc(
    _TAG,
    "Resume a schedule",
    _STATED,
    "It goes on with the next fire from now.",
    refusals={**BAD, **_NONE},
    scope="transactions:*",
)
_RUN: Final = Doc(
    _TAG,
    "Start now what a schedule starts",
    {202: Reply("It is started.", ScheduleRun, headers={"Location": "The transaction."})},
    refusals={**BAD, 404: "There is no such schedule, or no such pipeline."},
    scope="transactions:*",
)

# ------------------------------------------------------------------------- routes


class ScheduleRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._schedules = service_of(services).facility.schedules

    def routes(self) -> list[Route]:
        table = (
            ("GET", SCHEDULES, self.list, _LIST),
            ("GET", SCHEDULE, self.look, _LOOK),
            ("PUT", SCHEDULE, self.put, _PUT),
            ("DELETE", SCHEDULE, self.delete, _DELETE),
            ("POST", SCHEDULE + "/pause", self.pause, _PAUSE),
            ("POST", SCHEDULE + "/resume", self.resume, _RESUME),
            ("POST", SCHEDULE + "/run", self.run, _RUN),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    async def list(self, request: Request) -> Response:
        await admit_operator(self._services, request)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        found = {info.schedule.name: info for info in await self._schedules.list()}
        names, last = page_of(sorted(found), cursor(request, str, ""), limit)
        following = None if last is None else to_cursor(last)
        headers = [next_link(request, following)] if following else ()
        return answer(SchedulePage([_state(found[name]) for name in names], following), headers=headers)

    async def look(self, request: Request) -> Response:
        info = await self._info(request)
        fires = await self._schedules.next_times(info.schedule.name, _NEXT)
        return answer(ScheduleDetail(_state(info), [*fires]))

    async def put(self, request: Request) -> Response:
        await admit_operator(self._services, request)
        wish = await read_json(request, ScheduleWish)
        given = {name: getattr(wish, name) for name in wish.__struct_fields__}
        schedule = Schedule(request.params["schedule"], given.pop("pipeline"), **given)
        try:
            return answer(_state(await self._schedules.put(schedule)))
        except BackpressureError as error:
            raise too_many(error) from None

    async def delete(self, request: Request) -> Response:
        info = await self._info(request)
        await self._schedules.remove(info.schedule.name)
        return Response(204, b"", ())

    async def pause(self, request: Request) -> Response:
        info = await self._info(request)
        return answer(_state(await self._schedules.pause(info.schedule.name)))

    async def resume(self, request: Request) -> Response:
        info = await self._info(request)
        return answer(_state(await self._schedules.resume(info.schedule.name)))

    async def run(self, request: Request) -> Response:
        info = await self._info(request)
        try:
            started = await self._schedules.run_now(info.schedule.name)
        except BackpressureError as error:
            raise too_many(error) from None
        return answer(ScheduleRun(started.id), 202, [location(request, "transactions", started.id)])

    async def _info(self, request: Request) -> ScheduleInfo:
        await admit_operator(self._services, request)
        name = request.params["schedule"]
        info = await self._schedules.get(name)
        if info is None:
            raise Refusal(404, "schedule-not-found", f"there is no schedule {name!r}: put it first")
        return info


def _state(info: ScheduleInfo) -> ScheduleState:
    return ScheduleState(info.schedule, info.next_ms, info.fired_ms, info.fires, info.transaction, info.error)
