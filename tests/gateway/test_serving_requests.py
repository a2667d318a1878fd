"""What a client may send: requests of every shape that HTTP/1 allows, over real sockets."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest
import websockets

from penstock.errors import ClosedError, ConfigError
from penstock.gateway.config.surroundings import HttpConfig, TlsConfig
from tests.places import until
from tests.unit.gateway.serving.wire import connected, serving, statuses

GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_requests_follow_each_other_on_one_connection():
    async with serving() as served, connected(served) as client:
        for name in (b"a", b"b%20c?x=%41", b"d"):
            await client.send(GET % name)
            status, headers, _ = await client.answer()
            assert status == 200
            assert headers["date"].endswith("GMT")
            assert "connection" not in headers
        assert served.connections == 1
    assert [path for _, path, _ in served.app.seen] == ["/a", "/b c", "/d"]


async def test_path_and_query_are_as_sent():
    async with serving() as served, connected(served) as client:
        await client.send(GET % b"a%2Fb//c?q=1&r=%20")
        told = json.loads((await client.answer())[2])
        assert (told["raw"], told["path"], told["query"]) == ("/a%2Fb//c", "/a/b//c", "q=1&r=%20")
        await client.send(b"GET http://other/p?q HTTP/1.1\r\nHost: other\r\n\r\n")
        told = json.loads((await client.answer())[2])
        assert (told["raw"], told["query"]) == ("/p", "q")
        await client.send(b"GET http://other HTTP/1.1\r\nHost: other\r\n\r\n")
        assert json.loads((await client.answer())[2])["raw"] == "/"


async def test_pipelined_requests_are_answered_in_order():
    async with serving() as served, connected(served) as client:
        await client.send(b"".join(GET % b"%d" % number for number in range(50)))
        for number in range(50):
            assert json.loads((await client.answer())[2])["path"] == f"/{number}"


async def test_a_pipelined_request_waits_for_the_one_before():
    async with serving() as served, connected(served) as client:
        await client.send(GET % b"wait" + GET % b"after")
        await until(lambda: len(served.app.scopes) == 1)
        assert served.app.seen == []
        served.app.released.set()
        assert (await client.answer())[2] == b"released"
        assert json.loads((await client.answer())[2])["path"] == "/after"


async def test_a_body_comes_in_pieces():
    async with serving() as served, connected(served) as client:
        await client.send(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nab")
        await until(lambda: served.app.began.is_set())
        for piece in (b"cd", b"ef"):
            await client.send(piece)
        assert json.loads((await client.answer())[2])["body"] == "abcdef"


async def test_a_big_body_arrives_whole():
    body = bytes(range(32, 127)) * 20_000
    async with serving() as served, connected(served) as client:
        await client.send(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert (await client.answer())[0] == 200
        assert served.app.seen == [("PUT", "/a", body)]


async def test_chunks_and_trailers():
    """A trailer never becomes a header: it comes after whoever checked those has done so."""
    async with serving() as served, connected(served) as client:
        await client.send(
            b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nAuthorization: Bearer stolen\r\n\r\n"
        )
        told = json.loads((await client.answer())[2])
        assert told["body"] == "abcde"
        assert told["headers"] == ["host", "transfer-encoding"]
        await client.send(GET % b"next")
        assert (await client.answer())[0] == 200
        assert all(name != b"authorization" for scope in served.app.scopes for name, _ in scope["headers"])


async def test_expect_continue_is_answered_when_the_body_is_wanted():
    async with serving() as served, connected(served) as client:
        await client.send(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.answer())[0] == 100
        await client.send(b"ok")
        assert json.loads((await client.answer())[2])["body"] == "ok"


async def test_expect_continue_is_not_answered_when_the_request_is_refused():
    """What follows could be the body or the next request: the connection ends."""
    async with serving() as served, connected(served) as client:
        await client.send(
            b"PUT /early-open HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (401, "close")
        assert await client.is_closed()


async def test_http_1_0_gets_no_chunks_and_no_second_request():
    async with serving() as served, connected(served) as client:
        await client.send(b"GET /unlengthy HTTP/1.0\r\n\r\n")
        status, headers, body = await client.answer()
        assert (status, body) == (200, b"abcd")
        assert "transfer-encoding" not in headers
        assert headers["connection"] == "close"


async def test_answers_without_length_are_chunked():
    async with serving() as served, connected(served) as client:
        await client.send(GET % b"unlengthy")
        _, headers, body = await client.answer()
        assert headers["transfer-encoding"] == "chunked"
        assert body == b"abcd"


async def test_head_has_the_length_and_no_body():
    async with serving() as served, connected(served) as client:
        await client.send(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + GET % b"b")
        assert int((await client.answer("HEAD"))[1]["content-length"]) > 0
        assert json.loads((await client.answer())[2])["path"] == "/b"


async def test_a_half_closed_client_gets_its_answers():
    async with serving() as served, connected(served) as client:
        await client.send(GET % b"a" + GET % b"b")
        client.writer.write_eof()
        assert statuses(await client.rest()) == [200, 200]
        await until(lambda: served.connections == 0)


async def test_a_client_that_leaves_ends_what_waits_for_it():
    async with serving() as served:
        async with connected(served) as client:
            await client.send(GET % b"wait")
            await until(lambda: served.app.began.is_set())
        await until(lambda: served.app.gone == 1)
        await until(lambda: served.connections == 0)


async def test_a_client_that_leaves_ends_what_waits_although_more_was_sent():
    async with serving() as served:
        async with connected(served) as client:
            await client.send(GET % b"wait" + GET % b"never")
            await until(lambda: served.app.began.is_set())
        await until(lambda: served.app.gone == 1)
        assert served.app.seen == []


async def test_a_client_that_breaks_off_ends_what_waits_although_more_was_sent():
    async with serving() as served:
        async with connected(served) as client:
            await client.send(GET % b"wait" + GET % b"never")
            await until(lambda: served.app.began.is_set())
            # The system sends a reset instead of a proper end.
            raw = client.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await until(lambda: served.app.gone == 1)
        await until(lambda: served.connections == 0)


async def test_a_client_that_leaves_in_the_middle_of_a_body():
    async with serving() as served:
        async with connected(served) as client:
            await client.send(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab")
            await until(lambda: served.app.began.is_set())
        await until(lambda: served.app.gone == 1)


async def test_a_refusal_before_the_body_reaches_a_client_that_keeps_sending():
    """Closing with unread bytes would make the client's system throw the answer away."""
    async with serving() as served, connected(served) as client:
        await client.send(b"PUT /early HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n")
        for _ in range(30):
            await client.send(b"x" * 65536)
        assert (await client.answer())[0] == 401


async def test_a_body_that_nobody_wanted_is_not_taken_for_a_request():
    async with serving() as served, connected(served) as client:
        await client.send(b"PUT /early-open HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n")
        assert (await client.answer())[0] == 401
        await client.send(b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n......"[:40] + GET % b"real")
        assert json.loads((await client.answer())[2])["path"] == "/real"


async def test_a_failing_application_is_answered_with_500():
    async with serving() as served, connected(served) as client:
        await client.send(GET % b"broken")
        status, headers, body = await client.answer()
        assert (status, headers["connection"]) == (500, "close")
        assert "something went wrong" in json.loads(body)["error"]


@pytest.mark.parametrize("path", [b"short", b"split"])
async def test_an_answer_that_makes_no_sense_never_leaves(path: bytes):
    async with serving() as served, connected(served) as client:
        await client.send(GET % path)
        raw = await client.rest()
        assert statuses(raw) == [500]
        assert b"injected" not in raw


async def test_an_offer_to_upgrade_is_ignored_and_the_body_is_read():
    """Java's client makes this offer with every request."""
    async with serving() as served, connected(served) as client:
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
        for body in (b"abc", b"defg"):
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            await client.send(b"PUT /a HTTP/1.1\r\nHost: x\r\n" + offer + length + body)
            assert json.loads((await client.answer())[2])["body"] == body.decode()


async def test_websockets():
    async with serving() as served:
        async with websockets.connect(f"ws://127.0.0.1:{served.server.port}/socket") as opened:
            await opened.send("hello")
            assert await opened.recv() == "hello"
            await served.server.stop(2)
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await opened.recv()
        assert closed.value.rcvd.code == 1012


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> TlsConfig:
    directory: Path = tmp_path_factory.mktemp("tls")
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command.split(), *subject, "-keyout", key, "-out", cert], check=True, capture_output=True
    )
    return TlsConfig(cert_file=cert, key_file=key)


async def test_tls(certificate: TlsConfig):
    config = HttpConfig(listen="127.0.0.1:0", tls=certificate)
    context = ssl.create_default_context(cafile=certificate.cert_file)
    async with (
        serving(config) as served,
        connected(served, ssl=context, server_hostname="localhost") as client,
    ):
        await client.send(GET % b"a")
        assert (await client.answer())[0] == 200
        assert served.app.scopes[0]["scheme"] == "https"
        await client.send(b"nonsense\r\n\r\n")
        assert (await client.answer())[0] == 400
        assert await client.is_closed()


async def test_a_key_that_is_none_is_named(tmp_path: Path):
    (tmp_path / "key").write_text("no key")
    tls = TlsConfig(cert_file=tmp_path / "key", key_file=tmp_path / "key")
    with pytest.raises(ConfigError, match=r"http\.tls"):
        async with serving(HttpConfig(listen="127.0.0.1:0", tls=tls)):
            pass


async def test_a_port_in_use_is_named():
    async with serving() as served:
        with pytest.raises(ConfigError, match="in use"):
            async with serving(HttpConfig(listen=f"127.0.0.1:{served.server.port}")):
                pass
        with pytest.raises(ClosedError):
            await served.server.start()


async def test_all_addresses_and_ipv4_as_itself():
    async with serving(HttpConfig(port=0)) as served, connected(served) as client:
        await client.send(GET % b"a")
        assert (await client.answer())[0] == 200
        assert served.app.scopes[0]["client"][0] == "127.0.0.1"
