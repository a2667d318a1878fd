"""What is done to answers on their way out: compression, and leave for other sites' scripts (CORS).

Rules: an answer is compressed only where that pays (long enough, of a kind that shrinks, asked for by the
client); a browser of a site that is not listed gets no word about what it might do. Both look at a request's
headers and at nothing else; neither knows routes or statuses.

On the path of every request: one comparison for compression, one header lookup for CORS.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from penstock.gateway.config.surroundings import CompressionConfig, CorsConfig
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Headers, Response

if sys.version_info >= (3, 14):
    from compression.zstd import compress as zstd_compress
else:
    from backports.zstd import compress as zstd_compress

Coding: TypeAlias = Literal["zstd", "gzip"]

# ------------------------------------------------------------------------- compression

#: Longer than any answer: nothing is compressed.
_NEVER: Final = sys.maxsize
#: From here on a thread compresses: on the loop it would hold up everybody for a millisecond or more.
_THREAD_FROM_BYTES: Final = 256 * 1024
#: Both chosen for JSON: higher levels cost several times as much and save a few per cent.
_ZSTD_LEVEL: Final = 3
_GZIP_LEVEL: Final = 5
#: zlib's way of saying "with the header and trailer of gzip".
_GZIP_WINDOW: Final = 31

_VARY_ENCODING: Final = (b"vary", b"accept-encoding")
#: Kinds of content that are compressed already, or must not be held back by a compressor.
_INCOMPRESSIBLE: Final = (
    b"text/event-stream",
    b"image/",
    b"audio/",
    b"video/",
    b"font/woff",
    b"application/gzip",
    b"application/zip",
    b"application/zstd",
)


class Compression:
    """Compresses whole answers; streams pass by."""

    def __init__(self, config: CompressionConfig) -> None:
        self._gzip = config.gzip
        self._zstd = config.zstd
        #: the length from which :meth:`squeeze` is worth a call
        self.min_bytes: int = config.min_bytes if config.gzip or config.zstd else _NEVER

    async def squeeze(
        self, request: Request, body: bytes, headers: list[tuple[bytes, bytes]]
    ) -> bytes | None:
        """The compressed body, and ``headers`` say so; None if it should be sent as it is."""
        if not body or not _is_compressible(headers):
            return None
        headers.append(_VARY_ENCODING)
        accepted = request.header(b"accept-encoding")
        coding = choose_coding(accepted, self._zstd, self._gzip) if accepted else None
        if coding is None:
            return None
        deflate = _zstd if coding == "zstd" else _gzip
        if len(body) > _THREAD_FROM_BYTES:
            squeezed = await asyncio.to_thread(deflate, body)
        else:
            squeezed = deflate(body)
        if len(squeezed) >= len(body):
            return None
        _weaken_etag(headers)
        headers.append((b"content-encoding", coding.encode()))
        return squeezed


# The same few texts come again and again: one for each kind of client.
@lru_cache(maxsize=256)
def choose_coding(accepted: str, has_zstd: bool, has_gzip: bool) -> Coding | None:
    """What an ``Accept-Encoding`` asks for, of what we have; the better one where it does not care."""
    weights: dict[str, float] = {}
    for item in accepted.split(","):
        name, _, parameters = item.partition(";")
        weights.setdefault(name.strip().lower(), _weight(parameters))
    for_others = weights.get("*", 0.0)
    zstd = weights.get("zstd", for_others) if has_zstd else 0.0
    gzip = weights.get("gzip", weights.get("x-gzip", for_others)) if has_gzip else 0.0
    best = max(zstd, gzip)
    # Uncompressed is preferred only by somebody who says so.
    if best <= 0.0 or best < weights.get("identity", 0.0):
        return None
    return "zstd" if zstd >= gzip else "gzip"


def _weight(parameters: str) -> float:
    """The ``q`` of one coding: 1 without, 0 (not wanted) if it makes no sense."""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
            return weight if 0.0 <= weight <= 1.0 else 0.0
    return 1.0


def _is_compressible(headers: list[tuple[bytes, bytes]]) -> bool:
    for name, value in headers:
        if name == b"content-encoding" or (name == b"content-type" and value.startswith(_INCOMPRESSIBLE)):
            return False
        if name == b"cache-control" and b"no-transform" in value:
            return False
    return True


def _weaken_etag(headers: list[tuple[bytes, bytes]]) -> None:
    """These are not the bytes that the tag was made for: from now on it says "the same content" only."""
    for at, (name, value) in enumerate(headers):
        if name == b"etag" and not value.startswith(b"W/"):
            headers[at] = (name, b"W/" + value)


def _zstd(body: bytes) -> bytes:
    return zstd_compress(body, _ZSTD_LEVEL)


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, _GZIP_LEVEL, _GZIP_WINDOW)


# ------------------------------------------------------------------------- other sites

_ANY: Final = "*"
_VARY_ORIGIN: Final = (b"vary", b"origin")
_VARY_PREFLIGHT: Final = (
    b"vary",
    b"origin, access-control-request-method, access-control-request-headers",
)
_EXPOSED: Final = (
    b"access-control-expose-headers",
    b"ETag, Link, Location, Retry-After, Stream-First-Offset, Stream-Next-Offset, Stream-Up-To-Date",
)
_METHODS: Final = (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE")
_CREDENTIALS: Final = (b"access-control-allow-credentials", b"true")


class Cors:
    """Which other sites' scripts may call, and what they may see of the answers."""

    def __init__(self, config: CorsConfig) -> None:
        self._credentials: Headers = (_CREDENTIALS,) if config.credentials else ()
        self._max_age = (b"access-control-max-age", b"%d" % (config.max_age_ms // 1000))
        self._allowed_headers = (
            None if _ANY in config.headers else ", ".join(config.headers).encode("latin-1")
        )
        self._allows_any = _ANY in config.origins
        # Browsers do not take "*" together with credentials: then the origin itself is named.
        self._names_origin = config.credentials or not self._allows_any
        self._answers = {origin: self._answer_for(origin) for origin in config.origins if origin != _ANY}
        self._to_anybody = self._answer_for(_ANY)
        self._to_nobody: Headers = (_VARY_ORIGIN,)

    def headers(self, request: Request) -> Headers:
        """What goes with an answer."""
        if not self._names_origin:
            return self._to_anybody
        origin = request.header(b"origin")
        if origin is None:
            return self._to_nobody
        if self._allows_any:
            return self._answer_for(origin)
        return self._answers.get(origin, self._to_nobody)

    def preflight(self, request: Request) -> Response | None:
        """The answer to a browser that asks first; None if this is something else."""
        if request.scope["method"] != "OPTIONS":
            return None
        origin = request.header(b"origin")
        if origin is None or request.header(b"access-control-request-method") is None:
            return None
        if not self._allows_any and origin not in self._answers:
            return Response(204, b"", (_VARY_PREFLIGHT,))
        named = origin.encode("latin-1") if self._names_origin else b"*"
        headers = [
            _VARY_PREFLIGHT,
            (b"access-control-allow-origin", named),
            *self._credentials,
            _METHODS,
            self._max_age,
        ]
        allowed = self._allowed_headers
        if allowed is None:
            allowed = (request.header(b"access-control-request-headers") or "").encode("latin-1")
        if allowed:
            headers.append((b"access-control-allow-headers", allowed))
        return Response(204, b"", headers)

    def _answer_for(self, origin: str) -> Headers:
        allowed = (b"access-control-allow-origin", origin.encode("latin-1"))
        if not self._names_origin:
            return (allowed, _EXPOSED)
        return (allowed, *self._credentials, _EXPOSED, _VARY_ORIGIN)
