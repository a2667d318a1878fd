"""One server, which members reach through a proxy."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from penstock.testing.control import HOST
from penstock.testing.servers import RealServer, find_server
from tests.chaos.model import SceneKind
from tests.chaos.scenes.servers import OPTIONS, STARTUP_S, ServerPlace

_NAME: Final = "server"


class RedisPlace(ServerPlace):
    kind: SceneKind = "redis"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nodes = (_NAME,)

    async def _start(self, stack: AsyncExitStack) -> dict[str, RealServer]:
        options = {**OPTIONS, "dir": self._directory_of(_NAME)}
        server = RealServer(find_server("valkey"), options=options, startup_timeout_s=STARTUP_S)
        stack.callback(server.stop)
        await asyncio.to_thread(server.start)
        self.scene = self._scene(f"redis://{HOST}:{self.network.proxies[_NAME].port}", server.url)
        self.about = server.binary.label
        return {_NAME: server}
