"""Subscriptions as desired state, against scripted servers: order, gaps, limits, cancellation, the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.events import Connected, Disconnected, Event, TopologyChanged
from penstock.client.handshake import ServerFacts
from penstock.client.policies import Constant, NoReconnect, classify_error
from penstock.client.pubsub import (
    Dropped,
    Gap,
    Item,
    KeyspaceEvent,
    Message,
    PubSub,
    Subscriber,
    parse_keyspace,
)
from penstock.client.pubsub.inbox import Inbox
from penstock.client.router.base import Place, Redirection
from penstock.client.transports.base import Arguments
from penstock.client.transports.scripted import Answer, Gate, ScriptedServer, Words
from penstock.errors import (
    AuthenticationError,
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    NotSentError,
)
from penstock.protocol.replies import Push

SOON = Constant(base_ms=1)
NEVER = Constant(base_ms=1_000_000)

VERBS = ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE")


class Broker:
    """A server that confirms subscriptions as real ones do, and remembers what it has."""

    def __init__(self, protocol: int = 3) -> None:
        self.server = ScriptedServer(protocol)
        #: of the newest connection
        self.has: set[tuple[str, bytes]] = set()
        self._push_type: type[list[Any]] = Push if protocol == 3 else list
        self._protocol = protocol
        for verb in VERBS:
            self.server.on(verb).reply(self.confirm)
        # Recorded in ``sent``, unlike those of the handshake.
        self.server.on("PING").reply(b"PONG")

    async def dial(self, connection: Connection) -> ServerFacts:
        facts = await self.server.dial(connection)
        connection.speak(self._protocol)
        self.has.clear()
        return facts

    def confirm(self, arguments: Words) -> Any:
        """One push a name; the first stands in the place of the reply, the others follow it."""
        verb = arguments[0].decode().lower()
        kind = verb.replace("unsubscribe", "").replace("subscribe", "")
        pushes = []
        for name in arguments[1:]:
            if "un" in verb:
                self.has.discard((kind, name))
            else:
                self.has.add((kind, name))
            pushes.append(self._push_type([verb.encode(), name, len(self.has)]))
        transport = self.server.connection
        transport._answers.extend(Answer(arguments, transport, push) for push in pushes[1:])
        return pushes[0]

    def publish(self, channel: str, text: str) -> None:
        self.server.push(b"message", channel.encode(), text.encode())

    def cut(self) -> None:
        self.has.clear()
        self.server.cut()

    def hold(self, verb: str) -> Gate:
        return self.server.on(verb).hold()

    @property
    def sent(self) -> list[str]:
        return [b" ".join(arguments).decode() for arguments in self.server.sent]


class Map:
    """A router with as many servers as a test needs; shard channels go where it says."""

    def __init__(self) -> None:
        self.brokers: dict[str, Broker] = {}
        self.home = "home:1"
        self.owners: dict[bytes, str] = {}
        self.error: Exception | None = None

    def place(self, name: str) -> Place:
        return Place(name, self.brokers[name].dial)

    def place_for(self, arguments: Arguments) -> Place:
        if self.error is not None:
            raise self.error
        if arguments[0] == "SSUBSCRIBE":
            assert isinstance(arguments[1], bytes)
            return self.place(self.owners.get(arguments[1], self.home))
        return self.place(self.home)

    def follow(self, error: CommandError) -> Redirection | None:
        where = classify_error(str(error)).redirect
        if where is None:
            return None
        place = self.place(f"{where.host}:{where.port}")
        return Redirection(place, None, str(error).startswith("ASK"))  # type: ignore[arg-type]


class Setting:
    def __init__(self, protocol: int) -> None:
        self.protocol = protocol
        self.map = Map()
        self.broker = self.add("home:1")
        self.events: list[Event] = []
        self.hubs: list[PubSub] = []

    def add(self, name: str) -> Broker:
        self.map.brokers[name] = Broker(self.protocol)
        return self.map.brokers[name]

    def hub(self, **settings: Any) -> PubSub:
        settings = {"reconnect": SOON, "command_timeout_ms": 5_000, "close_timeout_ms": 0} | settings
        hub = PubSub(self.map, Settings(**settings), self.events.append)  # type: ignore[arg-type]
        self.hubs.append(hub)
        return hub

    def servers(self) -> dict[str, Any]:
        servers: dict[str, Any] = self.hubs[0].statistics()["servers"]
        return servers


@pytest.fixture(params=[2, 3])
async def it(request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    setting = Setting(request.param)
    yield setting
    for hub in setting.hubs:
        await hub.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks, f"left behind: {tasks}"


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine)


async def outcome(task: asyncio.Task[Any]) -> Any:
    async with asyncio.timeout(10):
        return (await asyncio.gather(task, return_exceptions=True))[0]


def taken(subscriber: Subscriber) -> list[Item]:
    """All that is there now."""
    items: list[Item] = []
    while (item := subscriber._inbox.take()) is not None:
        items.append(item)
    return items


def texts(subscriber: Subscriber) -> list[str]:
    """Messages by their text, everything else by its type."""
    return [
        item.data.decode()
        if isinstance(item, Message) and isinstance(item.data, bytes)
        else type(item).__name__
        for item in taken(subscriber)
    ]


# ------------------------------------------------------------------- subscribing


async def test_each_kind_of_message(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a", b"b", "a")
        await sub.psubscribe("p.*")
        await sub.ssubscribe("s")
        assert it.broker.sent == ["SUBSCRIBE a b", "PSUBSCRIBE p.*", "SSUBSCRIBE s"]
        assert (sub.channels, sub.patterns, sub.shard_channels) == ({b"a", b"b"}, {b"p.*"}, {b"s"})
        it.broker.publish("a", "one")
        it.broker.server.push(b"pmessage", b"p.*", b"p.1", b"two")
        it.broker.server.push(b"smessage", b"s", b"three")
        it.broker.publish("stranger", "nobody's")
        assert await sub.get() == Message(b"a", b"one")
        assert await sub.get() == Message(b"p.1", b"two", b"p.*", "pmessage")
        assert await sub.get() == Message(b"s", b"three", None, "smessage")
        assert await sub.get(timeout_ms=0) is None
    assert len(it.broker.server.connections) == 1


async def test_a_name_must_be_text_or_bytes(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        with pytest.raises(TypeError, match="not int"):
            await sub.subscribe(5)  # type: ignore[arg-type]
        await sub.subscribe()
        await sub.unsubscribe("never wanted")
        assert it.broker.sent == []


async def test_text_where_responses_are_decoded(it: Setting) -> None:
    async with it.hub(decode_responses=True).subscriber() as sub:
        it.broker.server.on("SUBSCRIBE").reply(
            lambda arguments: Push(["subscribe", arguments[1].decode(errors="surrogateescape"), 1])
        )
        if it.protocol == 2:
            return  # pushes of this script have the type of RESP3
        await sub.subscribe(b"caf\xc3\xa9")
        await sub.subscribe(b"\xff")
        it.broker.server.push("message", "café", "x")
        assert await sub.get() == Message("café", "x")
        assert sub.channels == {"café", "\udcff"}
        assert it.broker.server.sent == [(b"SUBSCRIBE", "café".encode()), (b"SUBSCRIBE", b"\xff")]


async def test_several_subscribers_are_one_subscription(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        await two.subscribe("a", "b")
        assert it.broker.sent == ["SUBSCRIBE a", "PING", "SUBSCRIBE b"]
        for number in range(3):
            it.broker.publish("a", str(number))
        it.broker.publish("b", "two's")
        await settle()
        assert texts(one) == ["0", "1", "2"]
        assert texts(two) == ["0", "1", "2", "two's"]
        await one.unsubscribe("a")
        it.broker.publish("a", "later")
        await settle()
        assert (texts(one), texts(two)) == ([], ["later"])
        await two.unsubscribe()
        assert it.broker.sent[3:] == ["UNSUBSCRIBE a b"]
        assert not it.broker.has
        it.broker.publish("a", "leaked")
        await settle()
        assert texts(two) == []


async def test_who_comes_later_sees_nothing_older(it: Setting) -> None:
    """Those who have it already do."""
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        gate = it.broker.hold("PING")
        coming = start(two.subscribe("a"))
        await settle()
        it.broker.publish("a", "older")
        await settle()
        assert not coming.done()
        gate.release(b"PONG")
        await coming
        it.broker.publish("a", "newer")
        await settle()
        assert texts(one) == ["older", "newer"]
        assert texts(two) == ["newer"]


async def test_who_comes_while_it_is_asked_for_waits_for_its_own_answer(it: Setting) -> None:
    hub = it.hub()
    gate = it.broker.hold("SUBSCRIBE")
    pings = it.broker.hold("PING")
    async with hub.subscriber() as one, hub.subscriber() as two:
        first = start(one.subscribe("a"))
        await until(lambda: gate.held)
        second = start(two.subscribe("a"))
        await until(lambda: pings.held)
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await first
        it.broker.publish("a", "between")
        await settle()
        assert not second.done()
        pings.release(b"PONG")
        await second
        assert (texts(one), texts(two)) == (["between"], [])
        assert it.broker.sent == ["SUBSCRIBE a", "PING"]


async def test_a_user_who_may_not_ping(it: Setting) -> None:
    hub = it.hub()
    it.broker.server.on("PING").error("NOPERM no")
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        await two.subscribe("a")
        it.broker.publish("a", "x")
        await settle()
        assert (texts(one), texts(two)) == (["x"], ["x"])


async def test_a_refusal_is_the_callers(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        it.broker.server.on("SUBSCRIBE").reply(
            lambda words: CommandError("NOPERM no") if b"secret" in words else it.broker.confirm(words)
        )
        with pytest.raises(CommandError, match="NOPERM"):
            await two.subscribe("a", "b", "secret")
        # As before the call, also for what was not refused.
        await until(lambda: it.broker.has == {("", b"a")})
        assert two.channels == frozenset()
        it.broker.publish("a", "x")
        await settle()
        assert (texts(one), texts(two)) == (["x"], [])


async def test_one_refusal_does_not_stop_another_call(it: Setting) -> None:
    hub = it.hub()
    it.broker.server.on("SUBSCRIBE", "a").error("NOPERM no")
    async with hub.subscriber() as sub:
        # Before there is a connection: they would go in one command.
        refused, taken_on = start(sub.subscribe("a")), start(sub.subscribe("b"))
        assert isinstance(await outcome(refused), CommandError)
        assert await outcome(taken_on) is None
        assert sub.channels == {b"b"}


async def test_a_refusal_counts_for_who_is_left_only_if_it_was_theirs(it: Setting) -> None:
    """The one that was refused goes away before the refusal comes."""
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        gate = it.broker.hold("SUBSCRIBE")
        it.broker.cut()
        forbidden = start(sub.subscribe("forbidden"))
        await until(lambda: gate.held)
        assert it.broker.sent[-1] == "SUBSCRIBE a forbidden"
        forbidden.cancel()
        await outcome(forbidden)
        it.broker.server.on("SUBSCRIBE").reply(it.broker.confirm)
        gate.release(CommandError("NOPERM no"))
        assert isinstance(await sub.get(), Gap)
        assert it.broker.sent[-1] == "SUBSCRIBE a"


async def test_no_answer_is_a_timeout_and_a_withdrawal(it: Setting) -> None:
    async with it.hub(command_timeout_ms=30).subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        with pytest.raises(CommandTimeoutError, match="withdrawn"):
            await sub.subscribe("a")
        assert sub.channels == frozenset()
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await until(lambda: it.broker.sent == ["SUBSCRIBE a", "UNSUBSCRIBE a"])
        gate = it.broker.hold("UNSUBSCRIBE")
        it.broker.server.on("SUBSCRIBE").reply(it.broker.confirm)
        await sub.subscribe("b")
        with pytest.raises(CommandTimeoutError, match="needs no repetition"):
            await sub.unsubscribe("b")


# ------------------------------------------------- wanted, not wanted, wanted again


async def test_a_cancelled_subscribe_is_undone_when_it_is_answered(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        task = start(sub.subscribe("a"))
        await until(lambda: gate.held)
        task.cancel()
        assert isinstance(await outcome(task), asyncio.CancelledError)
        assert sub.channels == frozenset()
        assert it.broker.sent == ["SUBSCRIBE a"]
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await until(lambda: it.broker.sent == ["SUBSCRIBE a", "UNSUBSCRIBE a"])


async def test_cancelled_before_there_is_a_connection_nothing_is_sent(it: Setting) -> None:
    hub = it.hub(reconnect=Constant(base_ms=20))
    it.broker.server.refuse_connections(1)
    async with hub.subscriber() as sub:
        task = start(sub.subscribe("a"))
        await settle()
        task.cancel()
        await outcome(task)
        await sub.subscribe("b")
        assert it.broker.sent == ["SUBSCRIBE b"]


async def test_two_calls_for_one_channel_and_one_is_cancelled(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        one, two = start(sub.subscribe("a")), start(sub.subscribe("a"))
        await until(lambda: gate.held)
        one.cancel()
        await outcome(one)
        assert sub.channels == {b"a"}
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await two
        three = start(sub.subscribe("a"))
        three.cancel()
        await outcome(three)
        assert sub.channels == {b"a"}
        assert it.broker.sent == ["SUBSCRIBE a"]


async def test_the_last_word_counts(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        leaving_gate = it.broker.hold("UNSUBSCRIBE")
        coming = start(sub.subscribe("a"))
        await until(lambda: gate.held)
        leaving = start(sub.unsubscribe("a"))
        assert await outcome(coming) is None  # overtaken, not failed
        await settle()
        assert not leaving.done()
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await until(lambda: leaving_gate.held)
        again = start(sub.subscribe("a"))
        assert await outcome(leaving) is None
        await settle()
        assert not again.done()
        leaving_gate.release(it.broker.confirm((b"UNSUBSCRIBE", b"a")))
        await until(lambda: gate.held)
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await again
        assert it.broker.sent == ["SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE a"]


@pytest.mark.parametrize("seed", range(20))
async def test_the_server_ends_up_with_what_is_wanted(it: Setting, seed: int) -> None:
    """Whatever is wanted, withdrawn, cancelled, refused and cut meanwhile, in whatever order."""
    chance = random.Random(seed)
    hub = it.hub(command_timeout_ms=0)
    subscribers = [hub.subscriber() for _ in range(3)]
    it.broker.server.on("SUBSCRIBE").reply(
        lambda words: CommandError("NOPERM no") if b"forbidden" in words else it.broker.confirm(words)
    )
    tasks: list[asyncio.Task[Any]] = []
    for _ in range(200):
        sub = chance.choice(subscribers)
        names = chance.sample(["a", "b", "c", "forbidden"], chance.randint(1, 3))
        action = chance.choice(
            [sub.subscribe, sub.psubscribe, sub.ssubscribe, sub.unsubscribe, sub.punsubscribe]
        )
        tasks.append(start(action(*names)))
        match chance.randrange(12):
            case 0:
                it.broker.cut()
            case 1 | 2:
                chance.choice(tasks).cancel()
            case 3 | 4 | 5:
                await asyncio.sleep(0)
            case 6:
                await asyncio.sleep(0.002)
    for task in tasks:
        error = await outcome(task)
        assert error is None or isinstance(error, CommandError | asyncio.CancelledError), error
    wanted: set[tuple[str, Any]] = set()
    for sub in subscribers:
        for kind, names in (("", sub.channels), ("p", sub.patterns), ("s", sub.shard_channels)):
            wanted |= {(kind, name) for name in names}
    await until(lambda: it.broker.has == wanted)
    await settle()
    assert it.broker.has == wanted
    for sub in subscribers:
        taken(sub)
    for kind, name in wanted:
        word = f"{kind}message".encode()
        it.broker.server.push(*((word, name, b"x", b"x") if kind == "p" else (word, name, b"x")))
    await settle()
    for sub in subscribers:
        assert len(taken(sub)) == len(sub.channels) + len(sub.patterns) + len(sub.shard_channels)
        await sub.close()


# -------------------------------------------------------------------------- gaps


async def test_after_a_loss_everything_is_asked_for_again_in_few_commands(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a", "b")
        await two.subscribe("b", "c")
        await two.psubscribe("p", "q")
        await two.ssubscribe("{s}1", "{s}2")
        await two.ssubscribe("{t}")
        it.broker.publish("b", "before")
        await settle()
        before = len(it.broker.sent)
        it.broker.cut()
        await until(lambda: len(it.broker.has) == 8)
        it.broker.publish("b", "after")
        await settle()
        assert it.broker.sent[before:] == [
            "SUBSCRIBE a b c",
            "PSUBSCRIBE p q",
            "SSUBSCRIBE {s}1 {s}2",
            "SSUBSCRIBE {t}",
        ]
        before_it, gap, after_it = taken(one)
        assert (before_it, after_it) == (Message(b"b", b"before"), Message(b"b", b"after"))
        assert isinstance(gap, Gap)
        assert (gap.server, gap.channels) == ("home:1", (b"a", b"b"))
        assert 0 < gap.duration_s < 5
        _, gap, _ = taken(two)
        assert isinstance(gap, Gap)
        assert gap.channels == (b"b", b"c", b"p", b"q", b"{s}1", b"{s}2", b"{t}")
        assert it.events == [
            Connected("home:1", is_reconnection=False),
            Disconnected("home:1", it.events[1].error if isinstance(it.events[1], Disconnected) else None),
            Connected("home:1", is_reconnection=True),
        ]


async def test_a_message_between_two_confirmations_comes_after_its_gap(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.psubscribe("p")
        gate = it.broker.hold("PSUBSCRIBE")
        it.broker.cut()
        await until(lambda: gate.held)
        assert taken(sub) == []  # told with the rest, as long as nothing comes
        it.broker.publish("a", "early")
        await settle()
        gap, message = taken(sub)
        assert isinstance(gap, Gap)
        assert (gap.channels, message) == ((b"a",), Message(b"a", b"early"))
        gate.release(it.broker.confirm((b"PSUBSCRIBE", b"p")))
        await settle()
        (gap,) = taken(sub)
        assert isinstance(gap, Gap)
        assert gap.channels == (b"p",)


async def test_one_gap_for_an_outage_of_many_attempts(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        it.broker.server.refuse_connections(3)
        it.broker.cut()
        assert isinstance(await sub.get(), Gap)
        assert texts(sub) == []


async def test_lost_again_before_all_is_back(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.psubscribe("p")
        gate = it.broker.hold("PSUBSCRIBE")
        it.broker.cut()
        await until(lambda: gate.held)
        it.broker.server.on("PSUBSCRIBE").reply(it.broker.confirm)
        it.broker.cut()
        await until(lambda: len(it.broker.has) == 2)
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert sorted(gap.channels) == [b"a", b"p"]  # two that met: nothing came in between
        assert texts(sub) == []


async def test_who_subscribes_during_the_outage_has_no_gap(it: Setting) -> None:
    hub = it.hub(reconnect=Constant(base_ms=20))
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        it.broker.cut()
        await two.subscribe("a", "b")
        await settle()
        assert texts(one) == ["Gap"]
        assert texts(two) == []
        assert it.broker.sent == ["SUBSCRIBE a", "SUBSCRIBE a b"]


async def test_unsubscribed_during_the_outage_is_not_asked_for_again(it: Setting) -> None:
    async with it.hub(reconnect=Constant(base_ms=20)).subscriber() as sub:
        await sub.subscribe("a", "b")
        it.broker.cut()
        await sub.unsubscribe("a")
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert gap.channels == (b"b",)
        assert it.broker.sent[1:] == ["SUBSCRIBE b"]


async def test_a_subscription_that_is_refused_after_a_loss_fails_its_subscribers(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        await two.subscribe("b")
        it.broker.publish("a", "kept")
        await settle()
        it.broker.server.on("SUBSCRIBE").reply(
            lambda words: CommandError("NOPERM no more") if b"a" in words else it.broker.confirm(words)
        )
        it.broker.cut()
        assert isinstance(await two.get(), Gap)
        assert await one.get() == Message(b"a", b"kept")
        for _ in range(2):
            with pytest.raises(CommandError, match="NOPERM no more"):
                await one.get()
        with pytest.raises(CommandError):
            async for _ in one:
                pass
        with pytest.raises(CommandError):
            await one.subscribe("c")
        assert it.broker.has == {("", b"b")}


async def test_a_silent_peer_is_found_out(it: Setting) -> None:
    async with it.hub(idle_ping_ms=10, unresponsive_timeout_ms=40).subscriber() as sub:
        await sub.subscribe("a")
        gate = it.broker.hold("PING")
        async with asyncio.timeout(10):
            assert isinstance(await sub.get(), Gap)
        assert gate.held
        assert it.broker.has == {("", b"a")}


# ------------------------------------------------------------------------- places


async def test_shard_channels_go_to_their_owners(it: Setting) -> None:
    other = it.add("other:1")
    it.map.owners = {b"s": "other:1"}
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.ssubscribe("s", "t")
        assert (it.broker.has, other.has) == ({("", b"a"), ("s", b"t")}, {("s", b"s")})
        other.server.push(b"smessage", b"s", b"x")
        assert await sub.get() == Message(b"s", b"x", None, "smessage")
        await sub.sunsubscribe()
        assert (it.broker.has, other.has) == ({("", b"a")}, set())


async def test_a_slot_that_moves_takes_its_channels_along(it: Setting) -> None:
    """The router has not heard of it yet: the old owner says where to."""
    other = it.add("other:1")
    async with it.hub().subscriber() as sub:
        await sub.ssubscribe("{s}1", "{s}2")
        it.broker.server.on("SSUBSCRIBE").error("MOVED 1 other:1")
        for name in (b"{s}1", b"{s}2"):
            it.broker.has.discard(("s", name))
            it.broker.server.push(b"sunsubscribe", name, 0)
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert (gap.server, gap.channels) == ("other:1", (b"{s}1", b"{s}2"))
        assert it.broker.sent[1:] == ["SSUBSCRIBE {s}1 {s}2"]
        assert other.sent == ["SSUBSCRIBE {s}1 {s}2"]
        await until(lambda: list(it.servers()) == ["other:1"])
        other.server.push(b"smessage", b"{s}2", b"x")
        assert await sub.get() == Message(b"{s}2", b"x", None, "smessage")


async def test_servers_that_do_not_agree_are_not_asked_too_often(it: Setting) -> None:
    other = it.add("other:1")
    it.broker.server.on("SSUBSCRIBE").error("MOVED 1 other:1")
    other.server.on("SSUBSCRIBE").error("MOVED 1 home:1")
    async with it.hub(reconnect=NEVER, max_redirections=4).subscriber() as sub:
        task = start(sub.ssubscribe("s"))
        await until(lambda: len(it.broker.sent) + len(other.sent) == 5)
        await settle()
        assert len(it.broker.sent) + len(other.sent) == 5
        task.cancel()
        await outcome(task)


@pytest.mark.parametrize("error", ["CLUSTERDOWN wait", "TRYAGAIN please", "ASK 1 home:1"])
async def test_a_refusal_for_now_is_tried_again(it: Setting, error: str) -> None:
    it.broker.server.expect("SSUBSCRIBE").error(error)
    it.broker.server.expect("SSUBSCRIBE").error(error)
    async with it.hub().subscriber() as sub:
        await sub.ssubscribe("s")
        assert it.broker.sent == ["SSUBSCRIBE s"] * 3


async def test_a_redirection_that_leads_nowhere_is_an_error(it: Setting) -> None:
    it.broker.server.on("SSUBSCRIBE").error("MOVED 1 ?:0")
    async with it.hub().subscriber() as sub:
        with pytest.raises(CommandError, match="MOVED"):
            await sub.ssubscribe("s")


async def test_channels_leave_a_server_that_stays_away(it: Setting) -> None:
    other = it.add("other:1")
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.psubscribe("p")
        it.broker.server.refuse_connections(1_000_000)
        it.map.home = "other:1"
        it.broker.cut()
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert (gap.server, gap.channels) == ("other:1", (b"a", b"p"))
        assert other.has == {("", b"a"), ("p", b"p")}
        assert list(it.servers()) == ["other:1"]


async def test_channels_leave_a_server_that_is_not_part_of_it_any_more(it: Setting) -> None:
    other = it.add("other:1")
    hub = it.hub()
    async with hub.subscriber() as sub:
        await sub.subscribe("a")
        it.map.home = "other:1"
        hub.on_topology(TopologyChanged(added=("other:1",), removed=("home:1", "unknown:1")))
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert gap.server == "other:1"
        it.broker.publish("a", "from the old one")
        other.publish("a", "from the new one")
        assert await sub.get() == Message(b"a", b"from the new one")


async def test_a_router_that_knows_no_way(it: Setting) -> None:
    it.map.error = NotSentError("no node is known")
    async with it.hub().subscriber() as sub:
        with pytest.raises(NotSentError):
            await sub.subscribe("a")
        it.map.error = None
        await sub.ssubscribe("s")
        it.map.error = NotSentError("the map is being read")
        it.broker.server.push(b"sunsubscribe", b"s", 0)
        await asyncio.sleep(0.01)
        it.map.error = None
        assert isinstance(await sub.get(), Gap)


async def test_credentials_that_are_refused_end_it(it: Setting) -> None:
    async def refused(connection: Connection) -> ServerFacts:
        raise AuthenticationError("wrong password")

    it.broker.dial = refused  # type: ignore[method-assign]
    async with it.hub().subscriber() as sub:
        with pytest.raises(AuthenticationError, match="wrong password"):
            await sub.subscribe("a")


async def test_a_policy_that_gives_up_fails_the_subscribers(it: Setting) -> None:
    hub = it.hub(reconnect=NoReconnect())
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        gate = it.broker.hold("SUBSCRIBE")
        task = start(two.subscribe("b"))
        await until(lambda: gate.held)
        it.broker.cut()
        assert "cut" in str(await outcome(task))
        with pytest.raises(Exception, match="cut"):
            await one.get()
        # Whoever did not have anything yet may try again.
        it.broker.server.on("SUBSCRIBE").reply(it.broker.confirm)
        await two.subscribe("c")
        assert it.broker.has == {("", b"c")}


async def test_fail_fast_does_not_wait_for_a_connection(it: Setting) -> None:
    hub = it.hub(fail_fast=True, reconnect=Constant(base_ms=20))
    async with hub.subscriber() as sub:
        it.broker.server.refuse_connections(1)
        for _ in range(2):
            with pytest.raises(NotSentError, match="refuses"):
                await sub.subscribe("a")
        await asyncio.sleep(0.03)
        await sub.subscribe("b")
        it.broker.cut()
        with pytest.raises(NotSentError, match="cut"):
            await sub.subscribe("c")
        assert isinstance(await sub.get(), Gap)
        assert it.broker.has == {("", b"b")}


# ------------------------------------------------------------------------- limits


def filled(overflow: Any, count: int) -> Inbox:
    inbox = Inbox(3, overflow)
    for number in range(count):
        inbox.put(message(number))
    return inbox


def message(number: int) -> Message:
    return Message(b"c", b"%d" % number)


def drained(inbox: Inbox) -> list[Item]:
    items: list[Item] = []
    while (item := inbox.take()) is not None:
        items.append(item)
    return items


def gap(*channels: bytes, server: str = "s", duration_s: float = 1.0) -> Gap:
    return Gap(server, channels, duration_s)


async def test_drop_oldest() -> None:
    inbox = filled("drop_oldest", 6)
    assert drained(inbox) == [Dropped(3), message(3), message(4), message(5)]
    assert (len(inbox), inbox.dropped) == (0, 3)


async def test_drop_newest() -> None:
    inbox = filled("drop_newest", 6)
    assert inbox.take() == message(0)
    inbox.put(message(6))
    inbox.put(message(7))
    assert drained(inbox) == [message(1), message(2), Dropped(3), message(6), Dropped(1)]
    inbox.put(message(8))
    assert drained(inbox) == [message(8)]


async def test_a_gap_is_never_dropped_and_meets_its_like() -> None:
    inbox = Inbox(2, "drop_oldest")
    inbox.put(message(0))
    inbox.put_gap(gap(b"a"))
    inbox.put(message(1))
    inbox.put_gap(gap(b"a", b"b", duration_s=2.0))
    inbox.put_gap(gap(b"z", server="t"))
    for number in range(2, 5):
        inbox.put(message(number))
    assert drained(inbox) == [
        Dropped(3),
        gap(b"a", b"b", duration_s=3.0),
        gap(b"z", server="t"),
        message(3),
        message(4),
    ]
    for _ in range(1000):
        inbox.put_gap(gap(b"a"))
        inbox.put(message(9))
    assert len(inbox._items) <= 5


async def test_drop_newest_keeps_the_order_of_losses() -> None:
    inbox = filled("drop_newest", 4)
    inbox.put_gap(gap(b"c"))
    inbox.put(message(4))
    assert drained(inbox) == [message(0), message(1), message(2), Dropped(2), gap(b"c")]


async def test_overflow_can_end_a_subscriber(it: Setting) -> None:
    hub = it.hub(pubsub_queue_len=2, pubsub_overflow="close")
    async with hub.subscriber() as slow, hub.subscriber() as quick:
        await slow.subscribe("a")
        await quick.subscribe("a", "b")
        for number in range(3):
            it.broker.publish("a", str(number))
            assert await quick.get() == Message(b"a", b"%d" % number)
        assert slow.waiting == 2
        assert [(await slow.get()) for _ in range(2)] == [Message(b"a", b"0"), Message(b"a", b"1")]
        with pytest.raises(BackpressureError, match="pubsub_queue_len 2"):
            await slow.get()
        assert it.broker.has == {("", b"a"), ("", b"b")}
        await quick.unsubscribe("a")
        assert it.broker.has == {("", b"b")}


async def test_the_last_subscriber_may_fail_amid_a_delivery(it: Setting) -> None:
    async with it.hub(pubsub_queue_len=1, pubsub_overflow="close").subscriber() as sub:
        await sub.subscribe("a")
        for number in range(3):
            it.broker.publish("a", str(number))
        assert await sub.get() == Message(b"a", b"0")
        with pytest.raises(BackpressureError):
            await sub.get()
        await until(lambda: not it.servers())


async def test_a_full_queue_does_not_stop_the_loop(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        for number in range(1000):
            it.broker.publish("a", str(number))
        await settle()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = start(others())
        for _ in range(1000):
            await sub.get()
        task.cancel()
        await outcome(task)
        assert turns >= 5


# ------------------------------------------------------------------------- taking


async def test_get_waits_as_long_as_it_is_told(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        assert await sub.get(timeout_ms=5) is None
        waiting = start(sub.get())
        await settle()
        it.broker.publish("a", "x")
        assert await outcome(waiting) == Message(b"a", b"x")


async def test_a_cancelled_get_takes_nothing(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        one, two = start(sub.get()), start(sub.get())
        await settle()
        inbox = sub._inbox
        inbox.put(message(1))  # calls the first …
        one.cancel()  # … which goes away before it hears
        assert await outcome(two) == message(1)
        assert isinstance(await outcome(one), asyncio.CancelledError)
        three, four = start(sub.get()), start(sub.get())
        await settle()
        three.cancel()
        await settle()
        inbox.put(message(2))
        assert await outcome(four) == message(2)
        assert not inbox._waiters


async def test_messages_alone(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        it.broker.publish("a", "1")
        await settle()
        it.broker.cut()
        await until(lambda: it.broker.has)
        it.broker.publish("a", "2")
        seen = []
        async for each in sub.messages():
            seen.append(each.data)
            if len(seen) == 2:
                break
        assert seen == [b"1", b"2"]


# ------------------------------------------------------------------------ the end


async def test_close_ends_everybody_who_waits(it: Setting) -> None:
    hub = it.hub()
    sub = hub.subscriber()
    await sub.subscribe("a")
    it.broker.publish("a", "not taken")
    await settle()
    gate = it.broker.hold("SUBSCRIBE")

    async def iterate() -> list[Item]:
        return [item async for item in sub]

    iterating, getting, coming = start(iterate()), start(sub.get()), start(sub.subscribe("b"))
    await until(lambda: gate.held)
    await sub.close()
    await sub.close()
    assert await outcome(iterating) == [Message(b"a", b"not taken")]
    assert isinstance(await outcome(getting), ClosedError)
    assert isinstance(await outcome(coming), ClosedError)
    for use in (sub.get(), sub.subscribe("x"), sub.unsubscribe("x")):
        with pytest.raises(ClosedError):
            await use
    assert not it.servers()
    assert it.broker.server.connection.is_closing()
    assert not [event for event in it.events if isinstance(event, Disconnected)]


async def test_closing_unsubscribes_what_nobody_else_wants(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one:
        await one.subscribe("a")
        async with hub.subscriber() as two:
            await two.subscribe("a", "b", "c")
        await until(lambda: it.broker.has == {("", b"a")})
        assert it.broker.sent[-1] == "UNSUBSCRIBE b c"
    async with hub.subscriber() as three:
        await three.subscribe("d")
    assert len(it.broker.server.connections) == 2


async def test_the_end_of_the_client_is_that_of_its_subscribers(it: Setting) -> None:
    hub = it.hub()
    one, idle = hub.subscriber(), hub.subscriber()
    await one.subscribe("a")
    waiting = [start(one.get()), start(idle.get())]
    await settle()
    await hub.close()
    for task in waiting:
        assert isinstance(await outcome(task), ClosedError)
    with pytest.raises(ClosedError, match="client is closed"):
        hub.subscriber()
    with pytest.raises(ClosedError):
        await one.subscribe("b")
    assert hub.statistics() == {
        "subscribers": 0,
        "waiting": 0,
        "dropped": 0,
        "channels": 0,
        "patterns": 0,
        "shard_channels": 0,
        "servers": {},
    }


async def test_close_during_an_outage(it: Setting) -> None:
    hub = it.hub(reconnect=NEVER)
    async with hub.subscriber() as sub:
        await sub.subscribe("a")
        it.broker.cut()
        coming = start(sub.subscribe("b"))
        await settle()
    assert isinstance(await outcome(coming), ClosedError)


async def test_another_loop_is_told_so(it: Setting) -> None:
    hub = it.hub()
    sub = hub.subscriber()

    def elsewhere() -> None:
        with pytest.raises(ClosedError, match="another event loop"):
            asyncio.run(sub.subscribe("a"))
        with pytest.raises(ClosedError, match="another event loop"):
            asyncio.run(sub.get())

    await asyncio.to_thread(elsewhere)


async def test_repr_tells_the_state(it: Setting) -> None:
    async with it.hub(pubsub_queue_len=1).subscriber() as sub:
        await sub.subscribe("a")
        it.broker.publish("a", "x")
        it.broker.publish("a", "y")
        await settle()
        assert repr(sub) == "<Subscriber subscriptions=1 <Inbox open messages=1 dropped=1>>"
    assert "closed" in repr(sub)


# ----------------------------------------------------------------------- keyspace


@pytest.mark.parametrize(
    ("item", "event"),
    [
        (Message(b"__keyspace@0__:a:b", b"set"), KeyspaceEvent(0, b"a:b", "set")),
        (Message(b"__keyevent@12__:expired", b"k\xff"), KeyspaceEvent(12, b"k\xff", "expired")),
        (Message("__keyspace@1__:k\n", "del"), KeyspaceEvent(1, "k\n", "del")),
        (Message("__keyevent@1__:del", "k", "__key*"), KeyspaceEvent(1, "k", "del")),
        (Message(b"__keyspace@x__:k", b"set"), None),
        (Message(b"news", b"set"), None),
        (Gap("s", (b"__keyspace@0__:k",), 1.0), None),
        (Dropped(1), None),
    ],
)
def test_parse_keyspace(item: Item, event: KeyspaceEvent | None) -> None:
    assert parse_keyspace(item) == event
