"""A cluster by script: scripted servers behind addresses, and a slot map that the test draws.

it = FakeCluster()                                   # three nodes: ports 1, 2, 3
router = await it.open(read_from="replica")
it.node(1).on("GET").reply(b"v")
it.draw((0, 16383, 2))                               # from now on every node says so
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from penstock.client.config import Settings
from penstock.client.connection import Connection
from penstock.client.handshake import ServerFacts
from penstock.client.policies import Constant
from penstock.client.router.cluster import ClusterRouter
from penstock.client.targets import Address
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import NotSentError
from penstock.protocol.slots import key_slot
from tests.places import until
from tests.unit.client.waiting import nothing_left_behind

#: First slot, last slot, port of the primary, ports of its replicas.
Range = tuple[int, ...]

THIRDS: tuple[Range, ...] = ((0, 5460, 1), (5461, 10922, 2), (10923, 16383, 3))
#: Node 3 has taken the place of node 1.
ONE_REPLACED = ((0, 5460, 3), *THIRDS[1:])
#: Nodes 4, 5 and 6 follow 1, 2 and 3.
WITH_REPLICAS = ((0, 5460, 1, 4), (5461, 10922, 2, 5), (10923, 16383, 3, 6))

#: A key of each node's slots, as ``THIRDS`` has them.
KEYS = {1: "b", 2: "c", 3: "a"}
assert [key_slot(KEYS[node].encode()) for node in (1, 2, 3)] == [3300, 7365, 15495]


class FakeCluster:
    """Stands in for the dialer, and notes what the router tells its observer."""

    def __init__(self) -> None:
        self.servers: dict[int, ScriptedServer] = {}
        #: nodes that cannot be reached
        self.down: set[int] = set()
        #: nodes whose handshake takes for ever
        self.silent: set[int] = set()
        #: what the handshake of a node raises
        self.refusing: dict[int, Exception] = {}
        #: (port, whether for reads from a replica), in the order they were dialled
        self.dialled: list[tuple[int, bool]] = []
        self.events: list[Any] = []
        self.routers: list[ClusterRouter] = []
        self._map: tuple[Range, ...] = ()
        self.draw(*THIRDS)

    # ------------------------------------------------------------------ the script

    def node(self, port: int) -> ScriptedServer:
        if port not in self.servers:
            server = self.servers[port] = ScriptedServer()
            server.on("CLUSTER", "SLOTS").reply(lambda _: self.slots())
            server.on("ECHO").reply(lambda words: words[1])
            server.on("GET").reply(b"%d" % port)
            server.on("INCR").reply(port)
        return self.servers[port]

    def draw(self, *ranges: Range) -> None:
        """What CLUSTER SLOTS says everywhere."""
        self._map = ranges
        for _, _, *ports in ranges:
            for port in ports:
                self.node(port)

    def slots(self) -> list[Any]:
        return [
            [first, last, *([b"host", port, b"id-%d" % port] for port in ports)]
            for first, last, *ports in self._map
        ]

    def fail(self, port: int) -> None:
        """The node dies: connections end, and there are no new ones."""
        self.down.add(port)
        self.node(port).cut()

    def sent(self, port: int) -> list[str]:
        """What a node was sent, without questions about the map."""
        lines = [b" ".join(words).decode() for words in self.node(port).sent]
        return [line for line in lines if line != "CLUSTER SLOTS"]

    def asked(self) -> int:
        """How often any node was asked for the map."""
        return sum(server.sent.count((b"CLUSTER", b"SLOTS")) for server in self.servers.values())

    # ------------------------------------------------------------------ the dialer

    def name_of(self, address: Address | None) -> str:
        return str(address)

    def to(
        self, address: Address | None, *, reads_from_replica: bool = False, is_shared: bool = False
    ) -> Callable[[Connection], Awaitable[ServerFacts]]:
        assert address is not None

        async def dial(connection: Connection) -> ServerFacts:
            port = address.port
            self.dialled.append((port, reads_from_replica))
            if port in self.silent:
                await asyncio.Event().wait()
            if port in self.down or port not in self.servers:
                raise NotSentError(f"cannot connect to host:{port}")
            if port in self.refusing:
                raise self.refusing[port]
            return await self.servers[port].dial(connection)

        return dial

    # ---------------------------------------------------------------- the observer

    def on_push(self, link: object, push: list[Any]) -> None: ...

    def on_event(self, event: object) -> None:
        self.events.append(event)

    # ------------------------------------------------------------------ the router

    def router(self, *seeds: int, **settings: Any) -> ClusterRouter:
        settings.setdefault("reconnect", Constant(base_ms=1))
        settings.setdefault("close_timeout_ms", 0)
        settings.setdefault("cluster_refresh_delay_ms", 5)
        addresses = [Address("host", port) for port in seeds or (1,)]
        router = ClusterRouter(self, addresses, Settings(**settings), self)  # type: ignore[arg-type]
        self.routers.append(router)
        return router

    async def open(self, *seeds: int, **settings: Any) -> ClusterRouter:
        router = self.router(*seeds, **settings)
        await router.open()
        await until(lambda: all(link.statistics()["state"] == "open" for link in router.primaries()))
        return router

    async def close(self) -> None:
        for router in self.routers:
            await router.close()
        nothing_left_behind()


def figures(router: ClusterRouter) -> tuple[int, int]:
    """Redirections and refreshes so far."""
    statistics = router.statistics()
    return statistics["redirections"], statistics["refreshes"]


def asked(router: ClusterRouter, port: int, arguments: tuple[str, ...]) -> Coroutine[Any, Any, Any]:
    """A question to one server."""
    return router.backchannel.ask([Address("host", port)], arguments, lambda _, reply: reply)
