"""The gateway's process and its store, for whoever looks after them.

=======  ============================  ============================================
method   path below ``/v1/server``     answer
=======  ============================  ============================================
GET                                    200, versions, memory, figures of the store
GET      ``/clients``                  200, connections to the store
GET      ``/slow-log``                 200, commands that took long
=======  ============================  ============================================

How figures are read is known to ``store_figures`` alone.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from penstock.client.targets import parse_url
from penstock.clock import Clock, SystemClock
from penstock.errors import CommandError
from penstock.gateway.config.model import RedisStoreConfig, StorageConfig
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.store_figures import StoreReader, StoreState, is_not_told
from penstock.gateway.v1 import server_documents as documents
from penstock.gateway.v1.observers import admit_observer
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import whole_number
from penstock.version import __version__

SERVER: Final = "/v1/server"
_STATM: Final = Path("/proc/self/statm")


class ServerRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services, reader: StoreReader, clock: Clock | None = None) -> None:
        self._services = services
        self._reader = reader
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic_s()

    def routes(self) -> list[Route]:
        table = (
            ("GET", SERVER, self.server, documents.SERVER),
            ("GET", SERVER + "/clients", self.clients, documents.CLIENTS),
            ("GET", SERVER + "/slow-log", self.slow_log, documents.SLOW_LOG),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    async def server(self, request: Request) -> Response:
        await admit_observer(self._services, request)
        state = await self._reader.state()
        nodes = [documents.NodeReport(node, sections) for node, sections in sorted(state.nodes.items())]
        return answer(
            documents.ServerState(
                version=__version__,
                python=platform.python_version(),
                pid=os.getpid(),
                uptime_s=int(self._clock.monotonic_s() - self._began_s),
                memory_bytes=_resident_bytes(),
                worker=self._services.worker,
                workers=self._services.config.http.workers,
                store=self._described(state),
                info=nodes[0].info,
                nodes=nodes if state.figures.kind == "cluster" else [],
            )
        )

    async def clients(self, request: Request) -> Response:
        await admit_observer(self._services, request)
        most = documents.MAX_CLIENTS
        limit = whole_number(request, "limit", most, 1, most)
        with _refusals():
            found = await self._reader.clients()
        return answer(documents.ClientList(len(found), found[:limit]))

    async def slow_log(self, request: Request) -> Response:
        await admit_observer(self._services, request)
        limit = whole_number(request, "limit", documents.SLOW, 1, documents.MAX_SLOW)
        with _refusals():
            return answer(documents.SlowLog(await self._reader.slow_commands(limit)))

    def _described(self, state: StoreState) -> documents.StoreDescription:
        return documents.StoreDescription(
            **msgspec.structs.asdict(state.figures),
            url=shown_url(next(iter(self._services.config.storages.values())), state.path),
            path=state.path,
            version=state.version,
            uptime_s=state.uptime_s,
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """What the store keeps to itself."""
    try:
        yield
    except CommandError as error:
        if not is_not_told(error):
            raise
        raise Refusal(404, "not-told", f"the store does not tell this gateway: {error}") from None


def shown_url(storage: StorageConfig, path: str | None) -> str:
    """A storage as ``penstock.open`` takes it, with stars for a password."""
    if isinstance(storage.chosen, RedisStoreConfig):
        return parse_url(storage.chosen.target_url).redacted
    return f"embedded:{quote(path or '')}"


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
