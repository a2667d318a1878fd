"""After a loss: what is sent again and in which order, and how soon the next attempt comes."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import redialing
from penstock.client.connection import Connection, Slot
from penstock.client.handshake import ServerFacts
from penstock.client.link import LinkState
from penstock.client.policies import Constant
from penstock.errors import OutcomeUnknownError
from tests.places import until
from tests.unit.client.link.harness import NEVER, Setting
from tests.unit.client.waiting import outcome, settle


async def test_what_was_not_sent_is_always_sent_again(it: Setting) -> None:
    link = await it.open()
    future = link.call(("INCR", "k"))
    it.server.cut()
    assert await future == 1
    assert it.sent == ["INCR k"]
    assert link.statistics()["reconnections"] == 1


async def test_a_written_read_is_sent_again(it: Setting) -> None:
    it.server.expect("GET").drop()
    link = await it.open()
    assert await link.call(("GET", "k")) == b"v"
    assert it.sent == ["GET k", "GET k"]


async def test_a_read_is_not_sent_for_ever(it: Setting) -> None:
    it.server.on("GET").drop()
    link = await it.open(max_attempts=3)
    with pytest.raises(OutcomeUnknownError):
        await link.call(("GET", "poison"))
    assert it.sent == ["GET poison"] * 3


async def test_a_written_write_has_an_unknown_outcome(it: Setting) -> None:
    it.server.on("INCR").drop()
    link = await it.open()
    with pytest.raises(OutcomeUnknownError, match=r"server:1 ended before the reply .*; it may have run"):
        await link.call(("INCR", "k"))
    assert it.sent == ["INCR k"]


@pytest.mark.parametrize(("command", "is_repeated"), [(("SET", "k", "v"), True), (("INCR", "k"), False)])
async def test_idempotent_writes_are_sent_again_where_the_user_says_so(
    it: Setting, command: tuple[str, ...], is_repeated: bool
) -> None:
    it.server.on("SET").reply(b"OK")
    it.server.expect(command[0]).drop()
    link = await it.open(retry_idempotent_writes=True)
    result = await outcome(link.call(command))
    assert isinstance(result, OutcomeUnknownError) is not is_repeated
    assert len(it.sent) == 1 + is_repeated


async def test_order_is_kept_replays_before_newer_ones(it: Setting) -> None:
    gate = it.server.on("GET").hold()
    link = await it.open()
    written = [link.call(("GET", "written", number)) for number in range(3)]
    await settle()
    unsent = [link.call(("ECHO", f"unsent{number}")) for number in range(2)]
    it.server.sent.clear()
    it.server.cut()
    gate.held.clear()
    it.server.on("GET").reply(b"v")
    newer = [link.call(("ECHO", f"newer{number}")) for number in range(2)]
    await asyncio.gather(*written, *unsent, *newer)
    assert it.sent == [
        *[f"GET written {number}" for number in range(3)],
        "ECHO unsent0",
        "ECHO unsent1",
        "ECHO newer0",
        "ECHO newer1",
    ]


async def test_cancelled_while_there_is_no_connection_is_never_sent(it: Setting) -> None:
    it.server.refuse_connections(1)
    link = it.link()
    gone, stays = link.call(("ECHO", "gone")), link.call(("ECHO", "stays"))
    gone.cancel()
    assert await stays == b"stays"
    assert it.sent == ["ECHO stays"]


async def test_a_replay_that_cannot_be_sent_does_not_claim_it_never_was(it: Setting) -> None:
    it.server.on("GET").drop()
    link = await it.open(reconnect=Constant(base_ms=1, max_attempts=1))
    it.server.refuse_connections(100)
    with pytest.raises(OutcomeUnknownError, match="sent before"):
        await link.call(("GET", "k"))


async def test_a_connection_that_stood_is_replaced_at_once(
    it: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await it.open(reconnect=NEVER)
    monkeypatch.setattr(redialing, "STABLE_S", 0.0)
    it.server.cut()
    assert await link.call(("GET", "k")) == b"v"


async def test_a_server_that_ends_every_connection_is_not_hammered(it: Setting) -> None:
    link = await it.open(reconnect=NEVER)
    it.server.cut()
    assert link.state is LinkState.WAITING
    await settle()
    assert len(it.server.connections) == 1


async def test_a_connection_that_dies_in_the_handshake_is_a_failed_attempt(it: Setting) -> None:
    it.server.expect("HELLO").drop()

    async def dial(connection: Connection) -> ServerFacts:
        connection.attach(await it.server.connect(connection))
        await connection.call(("HELLO", "3"))
        return ServerFacts()

    assert await it.link(dial=dial).call(("GET", "k")) == b"v"
    assert it.owner.states == ["waiting", "open"]


async def test_what_the_handshake_is_refused_is_not_the_owners_business(it: Setting) -> None:
    taken: list[Slot] = []
    it.owner.redirect = taken.append
    it.server.expect("HELLO").error("LOADING Redis is loading the dataset in memory")

    async def dial(connection: Connection) -> ServerFacts:
        connection.attach(await it.server.connect(connection))
        await connection.call(("HELLO", "3"))
        return ServerFacts()

    assert await it.link(dial=dial).call(("GET", "k")) == b"v"
    assert taken == []


async def test_a_connection_that_dies_between_handshake_and_use(it: Setting) -> None:
    cuts = 1

    async def dial(connection: Connection) -> ServerFacts:
        nonlocal cuts
        facts = await it.server.dial(connection)
        if cuts:
            cuts -= 1
            it.server.cut()
        return facts

    assert await it.link(dial=dial).call(("GET", "k")) == b"v"


async def test_a_protocol_error_kills_the_connection_and_reads_survive(
    it: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    gate = it.server.on("GET").hold()
    link = await it.open()
    future = link.call(("GET", "k"))
    await settle()
    it.server.on("GET").reply(b"v")
    transport = it.server.connection
    transport._answers.clear()
    transport.push([b"not a push, and no reply to anything"])
    gate.held.clear()
    # The list is taken for the reply to GET: order is all there is. The next one has no slot.
    assert await future == [b"not a push, and no reply to anything"]
    transport.push([b"stray"])
    # In the log, since the link may be open again before anybody looks at its state.
    await until(lambda: "no command asked for" in caplog.text)
    assert await link.call(("GET", "k")) == b"v"
