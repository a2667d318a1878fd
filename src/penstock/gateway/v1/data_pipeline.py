"""The data pipeline: its jobs, the tables of the lake, and some of their rows.

=======  ==========================  ============================================
method   path below ``/v1``          answer
=======  ==========================  ============================================
GET      ``/jobs``                   200, what the jobs of all runners do
GET      ``/lake``                   200, its tables; 404 if none is known
GET      ``/lake/{table}/rows``      200, some of the newest rows
=======  ==========================  ============================================

How jobs and lakes are read is known to ``job_states`` and ``lake_reading``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import ConfigError, LakeError, StoreFormatError, UsageError
from penstock.gateway.failures import unavailable
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.job_states import read_jobs
from penstock.gateway.lake_reading import LakeReader
from penstock.gateway.services import Services
from penstock.gateway.v1 import data_documents as documents
from penstock.gateway.v1.observers import admit_observer
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import whole_number


class DataPipelineRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lake = LakeReader(services.config.lake, services.config.transactions.archive_directory)

    def routes(self) -> list[Route]:
        table = (
            ("GET", "/v1/jobs", self.jobs, documents.JOBS),
            ("GET", "/v1/lake", self.lake, documents.LAKE),
            ("GET", "/v1/lake/{table}/rows", self.rows, documents.TABLE_ROWS),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    async def jobs(self, request: Request) -> Response:
        await admit_observer(self._services, request)
        return answer(documents.JobList(await read_jobs(self._services.store)))

    async def lake(self, request: Request) -> Response:
        await admit_observer(self._services, request)
        jobs = await read_jobs(self._services.store)
        with _refusals():
            path, tables = await self._lake.tables(jobs)
        states = [
            documents.LakeTableState(
                name=table.name,
                rows=table.rows,
                files=table.files,
                bytes=table.bytes,
                version=table.version,
                modified_ms=table.modified_ms,
                columns=[documents.LakeColumn(*column) for column in table.columns],
            )
            for table in tables
        ]
        return answer(documents.LakeState(str(path), states))

    async def rows(self, request: Request) -> Response:
        await admit_observer(self._services, request)
        limit = whole_number(request, "limit", documents.ROWS, 1, documents.MAX_ROWS)
        jobs = await read_jobs(self._services.store)
        with _refusals():
            sample = await self._lake.rows(jobs, request.params["table"], limit)
        return answer(documents.LakeRows(*sample))


@contextmanager
def _refusals() -> Iterator[None]:
    """What a lake refuses: as answers."""
    try:
        yield
    except (ConfigError, StoreFormatError) as error:
        raise Refusal(404, "no-lake", str(error)) from None
    except UsageError as error:
        raise Refusal(404, "table-not-found", str(error)) from None
    except LakeError as error:
        raise unavailable(str(error)) from None
