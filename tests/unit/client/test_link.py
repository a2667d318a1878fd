"""The way to one server: its states, what is sent again, limits, timeouts, the end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from penstock.client import redialing
from penstock.client.config import Credentials, Settings
from penstock.client.connection import Connection, Slot
from penstock.client.handshake import ServerFacts
from penstock.client.link import Link, LinkState
from penstock.client.policies import Constant, NoReconnect
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import (
    AuthenticationError,
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    ConfigError,
    ConnectionLostError,
    NotSentError,
    OutcomeUnknownError,
)

SOON = Constant(base_ms=1)
NEVER = Constant(base_ms=1_000_000)


class Owner:
    """Notes what the link says."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.pushes: list[list[Any]] = []
        self.redirect: Callable[[Slot], None] | None = None

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        if self.redirect is None:
            return False
        self.redirect(slot)
        return True

    def on_push(self, link: Link, push: list[Any]) -> None:
        self.pushes.append(list(push))

    def on_state(self, link: Link) -> None:
        self.states.append(link.state.value)


class Setting:
    """A scripted server and links to it, closed at the end of the test."""

    def __init__(self) -> None:
        self.server = ScriptedServer()
        self.server.on("ECHO").reply(lambda arguments: arguments[1])
        self.server.on("GET").reply(b"v")
        self.server.on("INCR").reply(1)
        self.owner = Owner()
        self.links: list[Link] = []

    def link(self, dial: Any = None, **settings: Any) -> Link:
        settings.setdefault("reconnect", SOON)
        settings.setdefault("close_timeout_ms", 0)
        link = Link("server:1", self.owner, dial or self.server.dial, Settings(**settings))
        self.links.append(link)
        return link

    async def open(self, **settings: Any) -> Link:
        link = self.link(**settings)
        await link.wait_open()
        return link

    @property
    def sent(self) -> list[str]:
        return [b" ".join(arguments).decode() for arguments in self.server.sent]


@pytest.fixture
async def it() -> AsyncIterator[Setting]:
    setting = Setting()
    yield setting
    for link in setting.links:
        await link.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks, f"left behind: {tasks}"


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def outcome(future: asyncio.Future[Any]) -> Any:
    """The value or the error, one of which must come."""
    async with asyncio.timeout(10):
        try:
            return await future
        except Exception as error:  # noqa: BLE001 - that is the point
            return error


# ------------------------------------------------------------------------ states


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


# ------------------------------------------------------------------- credentials


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


# ---------------------------------------------------------------- after a loss


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


async def test_a_protocol_error_kills_the_connection_and_reads_survive(it: Setting) -> None:
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
    await until(lambda: link.state is not LinkState.OPEN)
    assert "no command asked for" in str(link.last_error)
    assert await link.call(("GET", "k")) == b"v"


# ------------------------------------------------------------------- fail fast


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


# ----------------------------------------------------------------------- limits


async def test_the_backlog_is_bounded_while_there_is_no_connection(it: Setting) -> None:
    it.server.refuse_connections(1)
    link = it.link(max_command_buffer_len=2, reconnect=Constant(base_ms=50))
    kept = [link.call(("ECHO", number)) for number in range(2)]
    with pytest.raises(BackpressureError, match=r"2 commands wait for server:1 \(max_command_buffer_len 2\)"):
        await link.call(("ECHO", "one too many"))
    assert await asyncio.gather(*kept) == [b"0", b"1"]


async def test_callers_that_have_gone_do_not_fill_the_backlog(it: Setting) -> None:
    it.server.refuse_connections(1000)
    link = it.link(max_command_buffer_len=2, reconnect=NEVER, command_timeout_ms=0, idle_ping_ms=4)
    for _ in range(2):
        link.call(("ECHO", "gone")).cancel()
    await until(lambda: link.statistics()["waiting"] == 0)
    assert not link.call(("ECHO", "stays")).done()


async def test_replays_and_redirections_are_not_refused_for_lack_of_room(it: Setting) -> None:
    gate = it.server.on("GET").hold()
    link = await it.open(max_command_buffer_len=1, max_in_flight=10)
    written = [link.call(("GET", number)) for number in range(5)]
    await settle()
    it.server.cut()
    gate.held.clear()
    it.server.on("GET").reply(b"v")
    redirected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.resume(Slot(redirected, ("GET", "redirected"), asyncio.get_running_loop().time(), 1))
    assert await asyncio.gather(*written, redirected) == [b"v"] * 6


async def test_full_with_wait_slows_callers_down_and_loses_none(it: Setting) -> None:
    link = await it.open(max_in_flight=3, max_command_buffer_len=1)
    futures = [link.call(("ECHO", number)) for number in range(50)]
    assert link.statistics()["waiting"] == 47
    assert await asyncio.gather(*futures) == [b"%d" % number for number in range(50)]
    assert max(it.server.connection.writes) <= 3


async def test_full_with_error_refuses_at_once(it: Setting) -> None:
    link = await it.open(max_in_flight=3, when_full="error")
    futures = [link.call(("ECHO", number)) for number in range(3)]
    with pytest.raises(BackpressureError, match=r"3 commands are unanswered on server:1 \(max_in_flight 3"):
        await link.call(("ECHO", "one too many"))
    assert await asyncio.gather(*futures) == [b"0", b"1", b"2"]
    assert await link.call(("ECHO", "again")) == b"again"


async def test_paused_writing_waits_in_the_backlog_and_keeps_order(it: Setting) -> None:
    link = await it.open()
    it.server.connection.pause()
    futures = [link.call(("ECHO", number)) for number in range(3)]
    await settle()
    assert it.sent == []
    it.server.connection.resume()
    assert await asyncio.gather(*futures) == [b"0", b"1", b"2"]
    assert it.sent == ["ECHO 0", "ECHO 1", "ECHO 2"]


async def test_an_empty_command_is_refused(it: Setting) -> None:
    link = await it.open()
    with pytest.raises(TypeError, match="needs at least its name"):
        link.call(())
    with pytest.raises(TypeError, match="needs at least its name"):
        link.call_burst([("MULTI",), ()])
    assert await link.call(("ECHO", 1)) == b"1"


async def test_a_bad_argument_that_waited_fails_its_caller_alone(it: Setting) -> None:
    link = it.link()
    bad, good = link.call(("ECHO", None)), link.call(("ECHO", "good"))  # type: ignore[arg-type]
    assert await good == b"good"
    assert isinstance(await outcome(bad), TypeError)


# ------------------------------------------------------------------------- time


async def test_a_command_timeout_leaves_a_tombstone(it: Setting) -> None:
    gate = it.server.on("SLOW").hold()
    link = await it.open(command_timeout_ms=20)
    with pytest.raises(CommandTimeoutError, match="no reply to SLOW"):
        await link.call(("SLOW",))
    assert link.statistics()["tombstones"] == 1
    later = link.call(("ECHO", "later"))
    await settle()
    gate.release(b"too late")
    assert await later == b"later"
    assert link.statistics()["discarded_replies"] == 1
    assert len(it.server.connections) == 1


async def test_the_command_timeout_covers_waiting_for_a_connection(it: Setting) -> None:
    it.server.refuse_connections(1000)
    link = it.link(command_timeout_ms=20, reconnect=NEVER)
    with pytest.raises(CommandTimeoutError, match=r"not sent to server:1 .*refuses connections"):
        await link.call(("GET", "k"))


async def test_the_command_timeout_covers_replays(it: Setting) -> None:
    it.server.on("GET").drop()
    link = await it.open(command_timeout_ms=30, max_attempts=0)
    with pytest.raises(CommandTimeoutError):
        await link.call(("GET", "k"))
    assert len(it.sent) > 1


async def test_a_blocking_command_has_its_own_time_first(it: Setting) -> None:
    gate = it.server.on("BLPOP").hold()
    link = await it.open(command_timeout_ms=10, unresponsive_timeout_ms=10)
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    for_ever = link.call_blocking(("BLPOP", "a", "0"), None)
    bounded = link.call_blocking(("BLPOP", "b", "0.05"), 0.05)
    with pytest.raises(CommandTimeoutError):
        await bounded
    assert loop.time() - since_s >= 0.06
    assert not for_ever.done()
    assert len(it.server.connections) == 1
    gate.release([b"a", b"x"])
    assert await for_ever == [b"a", b"x"]


async def test_a_peer_that_owes_a_reply_for_too_long_is_given_up(it: Setting) -> None:
    it.server.expect("GET").hold()
    link = await it.open(unresponsive_timeout_ms=200)
    assert await link.call(("GET", "k")) == b"v"
    assert len(it.server.connections) == 2
    assert it.sent == ["GET k", "GET k"]


async def test_steady_writes_do_not_hide_a_dead_peer(it: Setting) -> None:
    it.server.on("ECHO").hold()
    link = await it.open(unresponsive_timeout_ms=30)
    while len(it.server.connections) == 1:
        link.call(("ECHO", "still writing")).add_done_callback(lambda future: future.exception())
        await asyncio.sleep(0.001)


async def test_a_resent_command_does_not_make_a_fresh_connection_look_dead(it: Setting) -> None:
    gate = it.server.on("GET").hold()
    link = await it.open(unresponsive_timeout_ms=10_000)
    old: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.resume(Slot(old, ("GET", "k"), asyncio.get_running_loop().time() - 60, 2))
    await settle()
    link._look()
    await settle()
    assert len(it.server.connections) == 1
    gate.release(b"v")
    assert isinstance(await outcome(old), CommandTimeoutError | bytes)


async def test_an_idle_connection_is_asked_for_a_sign_of_life(it: Setting) -> None:
    ping = it.server.on("PING").reply(b"PONG")
    link = await it.open(idle_ping_ms=10)
    await until(lambda: ping.count >= 2)
    it.server.on("PING").hold()
    await link.close()


async def test_an_idle_connection_that_does_not_answer_is_given_up(it: Setting) -> None:
    it.server.on("PING").hold()
    await it.open(idle_ping_ms=10, unresponsive_timeout_ms=20)
    await until(lambda: len(it.server.connections) >= 2)


# ------------------------------------------------------- alone, in bursts, redirected


async def test_a_command_that_goes_alone(it: Setting) -> None:
    gate = it.server.on("SLOW").hold()
    auth = it.server.on("AUTH").hold()
    link = await it.open()
    before = link.call(("SLOW",))
    alone = link.call_alone(("AUTH", "secret"))
    after = link.call(("ECHO", "after"))
    await settle()
    assert it.sent == ["SLOW"]
    gate.release(b"done")
    await settle()
    meanwhile = link.call(("ECHO", "meanwhile"))
    await settle()
    assert it.sent == ["SLOW", "AUTH secret"]
    auth.release(b"OK")
    assert await asyncio.gather(before, alone, after) == [b"done", b"OK", b"after"]
    assert await meanwhile == b"meanwhile"
    assert it.sent == ["SLOW", "AUTH secret", "ECHO after", "ECHO meanwhile"]
    assert await link.call(("ECHO", "later")) == b"later"


async def test_a_command_that_goes_alone_and_is_cancelled_lets_others_pass(it: Setting) -> None:
    gate = it.server.on("SLOW").hold()
    link = await it.open()
    link.call(("SLOW",))
    alone, after = link.call_alone(("AUTH", "secret")), link.call(("ECHO", "after"))
    await settle()
    alone.cancel()
    gate.release(b"done")
    assert await after == b"after"
    alone, after = link.call_alone(("AUTH", "secret")), link.call(("ECHO", "after"))
    alone.cancel()
    assert await after == b"after"
    assert it.sent == ["SLOW", "ECHO after", "ECHO after"]


async def test_an_unsent_command_still_goes_alone_after_a_loss(it: Setting) -> None:
    link = await it.open()
    auth = it.server.on("AUTH").hold()
    alone, after = link.call_alone(("AUTH", "secret")), link.call(("ECHO", "after"))
    it.server.cut()
    await until(lambda: auth.held)
    assert it.sent == ["AUTH secret"]
    auth.release(b"OK")
    assert await asyncio.gather(alone, after) == [b"OK", b"after"]


async def test_a_burst_goes_in_one_piece(it: Setting) -> None:
    for name in ("MULTI", "EXEC"):
        it.server.on(name).reply(name.encode())
    link = await it.open(max_in_flight=4)
    futures = [link.call(("ECHO", number)) for number in range(3)]
    burst = link.call_burst([("MULTI",), ("INCR", "k"), ("EXEC",)])
    later = link.call(("ECHO", "later"))
    assert await burst == [b"MULTI", 1, b"EXEC"]
    assert await asyncio.gather(*futures, later) == [b"0", b"1", b"2", b"later"]
    assert it.sent == ["ECHO 0", "ECHO 1", "ECHO 2", "MULTI", "INCR k", "EXEC", "ECHO later"]


async def test_a_burst_above_the_limit_goes_when_nothing_else_is_in_flight(it: Setting) -> None:
    link = await it.open(max_in_flight=2)
    first = link.call(("ECHO", "first"))
    burst = link.call_burst([("ECHO", number) for number in range(5)])
    assert await first == b"first"
    assert await burst == [b"%d" % number for number in range(5)]
    assert await link.call_burst([]) == []


async def test_a_burst_that_was_written_is_not_sent_again(it: Setting) -> None:
    it.server.on("MULTI").reply(b"OK")
    it.server.on("EXEC").drop()
    link = await it.open(retry_idempotent_writes=True)
    with pytest.raises(OutcomeUnknownError):
        await link.call_burst([("MULTI",), ("EXEC",)])
    assert it.sent == ["MULTI", "EXEC"]


async def test_a_burst_that_was_not_written_is_sent_again_whole(it: Setting) -> None:
    for name in ("MULTI", "EXEC"):
        it.server.on(name).reply(name.encode())
    link = await it.open()
    burst = link.call_burst([("MULTI",), ("INCR", "k"), ("EXEC",)])
    it.server.cut()
    assert await burst == [b"MULTI", 1, b"EXEC"]
    assert it.sent == ["MULTI", "INCR k", "EXEC"]


async def test_a_harmless_burst_is_sent_again_from_its_beginning(it: Setting) -> None:
    it.server.on("ASKING").reply(b"OK")
    it.server.expect("GET").drop()
    link = await it.open()
    assert await link.call_burst([("ASKING",), ("GET", "k")], is_harmless=True) == [b"OK", b"v"]
    assert it.sent == ["ASKING", "GET k"] * 2


async def test_a_burst_with_several_commands_unanswered_is_repeated_once(it: Setting) -> None:
    it.server.expect("ECHO").hold()
    link = await it.open()
    burst = link.call_burst([("ECHO", number) for number in range(3)], is_harmless=True)
    await settle()
    it.server.cut()
    assert await burst == [b"0", b"1", b"2"]
    assert it.sent == ["ECHO 0", "ECHO 1", "ECHO 2"] * 2


async def test_a_redirected_command_keeps_its_caller(it: Setting) -> None:
    it.server.expect("GET").error("MOVED 1 elsewhere:1")
    there = Setting()
    there.server.on("GET").reply(b"from elsewhere")
    other = there.link()
    it.links.append(other)
    it.owner.redirect = other.resume
    link = await it.open()
    assert await link.call(("GET", "k")) == b"from elsewhere"


async def test_a_reply_whose_caller_has_gone_is_told(it: Setting) -> None:
    gate = it.server.on("BLPOP").hold()
    link = await it.open()
    orphans: list[tuple[Any, Any]] = []
    link.on_orphan = lambda slot, reply: orphans.append((slot.arguments, reply))
    future = link.call_blocking(("BLPOP", "q", "0"), None)
    await settle()
    future.cancel()
    gate.release([b"q", b"element"])
    await link.call(("ECHO", 1))
    assert orphans == [(("BLPOP", "q", "0"), [b"q", b"element"])]


# ------------------------------------------------------------------------- close


async def test_close_leaves_no_future_pending(it: Setting) -> None:
    it.server.on("SLOW").hold()
    link = await it.open(max_in_flight=2)
    written = [link.call(("SLOW",)) for _ in range(2)]
    await settle()
    waiting = link.call(("SLOW",))
    await link.close()
    assert [type(await outcome(future)) for future in written] == [OutcomeUnknownError] * 2
    assert isinstance(await outcome(waiting), ClosedError)
    with pytest.raises(ClosedError, match="the client of server:1 is closed"):
        await link.call(("GET", "k"))
    with pytest.raises(ClosedError):
        await link.wait_open()


async def test_close_waits_for_replies_that_are_on_their_way(it: Setting) -> None:
    gate = it.server.on("SLOW").hold()
    link = await it.open(close_timeout_ms=10_000, max_in_flight=2)
    it.server.cut()
    await until(lambda: link.state is LinkState.OPEN)
    futures = [link.call(("SLOW", number)) for number in range(3)]
    await settle()
    closing = asyncio.ensure_future(link.close())
    await settle()
    for value in (b"first", b"second", b"third"):
        with pytest.raises(ClosedError):
            await link.call(("GET", "too late"))
        await until(lambda: gate.held)
        gate.release(value)
        await settle()
    await closing
    assert await asyncio.gather(*futures) == [b"first", b"second", b"third"]


async def test_what_was_issued_just_before_close_is_answered(it: Setting) -> None:
    link = await it.open(close_timeout_ms=10_000)
    future = link.call(("ECHO", "last words"))
    await link.close()
    assert await future == b"last words"


@pytest.mark.parametrize("state", ["new", "connecting", "waiting", "closed"])
async def test_close_in_every_state(it: Setting, state: str) -> None:
    async def never(connection: Connection) -> ServerFacts:
        await asyncio.Event().wait()
        raise AssertionError

    link = it.link(dial=never if state == "connecting" else None, reconnect=NEVER)
    futures = []
    if state == "waiting":
        it.server.refuse_connections(1)
    if state not in ("new", "closed"):
        futures.append(link.call(("GET", "k")))
        await settle()
    if state == "closed":
        await link.close()
    assert link.state.value == state
    await asyncio.gather(link.close(), link.close())
    assert link.state is LinkState.CLOSED
    for future in futures:
        assert isinstance(await outcome(future), ClosedError)


async def test_a_connection_lost_during_close_ends_everything(it: Setting) -> None:
    it.server.on("GET").hold()
    link = await it.open(close_timeout_ms=60_000)
    future = link.call(("GET", "k"))
    await settle()
    closing = asyncio.ensure_future(link.close())
    await settle()
    it.server.cut()
    await closing
    assert isinstance(await outcome(future), OutcomeUnknownError)
    assert len(it.server.connections) == 1


async def test_a_cancelled_close_goes_on(it: Setting) -> None:
    it.server.on("GET").hold()
    link = await it.open(close_timeout_ms=20)
    future = link.call(("GET", "k"))
    await settle()
    closing = asyncio.ensure_future(link.close())
    await settle()
    closing.cancel()
    await link.close()
    assert isinstance(await outcome(future), OutcomeUnknownError)


# ------------------------------------------------------------- loops, forks, contexts


async def test_another_loop_gets_a_clear_error(it: Setting) -> None:
    it.server.refuse_connections(1000)
    connected, waiting = Setting(), it.link(reconnect=NEVER)
    link = await connected.open()
    it.links.append(link)
    waiting.start()
    await settle()
    errors: list[str] = []

    async def misuse(act: Callable[[], Any]) -> None:
        try:
            await act()
        except ClosedError as error:
            errors.append(str(error))

    acts = [lambda: link.call(("GET", "k")), lambda: waiting.call(("GET", "k")), link.close]
    for act in acts:
        thread = threading.Thread(target=asyncio.run, args=(misuse(act),))
        thread.start()
        thread.join()
    assert len(errors) == 3
    assert all("another event loop" in text for text in errors)
    assert await link.call(("GET", "k")) == b"v"


async def test_a_forked_child_has_only_closed_links(it: Setting) -> None:
    link = await it.open()
    link.call(("ECHO", "begins a tick"))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        message = "nothing was raised"
        try:
            link.call(("GET", "k")).result()
        except ClosedError as error:
            message = str(error)
        finally:
            os.write(write, message.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
        assert b"server:1 was opened before fork and cannot be used in the child" in answer.read()
    assert await link.call(("GET", "k")) == b"v"


async def test_nothing_keeps_the_context_of_the_first_caller() -> None:
    class Request:
        pass

    variable: contextvars.ContextVar[Request] = contextvars.ContextVar("request")
    server = ScriptedServer()
    server.on("GET").reply(b"v")
    links: list[Link] = []

    async def handle() -> weakref.ref[Request]:
        request = Request()
        variable.set(request)
        link = Link("server:1", Owner(), server.dial, Settings())
        links.append(link)
        assert await link.call(("GET", "k")) == b"v"
        return weakref.ref(request)

    reference = await asyncio.create_task(handle())
    await settle()
    gc.collect()
    assert reference() is None
    await links[0].close()


async def test_pushes_reach_the_owner(it: Setting) -> None:
    await it.open()
    it.server.push(b"invalidate", [b"k"])
    await settle()
    assert it.owner.pushes == [[b"invalidate", [b"k"]]]


async def test_statistics(it: Setting) -> None:
    it.server.on("SLOW").hold()
    link = await it.open(max_in_flight=2)
    await link.call(("ECHO", 1))
    futures = [link.call(("SLOW",)) for _ in range(3)]
    await settle()
    futures[0].cancel()
    figures = link.statistics()
    assert 0 < figures.pop("latency_ms")["mean"] < 1000
    assert 0 <= figures.pop("queueing_ms")["max"] < 1000
    assert figures == {
        "state": "open",
        "in_flight": 2,
        "tombstones": 1,
        "waiting": 1,
        "bytes_sent": 0,
        "bytes_received": 0,
        "sent": 3,
        "discarded_replies": 0,
        "reconnections": 0,
    }
