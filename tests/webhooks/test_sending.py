"""One attempt over real sockets: what comes of good, slow, endless, broken and hostile receivers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpcore
import pytest

from penstock.clock import ManualClock
from penstock.errors import ClosedError, ConfigError
from penstock.webhooks.addresses import AddressPolicy, policy
from penstock.webhooks.dialing import GuardedBackend
from penstock.webhooks.model import MAX_EXCERPT, Attempt, Request
from penstock.webhooks.sending import MAX_POOLS, HttpSender, retry_after_ms
from tests.certificates import CERTIFICATES
from tests.places import until
from tests.webhooks.receiver import Received, Receiver


def request_to(url: str, **settings: Any) -> Request:
    values = {"method": "POST", "headers": {"x-a": "b"}, "body": b"hello", "timeout_ms": 10_000, **settings}
    return Request(url=url, **values)


async def send(sender: HttpSender, url: str, **settings: Any) -> Attempt:
    return await sender.send(request_to(url, **settings))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_a_request_arrives_as_it_was_made(sender: HttpSender, receiver: Receiver, method: str) -> None:
    receiver.answer = lambda _: (201, {"retry-after": "3"}, "grüße".encode())
    attempt = await send(sender, receiver.url + "?q=1", method=method)
    assert (attempt.status, attempt.error, attempt.response_excerpt) == (201, None, "grüße")
    assert attempt.retry_after_ms == 3000
    [got] = receiver.received
    assert (got.method, got.target, got.body, got.headers["x-a"]) == (method, "/hook?q=1", b"hello", "b")
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["accept-encoding"] == "identity"


async def test_a_redirection_is_an_answer(sender: HttpSender, receiver: Receiver) -> None:
    async with Receiver() as elsewhere:
        receiver.answer = lambda _: (307, {"location": elsewhere.url}, b"")
        assert (await send(sender, receiver.url)).status == 307
        assert elsewhere.connections == 0
        assert len(receiver.received) == 1


async def test_connections_are_used_again(sender: HttpSender, receiver: Receiver) -> None:
    for _ in range(5):
        assert (await send(sender, receiver.url)).status == 200
    assert receiver.connections == 1


async def test_a_long_answer_is_cut_and_its_connection_ended(sender: HttpSender, receiver: Receiver) -> None:
    receiver.answer = lambda _: (200, {}, "é".encode() * 500_000)
    for _ in range(2):
        attempt = await send(sender, receiver.url)
        assert attempt.status == 200
        assert attempt.response_excerpt == "é" * MAX_EXCERPT
    assert receiver.connections == 2


async def dripping(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, drop: bytes
) -> None:
    """A server that never ends and never pauses long."""
    try:
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.005)
    except (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b""),
    ],
    ids=["headers", "chunks", "body", "continue", "silence"],
)
async def test_the_timeout_is_that_of_the_whole(sender: HttpSender, head: bytes, drop: bytes) -> None:
    server = await asyncio.start_server(lambda r, w: dripping(r, w, head, drop), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(5):
        attempt = await send(sender, f"http://127.0.0.1:{port}/", timeout_ms=150)
    assert attempt.status is None
    assert attempt.error == "no complete answer within 150 ms"
    assert attempt.duration_ms >= 150
    server.close()


async def test_resolving_is_within_the_timeout(loopback: AddressPolicy) -> None:
    async def stuck(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async with HttpSender(loopback, resolver=stuck) as sender:
        assert "within 50 ms" in str((await send(sender, "http://slow.example/", timeout_ms=50)).error)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\r\n\r\n", b"garbage\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n",
     b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx",
     b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a" * 200_000],
)  # fmt: skip
async def test_what_is_not_http_is_an_error(sender: HttpSender, receiver: Receiver, answer: bytes) -> None:
    receiver.answer = lambda _: answer
    attempt = await send(sender, receiver.url)
    assert attempt.status is None
    assert attempt.error


async def test_nobody_listens(sender: HttpSender) -> None:
    async with Receiver() as gone:
        url = gone.url
    attempt = await send(sender, url)
    assert attempt.status is None
    assert "ConnectError" in str(attempt.error)


async def test_connections_are_bounded(loopback: AddressPolicy, receiver: Receiver) -> None:
    go = asyncio.Event()

    async def wait(_: Received) -> int:
        await go.wait()
        return 200

    receiver.answer = wait
    async with HttpSender(loopback, max_connections=3) as sender:
        sending = [asyncio.create_task(send(sender, receiver.url)) for _ in range(10)]
        await until(lambda: receiver.busy == 3)
        go.set()
        assert {attempt.status for attempt in await asyncio.gather(*sending)} == {200}
    assert receiver.most_busy == 3
    assert receiver.connections == 3


async def test_a_closed_sender_says_so(loopback: AddressPolicy, receiver: Receiver) -> None:
    sender = HttpSender(loopback)
    await send(sender, receiver.url)
    await sender.close()
    await sender.close()
    with pytest.raises(ClosedError):
        await send(sender, receiver.url)


# ------------------------------------------------------------------------------------------- addresses


class Names:
    """A resolver that is told what to say, one answer after the other; the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("inner", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1"])
async def test_names_of_inner_addresses_are_refused(receiver: Receiver, inner: str) -> None:
    async with HttpSender(resolver=Names([inner])) as sender:
        attempt = await send(sender, f"http://inner.example:{receiver.port}/")
    assert attempt.status is None
    assert "allow its network" in str(attempt.error)
    assert receiver.connections == 0


class Connections(httpcore.AsyncNetworkBackend):
    """Connects to nothing, and remembers where it should have."""

    def __init__(self) -> None:
        self.hosts: list[str] = []

    async def connect_tcp(self, host: str, *_: Any) -> httpcore.AsyncNetworkStream:
        self.hosts.append(host)
        raise httpcore.ConnectError("nobody is there")


async def test_a_name_that_changes_its_answer_is_asked_once_for_each_connection() -> None:
    """Public when it is checked, loopback when it is connected to: there is no second question."""
    names, network = Names(["8.8.8.8"], ["127.0.0.1"]), Connections()
    backend = GuardedBackend(AddressPolicy(), "http", names, network)
    with pytest.raises(httpcore.ConnectError):
        await backend.connect_tcp("rebind.example", 80)
    assert (names.asked, network.hosts) == (1, ["8.8.8.8"])
    with pytest.raises(ConfigError, match="loopback"):
        await backend.connect_tcp("rebind.example", 80)
    assert (names.asked, network.hosts) == (2, ["8.8.8.8"])
    with pytest.raises(httpcore.ConnectError):
        await backend.connect_unix_socket("/run/docker.sock")


async def test_a_name_that_changes_its_answer_does_not_reach_loopback(receiver: Receiver) -> None:
    """The same over sockets: what is allowed stands for what is public, and nobody listens there."""
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    async with HttpSender(policy(["127.0.0.2/32"]), resolver=names) as sender:
        first = await send(sender, f"http://rebind.example:{receiver.port}/")
        assert (names.asked, first.status) == (1, None)
        assert "ConnectError" in str(first.error)
        second = await send(sender, f"http://rebind.example:{receiver.port}/")
    assert "127.0.0.1, a loopback address" in str(second.error)
    assert receiver.connections == 0


async def test_the_connection_goes_to_the_address_that_was_checked(receiver: Receiver) -> None:
    """The name does not exist, so whoever asked for it again would fail."""
    names = Names(["10.9.9.9", "127.0.0.1"])
    async with HttpSender(policy(["127.0.0.0/8"]), resolver=names) as sender:
        attempt = await send(sender, f"http://there-is-no-such-name.invalid:{receiver.port}/hook")
    assert attempt.status == 200
    assert receiver.received[0].headers["host"] == f"there-is-no-such-name.invalid:{receiver.port}"


async def test_another_address_is_tried(receiver: Receiver) -> None:
    names = Names(["127.0.0.77", "127.0.0.1"])  # nobody listens on the first
    async with HttpSender(policy(["127.0.0.0/8"]), resolver=names) as sender:
        assert (await send(sender, f"http://two.example:{receiver.port}/")).status == 200


async def test_names_are_resolved_by_the_system(sender: HttpSender, receiver: Receiver) -> None:
    assert (await send(sender, f"http://localhost:{receiver.port}/")).status == 200
    attempt = await send(sender, f"http://there-is-no-such-name.invalid:{receiver.port}/")
    assert "cannot be resolved" in str(attempt.error)


async def test_a_name_without_an_answer() -> None:
    async def fail(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    async with HttpSender(resolver=fail) as sender:
        assert "cannot be resolved" in str((await send(sender, "https://nowhere.example/")).error)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/", "http://0x7f.1:{port}/", "http://2130706433:{port}/",
            "http://[::ffff:127.0.0.1]:{port}/", "http://localhost:{port}/", "http://u@127.0.0.1:{port}/",
            "file:///etc/passwd", "http://0:{port}/"],
)  # fmt: skip
async def test_urls_are_checked_again_when_sent(receiver: Receiver, url: str) -> None:
    async with HttpSender() as sender:
        attempt = await send(sender, url.format(port=receiver.port))
    assert attempt.status is None
    assert str(attempt.error).startswith("url")
    assert receiver.connections == 0


async def test_an_open_connection_is_not_lent_to_those_who_may_not(receiver: Receiver) -> None:
    names = Names(["127.0.0.1"])
    url = f"http://inner.example:{receiver.port}/"
    async with HttpSender(resolver=names) as sender:
        assert (await send(sender, url, allowed_networks=("127.0.0.0/8",))).status == 200
        assert "allow its network" in str((await send(sender, url)).error)
        assert (await send(sender, url, allowed_networks=("127.0.0.0/8",))).status == 200
    assert receiver.connections == 1


async def test_policies_are_bounded(receiver: Receiver) -> None:
    async with HttpSender() as sender:
        for number in range(MAX_POOLS + 5):
            allowed = ("127.0.0.0/8", f"10.{number}.0.0/16")
            assert (await send(sender, receiver.url, allowed_networks=allowed)).status == 200
        assert len(sender._pools) == MAX_POOLS


async def test_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, sender: HttpSender, receiver: Receiver
) -> None:
    async with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert (await send(sender, receiver.url)).status == 200
        assert proxy.connections == 0


# ------------------------------------------------------------------------------------------------- TLS


@pytest.fixture
async def secure() -> AsyncIterator[Receiver]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
    async with Receiver(tls=context) as receiver:
        yield receiver


async def test_tls_is_verified_against_the_name(secure: Receiver) -> None:
    trusting = ssl.create_default_context(cafile=CERTIFICATES / "server.crt")
    names = Names(["127.0.0.1"])
    async with HttpSender(policy(["127.0.0.0/8"]), ssl_context=trusting, resolver=names) as sender:
        assert (await send(sender, f"https://localhost:{secure.port}/")).status == 200
        stranger = await send(sender, f"https://other.example:{secure.port}/")
    assert stranger.status is None
    assert "certificate verify failed" in str(stranger.error).lower()
    async with HttpSender(policy(["127.0.0.0/8"]), resolver=names) as sender:
        unknown = await send(sender, f"https://localhost:{secure.port}/")
    assert "certificate verify failed" in str(unknown.error).lower()


# --------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("0", 0), ("120", 120_000), (" 7 ", 7_000), ("", None), ("-1", None), ("1.5", None), ("soon", None),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000), ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("Tue, 99 Nov 2023 22:13:10 GMT", None), ("٣", None), ("9" * 100, 999_999_999_999_000),
    ],
)  # fmt: skip
def test_retry_after(value: str, expected_ms: int | None) -> None:
    assert retry_after_ms(value, ManualClock(1_700_000_000_000).now_ms()) == expected_ms
