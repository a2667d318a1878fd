"""The head of a request, once it is complete: whether it may be served, and as what.

Pure functions of what was received. What two readers might take in different ways is refused, so that nobody
in front of this server can be made to see another request than it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import httptools

#: Headers of one request; beyond this somebody probes hash tables.
HEADER_COUNT: Final = 256

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_SLASH: Final = ord("/")
_OFFER: Final = (b"upgrade", b"http2-settings")


class Fault(NamedTuple):
    """Why something is refused."""

    status: int
    #: a word for metrics
    reason: str
    #: a sentence for people
    sentence: str


_VERSION: Final = Fault(505, "version", "this server speaks HTTP/1.1")
_HOST: Final = Fault(400, "host", "a request needs exactly one Host header")
_ENCODING: Final = Fault(501, "encoding", "chunked is the only transfer encoding, in HTTP/1.1")
_LONG_ADDRESS: Final = Fault(414, "header_size", "the address is too long")
_LONG_HEADERS: Final = Fault(431, "header_size", "the headers are too long")


def fault_of(version: str, hosts: int, transfer_encoding: bytes, header_count: int) -> Fault | None:
    """What is wrong with a head, apart from its size."""
    if version == "1.1":
        if hosts != 1:
            return _HOST
        if transfer_encoding and transfer_encoding.strip().lower() != b"chunked":
            return _ENCODING
    elif version != "1.0":
        return _VERSION
    elif transfer_encoding:
        return _ENCODING
    elif hosts > 1:
        return _HOST
    return _LONG_HEADERS if header_count > HEADER_COUNT else None


def fault_of_size(url: bytes, limit_bytes: int) -> Fault:
    """What to say about a head that is too big."""
    return _LONG_ADDRESS if len(url) > limit_bytes // 2 else _LONG_HEADERS


def size_bytes(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def split_url(url: bytes, method: str) -> tuple[bytes, bytes]:
    """Path and query of a request line's address."""
    if url[0] == _SLASH and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    if method == "CONNECT":
        return b"/", b""
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""


def make_scope(
    method: str,
    version: str,
    url: bytes,
    headers: list[tuple[bytes, bytes]],
    scheme: str | None,
    client: tuple[str, int] | None,
    server: tuple[str, int | None] | None,
) -> dict[str, Any]:
    """What the application gets of a request, as ASGI names it."""
    path, query = split_url(url, method)
    text = path.decode("ascii")
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": version,
        "method": method,
        "scheme": scheme,
        "path": unquote(text) if "%" in text else text,
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": client,
        "server": server,
    }


def without_offer(method: str, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a head, as if it had not offered to speak something else."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method.encode(), url)]
    lines += [b"%b: %b\r\n" % pair for pair in headers if pair[0] not in _OFFER]
    return b"".join((*lines, b"\r\n"))


def plain_address(address: tuple[str, int] | None) -> tuple[str, int] | None:
    """An IPv4 address as such, where a socket of both families shows it inside an IPv6 address."""
    if address is not None and address[0].startswith("::ffff:") and "." in address[0]:
        return address[0][7:], address[1]
    return address
