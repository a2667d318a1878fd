"""Requests over HTTP that were answered wrongly once, or must never be."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterator
from importlib.resources import files

import pytest

from tests.fuzz.targets.http_bytes import HttpBytes
from tests.unit.gateway.serving.wire import connected, serving, statuses

HANDSHAKE = (
    b"GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(bytes(16))
)


def frame(text: bytes) -> bytes:
    """A message as clients have to send it: masked."""
    mask = os.urandom(4)
    masked = bytes(letter ^ mask[at % 4] for at, letter in enumerate(text))
    return bytes((0x81, 0x80 | len(text))) + mask + masked


@pytest.mark.parametrize("is_together", [True, False])
async def test_a_message_that_comes_before_the_handshake_is_answered(is_together: bool) -> None:
    """It waits until the application has accepted."""
    async with serving() as served, connected(served) as client:
        for piece in [HANDSHAKE + frame(b"early")] if is_together else [HANDSHAKE, frame(b"early")]:
            await client.send(piece)
        assert b" 101 " in await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 15)
        assert await asyncio.wait_for(client.reader.readexactly(7), 15) == b"\x81\x05early"


async def test_a_bad_frame_before_the_handshake_is_answered_ends_the_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as served:
        async with connected(served) as client:
            await client.send(HANDSHAKE + b"\x81\x05hello")  # not masked
            assert b" 101 " in await client.rest()
        async with connected(served) as client:
            await client.send(HANDSHAKE + frame(b"x") * 20_000)
            assert b"\x81\x01x" not in await _all_of(client.reader)
    assert not [record for record in caplog.records if record.exc_info]


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 15)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("first", [b"identity", b"gzip", b"chunked", b"x"])
async def test_two_transfer_encodings_are_a_list_of_both(first: bytes) -> None:
    """Somebody in front may go by the first one, and see another end of the body."""
    head = (
        b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % first
    )
    async with serving(linger_s=0.2) as served, connected(served) as client:
        await client.send(head + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        assert statuses(await client.rest())[0] in (400, 501)
    assert served.app.seen == []


@pytest.fixture(scope="module")
def gateway() -> Iterator[HttpBytes]:
    with HttpBytes() as target:
        yield target


CLIMBING = (
    "../serving.py", "..%2fserving.py", "%2e%2e/serving.py", "%2e%2e%2fserving.py", "..%5cserving.py",
    "..\\serving.py", "%252e%252e/serving.py", "./../serving.py", "static/../../serving.py", "..;/serving.py",
    "%c0%ae%c0%ae/serving.py", "../../../../../../../../etc/passwd", "%2fetc%2fpasswd", "/etc/passwd",
    "index.html/../../serving.py", "..%00/serving.py", "%2e%2e%2f%2e%2e%2f%2e%2e%2fpyproject.toml",
    "__init__.py", "../__init__.py", "%2E%2E/%2E%2E/app.py",
)  # fmt: skip


@pytest.mark.parametrize("path", CLIMBING)
def test_nothing_outside_of_the_console_is_given_out(gateway: HttpBytes, path: str) -> None:
    asked = f"GET /console/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    gateway.check(asked)
    assert statuses(gateway.ask(asked))[0] in (400, 404)


def test_what_the_console_has_is_given_out(gateway: HttpBytes) -> None:
    index = files("penstock.gateway.console").joinpath("static/index.html").read_bytes()
    assert index in gateway.ask(b"GET /console/index.html HTTP/1.1\r\nHost: x\r\n\r\n")
