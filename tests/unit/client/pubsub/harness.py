"""Servers that confirm subscriptions as real ones do, a router that knows them, what a subscriber has got."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.events import Event
from penstock.client.handshake import ServerFacts
from penstock.client.policies import Constant, classify_error
from penstock.client.pubsub import Item, Message, PubSub, Subscriber
from penstock.client.router.base import Place, Redirection
from penstock.client.transports.base import Arguments
from penstock.client.transports.scripted import Answer, Gate, ScriptedServer, Words
from penstock.errors import CommandError
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


def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine)


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
