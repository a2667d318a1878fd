"""From a URL to a connection and to its end: what can be wrong with a place, who may come in, the end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.config import Address, Credentials
from penstock.client.policies import Constant
from penstock.errors import (
    AuthenticationError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    ConfigError,
    NotSentError,
    PenstockError,
)
from penstock.testing.control import HOST
from penstock.testing.own_server import PenstockServer
from penstock.testing.servers import RealServer
from tests.certificates import CERTIFICATES
from tests.client.conftest import ALONE, CLUSTERS, SERVERS, SOCKETS, OpenClient, Place, name_of
from tests.client.test_blocked import waits


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody can take meanwhile."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen()
        yield listening.getsockname()[1]


# ------------------------------------------------------------------ nobody there


@pytest.mark.parametrize("scheme", ["redis", "redis-cluster"])
@pytest.mark.parametrize("fail_fast", [True, False])
async def test_nobody_listens(scheme: str, fail_fast: bool, closed_port: int) -> None:
    client = penstock.open(
        f"{scheme}://{HOST}:{closed_port}",
        fail_fast=fail_fast,
        connect_timeout_ms=100,
        handshake_timeout_ms=100,
    )
    started_s = time.monotonic()
    with pytest.raises(NotSentError, match=f"{HOST}:{closed_port}.*(refused|Connect call failed)"):
        await client.connect()
    assert time.monotonic() - started_s < 10
    with pytest.raises(ClosedError):
        await client.get("k")


@pytest.mark.parametrize("scheme", ["redis", "redis-cluster"])
async def test_a_host_that_does_not_exist(scheme: str) -> None:
    client = penstock.open(
        f"{scheme}://no-such-host.invalid", connect_timeout_ms=300, handshake_timeout_ms=1, fail_fast=True
    )
    with pytest.raises(NotSentError, match=r"no-such-host\.invalid"):
        await client


@pytest.mark.parametrize("scheme", ["redis", "redis-cluster"])
async def test_a_server_that_never_answers(scheme: str, silent_port: int) -> None:
    client = penstock.open(
        f"{scheme}://{HOST}:{silent_port}", connect_timeout_ms=100, handshake_timeout_ms=100
    )
    with pytest.raises(NotSentError, match=f"{HOST}:{silent_port}"):
        await client


@pytest.mark.parametrize("scheme", ["redis", "redis-cluster"])
async def test_commands_before_there_is_a_connection(scheme: str, closed_port: int) -> None:
    url = f"{scheme}://{HOST}:{closed_port}"
    patient = penstock.open(url, command_timeout_ms=50, reconnect=Constant(10))
    with pytest.raises(CommandTimeoutError, match=f"not sent to {HOST}:{closed_port}"):
        await patient.get("k")
    await patient.close()
    hasty = penstock.open(url, fail_fast=True, reconnect=Constant(10))
    with pytest.raises(NotSentError, match=f"{HOST}:{closed_port} is not connected"):
        await hasty.get("k")
    await hasty.close()


async def test_a_socket_and_a_store_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotSentError, match=r"nothing\.sock"):
        await penstock.open(f"unix://{tmp_path}/nothing.sock", fail_fast=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match="file"):
        await penstock.open(tmp_path / "file")


# ---------------------------------------------------------------- the wrong place


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://localhost", "unknown scheme 'http'"),
        ("redis:localhost", "two slashes"),
        ("localhost:6379", "looks like a host and port: write redis://localhost:6379"),
        ("redis://localhost:port", "port 'port' is not a number"),
        ("redis://a,b", "use redis-cluster://"),
        ("redis://localhost/x", "database 'x' is not a number"),
        ("redis-cluster://localhost/3", "a cluster has no databases"),
        ("redis-sentinel://localhost", "service name is missing"),
        ("redis://user@localhost", "username 'user' has no password"),
        ("redis://:pa/ss@localhost", "write %2F"),
        ("redis://localhost?protocol=4", "protocol must be 2 or 3, not '4'"),
        ("redis://localhost?time_out=4", "unknown setting 'time_out'"),
        ("redis://localhost?tls_verify=no", "write rediss instead of redis"),
        ("unix://socket", "starts with a slash"),
        ("", "the path of the embedded store is empty"),
        ("~/shop.pen", "'~' in '~/shop.pen' is not expanded"),
    ],
)
def test_urls_that_make_no_sense(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        penstock.open(url)
    assert said in str(raised.value)
    assert "pa/ss" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"read_from": "somewhere"}, "read_from must be 'primary', 'replica' or 'prefer_replica'"),
        ({"command_timeout_ms": 1.5}, "command_timeout_ms must be a whole number"),
        ({"commandtimeout": 1}, "did you mean command_timeout_ms"),
        ({"password": 5}, "password must be text or None"),
        ({"reconnect": "often"}, "reconnect must be a reconnect policy"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        penstock.open("redis://localhost", **settings)
    assert said in str(raised.value)


@SERVERS
async def test_a_cluster_url_to_a_plain_server(place: Place) -> None:
    url = place.url.replace("redis://", "redis-cluster://")
    with pytest.raises(
        ConfigError, match="is a plain server, not a cluster: use redis:// instead of redis-cluster://"
    ):
        await penstock.open(url, protocol=place.protocol)


@CLUSTERS
async def test_a_plain_url_to_a_node_of_a_cluster(place: Place) -> None:
    async with penstock.open(place.nodes[0].url, protocol=place.protocol) as client:
        assert await client.execute("PING") == b"PONG"
        with pytest.raises(CommandError, match="MOVED") as raised:
            await asyncio.gather(*(client.get(f"key-{number}") for number in range(20)))
        (note,) = raised.value.__notes__
        assert "use redis-cluster:// instead of redis://" in note


@SERVERS
async def test_a_sentinel_url_to_a_plain_server(place: Place) -> None:
    url = place.url.replace("redis://", "redis-sentinel://") + "/service"
    with pytest.raises(ConfigError, match="not a sentinel: use redis://"):
        await penstock.open(url, protocol=place.protocol)


@SERVERS
async def test_a_database_that_does_not_exist(open_client: OpenClient) -> None:
    with pytest.raises(ConfigError, match="database 99"):
        await open_client(db=99)


@ALONE
async def test_every_connection_has_the_database(open_client: OpenClient) -> None:
    client, other = await open_client(db=3), await open_client()
    await client.rpush("list", "a", "b")
    assert await client.blpop("list", timeout_s=1) == (b"list", b"a")
    async with client.exclusive("k") as own:
        assert await own.lpop("list") == b"b"
        tx = own.transaction()
        tx.set("k", "v")
        await tx.all()
    assert [key async for key in client.scan_iter()] == [b"k"]
    assert await other.dbsize() == 0


# ------------------------------------------------------------------- who comes in


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealServer]:
    """A server with a password and a user beside it."""
    with RealServer(options={"requirepass": "main secret"}) as server:
        server.execute("ACL", "SETUSER", "alice", "on", ">her secret", "~a:*", "+@all", "-flushall")
        yield server


@pytest.mark.parametrize("protocol", [2, 3])
async def test_the_right_password(guarded: RealServer, protocol: int) -> None:
    for login in (":main%20secret", "default:main%20secret"):
        url = guarded.url.replace("://", f"://{login}@")
        async with penstock.open(url, protocol=protocol) as client:
            assert await client.execute("PING") == b"PONG"
            assert "secret" not in repr(client)
            assert await client.blpop("none", timeout_s=0.01) is None
            async with client.pubsub() as subscriber:
                await subscriber.subscribe("news")
    async with penstock.open(guarded.url, protocol=protocol, password="main secret") as client:
        assert await client.execute("PING") == b"PONG"


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("login", ["", ":wrong@", "alice:wrong@", "nobody:main%20secret@"])
async def test_the_wrong_password(guarded: RealServer, protocol: int, login: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(AuthenticationError, match=f"{name_of(guarded)} refused the credentials") as raised:
        await penstock.open(guarded.url.replace("://", f"://{login}"), protocol=protocol)
    assert "secret" not in str(raised.value)
    assert time.monotonic() - started_s < 5  # trying again would not help


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_user_with_some_rights(guarded: RealServer, protocol: int) -> None:
    url = guarded.url.replace("://", "://alice:her%20secret@")
    async with penstock.open(url, protocol=protocol) as client:
        assert await client.acl_whoami() == "alice"
        await client.set("a:1", "x")
        assert await client.get("a:1") == b"x"
        with pytest.raises(CommandError, match="NOPERM"):
            await client.get("b:1")
        with pytest.raises(CommandError, match="NOPERM"):
            await client.flushall()
        tx = client.transaction()
        tx.get("a:1")
        tx.get("b:1")
        with pytest.raises(CommandError, match="NOPERM"):
            await tx.all()
        assert await client.get("a:1") == b"x"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_credentials_are_asked_for_each_connection(guarded: RealServer, protocol: int) -> None:
    asked: list[Address] = []

    async def provide(address: Address) -> Credentials:
        asked.append(address)
        await asyncio.sleep(0)
        return Credentials("alice", "her secret") if len(asked) == 1 else Credentials(None, "main secret")

    async with penstock.open(guarded.url, protocol=protocol, credential_provider=provide) as client:
        assert await client.acl_whoami() == "alice"
        async with client.exclusive() as own:
            assert await own.acl_whoami() == "default"
        assert asked == [Address(HOST, guarded.port)] * 2
        guarded.execute("CLIENT", "KILL", "USER", "alice")
        assert await client.acl_whoami() == "default"
    assert len(asked) == 3


async def test_a_credential_provider_that_fails(guarded: RealServer) -> None:
    async def fail(address: Address) -> Credentials:
        raise RuntimeError("no vault today")

    with pytest.raises(PenstockError, match="no vault today"):
        await penstock.open(guarded.url, credential_provider=fail, fail_fast=True)


@CLUSTERS
async def test_credentials_of_a_cluster_are_asked_for_by_node(place: Place, open_client: OpenClient) -> None:
    asked: set[str] = set()

    async def provide(address: Address) -> Credentials:
        asked.add(str(address))
        return Credentials(None, "secret")

    for node in place.nodes:
        node.execute("CONFIG", "SET", "requirepass", "secret")
    try:
        client = await open_client(credential_provider=provide)
        await client.execute("PING", route=penstock.ToAll())
        assert asked == {name_of(node) for node in place.primaries}
        with pytest.raises(AuthenticationError):
            await open_client(password="wrong")
    finally:
        for node in place.nodes:
            async with penstock.open(node.url, password="secret") as one:
                await one.config_set({"requirepass": ""})


# ---------------------------------------------------------------------------- doors


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_unix_socket(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with RealServer(options={"unixsocket": str(path)}) as server:
        async with penstock.open(f"unix://{path}?db=2", protocol=protocol) as client:
            await client.set("k", "v")
            assert "unix" in repr(client)
            assert (await client.client_info())["db"] == "2"
            assert await client.blpop("none", timeout_s=0.01) is None
            (name,) = await client.execute("PING", route=penstock.ToAll())
            assert name == str(path)
        assert server.info("keyspace").keys() == {"db2"}


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    options = (
        *("--tls-cert-file", str(CERTIFICATES / "server.crt")),
        *("--tls-key-file", str(CERTIFICATES / "server.key")),
    )
    store = tmp_path_factory.mktemp("tls") / "store.pen"
    with PenstockServer(store, *options, durability="relaxed") as server:
        yield server


@pytest.mark.parametrize("protocol", [2, 3])
async def test_tls(tls_server: PenstockServer, protocol: int) -> None:
    url = f"rediss://localhost:{tls_server.port}?tls_ca_file={CERTIFICATES}/server.crt"
    async with penstock.open(url, protocol=protocol) as client:
        assert "rediss://" in repr(client)
        await client.set("k", b"x" * 300_000)
        assert await client.strlen("k") == 300_000
        replies = await asyncio.gather(*(client.execute("ECHO", number) for number in range(1000)))
        assert replies == [b"%d" % number for number in range(1000)]
        assert await client.blpop("none", timeout_s=0.01) is None
        async with client.pubsub() as subscriber:
            await subscriber.subscribe("news")
            await client.publish("news", "x")
            assert (await subscriber.get(timeout_ms=5000)).data == b"x"


async def test_tls_that_cannot_be_trusted(tls_server: PenstockServer) -> None:
    url = f"rediss://localhost:{tls_server.port}"
    with pytest.raises(ConfigError, match=f"certificate of localhost:{tls_server.port} is not trusted"):
        await penstock.open(url)
    async with penstock.open(url, tls_verify=False) as client:
        assert await client.execute("PING") == b"PONG"
    trusted = {"tls_ca_file": CERTIFICATES / "server.crt"}
    with pytest.raises(ConfigError, match=r"is not trusted.*tls_server_name"):
        await penstock.open(url, tls_server_name="elsewhere", **trusted)
    async with penstock.open(url, tls_server_name="elsewhere", tls_check_hostname=False, **trusted) as client:
        assert await client.execute("PING") == b"PONG"
    with pytest.raises(ConfigError, match="tls_ca_file"):
        penstock.open(url, tls_ca_file="nothing.crt")


async def test_tls_on_one_side_only(tls_server: PenstockServer, valkey_server: RealServer) -> None:
    limits = {"connect_timeout_ms": 500, "handshake_timeout_ms": 200, "fail_fast": True}
    with pytest.raises(NotSentError, match=f"localhost:{tls_server.port}"):
        await penstock.open(f"redis://localhost:{tls_server.port}", **limits)
    with pytest.raises(NotSentError, match=name_of(valkey_server)):
        await penstock.open(valkey_server.url.replace("redis", "rediss"), tls_verify=False, **limits)


# ------------------------------------------------------------------- begin and end


@SOCKETS
async def test_every_connection_has_the_name(open_client: OpenClient, place: Place) -> None:
    client = await open_client(client_name="shop")
    blocked = asyncio.create_task(client.blpop("{n}list", timeout_s=30))
    await waits(client, "{n}list")
    async with client.pubsub() as subscriber, client.exclusive("{n}k"):
        await subscriber.subscribe("news")
        listed = [each for node in place.primaries for each in _clients(node)]
        named = [each for each in listed if each["name"] == "shop"]
        assert {each["cmd"] for each in named} >= {"blpop", "subscribe", "watch"}
        assert not [each for each in listed if each["cmd"] in ("blpop", "subscribe") and each not in named]
    await client.rpush("{n}list", "x")
    assert await blocked == (b"{n}list", b"x")


def _clients(node: RealServer) -> list[dict[str, str]]:
    lines = node.execute("CLIENT", "LIST").decode().splitlines()
    return [dict(word.split("=", 1) for word in line.split()) for line in lines]


async def test_connecting_again_disturbs_nobody(client: penstock.Client) -> None:
    blocked = asyncio.create_task(client.blpop("list", timeout_s=30))
    await waits(client, "list")
    before = client.statistics()["private_links"]
    assert await client.connect() is client
    assert await client is client
    await asyncio.gather(*(client.connect() for _ in range(10)))
    assert client.statistics()["private_links"] == before
    await client.rpush("list", "x")
    assert await blocked == (b"list", b"x")


async def test_many_connect_at_once(open_client: OpenClient) -> None:
    client = open_client()
    assert set(await asyncio.gather(*(client.connect() for _ in range(20)))) == {client}
    assert await client.execute("PING") == b"PONG"


async def test_first_use_by_many_tasks(open_client: OpenClient) -> None:
    client = open_client()
    assert sorted(await asyncio.gather(*(client.incr("n") for _ in range(100)))) == list(range(1, 101))


async def test_closed_while_it_connects(open_client: OpenClient) -> None:
    client = open_client()
    connecting = asyncio.create_task(client.connect())
    waiting = asyncio.create_task(client.get("k"))
    await asyncio.sleep(0)
    await client.close()
    outcomes = await asyncio.wait_for(asyncio.gather(connecting, waiting, return_exceptions=True), 5)
    assert all(outcome in (client, None) or isinstance(outcome, PenstockError) for outcome in outcomes)


async def test_a_cancelled_connect_leaves_nothing_behind(open_client: OpenClient) -> None:
    client = open_client()
    connecting = asyncio.create_task(client.connect())
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    with pytest.raises(ClosedError):
        await client.get("k")


async def test_closed_by_many_with_everything_in_use(open_client: OpenClient) -> None:
    client = await open_client()
    blocked = asyncio.create_task(client.blpop("list", timeout_s=0))
    await waits(client, "list")
    subscriber = client.pubsub()
    await subscriber.subscribe("news")
    listening = asyncio.create_task(subscriber.get())
    own = client.exclusive("k")
    lent = await own.__aenter__()
    counts = [asyncio.create_task(client.incr("n")) for _ in range(50)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await asyncio.gather(*(client.close() for _ in range(5)))
        assert sorted(await asyncio.gather(*counts)) == list(range(1, 51))
        for ended in (blocked, listening):
            with pytest.raises(PenstockError):
                await ended
        with pytest.raises(PenstockError):
            await lent.get("k")
        await own.__aexit__(None, None, None)
    with pytest.raises(ClosedError):
        client.pubsub()
    with pytest.raises(ClosedError):
        await client.pipeline().all() or await client.get("k")


async def test_never_used_never_opened(open_client: OpenClient) -> None:
    client = open_client()
    assert client.statistics() == {}
    await client.close()
    assert "closed" in repr(client)
