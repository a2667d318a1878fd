"""What may arrive at the gateway's HTTP port: requests bent in every way, over a real socket.

The whole application is behind the product's own server, on an embedded store. Whatever is sent: answers are
well-formed HTTP, none of them is a 500, nothing is logged as an error, the connection ends in time once the
client has said all, no file but the console's is given out, and no secret of the configuration leaves.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.config import load
from penstock.gateway.serving.guards import Guards
from penstock.gateway.serving.server import HttpServer
from tests.fuzz.running import Target
from tests.fuzz.targets.resp_requests import Errors

_LIMIT_S: Final = 20.0
_SECRET: Final = "fuzz-secret-that-nobody-may-see"
#: What files outside of the console begin with: the password file, modules of ours, the configuration.
_FOREIGN: Final = (b"root:x:0", b"from __future__", b"[tool.", _SECRET.encode())

_GET: Final = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"
_PATHS: Final = (
    b"/", b"/console/", b"/console/index.html", b"/console/../../../../etc/passwd",
    b"/console/%2e%2e/%2e%2e/serving.py", b"/console/..%2f..%2fserving.py", b"/console/%2fetc/passwd",
    b"/console//etc/passwd", b"/console/.%00./x", b"/console/..\\..\\serving.py", b"/console/%c0%ae%c0%ae/x",
    b"/console/%252e%252e/x", b"/v1/channels?limit=2", b"/v1/streams?cursor=abc&match=*", b"/healthz",
    b"/v1/channels/%ff/messages", b"/v1/channels/a%2Fb/messages", b"/metrics", b"/v1/openapi.json",
    b"/v1/streams/%7Bx%7D", b"/channel/a/subscriber/b", b"http://other/console/",
)  # fmt: skip
_HOST: Final = b" HTTP/1.1\r\nHost: x\r\n"
_PUT: Final = b"PUT /channel/room/message/m1" + _HOST + b"Content-Type: application/json\r\n"
_ANN: Final = b"/v1/channels/room/subscriptions/ann"
_SEEDS: Final = (
    *(_GET % path for path in _PATHS),
    _PUT + b'Content-Length: 7\r\n\r\n{"a":1}' + _GET % b"/healthz",
    _PUT + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\nTrailer: x\r\n\r\n',
    _PUT + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    _PUT + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _PUT + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/channels/room/messages" + _HOST + b'Content-Length: 9\r\n\r\n{"b":[1]}',
    b"POST /v1/streams/orders/messages" + _HOST + b'Content-Length: 23\r\n\r\n{"tag":"t","entry":"e"}',
    b"PUT " + _ANN + _HOST + b"\r\n",
    b"GET " + _ANN + b"/messages?timeout=1ms" + _HOST + b"Authorization: Bearer x.y.z\r\n\r\n",
    b"GET " + _ANN + b"/events?create=true" + _HOST + b"Last-Event-ID: \x7f\r\n\r\n",
    b"OPTIONS /v1/channels" + _HOST + b"Origin: https://a\r\nAccess-Control-Request-Method: PUT\r\n\r\n",
    b"GET /" + _HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x05hello",
    b"BREW /pot HTCPCP/1.0\r\n\r\n",
)
_WORDS: Final = (
    b"\r\n", b"\r\n\r\n", b"\n", b"\r", b" ", b"\t", b":", b"%", b"%00", b"%2e%2e%2f", b"../", b"..\\", b"//",
    b"?", b"#", b"&", b";", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n", b"Host: y\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive, Upgrade\r\n", b"X-Forwarded-For: ::1\r\n", b"Authorization: Bearer ",
    b"If-None-Match: *\r\n", b"Range: bytes=0-\r\n", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/9.9", b"0\r\n\r\n",
    b"ffffffff\r\n", b"{", b"[", b"\"", b"\\u0000", b"1e999", b"null", b"Expect: 100-continue\r\n",
    b"GET /channel/smuggled HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00", b"\xff", "ä".encode(),
)  # fmt: skip


class HttpBytes(Target):
    name = "http_bytes"
    tries = 600

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
        self._errors = Errors()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._server = self._runner.run(self._start(Path(self._folder.name)))

    async def _start(self, folder: Path) -> HttpServer:
        file = folder / "gateway.yaml"
        storage = {"embedded": {"directory": str(folder / "store.pen"), "durability": "relaxed"}}
        file.write_text(json.dumps({"storages": {"default": storage}, "receipts": {"secret": _SECRET}}))
        config = load(file, environment={})
        services = await self._stack.enter_async_context(open_services(config))
        guards = Guards(header_timeout_s=1.0, body_timeout_s=1.0, read_timeout_s=2.0, linger_s=0.01)
        server = HttpServer(
            make_application(services),  # type: ignore[arg-type]
            replace(config.http, listen="127.0.0.1:0"),
            guards=guards,
        )
        await server.start()
        return server

    def close(self) -> None:
        self._runner.run(self._stop())
        self._runner.close()
        self._folder.cleanup()

    async def _stop(self) -> None:
        await self._server.stop(0.5)
        await self._stack.aclose()

    # ---------------------------------------------------------------- inputs

    def seeds(self) -> Sequence[bytes]:
        return _SEEDS

    def words(self) -> Sequence[bytes]:
        return _WORDS

    # ----------------------------------------------------------------- check

    def ask(self, data: bytes) -> bytes:
        """Everything that is answered."""
        return self._runner.run(self._exchange(data))

    def check(self, data: bytes) -> None:
        with self._errors:
            raw = self.ask(data)
            told = self.ask(_GET % b"/console/")
        assert told.startswith(b"HTTP/1.1 200 "), f"the next client is answered {told[:100]!r}"
        assert not self._errors.logged, f"logged: {self._errors.logged[0]}"
        for text in _FOREIGN:
            assert text not in raw, f"{text!r} was given out"
        if b"Upgrade" not in data:
            _check_answers(raw, is_lenient=b"HEAD" in data.upper() or b"/events" in data)

    async def _exchange(self, data: bytes) -> bytes:
        """Send all, say that this is all, and read to the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            async with asyncio.timeout(_LIMIT_S):
                writer.write(data)
                writer.write_eof()
                return await reader.read()
        except ConnectionError:
            return b""  # it was cut off, with what it had to say
        finally:
            writer.transport.abort()


_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [ -~]*\r\n")
_HEADER: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: ?[\t -~\x80-\xff]*\r\n")


def _check_answers(raw: bytes, is_lenient: bool) -> None:
    """One answer after the other, each whole."""
    at = 0
    while at < len(raw):
        line = _STATUS_LINE.match(raw, at)
        assert line is not None, f"no answer begins with {raw[at : at + 60]!r}"
        status = int(line[1])
        assert status != 500, f"answered {raw[at : at + 300]!r}"
        at = line.end()
        headers: dict[bytes, bytes] = {}
        while not raw.startswith(b"\r\n", at):
            header = _HEADER.match(raw, at)
            assert header is not None, f"no header is {raw[at : at + 60]!r}"
            name, _, value = header[0].partition(b":")
            headers[name.lower()] = value.strip()
            at = header.end()
        at += 2
        if is_lenient:
            return
        if status >= 200 and status not in (204, 304):
            at = _body_end(raw, at, headers)
    assert at <= len(raw), "the last answer is cut off"


def _body_end(raw: bytes, at: int, headers: dict[bytes, bytes]) -> int:
    if headers.get(b"transfer-encoding") != b"chunked":
        return at + int(headers[b"content-length"])
    while True:
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end], 16)
        at = end + 2 + size + 2
        if size == 0:
            return at
