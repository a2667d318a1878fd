"""Gives out the console's files: ``/console/`` and everything below ``static/``.

Files are read once, when a worker starts. Each has an ETag, so that a browser asks and is told "unchanged"; a
new version is there with the next look. The policy (CSP) lets the pages load and call nothing but this
gateway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.v1.openapi import is_known
from penstock.gateway.v1.problems import refuse

_KINDS: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".md": b"text/plain; charset=utf-8",
}
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE: Final = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
)
_INDEX: Final = "index.html"


class ConsoleRoutes:
    """The files, as one worker holds them."""

    def __init__(self) -> None:
        self._files = dict(_read(files("penstock.gateway.console").joinpath("static")))

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/console", self.lead, refuse),
            Route("GET", "/console/{file...}", self.file, refuse),
        ]

    async def lead(self, request: Request) -> Response:
        """To the slash, without which the pages' relative addresses would miss."""
        return Response(307, b"", ((b"location", f"{request.path}/".encode()),))

    async def file(self, request: Request) -> Response:
        found = self._files.get(request.params["file"] or _INDEX)
        if found is None:
            raise Refusal(404, "no-such-file", "the console has no such file; it begins at /console/")
        body, kind, tag = found
        headers = ((b"content-type", kind), (b"etag", tag.encode()), *_SAFE)
        if is_known(request.header(b"if-none-match"), tag):
            return Response(304, b"", headers)
        return Response(200, body, headers)


def _read(folder: Traversable, below: str = "") -> Iterator[tuple[str, tuple[bytes, bytes, str]]]:
    for entry in folder.iterdir():
        name = below + entry.name
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
        elif (kind := _KINDS.get(name[name.rfind(".") :])) is not None:
            body = entry.read_bytes()
            yield name, (body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
