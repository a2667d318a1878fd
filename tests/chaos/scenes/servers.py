"""Servers that are killed, stopped, started again, and left without a disk; what one and many have in common.

A server writes every command to its append-only file before it answers (``appendfsync always``), so what was
confirmed is there when it comes back. It ends by itself when its disk is full, and is started again when
there is room.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from abc import abstractmethod
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from penstock.testing.servers import RealServer
from tests.chaos.plan import ALL, Event
from tests.chaos.scenes.base import Place
from tests.chaos.scenes.network import FAULTS, Network

#: What every server is told. Snapshots are off already.
OPTIONS: Final = {"appendonly": "yes", "appendfsync": "always"}
#: A server that reads its file on a busy machine.
STARTUP_S: Final = 60.0


class ServerPlace(Place):
    """``servers`` is there once it is entered."""

    network: Network
    servers: dict[str, RealServer]

    async def _open(self, stack: AsyncExitStack) -> None:
        self.network = Network(self.nodes)
        await self.network.open(stack)
        self.servers = await self._start(stack)
        for name, server in self.servers.items():
            self.network.proxies[name].upstream_port = server.port
        self.kinds = FAULTS | {"store-kill", "store-stop"}
        if self.disk.is_small:
            self.kinds |= {"disk-full"}

    @abstractmethod
    async def _start(self, stack: AsyncExitStack) -> dict[str, RealServer]:
        """The servers by the names of ``nodes``."""

    async def carry_out(self, event: Event) -> bool:
        match event.kind:
            case "store-kill":
                await self._kill(self._chosen(event), event.lasts_s)
            case "store-stop":
                await self._stop(self._chosen(event), event.lasts_s)
            case "disk-full":
                await self._fill_disk(event.lasts_s)
            case _:
                await self.network.carry_out(event)
        return True

    async def calm(self) -> None:
        self.network.calm()
        await asyncio.to_thread(self.disk.free)
        await self._revive()

    def save(self, target: Path) -> None:
        # Servers may be at it still.
        shutil.copytree(self.disk.path, target / "store", ignore=shutil.ignore_patterns("*.rdb"))
        for name, server in self.servers.items():
            shutil.copy(server.directory / "server.log", target / f"{name}.server.log")

    def _directory_of(self, node: str) -> str:
        """On the small disk. What a server says goes elsewhere."""
        path = self.disk.path / node
        path.mkdir()
        return str(path)

    def _chosen(self, event: Event) -> list[RealServer]:
        return list(self.servers.values()) if event.target == ALL else [self.servers[event.target]]

    async def _kill(self, servers: list[RealServer], away_s: float) -> None:
        for server in servers:
            await asyncio.to_thread(server.kill)
        try:
            await asyncio.sleep(away_s)
        finally:
            await self._revive()

    async def _stop(self, servers: list[RealServer], lasts_s: float) -> None:
        for server in servers:
            os.kill(server.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            for server in servers:
                os.kill(server.pid, signal.SIGCONT)

    async def _fill_disk(self, lasts_s: float) -> None:
        await asyncio.to_thread(self.disk.fill)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            await asyncio.to_thread(self.disk.free)
            await self._revive()

    async def _revive(self) -> None:
        """All that are dead, at the same time."""
        dead = [server for server in self.servers.values() if not server.is_running]
        await asyncio.gather(*(asyncio.to_thread(server.restart) for server in dead))
