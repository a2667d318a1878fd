"""A backend with a stream of its own, and the words in which every backend refuses.

Rules: times are those of the server; ``Store.until_blocked`` tells when a reader really waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.client.routes import ToAll
from penstock.errors import CommandError
from penstock.streams.commands import StreamCommands
from tests.places import until

DEADLINE_S = 20.0
INVALID = "ERR invalid offset"
_numbers = itertools.count()


class Store:
    """A backend and the names of a stream that nobody has used yet."""

    def __init__(self, backend: str, client: Client) -> None:
        self.backend = backend
        self.client = client
        self.commands = StreamCommands(client)
        number = next(_numbers)
        #: another stream of the same slot for dead letters
        self.key, self.dead = f"{{s{number}}}k", f"{{s{number}}}dead"

    async def do(self, *words: Any) -> Any:
        """A command on the stream: its name (with the subcommand), then what follows the key."""
        name, *subcommand = words[0].split()
        return await self.commands.execute(name, *subcommand, self.key, *words[1:])

    async def error(self, *words: Any) -> str:
        with pytest.raises(CommandError) as refused:
            await self.do(*words)
        return str(refused.value)

    async def write(self, *tags: str) -> int:
        """One message for each tag, with the tag and its place as entry."""
        pairs = [word for place, tag in enumerate(tags) for word in (tag, f"{tag}{place}")]
        return await self.do("TWRITE", "ENTRIES", *pairs)

    async def fill(self, count: int) -> int:
        """Messages ``1`` to ``count`` with the tag ``t``, written one by one."""
        await asyncio.gather(*(self.do("TWRITE", "t", str(place)) for place in range(1, count + 1)))
        return count

    async def group(self, name: str = "g") -> dict[str, Any]:
        return next(each for each in await self.do("TINFO GROUPS") if each["name"] == name.encode())

    async def range(self) -> tuple[int, int]:
        [(first, last)] = await self.do("TREAD", 0, 0, "WITHINFO")
        return first, last

    async def blocked(self) -> int:
        """How many connections wait at the server."""
        if self.backend == "cluster":
            texts = list((await self.client.execute("INFO", "clients", route=ToAll())).values())
        else:
            texts = [await self.client.execute("INFO", "clients")]
        return sum(int(text.split(b"blocked_clients:")[1].split()[0]) for text in texts)

    async def until_blocked(self, count: int = 1) -> None:
        await until(lambda: self._has_blocked(count))

    async def _has_blocked(self, count: int) -> bool:
        return await self.blocked() == count


@contextlib.asynccontextmanager
async def running(work: Awaitable[Any]) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, CommandError):
            await task


def offsets(messages: list[Any]) -> list[int | None]:
    return [message and message[0] for message in messages]
