"""Which answers are compressed, how, and what is said about it."""

from __future__ import annotations

import asyncio
import gzip
import sys
import threading

import pytest

from penstock.gateway import shaping
from penstock.gateway.config.surroundings import CompressionConfig
from penstock.gateway.http.requests import Request
from penstock.gateway.shaping import Compression, choose_coding

if sys.version_info >= (3, 14):
    from compression.zstd import decompress
else:
    from backports.zstd import decompress

TEXT = b'{"hello":"world"}' * 200
JSON = (b"content-type", b"application/json")


def request(accepted: bytes | None) -> Request:
    headers = [] if accepted is None else [(b"accept-encoding", accepted)]
    return Request({"type": "http", "method": "GET", "headers": headers}, None, {}, 0)  # type: ignore[arg-type]


async def squeezed(
    accepted: bytes | None,
    *headers: tuple[bytes, bytes],
    body: bytes = TEXT,
    config: CompressionConfig | None = None,
) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
    listed = list(headers) or [JSON]
    return await Compression(config or CompressionConfig()).squeeze(request(accepted), body, listed), listed


async def test_zstd_is_preferred():
    body, headers = await squeezed(b"gzip, deflate, br, zstd")
    assert body is not None
    assert decompress(body) == TEXT
    assert headers == [JSON, (b"vary", b"accept-encoding"), (b"content-encoding", b"zstd")]


async def test_gzip_where_it_is_all_there_is():
    body, headers = await squeezed(b"gzip")
    assert body is not None
    assert gzip.decompress(body) == TEXT
    assert (b"content-encoding", b"gzip") in headers


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip;q=1, zstd;q=0.5", "gzip"),
        ("gzip;q=0.5, zstd;q=0.5", "zstd"),
        ("GZIP ; Q=0.3", "gzip"),
        ("x-gzip", "gzip"),
        ("*", "zstd"),
        ("*;q=0.1, zstd;q=0", "gzip"),
        ("gzip;q=0, *;q=0", None),
        ("gzip;q=0", None),
        ("identity", None),
        ("identity;q=1, gzip;q=0.5", None),
        ("identity;q=0.5, gzip;q=1", "gzip"),
        ("br, deflate", None),
        ("", None),
        ("gzip;q=nonsense", None),
        ("gzip;q=nan", None),
        ("gzip;q=7", None),
        (",;,=;q", None),
    ],
)
def test_what_the_client_asks_for(accepted: str, coding: str | None):
    assert choose_coding(accepted, True, True) == coding


def test_only_what_is_switched_on():
    assert choose_coding("gzip, zstd", False, True) == "gzip"
    assert choose_coding("gzip, zstd", True, False) == "zstd"
    assert choose_coding("gzip, zstd", False, False) is None


def test_small_answers_are_not_even_asked_about():
    assert Compression(CompressionConfig(min_bytes=100)).min_bytes == 100
    assert Compression(CompressionConfig(gzip=False, zstd=False)).min_bytes == sys.maxsize


@pytest.mark.parametrize(
    "header",
    [
        (b"content-encoding", b"gzip"),
        (b"content-type", b"text/event-stream"),
        (b"content-type", b"image/png"),
        (b"cache-control", b"public, no-transform"),
    ],
)
async def test_what_must_not_be_compressed_is_left_alone(header: tuple[bytes, bytes]):
    assert await squeezed(b"gzip, zstd", header) == (None, [header])


async def test_caches_are_told_even_if_this_client_wants_none():
    for accepted in (None, b"identity"):
        assert await squeezed(accepted) == (None, [JSON, (b"vary", b"accept-encoding")])


async def test_what_does_not_shrink_is_sent_as_it_is():
    body, headers = await squeezed(b"zstd", body=bytes(range(200)))
    assert body is None
    assert not any(name == b"content-encoding" for name, _ in headers)


async def test_a_strong_tag_becomes_a_weak_one():
    _, headers = await squeezed(b"zstd", JSON, (b"etag", b'"abc"'))
    assert (b"etag", b'W/"abc"') in headers
    _, headers = await squeezed(b"zstd", JSON, (b"etag", b'W/"abc"'))
    assert (b"etag", b'W/"abc"') in headers
    _, headers = await squeezed(None, JSON, (b"etag", b'"abc"'))
    assert (b"etag", b'"abc"') in headers


async def test_long_bodies_do_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch):
    threads: list[int] = []

    def noting(body: bytes) -> bytes:
        threads.append(threading.get_ident())
        return b"x"

    monkeypatch.setattr(shaping, "_zstd", noting)
    await squeezed(b"zstd", body=b"x" * 256 * 1024)
    await squeezed(b"zstd", body=b"x" * (256 * 1024 + 1))
    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()
    await asyncio.get_running_loop().shutdown_default_executor()
