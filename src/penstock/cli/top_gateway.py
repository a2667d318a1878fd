"""``penstock top`` of a gateway: asks its HTTP API for what it shows.

Rules: a credential is sent to the address that was given and nowhere else: redirections are not followed.
What this caller may not see, or the gateway does not have, is left out; without the overview there is nothing
to show, and the error says why.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.cli.top_figures import (
    Counts,
    Frame,
    JobState,
    Level,
    NodeGroup,
    Statistics,
    Store,
    StreamState,
    WorkerState,
    busiest_first,
)
from penstock.errors import AuthenticationError, ConfigError, ConnectionLostError, ProtocolError

T = TypeVar("T")

_TIMEOUT_S: Final = 10.0
_MOST_STREAMS: Final = 200


class _Overview(msgspec.Struct, kw_only=True):
    now_ms: int
    transactions: Counts | None = None
    statistics: Statistics | None = None
    node_groups: list[NodeGroup] = []
    store: Store | None = None


class _Workers(msgspec.Struct):
    workers: list[WorkerState] = []


class _Streams(msgspec.Struct):
    streams: list[StreamState] = []


class _Jobs(msgspec.Struct):
    jobs: list[JobState] = []


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class GatewaySource:
    """Looks at one gateway again and again."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.username or not parts.hostname:
            raise ConfigError("a gateway is named by http://host:port; give a token with --token")
        # The link that a server shows when it starts is an address, too.
        self._base = parts._replace(fragment="").geturl().rstrip("/").removesuffix("/console")
        found = parts.fragment.removeprefix("token=") if parts.fragment.startswith("token=") else None
        self._token = token or (unquote(found) if found else None)
        self._opener = urllib.request.build_opener(_NoRedirection)

    async def look(self, level: Level) -> Frame:
        overview, workers, streams, jobs = await asyncio.gather(
            self._get(f"/v1/overview?level={level}", _Overview, None),
            self._get("/v1/workers", _Workers, _Workers()),
            self._get(f"/v1/streams?details=true&limit={_MOST_STREAMS}", _Streams, _Streams()),
            self._get("/v1/jobs", _Jobs, _Jobs()),
        )
        return Frame(
            where=self._base,
            level=level,
            now_ms=overview.now_ms,
            transactions=overview.transactions,
            statistics=overview.statistics,
            node_groups=overview.node_groups,
            workers=workers.workers,
            streams=busiest_first(streams.streams),
            jobs=jobs.jobs,
            store=overview.store,
        )

    async def _get(self, path: str, kind: type[T], otherwise: T | None) -> T:
        """An answer; ``otherwise`` where there is none for this caller."""
        try:
            body = await asyncio.to_thread(self._read, path)
        except urllib.error.HTTPError as error:
            with error:
                if otherwise is not None and error.code in (401, 403, 404):
                    return otherwise
                if error.code in (401, 403):
                    raise AuthenticationError(
                        f"{self._base} asks for a credential that may look on: give --token"
                    ) from None
                raise ConnectionLostError(f"{self._base}{path} answers {error.code} {error.reason}") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise ConnectionLostError(f"{self._base} does not answer: {reason}") from None
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"{self._base} is no gateway of this version: {error}") from None

    def _read(self, path: str) -> bytes:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._base + path, headers=headers)
        with self._opener.open(request, timeout=_TIMEOUT_S) as response:
            body: bytes = response.read()
            return body
