"""Links over real sockets to real servers: values, errors, pushes, TLS, unix sockets; on both loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.client.config import Credentials, open_settings
from penstock.client.connection import Slot
from penstock.client.dialing import Dialer
from penstock.client.link import Link, LinkState
from penstock.client.policies import NoReconnect
from penstock.errors import (
    AuthenticationError,
    CommandError,
    ConfigError,
    NotSentError,
    OutcomeUnknownError,
    ProtocolError,
)
from penstock.testing.servers import RealServer, find_server
from tests.certificates import CERTIFICATES
from tests.integration.proxy import Proxy


class Owner:
    def __init__(self) -> None:
        self.pushes: asyncio.Queue[list[Any]] = asyncio.Queue()

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None:
        self.pushes.put_nowait(list(push))

    def on_state(self, link: Link) -> None: ...


@asynccontextmanager
async def opened(url: str, owner: Owner | None = None, **settings: Any) -> AsyncIterator[Link]:
    """A link to what the URL says; it leaves nothing behind."""
    target, checked = open_settings(url, **settings)
    address = target.addresses[0] if target.addresses else None
    dialer = Dialer(target, checked)
    link = Link(dialer.name_of(address), owner or Owner(), dialer.to(address), checked)
    try:
        await link.wait_open(timeout_s=20)
        yield link
    finally:
        await link.close()
    assert link.statistics()["in_flight"] == 0


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on each kind of loop; it must not leave a task behind."""

    async def checked(coroutine: Coroutine[Any, Any, None]) -> None:
        await coroutine
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert not tasks, f"left behind: {tasks}"

    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(checked(coroutine))

    return run


@pytest.fixture(params=[2, 3])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# ------------------------------------------------------------------------ values


def test_values_of_both_protocols(real_server: RealServer, protocol: int, run: Run) -> None:
    async def scenario() -> None:
        async with opened(real_server.url, protocol=protocol) as link:
            assert link.facts.protocol == protocol
            assert link.facts.client_id is not None
            assert link.facts.version >= (7,)
            assert link.facts.product == real_server.kind
            assert await link.call(("SET", "k", "v")) == b"OK"
            assert await link.call(("GET", b"k")) == b"v"
            assert await link.call(("GET", "missing")) is None
            assert await link.call(("INCRBY", "n", 41)) == 41
            assert await link.call(("RPUSH", "l", "a", "b")) == 2
            assert await link.call(("LRANGE", "l", 0, -1)) == [b"a", b"b"]
            await link.call(("HSET", "h", "f", 1.5))
            fields = await link.call(("HGETALL", "h"))
            assert fields == ({b"f": b"1.5"} if protocol == 3 else [b"f", b"1.5"])
            with pytest.raises(CommandError, match="WRONGTYPE"):
                await link.call(("INCR", "l"))
            binary = bytes(range(256)) * 1000
            await link.call(("SET", "binary", memoryview(binary)))
            assert await link.call(("GET", "binary")) == binary

    run(scenario())


def test_many_tasks_share_one_connection(real_server: RealServer, protocol: int, run: Run) -> None:
    async def scenario() -> None:
        async with opened(real_server.url, protocol=protocol, max_in_flight=500) as link:

            async def worker(name: int) -> None:
                for number in range(20):
                    value = b"%d:%d" % (name, number)
                    assert await link.call(("ECHO", value)) == value

            await asyncio.gather(*map(worker, range(1000)))
            assert link.statistics()["sent"] >= 20_000

    run(scenario())


def test_text_where_it_was_asked_for(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        async with opened(real_server.url, decode_responses=True) as link:
            await link.call(("SET", "k", "Grüße"))
            assert await link.call(("GET", "k")) == "Grüße"
            await link.call(("SET", "k", b"\xff not text"))
            assert await link.call(("GET", "k")) == "\udcff not text"

    run(scenario())


def test_database_and_name(real_server: RealServer, protocol: int, run: Run) -> None:
    async def scenario() -> None:
        async with opened(real_server.url, protocol=protocol, db=3, client_name="billing") as link:
            await link.call(("SET", "k", "v"))
            assert await link.call(("CLIENT", "GETNAME")) == b"billing"
            info = await link.call(("CLIENT", "INFO"))
            assert b" db=3 " in info
        async with opened(real_server.url) as link:
            assert await link.call(("EXISTS", "k")) == 0

    run(scenario())


def test_large_writes_and_replies(real_server: RealServer, run: Run) -> None:
    """More than any socket buffer: writing pauses and resumes, replies come in pieces."""

    async def scenario() -> None:
        async with opened(real_server.url) as link:
            values = [bytes([number]) * (3 << 20) for number in range(8)]
            await asyncio.gather(
                *[link.call(("SET", f"k{number}", value)) for number, value in enumerate(values)]
            )
            assert await asyncio.gather(*[link.call(("GET", f"k{number}")) for number in range(8)]) == values

    run(scenario())


# ------------------------------------------------------------------------ pushes


def test_subscriptions_and_commands_on_one_connection(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        owner = Owner()
        async with opened(real_server.url, owner) as link:
            subscribed = link.call(("SUBSCRIBE", "a", "b"))
            echoed = link.call(("ECHO", "between"))
            assert await subscribed == 2
            assert await echoed == b"between"
            assert await link.call(("PUBLISH", "a", "text")) == 1
            assert [(await owner.pushes.get())[0] for _ in range(2)] == [b"subscribe"] * 2
            assert await owner.pushes.get() == [b"message", b"a", b"text"]
            assert await link.call(("UNSUBSCRIBE", "a", "b")) == 2
            assert await link.call(("PUBLISH", "a", "text")) == 0

    run(scenario())


def test_a_subscriber_in_resp2(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        owner = Owner()
        async with opened(real_server.url, owner, protocol=2) as link, opened(real_server.url) as other:
            assert await link.call(("SUBSCRIBE", "a", "b")) == 2
            assert await link.call(("PSUBSCRIBE", "a*")) == 1
            assert await link.call(("PING",)) == [b"pong", b""]
            assert await other.call(("PUBLISH", "a", "text")) == 2
            kinds = [(await owner.pushes.get())[0] for _ in range(5)]
            assert kinds == [b"subscribe", b"subscribe", b"psubscribe", b"message", b"pmessage"]
            await link.call(("UNSUBSCRIBE", "a", "b"))
            await link.call(("PUNSUBSCRIBE", "a*"))
            await link.call(("RPUSH", "l", "message", "a", "b"))
            assert await link.call(("LRANGE", "l", 0, -1)) == [b"message", b"a", b"b"]

    run(scenario())


def test_invalidations_are_pushes(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        owner = Owner()
        async with opened(real_server.url, owner) as link:
            await link.call(("CLIENT", "TRACKING", "ON"))
            await link.call(("GET", "k"))
            await link.call(("SET", "k", "v"))
            assert await owner.pushes.get() == [b"invalidate", [b"k"]]

    run(scenario())


# ------------------------------------------------------------------- transactions


def test_a_burst_is_a_transaction_among_other_commands(
    real_server: RealServer, protocol: int, run: Run
) -> None:
    async def scenario() -> None:
        async with opened(real_server.url, protocol=protocol, max_in_flight=7) as link:

            async def transact(name: int) -> None:
                replies = await link.call_burst([("MULTI",), ("INCR", "n"), ("ECHO", name), ("EXEC",)])
                assert replies[:3] == [b"OK", b"QUEUED", b"QUEUED"]
                assert replies[3][1] == b"%d" % name

            async def echo(name: int) -> None:
                assert await link.call(("ECHO", name)) == b"%d" % name

            await asyncio.gather(*map(transact, range(100)), *map(echo, range(100)))
            assert await link.call(("GET", "n")) == b"100"

    run(scenario())


# ------------------------------------------------------------------------ places


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_unix_socket(kind: Any, real_servers: Any, tmp_path: Path, run: Run) -> None:
    binary = real_servers.get(kind).binary
    path = tmp_path / "s"
    with RealServer(binary, options={"unixsocket": str(path)}):

        async def scenario() -> None:
            async with opened(f"unix://{path}?db=2") as link:
                assert await link.call(("ECHO", "there")) == b"there"
                assert b" db=2 " in await link.call(("CLIENT", "INFO"))

        run(scenario())


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
    return context


def test_tls(real_server: RealServer, protocol: int, run: Run) -> None:
    async def scenario() -> None:
        async with Proxy(real_server.port, tls=server_tls()) as proxy:
            url = f"rediss://localhost:{proxy.port}"
            async with opened(url, protocol=protocol, tls_ca_file=CERTIFICATES / "server.crt") as link:
                assert await link.call(("ECHO", "secret")) == b"secret"
                value = b"x" * (5 << 20)
                await link.call(("SET", "k", value))
                assert await link.call(("GET", "k")) == value
                proxy.cut()
                assert await link.call(("ECHO", "again")) == b"again"
            async with opened(url, tls_verify=False) as link:
                assert await link.call(("ECHO", "unchecked")) == b"unchecked"

    run(scenario())


def test_an_untrusted_certificate_is_one_clear_error(valkey_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        async with Proxy(valkey_server.port, tls=server_tls()) as proxy:
            with pytest.raises(
                ConfigError, match=r"certificate of localhost:\d+ is not trusted.*tls_ca_file"
            ):
                async with opened(f"rediss://localhost:{proxy.port}"):
                    pass
            with pytest.raises(ConfigError, match="Hostname mismatch"):
                async with opened(
                    f"rediss://localhost:{proxy.port}",
                    tls_ca_file=CERTIFICATES / "server.crt",
                    tls_server_name="elsewhere.example",
                ):
                    pass

    run(scenario())


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "unix:///nowhere/at/all"])
def test_nobody_there(url: str, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(NotSentError, match="cannot connect to"):
            async with opened(url, fail_fast=True):
                pass

    run(scenario())


def test_a_server_that_does_not_speak_redis(run: Run) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(web, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NotSentError, match="Protocol error"):
                async with opened(f"redis://127.0.0.1:{port}", fail_fast=True):
                    pass

    run(scenario())


@asynccontextmanager
async def rude_server(
    rudeness: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
) -> AsyncIterator[int]:
    """Greets as RESP3 servers do (HELLO, CLIENT ID, INFO), then behaves as it is told. Answers its port."""
    release = asyncio.Event()
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for greeting in (b"%0\r\n", b":1\r\n", b"$0\r\n\r\n"):
            await reader.read(1 << 16)
            writer.write(greeting)
        await rudeness(reader, writer)
        await release.wait()
        writer.transport.abort()
        served.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        release.set()
        await served.wait()
        await asyncio.sleep(0)  # the handler's task ends


def test_a_reply_that_cannot_be_a_value_ends_the_connection(run: Run) -> None:
    """A map of arrays to numbers: right RESP3, but arrays cannot be keys of a dict."""

    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"%1\r\n*1\r\n:1\r\n:1\r\n")

    async def scenario() -> None:
        async with (
            rude_server(rude) as port,
            opened(f"redis://127.0.0.1:{port}", reconnect=NoReconnect()) as link,
        ):
            with pytest.raises(OutcomeUnknownError, match="a reply cannot be read"):
                await link.call(("INCR", "k"))

    run(scenario())


def test_a_server_that_reads_no_more_and_says_goodbye(run: Run) -> None:
    """What is still to be sent must not keep a dead connection alive."""

    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write_eof()

    async def scenario() -> None:
        async with (
            rude_server(rude) as port,
            opened(f"redis://127.0.0.1:{port}", reconnect=NoReconnect()) as link,
        ):
            async with asyncio.timeout(20):
                with pytest.raises(OutcomeUnknownError):
                    await link.call(("SET", "k", b"x" * (64 << 20)))

    run(scenario())


def test_a_reply_that_nobody_asked_for(run: Run) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"+OK\r\n+OK\r\n")

    async def scenario() -> None:
        async with (
            rude_server(rude) as port,
            opened(f"redis://127.0.0.1:{port}", reconnect=NoReconnect()) as link,
        ):
            assert await link.call(("SET", "k", "v")) == b"OK"
            with pytest.raises(ProtocolError, match="a reply that no command asked for"):
                await link.call(("SET", "k", "v"))

    run(scenario())


# ------------------------------------------------------------------- credentials


@pytest.fixture(scope="module", params=["valkey", "redis"])
def guarded(request: pytest.FixtureRequest, real_servers: Any) -> Any:
    """A server with a password, and a user ``app``."""
    binary = real_servers.get(request.param).binary
    with RealServer(binary, options={"requirepass": "secret"}) as server:
        server.execute("ACL", "SETUSER", "app", "on", ">apppass", "~*", "+@all")
        yield server


@pytest.mark.parametrize("login", [":secret@", "app:apppass@", "default:secret@"])
def test_right_passwords(guarded: RealServer, protocol: int, login: str, run: Run) -> None:
    async def scenario() -> None:
        async with opened(f"redis://{login}127.0.0.1:{guarded.port}", protocol=protocol) as link:
            assert await link.call(("ECHO", "in")) == b"in"

    run(scenario())


@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:secret@"])
def test_wrong_passwords_fail_at_once(guarded: RealServer, protocol: int, login: str, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(AuthenticationError, match="refused the credentials"):
            async with opened(f"redis://{login}127.0.0.1:{guarded.port}", protocol=protocol):
                pass

    run(scenario())


def test_a_password_where_none_is_set(real_server: RealServer, protocol: int, run: Run) -> None:
    """RESP2 servers complain; with HELLO the default user needs no password and takes any."""

    async def scenario() -> None:
        url = f"redis://nobody:x@127.0.0.1:{real_server.port}"
        with pytest.raises(AuthenticationError):
            async with opened(url, protocol=protocol):
                pass

    run(scenario())


def test_credentials_are_asked_for_each_connection(guarded: RealServer, run: Run) -> None:
    asked: list[int] = []

    async def provide(address: Any) -> Credentials:
        asked.append(address.port)
        return Credentials("app", "apppass")

    async def scenario() -> None:
        async with Proxy(guarded.port) as proxy:
            async with opened(f"redis://127.0.0.1:{proxy.port}", credential_provider=provide) as link:
                proxy.cut()
                assert await link.call(("ACL", "WHOAMI")) == b"app"
            assert asked == [proxy.port] * 2

    run(scenario())


def test_a_cluster_url_to_a_plain_server(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="is a plain server, not a cluster"):
            async with opened(f"redis-cluster://127.0.0.1:{real_server.port}"):
                pass

    run(scenario())


def test_a_database_that_does_not_exist(real_server: RealServer, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="database 12345 cannot be selected"):
            async with opened(f"{real_server.url}/12345"):
                pass

    run(scenario())


# --------------------------------------------------------------------------- life


def test_a_server_that_ends_and_one_that_is_killed(run: Run) -> None:
    with RealServer(find_server()) as server:

        async def scenario() -> None:
            async with Proxy(server.port) as proxy, opened(f"redis://127.0.0.1:{proxy.port}") as link:
                await link.call(("SET", "k", "v"))
                await asyncio.to_thread(server.stop)
                waiting = link.call(("EXISTS", "k"))
                await asyncio.to_thread(server.start)
                proxy.upstream_port = server.port
                assert await waiting == 0
                assert link.state is LinkState.OPEN

        run(scenario())
