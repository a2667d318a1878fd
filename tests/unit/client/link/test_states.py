"""The states of a link: opening, giving up, refused credentials, failing fast."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.config import Credentials
from penstock.client.connection import Connection
from penstock.client.handshake import ServerFacts
from penstock.client.link import Link, LinkState
from penstock.client.policies import Constant, NoReconnect
from penstock.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    NotSentError,
    OutcomeUnknownError,
)
from tests.unit.client.link.harness import NEVER, Setting
from tests.unit.client.waiting import outcome, settle


async def test_the_first_call_opens_the_link(it: Setting) -> None:
    link = it.link()
    assert repr(link) == "<Link server:1 new in_flight=0 waiting=0>"
    future = link.call(("GET", "k"))
    assert repr(link) == "<Link server:1 connecting in_flight=0 waiting=1>"
    assert await future == b"v"
    assert repr(link) == "<Link server:1 open in_flight=0 waiting=0>"
    await link.close()
    assert repr(link) == "<Link server:1 closed in_flight=0 waiting=0>"
    assert it.owner.states == ["open", "closed"]


async def test_facts_of_the_server_are_kept(it: Setting) -> None:
    link = await it.open()
    assert link.facts.client_id == 1
    it.server.cut()
    await link.call(("GET", "k"))
    assert link.facts.client_id == 2


async def test_attempts_go_on_until_there_is_a_connection(it: Setting) -> None:
    it.server.refuse_connections(3)
    link = it.link()
    assert await link.call(("GET", "k")) == b"v"
    assert it.owner.states == ["waiting"] * 3 + ["open"]


async def test_the_policy_may_give_up(it: Setting) -> None:
    it.server.refuse_connections(100)
    link = it.link(reconnect=Constant(base_ms=1, max_attempts=2))
    future = link.call(("GET", "k"))
    with pytest.raises(NotSentError, match="refuses connections"):
        await link.wait_open()
    assert link.state is LinkState.CLOSED
    assert isinstance(await outcome(future), NotSentError)
    assert isinstance(await outcome(link.call(("GET", "k"))), NotSentError)
    assert it.server.refusals == 97


async def test_without_reconnecting_a_loss_is_the_end(it: Setting) -> None:
    link = await it.open(reconnect=NoReconnect())
    it.server.cut()
    assert link.state is LinkState.CLOSED
    with pytest.raises(ConnectionLostError, match="cut the connection"):
        await link.call(("GET", "k"))


async def test_a_policy_that_fails_is_the_end_and_not_a_hang(
    it: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def delay_ms(self, attempt: int, random: Any) -> int:
            raise ZeroDivisionError

    it.server.refuse_connections(1)
    assert isinstance(await outcome(it.link(reconnect=Broken()).call(("GET", "k"))), NotSentError)
    assert "reconnect policy failed" in caplog.text


async def test_whatever_a_dial_raises_is_retried(it: Setting) -> None:
    dials = 0

    async def dial(connection: Connection) -> ServerFacts:
        nonlocal dials
        dials += 1
        if dials < 3:
            raise ZeroDivisionError
        return await it.server.dial(connection)

    assert await it.link(dial=dial).call(("GET", "k")) == b"v"


async def test_wait_open_says_after_its_time_why_not(it: Setting) -> None:
    it.server.refuse_connections(100)
    link = it.link(reconnect=NEVER)
    with pytest.raises(NotSentError, match="not connected: the scripted server refuses"):
        await link.wait_open(timeout_s=0.02)
    assert link.state is LinkState.WAITING


async def test_an_owner_that_fails_does_not_stop_the_link(
    it: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(link: Link) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(it.owner, "on_state", fail)
    assert await it.link().call(("GET", "k")) == b"v"
    assert "ZeroDivisionError" in caplog.text


# -------------------------------------------------------------------------------------- credentials


async def failing_dial(error: Exception) -> ServerFacts:
    raise error


@pytest.mark.parametrize("error", [AuthenticationError("wrong password"), ConfigError("no such database")])
async def test_what_can_never_succeed_fails_at_once(it: Setting, error: Exception) -> None:
    dials: list[Connection] = []

    def dial(connection: Connection) -> Any:
        dials.append(connection)
        return failing_dial(error)

    link = it.link(dial=dial)
    waiting = link.call(("GET", "k"))
    with pytest.raises(type(error), match=str(error)):
        await link.wait_open()
    first, second = await outcome(waiting), await outcome(link.call(("GET", "k")))
    assert type(first) is type(second) is type(error)
    assert first is not second
    assert len(dials) == 1
    assert link.state is LinkState.CLOSED


async def test_renewed_credentials_may_be_refused_for_a_while(it: Setting) -> None:
    refusals = 0

    async def provide(_: object) -> Credentials:
        return Credentials(None, "short-lived")

    async def dial(connection: Connection) -> ServerFacts:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise AuthenticationError("expired")
        return await it.server.dial(connection)

    link = it.link(dial=dial, credential_provider=provide)
    await link.wait_open()
    refusals = 2
    it.server.cut()
    assert await link.call(("GET", "k")) == b"v"
    assert refusals == 0


# ---------------------------------------------------------------------------------------- fail fast


async def test_fail_fast_refuses_while_there_is_no_connection(it: Setting) -> None:
    it.server.on("GET").hold()
    link = await it.open(fail_fast=True, reconnect=NEVER)
    written = link.call(("GET", "written"))
    await settle()
    unsent = link.call(("GET", "unsent"))
    it.server.cut()
    assert isinstance(await outcome(written), OutcomeUnknownError)
    assert isinstance(await outcome(unsent), NotSentError)
    with pytest.raises(NotSentError, match="server:1 is not connected: the scripted server cut"):
        await link.call(("GET", "k"))


async def test_fail_fast_waits_for_the_first_attempt_alone(it: Setting) -> None:
    it.server.refuse_connections(1)
    link = it.link(fail_fast=True, reconnect=NEVER)
    future = link.call(("GET", "k"))
    with pytest.raises(NotSentError, match="refuses connections"):
        await link.wait_open()
    assert isinstance(await outcome(future), NotSentError)
