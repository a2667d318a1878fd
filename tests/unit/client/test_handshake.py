"""The conversation before a connection is used: steps, order, fallbacks and what refusals become."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.connection import Connection, Slot
from penstock.client.handshake import Introduction, ServerFacts, shake_hands
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import AuthenticationError, CommandError, ConfigError, ConnectionLostError, NotSentError


class Owner:
    """Lets the handshake fail as a link does: the connection's end is an error of each call."""

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, connection: Connection, push: list[Any]) -> None: ...

    def on_room(self, connection: Connection) -> None: ...

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        for slot in [*unanswered, *unsent]:
            slot.future.set_exception(NotSentError(f"ended: {error}"))


INFO = b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"


def recording(server: ScriptedServer) -> ScriptedServer:
    """With rules for every step, so that ``sent`` shows all of them."""
    server.on("HELLO").reply({b"proto": 3})
    for name in ("AUTH", "SELECT", "READONLY"):
        server.on(name).reply(b"OK")
    server.on("PING").reply(b"PONG")
    server.on("CLIENT", "SETNAME").reply(b"OK")
    server.on("CLIENT", "ID").reply(42)
    server.on("INFO").reply(INFO)
    server.on("CLUSTER", "INFO").reply(b"cluster_enabled:1\r\ncluster_state:ok\r\n")
    return server


async def greet(server: ScriptedServer, **intro: Any) -> ServerFacts:
    connection = Connection(Owner(), asyncio.get_running_loop(), 10)
    connection.attach(await server.connect(connection))
    return await shake_hands(connection, Introduction(**intro), "here:6379")


def spoken(server: ScriptedServer) -> list[str]:
    return [b" ".join(arguments).decode() for arguments in server.sent]


async def test_every_step_in_order() -> None:
    server = recording(ScriptedServer())
    facts = await greet(
        server,
        username="app",
        password="secret",
        database=3,
        client_name="billing",
        expects_cluster=True,
        reads_from_replica=True,
    )
    assert spoken(server) == [
        "HELLO 3 AUTH app secret",
        "SELECT 3",
        "CLIENT SETNAME billing",
        "CLIENT ID",
        "INFO server",
        "CLUSTER INFO",
        "READONLY",
    ]
    assert facts == ServerFacts(3, 42, (7, 0, 15), "redis", "standalone")


@pytest.mark.parametrize(
    ("intro", "first"),
    [
        ({}, ["HELLO 3"]),
        ({"password": "p"}, ["HELLO 3 AUTH default p"]),
        ({"protocol": 2}, ["PING"]),
        ({"protocol": 2, "password": "p"}, ["AUTH p"]),
        ({"protocol": 2, "username": "u", "password": "p"}, ["AUTH u p"]),
    ],
)
async def test_the_greeting(intro: dict[str, Any], first: list[str]) -> None:
    server = recording(ScriptedServer())
    facts = await greet(server, **intro)
    assert spoken(server) == [*first, "CLIENT ID", "INFO server"]
    assert facts.protocol == intro.get("protocol", 3)


@pytest.mark.parametrize("refusal", ["ERR unknown command `HELLO`", "NOPROTO unsupported protocol version"])
async def test_a_server_without_resp3_is_spoken_to_in_resp2(refusal: str) -> None:
    server = recording(ScriptedServer())
    server.on("HELLO").error(refusal)
    facts = await greet(server, password="p")
    assert spoken(server)[:2] == ["HELLO 3 AUTH default p", "AUTH p"]
    assert facts.protocol == 2


async def test_after_the_fallback_pushes_are_arrays() -> None:
    server = ScriptedServer(protocol=2)
    connection = Connection(Owner(), asyncio.get_running_loop(), 10)
    connection.attach(await server.connect(connection))
    await shake_hands(connection, Introduction(), "here")
    server.on("SUBSCRIBE").reply([b"subscribe", b"c", 1])
    assert await connection.call(("SUBSCRIBE", "c")) == 1


async def test_client_id_and_info_may_be_refused() -> None:
    server = recording(ScriptedServer())
    server.on("CLIENT", "ID").error("NOPERM this user has no permissions to run the 'client|id' command")
    server.on("INFO").error("NOPERM this user has no permissions to run the 'info' command")
    assert await greet(server) == ServerFacts(3, None, (), "redis", "")


async def test_valkey_names_itself() -> None:
    server = recording(ScriptedServer())
    server.on("INFO").reply(
        b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.0\r\nserver_mode:cluster\r\n"
    )
    facts = await greet(server)
    assert (facts.product, facts.version, facts.mode) == ("valkey", (7, 2, 4), "cluster")


@pytest.mark.parametrize(
    "refusal",
    [
        "WRONGPASS invalid username-password pair or user is disabled.",
        "NOAUTH HELLO must be called with the client already authenticated",
        "NOPERM this user has no permissions to run the 'hello' command",
        "ERR invalid password",
        "ERR Client sent AUTH, but no password is set",
    ],
)
async def test_refused_credentials(refusal: str) -> None:
    server = ScriptedServer()
    server.on("HELLO").error(refusal)
    with pytest.raises(AuthenticationError) as caught:
        await greet(server, username="u", password="very secret")
    assert str(caught.value) == f"here:6379 refused the credentials: {refusal}"
    assert "very secret" not in repr(Introduction(password="very secret"))


async def test_no_password_where_one_is_needed_shows_at_the_first_step_that_says_so() -> None:
    server = ScriptedServer()
    server.on("PING").error("NOAUTH Authentication required.")
    with pytest.raises(AuthenticationError):
        await greet(server, protocol=2)
    server = recording(ScriptedServer())
    server.on("CLIENT", "ID").error("NOAUTH Authentication required.")
    with pytest.raises(AuthenticationError):
        await greet(server)


@pytest.mark.parametrize(
    ("words", "refusal", "intro", "error", "message"),
    [
        (("SELECT",), "ERR DB index is out of range", {"database": 99}, ConfigError, "database 99 cannot"),
        (
            ("CLIENT", "SETNAME"),
            "ERR Client names cannot",
            {"client_name": "x"},
            ConfigError,
            "client_name 'x'",
        ),
        (("SELECT",), "LOADING Redis is loading", {"database": 1}, NotSentError, "not ready: LOADING"),
        (("HELLO",), "LOADING Redis is loading", {}, NotSentError, "not ready: LOADING"),
        (("HELLO",), "ERR max number of clients reached", {}, ConnectionLostError, "refused the handshake"),
        (
            ("CLUSTER", "INFO"),
            "ERR This instance has cluster support disabled",
            {"expects_cluster": True},
            ConfigError,
            "here:6379 is a plain server, not a cluster: use redis://",
        ),
        (("READONLY",), "MASTERDOWN Link is down", {"reads_from_replica": True}, NotSentError, "MASTERDOWN"),
    ],
)
async def test_what_refusals_become(
    words: tuple[str, ...], refusal: str, intro: dict[str, Any], error: type[Exception], message: str
) -> None:
    server = recording(ScriptedServer())
    server.on(*words).error(refusal)
    with pytest.raises(error, match=message):
        await greet(server, **intro)


async def test_a_replica_outside_a_cluster_needs_no_readonly() -> None:
    server = recording(ScriptedServer())
    server.on("READONLY").error("ERR This instance has cluster support disabled")
    await greet(server, reads_from_replica=True)


async def test_a_cluster_that_is_not_ready() -> None:
    server = recording(ScriptedServer())
    server.on("CLUSTER", "INFO").reply(b"cluster_state:fail\r\n")
    with pytest.raises(NotSentError, match="cluster_state:fail"):
        await greet(server, expects_cluster=True)


@pytest.mark.parametrize("step", ["HELLO", "SELECT", "CLIENT", "INFO", "CLUSTER", "READONLY"])
async def test_a_connection_that_ends_at_any_step(step: str) -> None:
    server = recording(ScriptedServer())
    server.on(step).drop()
    with pytest.raises(NotSentError, match="ended"):
        await greet(server, database=1, client_name="n", expects_cluster=True, reads_from_replica=True)
