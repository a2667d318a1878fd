"""Pipelines: drafts, versions that never change, and which version is started.

=======  ==============================================  ===========================================
method   path below ``/v1/pipelines``                    answer
=======  ==============================================  ===========================================
GET                                                      200, by pages
POST                                                     201, an exported version was taken
GET      ``/{pipeline}``                                 200, its versions
GET      ``/{pipeline}/draft``                           200, the definition
PUT      the same                                        200, it is saved
DELETE   the same                                        204
POST     ``/{pipeline}/commit``                          201, the draft is a version
POST     ``/{pipeline}/deactivate``                      200, it cannot be started any more
GET      ``/{pipeline}/diff?from=…&to=…``                200, line by line
GET      ``/{pipeline}/versions/{version}``              200, the definition
DELETE   the same                                        204; 409 while it is active or in use
GET      ``/{pipeline}/versions/{version}/export``       200, for another store
POST     ``/{pipeline}/versions/{version}/activate``     200, it is what is started from now on
POST     ``/{pipeline}/versions/{version}/clone``        200, it is the draft
=======  ==============================================  ===========================================

Definitions may hold what is not for everybody, so reading them needs a credential, too. What a pipeline is,
and what is wrong with one, is known to ``penstock.transactions.pipelines`` alone.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from penstock.errors import DefinitionError, UnknownPipelineError, UsageError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1 import pipeline_documents as documents
from penstock.gateway.v1.bodies import read_optional_json
from penstock.gateway.v1.channel_requests import next_link, page_of
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE, bad, cursor, to_cursor, whole_number
from penstock.gateway.v1.transaction_requests import admit, admit_change, location, service_of
from penstock.transactions import Query
from penstock.transactions.pipelines import PipelineRegistry
from penstock.transactions.pipelines.codec import dump, parse, version_of
from penstock.transactions.pipelines.registry import DRAFT, PipelineInfo

PIPELINES: Final = "/v1/pipelines"
PIPELINE: Final = PIPELINES + "/{pipeline}"
_VERSION: Final = PIPELINE + "/versions/{version}"
_DIFF: Final = ((b"content-type", b"text/plain; charset=utf-8"),)
#: Pages of transactions that are looked through for those that run a version; if there are more, it stays.
_MAX_SEARCHED: Final = 100
_SEARCH_PAGE: Final = 1_000


class PipelineRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._facility = service_of(services).facility
        self._registry: PipelineRegistry = self._facility.registry

    def routes(self) -> list[Route]:
        table = (
            ("GET", PIPELINES, self.list, documents.LIST),
            ("POST", PIPELINES, self.import_, documents.IMPORT),
            ("GET", PIPELINE, self.look, documents.LOOK),
            ("GET", PIPELINE + "/draft", self.draft, documents.DRAFT),
            ("PUT", PIPELINE + "/draft", self.save_draft, documents.SAVE_DRAFT),
            ("DELETE", PIPELINE + "/draft", self.discard_draft, documents.DISCARD_DRAFT),
            ("POST", PIPELINE + "/commit", self.commit, documents.COMMIT),
            ("POST", PIPELINE + "/deactivate", self.deactivate, documents.DEACTIVATE),
            ("GET", PIPELINE + "/diff", self.diff, documents.DIFF),
            ("GET", _VERSION, self.version, documents.VERSION),
            ("DELETE", _VERSION, self.delete_version, documents.DELETE_VERSION),
            ("GET", _VERSION + "/export", self.export, documents.EXPORT),
            ("POST", _VERSION + "/activate", self.activate, documents.ACTIVATE),
            ("POST", _VERSION + "/clone", self.clone, documents.CLONE),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- looking

    async def list(self, request: Request) -> Response:
        await admit(self._services, request, Action.READ_PIPELINES)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        names, last = page_of(await self._registry.names(), cursor(request, str, ""), limit)
        found = await asyncio.gather(*(self._registry.get(name) for name in names))
        following = None if last is None else to_cursor(last)
        summaries = [
            documents.PipelineSummary(info.name, info.active, info.draft is not None, len(info.versions))
            for info in found
            if info is not None  # somebody deleted it meanwhile
        ]
        headers = [next_link(request, following)] if following else ()
        return answer(documents.PipelinePage(summaries, following), headers=headers)

    async def look(self, request: Request) -> Response:
        await admit(self._services, request, Action.READ_PIPELINES)
        return await self._state(request.params["pipeline"])

    async def diff(self, request: Request) -> Response:
        await admit(self._services, request, Action.READ_PIPELINES)
        for name in ("from", "to"):
            if not request.query.get(name):
                raise bad(name, "a version, or draft", "nothing")
        old, new = request.query["from"], request.query["to"]
        text = await self._registry.diff(request.params["pipeline"], old, new)
        return Response(200, text.encode(), _DIFF)

    # ------------------------------------------------------------------------- drafts

    async def draft(self, request: Request) -> Response:
        await admit(self._services, request, Action.READ_PIPELINES)
        info = await self._info(request.params["pipeline"])
        if info.draft is None:
            raise _no_draft(info.name)
        return Response(200, dump(info.draft))

    async def save_draft(self, request: Request) -> Response:
        await admit_change(self._services, request, Action.WRITE_PIPELINES)
        name = request.params["pipeline"]
        pipeline = parse(_named(await request.body(), name))
        if pipeline.name != name:
            raise bad("name", f"{name!r}, as in the path", pipeline.name)
        await self._registry.save_draft(pipeline)
        return answer(documents.PipelineVersion(name, version_of(pipeline)))

    async def discard_draft(self, request: Request) -> Response:
        await admit_change(self._services, request, Action.WRITE_PIPELINES)
        info = await self._info(request.params["pipeline"])
        if info.draft is None:
            raise _no_draft(info.name)
        await self._registry.discard_draft(info.name)
        return Response(204, b"", ())

    async def commit(self, request: Request) -> Response:
        caller = await admit_change(self._services, request, Action.WRITE_PIPELINES)
        name = request.params["pipeline"]
        wish = await read_optional_json(request, documents.CommitWish)
        if (await self._info(name)).draft is None:
            raise _no_draft(name)
        version = await self._registry.commit(name, wish.comment, by=caller.principal.name)
        if wish.activate:
            await self._registry.activate(name, version)
        made = location(request, "pipelines", name, "versions", version)
        return answer(documents.PipelineVersion(name, version), 201, [made])

    # ------------------------------------------------------------------------- versions

    async def version(self, request: Request) -> Response:
        await admit(self._services, request, Action.READ_PIPELINES)
        return Response(200, dump(await self._registry.load(*_version(request))))

    async def delete_version(self, request: Request) -> Response:
        await admit_change(self._services, request, Action.WRITE_PIPELINES)
        try:
            await self._registry.delete_version(*_version(request), is_in_use=self._is_in_use)
        except UnknownPipelineError:
            raise
        except UsageError as error:
            raise Refusal(409, "version-in-use", str(error)) from None
        return Response(204, b"", ())

    async def activate(self, request: Request) -> Response:
        await admit_change(self._services, request, Action.WRITE_PIPELINES)
        name, version = _version(request)
        await self._registry.activate(name, version)
        return await self._state(name)

    async def deactivate(self, request: Request) -> Response:
        await admit_change(self._services, request, Action.WRITE_PIPELINES)
        name = request.params["pipeline"]
        await self._info(name)
        await self._registry.deactivate(name)
        return await self._state(name)

    async def clone(self, request: Request) -> Response:
        await admit_change(self._services, request, Action.WRITE_PIPELINES)
        name, version = _version(request)
        await self._registry.clone_to_draft(name, version)
        return await self._state(name)

    async def export(self, request: Request) -> Response:
        await admit(self._services, request, Action.READ_PIPELINES)
        return Response(200, await self._registry.export(*_version(request)))

    async def import_(self, request: Request) -> Response:
        await admit_change(self._services, request, Action.WRITE_PIPELINES)
        body = await request.body()
        version = await self._registry.import_(body)
        name = str(msgspec.json.decode(body)["definition"]["name"])
        made = location(request, "pipelines", name, "versions", version)
        return answer(documents.PipelineVersion(name, version), 201, [made])

    # ------------------------------------------------------------------------- inside

    async def _info(self, name: str) -> PipelineInfo:
        info = await self._registry.get(name)
        if info is None:
            raise UnknownPipelineError(f"there is no pipeline {name!r}: save a draft of it first")
        return info

    async def _state(self, name: str) -> Response:
        info = await self._info(name)
        versions = [
            documents.VersionState(each.version, each.comment, each.by, each.committed_ms, each.is_active)
            for each in info.versions
        ]
        return answer(documents.PipelineState(info.name, info.active, info.draft is not None, versions))

    async def _is_in_use(self, name: str, version: str) -> bool:
        """Whether a transaction goes on that is pinned to it; also if there are too many to be sure."""
        place: str | None = None
        for _ in range(_MAX_SEARCHED):
            query = Query(pipeline=name, status="running")
            items, place = await self._facility.list(query, limit=_SEARCH_PAGE, cursor=place)
            if any(item.version == version for item in items):
                return True
            if place is None:
                return False
        return True


def _named(body: bytes, name: str) -> bytes:
    """A definition that does not say its name has that of the path."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body  # whoever parses it says what is wrong
    if not isinstance(found, dict):
        raise DefinitionError("definition: must be an object with steps, change it")
    return body if "name" in found else msgspec.json.encode({"name": name, **found})


def _version(request: Request) -> tuple[str, str]:
    name, version = request.params["pipeline"], request.params["version"]
    if version == DRAFT:
        raise UnknownPipelineError(
            f"pipeline {name!r} has no version {DRAFT!r}: its draft has a path of its own"
        )
    return name, version


def _no_draft(name: str) -> Refusal:
    return Refusal(404, "draft-not-found", f"pipeline {name!r} has no draft: save one, or clone a version")
