"""What the head of a request becomes, and which are refused."""

from __future__ import annotations

import pytest

from penstock.gateway.serving.heads import (
    HEADER_COUNT,
    fault_of,
    fault_of_size,
    make_scope,
    plain_address,
    size_bytes,
    without_offer,
)


@pytest.mark.parametrize(
    ("version", "hosts", "encoding", "count", "status"),
    [
        ("1.1", 1, b"", 5, None),
        ("1.1", 1, b"Chunked ", 5, None),
        ("1.1", 0, b"", 5, 400),
        ("1.1", 2, b"", 5, 400),
        ("1.1", 1, b"gzip", 5, 501),
        ("1.1", 1, b"", HEADER_COUNT, None),
        ("1.1", 1, b"", HEADER_COUNT + 1, 431),
        ("1.0", 0, b"", 5, None),
        ("1.0", 1, b"", 5, None),
        ("1.0", 2, b"", 5, 400),
        ("1.0", 1, b"chunked", 5, 501),
        ("2.0", 1, b"", 5, 505),
        ("0.9", 1, b"", 5, 505),
    ],
)
def test_faults(version: str, hosts: int, encoding: bytes, count: int, status: int | None):
    fault = fault_of(version, hosts, encoding, count)
    assert (fault and fault.status) == status


def test_what_is_too_big():
    assert fault_of_size(b"/" * 60, 100).status == 414
    assert fault_of_size(b"/" * 50, 100).status == 431
    assert size_bytes(b"/a", [(b"name", b"value"), (b"x", b"")]) == 2 + 13 + 5


@pytest.mark.parametrize(
    ("url", "path", "raw_path", "query"),
    [
        (b"/", "/", b"/", b""),
        (b"/a%2Fb?c=d?e", "/a/b", b"/a%2Fb", b"c=d?e"),
        (b"/a#f", "/a", b"/a", b""),
        (b"//a//", "//a//", b"//a//", b""),
        (b"http://host:1/a?b", "/a", b"/a", b"b"),
        (b"http://host", "/", b"/", b""),
        (b"*", "*", b"*", b""),
        (b"/%FF", "/\ufffd", b"/%FF", b""),
    ],
)
def test_addresses(url: bytes, path: str, raw_path: bytes, query: bytes):
    scope = make_scope("GET", "1.1", url, [], "http", None, None)
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, raw_path, query)


def test_a_head_without_its_offer():
    headers = [(b"host", b"x"), (b"upgrade", b"h2c"), (b"http2-settings", b"A"), (b"content-length", b"3")]
    assert (
        without_offer("PUT", b"/a?b", headers) == b"PUT /a?b HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n"
    )


def test_addresses_of_clients():
    assert plain_address(("::ffff:10.0.0.1", 5)) == ("10.0.0.1", 5)
    assert plain_address(("::1", 5)) == ("::1", 5)
    assert plain_address(None) is None
