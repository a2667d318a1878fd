"""How the gateway is: for load balancers and people (``/v1/health``), and for scrapers (the metrics path).

Everybody learns whether the gateway can work; only administrators and observers learn more: storages, who
waits, webhooks, and which versions run. Workers know one another by a roll call: each that hears
``roll-call`` answers ``present``, and whoever asked collects answers for :data:`ROLL_CALL_S`.

Metrics name routes and storages, and need no token: scrapers have none. They are answered to addresses inside
``admin.auth.networks`` (private networks unless configured otherwise) and refused to all others.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Any, Final, Literal

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.errors import PenstockError
from penstock.gateway.auth.decisions import Action, Rejection, Resource
from penstock.gateway.auth.networks import Networks
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.transaction_figures import TransactionFigures
from penstock.gateway.v1.documents import Doc, Parameter, Reply
from penstock.gateway.v1.problems import answer, refuse
from penstock.version import __version__
from penstock.webhooks.model import QueueStatistics

#: How long workers have to answer a roll call.
ROLL_CALL_S: Final = 0.25
#: Workers of one roll call; more are not listed.
_MAX_WORKERS: Final = 1_024
_ADMIN: Final = Resource("admin")

State = Literal["ok", "starting", "stopping", "unavailable"]

# ------------------------------------------------------------------------- answers


class WorkerState(msgspec.Struct):
    id: str
    process_id: int
    version: str
    uptime_s: int
    waiting: int


class HealthDetail(msgspec.Struct):
    """``stores``: a word for each; ``waiting``: polls and followers of the worker that answers."""

    version: str
    uptime_s: int
    waiting: int
    stores: dict[str, Any]
    workers: list[WorkerState]
    webhooks: QueueStatistics | None


class Health(msgspec.Struct, omit_defaults=True):
    status: State
    #: only for administrators and observers
    detail: HealthDetail | None = None


_HEALTH: Final = Doc(
    "health",
    "Ask how the gateway is",
    {
        200: Reply("It can work.", Health),
        503: Reply("It cannot: it starts, stops, or too few storages answer.", Health),
    },
    "Needs no credential. Administrators and the scope `observe` get details.",
)
_METRICS: Final = Doc(
    "health",
    "Read metrics",
    {200: Reply("In Prometheus's format, or OpenMetrics if the scraper accepts it.", str, "text/plain")},
    "Only from the networks of administrators; no token is needed there.",
    (Parameter("Accept", "`application/openmetrics-text`, or anything.", place="header"),),
)


class HealthRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services, clock: Clock | None = None) -> None:
        self._services = services
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic_s()
        self._networks = Networks(map(str, services.config.admin.auth.networks))
        self._id = secrets.token_hex(8)
        #: roll calls under way: their names, and who answered
        self._calls: dict[str, dict[str, WorkerState]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        transactions = services.transactions
        self._figures = None if transactions is None else TransactionFigures(transactions.facility)
        services.control.on("roll-call", self._hear_call)
        services.control.on("present", self._hear_present)

    def routes(self) -> list[Route]:
        routes = [Route("GET", "/v1/health", self.health, refuse, _HEALTH)]
        if self._services.config.metrics.enabled:
            routes.append(Route("GET", self._services.config.metrics.path, self.metrics, refuse, _METRICS))
        return routes

    # ------------------------------------------------------------------------- health

    async def health(self, request: Request) -> Response:
        sees_details = await self._sees_details(request)
        status, stores = await self._status()
        detail = await self._detail(stores) if sees_details else None
        return answer(Health(status, detail), 200 if status == "ok" else 503)

    async def _sees_details(self, request: Request) -> bool:
        if request.header(b"authorization") is None:
            return False
        try:
            await self._services.access.admit(request, Action.ADMIN, _ADMIN)
        except PenstockError:
            return False  # whether it is well, everybody may know
        return True

    async def _status(self) -> tuple[State, dict[str, Any]]:
        life = self._services.life
        try:
            stores = await self._services.channels.probe()
        except PenstockError as error:
            names = self._services.config.storages
            return "unavailable", dict.fromkeys(names, f"{type(error).__name__}: {error}")
        if life.is_stopping:
            return "stopping", stores
        return ("ok" if life.is_ready else "starting"), stores

    async def _detail(self, stores: dict[str, Any]) -> HealthDetail:
        here = self._here()
        workers, statistics = await asyncio.gather(self._call_roll(here), self._statistics())
        return HealthDetail(here.version, here.uptime_s, here.waiting, stores, workers, statistics)

    async def _statistics(self) -> QueueStatistics | None:
        if self._services.webhooks is None:
            return None
        try:
            return await self._services.webhooks.queue.statistics()
        except PenstockError:
            return None

    # ------------------------------------------------------------------------- roll calls

    def _here(self) -> WorkerState:
        uptime_s = int(self._clock.monotonic_s() - self._began_s)
        return WorkerState(self._id, os.getpid(), __version__, uptime_s, self._services.waiting)

    async def _call_roll(self, here: WorkerState) -> list[WorkerState]:
        """Everybody who answers in time; at least this worker."""
        name = secrets.token_hex(8)
        present = self._calls[name] = {here.id: here}
        try:
            await self._services.control.tell("roll-call", {"call": name})
            await asyncio.sleep(ROLL_CALL_S)
        except PenstockError:
            pass  # the store is away: nobody can be asked
        finally:
            del self._calls[name]
        return sorted(present.values(), key=lambda worker: worker.id)

    def _hear_call(self, fields: dict[str, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._answer_call(str(fields.get("call", ""))))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer_call(self, name: str) -> None:
        news = {"call": name, "worker": msgspec.to_builtins(self._here())}
        try:
            await self._services.control.tell("present", news)
        except PenstockError:
            pass  # whoever asked learns nothing of this worker

    def _hear_present(self, fields: dict[str, Any]) -> None:
        present = self._calls.get(str(fields.get("call", "")))
        if present is None or len(present) >= _MAX_WORKERS:
            return
        worker = msgspec.convert(fields.get("worker"), WorkerState)
        present[worker.id] = worker

    # ------------------------------------------------------------------------- metrics

    async def metrics(self, request: Request) -> Response:
        if not self._networks.is_inside(request.peer):
            raise Refusal(
                403,
                f"auth-{Rejection.FORBIDDEN}",
                "metrics are for the networks of administrators; see admin.auth.networks",
            )
        more = () if self._figures is None else await self._figures.families()
        text, media = self._services.metrics.answer(request.header(b"accept"), more)
        return Response(200, text, ((b"content-type", media),))
