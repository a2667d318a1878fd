"""A connection to a scripted server that echoes, and an owner that notes what it is told."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.client.connection import Connection, Slot
from penstock.client.transports.scripted import ScriptedServer
from penstock.errors import CommandError


class Recorder:
    """An owner that notes what it is told."""

    def __init__(self) -> None:
        self.pushes: list[list[Any]] = []
        self.refused: list[str] = []
        self.takes_over = False
        self.rooms = 0
        self.lost: tuple[Exception | None, list[Slot], list[Slot]] | None = None

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        self.refused.append(str(error))
        return self.takes_over

    def on_push(self, connection: Connection, push: list[Any]) -> None:
        self.pushes.append(list(push))

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        self.lost = error, unanswered, unsent

    def on_room(self, connection: Connection) -> None:
        self.rooms += 1


class Setting:
    """A connection to a scripted server that echoes."""

    def __init__(self, connection: Connection, owner: Recorder, server: ScriptedServer) -> None:
        self.connection = connection
        self.owner = owner
        self.server = server
        self.call = connection.call

    @property
    def transport(self) -> Any:
        return self.server.connection

    @property
    def sent(self) -> list[tuple[bytes, ...]]:
        return self.server.sent


async def start(max_in_flight: int = 100, protocol: int = 3) -> Setting:
    server = ScriptedServer(protocol)
    server.on("ECHO").reply(lambda arguments: arguments[1])
    owner = Recorder()
    connection = Connection(owner, asyncio.get_running_loop(), max_in_flight)
    connection.attach(await server.connect(connection))
    connection.speak(protocol)
    return Setting(connection, owner, server)


def echo(value: int | str) -> tuple[str, str]:
    return "ECHO", str(value)
