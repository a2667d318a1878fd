"""What operators of transactions look at and turn: limits, node groups, workers, numbers; webhooks' secrets.

=======  =============================================  ===========================================
method   path below ``/v1``                             answer
=======  =============================================  ===========================================
GET      ``/limits``                                    200, all of them
PUT      ``/limits/{kind}/{name}``                      200, it is this now
DELETE   the same                                       204
POST     ``…/pause`` ``/resume``                        200
GET      ``/node-groups``                               200, who waits, who runs
PUT      ``/node-groups/{node_group}``                  200, how many a worker should have at a time
GET      ``/workers``                                   200, those that are alive
GET      ``/transaction-overview``                      200, how much there is of everything
GET      ``/transaction-statistics``                    200, over time; owners see their own
GET      ``/transaction-webhook-secret``                200, what signs the owner's webhooks
POST     ``…/rotate``                                   200, a new one
=======  =============================================  ===========================================

``kind`` is ``pipelines``, ``owners`` or ``node-groups``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.gateway.auth.decisions import Action
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1 import operation_documents as documents
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import bad, read_json
from penstock.gateway.v1.transaction_requests import (
    admit,
    admit_change,
    admit_operator,
    moment_in,
    owner_for,
    seen_by,
    service_of,
)
from penstock.transactions.looking import GroupInfo
from penstock.transactions.model import Limit
from penstock.transactions.statistics import Histogram, Series, Slot
from penstock.transactions.workers_registry import WorkerInfo

_LIMIT: Final = "/v1/limits/{kind}/{name}"
_SECRET: Final = "/v1/transaction-webhook-secret"
#: Kinds of limits: what paths, marks of the store and the facility call them.
_KINDS: Final = {"pipelines": ("p", "pipeline"), "owners": ("o", "owner"), "node-groups": ("g", "node_group")}
_BY_MARK: Final = {mark: kind for kind, (mark, _) in _KINDS.items()}


class TransactionOperationRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._service = service_of(services)
        self._facility = self._service.facility

    def routes(self) -> list[Route]:
        table = (
            ("GET", "/v1/limits", self.limits, documents.LIMITS),
            ("PUT", _LIMIT, self.put_limit, documents.PUT_LIMIT),
            ("DELETE", _LIMIT, self.delete_limit, documents.DELETE_LIMIT),
            ("POST", _LIMIT + "/pause", self.pause, documents.PAUSE),
            ("POST", _LIMIT + "/resume", self.resume, documents.RESUME),
            ("GET", "/v1/node-groups", self.groups, documents.GROUPS),
            ("PUT", "/v1/node-groups/{node_group}", self.put_group, documents.PUT_GROUP),
            ("GET", "/v1/workers", self.workers, documents.WORKERS),
            ("GET", "/v1/transaction-overview", self.overview, documents.OVERVIEW),
            ("GET", "/v1/transaction-statistics", self.statistics, documents.STATISTICS),
            ("GET", _SECRET, self.secret, documents.SECRET),
            ("POST", _SECRET + "/rotate", self.rotate, documents.ROTATE),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- limits

    async def limits(self, request: Request) -> Response:
        await admit_operator(self._services, request)
        found = await self._facility.looking.limits()
        states = [
            _limit_state(_BY_MARK[mark], name, limit)
            for (mark, _, name), limit in ((key.partition(":"), limit) for key, limit in found.items())
            if mark in _BY_MARK
        ]
        return answer(documents.LimitList(states))

    async def put_limit(self, request: Request) -> Response:
        kind, name, subject = await self._subject(request)
        wish = await read_json(request, documents.LimitWish)
        limit = Limit(**{field: getattr(wish, field) for field in wish.__struct_fields__})
        await self._facility.limit(None if limit == Limit() else limit, **subject)
        return answer(_limit_state(kind, name, limit))

    async def delete_limit(self, request: Request) -> Response:
        _, _, subject = await self._subject(request)
        await self._facility.limit(None, **subject)
        return Response(204, b"", ())

    async def pause(self, request: Request) -> Response:
        kind, name, subject = await self._subject(request)
        await self._facility.pause(**subject)
        return await self._limit(kind, name)

    async def resume(self, request: Request) -> Response:
        kind, name, subject = await self._subject(request)
        await self._facility.resume(**subject)
        return await self._limit(kind, name)

    async def _subject(self, request: Request) -> tuple[str, str, dict[str, Any]]:
        """The kind and the name of a limit, and both as the facility takes them."""
        await admit_operator(self._services, request)
        kind, name = request.params["kind"], request.params["name"]
        if kind not in _KINDS:
            raise Refusal(404, "limit-not-found", f"kind must be one of {', '.join(_KINDS)}, not {kind!r}")
        return kind, name, {_KINDS[kind][1]: name}

    async def _limit(self, kind: str, name: str) -> Response:
        limits = await self._facility.looking.limits()
        return answer(_limit_state(kind, name, limits.get(f"{_KINDS[kind][0]}:{name}", Limit())))

    # ------------------------------------------------------------------------- groups and workers

    async def groups(self, request: Request) -> Response:
        await admit_operator(self._services, request)
        wishes, workers = await self._facility.workers.wishes(), await self._facility.workers.list()
        groups = await self._facility.looking.groups()
        return answer(documents.NodeGroupList(group_states(groups, workers, wishes)))

    async def put_group(self, request: Request) -> Response:
        await admit_operator(self._services, request)
        wish = await read_json(request, documents.NodeGroupWish)
        name = request.params["node_group"]
        await self._facility.workers.set_concurrency(name, wish.concurrency)
        return answer(documents.NodeGroupWished(name, wish.concurrency))

    async def workers(self, request: Request) -> Response:
        await admit_operator(self._services, request)
        return answer(documents.WorkerList(await self._facility.workers.list()))

    # ------------------------------------------------------------------------- numbers

    async def overview(self, request: Request) -> Response:
        await admit_operator(self._services, request)
        found = await self._facility.looking.overview()
        return answer(documents.TransactionOverview(**found._asdict()))

    async def statistics(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.LOOK)
        by: Any = request.query.get("by")
        if by == "owner" and not caller.sees_all:
            raise bad("by", "pipeline or node_group", by)
        level: Any = request.query.get("level", "60s")
        series = await self._facility.statistics.read(
            level,
            pipeline=request.query.get("pipeline"),
            node_group=request.query.get("node_group"),
            owner=seen_by(caller, request),
            by=by,
            since_ms=moment_in(request, "since"),
        )
        return answer(statistics_of(series))

    # ------------------------------------------------------------------------- secrets

    async def secret(self, request: Request) -> Response:
        caller = await admit(self._services, request, Action.CONTROL)
        owner = owner_for(caller, request.query.get("owner"))
        return answer(documents.WebhookSecret(owner, await self._service.receivers.secret_of(owner)))

    async def rotate(self, request: Request) -> Response:
        caller = await admit_change(self._services, request, Action.CONTROL)
        owner = owner_for(caller, request.query.get("owner"))
        return answer(documents.WebhookSecret(owner, await self._service.receivers.rotate(owner)))


def _limit_state(kind: str, name: str, limit: Limit) -> documents.LimitState:
    return documents.LimitState(
        kind=kind,
        name=name,
        is_paused=limit.is_paused,
        concurrency=limit.concurrency,
        rate=limit.rate,
        burst=limit.burst,
        max_queued=limit.max_queued,
    )


def group_states(
    groups: Iterable[GroupInfo], workers: Iterable[WorkerInfo], wishes: Mapping[str, int]
) -> list[documents.NodeGroupState]:
    """Node groups with who works for them, and what is wished of those."""
    counts = Counter(group for worker in workers for group in worker.node_groups)
    return [
        documents.NodeGroupState(
            name=group.name,
            admin=group.admin,
            out=group.out,
            in_=group.in_,
            held=group.held,
            running=group.running,
            is_paused=group.is_paused,
            oldest_ms=group.oldest_ms,
            workers=counts[group.name],
            concurrency=wishes.get(group.name),
        )
        for group in groups
    ]


def statistics_of(series: Series) -> documents.TransactionStatistics:
    return documents.TransactionStatistics(
        level=series.level,
        now_ms=series.now_ms,
        seconds=series.seconds,
        total=_figures(series.total),
        slots=[_figures(slot) for slot in series.slots],
        parts={name: _figures(part.total) for name, part in sorted(series.parts.items())},
    )


def _figures(slot: Slot) -> documents.SlotFigures:
    return documents.SlotFigures(
        start_ms=slot.start_s * 1_000,
        queued=slot.queued,
        started=slot.started,
        retried=slot.retried,
        lost=slot.lost,
        ended=dict(sorted(slot.ended.items())),
        wait=_durations(slot.wait),
        latency=_durations(slot.latency),
    )


def _durations(histogram: Histogram) -> documents.DurationFigures | None:
    if not histogram.count:
        return None
    quantiles = (histogram.quantile(q) for q in (0.5, 0.95, 0.99))
    return documents.DurationFigures(histogram.count, histogram.mean_ms, *quantiles)
