"""Which keys a place has: page by page, each with its type, its deadline and its size.

Where scripts stand in for streams, a stream has side keys (``streams.keys``). They belong to it and are no
keys of their own: :func:`owner_of` tells of which stream a key would be one, by its name alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from penstock.client.asking import has_command
from penstock.client.client import Client
from penstock.client.routes import ToAll
from penstock.errors import CommandError
from penstock.moving.values import KINDS, ask_size
from penstock.streams.commands import StreamCommands
from penstock.streams.keys import SIDE_KEYS, stream_keys

#: Keys of a page, as SCAN is asked for them.
PAGE: Final = 500


class Key(NamedTuple):
    """A key as it was when its page was looked at."""

    name: bytes
    kind: str
    #: in ms since 1970; 0: it does not expire
    deadline_ms: int
    #: bytes of a string, elements of a collection; 0 for what is neither
    size: int


class Place:
    """An open client, and what has to be known about the server behind it."""

    def __init__(self, client: Client, *, has_native_streams: bool, has_field_deadlines: bool) -> None:
        self.client = client
        self.streams = StreamCommands(client)
        #: streams are a type of their own, not scripts over those of Redis
        self.has_native_streams = has_native_streams
        #: fields of hashes may expire
        self.has_field_deadlines = has_field_deadlines

    @classmethod
    async def of(cls, client: Client) -> Place:
        return cls(
            client,
            has_native_streams=await has_command(client, "TWRITE"),
            has_field_deadlines=await has_command(client, "HPEXPIRETIME"),
        )

    async def size(self) -> int:
        """How many keys there are, side keys included."""
        replies: Any = await self.client.execute("DBSIZE", route=ToAll())
        return sum(replies.values())

    async def databases(self) -> list[int]:
        """Numbers of the databases that have keys."""
        try:
            sections: Any = await self.client.execute("INFO", "keyspace", route=ToAll())
        except CommandError:  # an ACL may forbid it
            return []
        lines = [line for text in sections.values() for line in str(text, "ascii").splitlines()]
        return sorted({int(line.partition(":")[0][2:]) for line in lines if line.startswith("db")})

    async def pages(self, match: str | None) -> AsyncGenerator[list[bytes], None]:
        """Names of keys; one may come twice."""
        async with aclosing(self.client.scan_pages(match, PAGE)) as pages:
            async for page in pages:
                if page:
                    yield page

    async def look(self, names: Sequence[bytes]) -> list[Key]:
        """What these keys are; those that are gone are left out."""
        pipe = self.client.pipeline()
        for name in names:
            pipe.type(name)
            pipe.pexpiretime(name)
        replies = await pipe.all()
        found = [
            Key(name, kind, max(deadline_ms, 0), 0)
            for name, kind, deadline_ms in zip(names, replies[::2], replies[1::2], strict=True)
            if kind != "none"
        ]
        sizes = await self._sizes(found)
        return [key._replace(size=sizes.get(key.name, 0)) for key in found]

    async def _sizes(self, keys: Sequence[Key]) -> dict[bytes, int]:
        pipe = self.client.pipeline()
        sized = [key for key in keys if key.kind in KINDS]
        for key in sized:
            ask_size(pipe, key.kind, key.name)
        replies = await pipe.try_all()
        return {key.name: reply for key, reply in zip(sized, replies, strict=True) if isinstance(reply, int)}

    async def own_streams(self, names: Sequence[bytes]) -> set[bytes]:
        """Those of some keys that are streams of ours."""
        pipe = self.client.pipeline()
        for name in names:
            pipe.type(name)
        kinds = await pipe.all()
        streams = [name for name, kind in zip(names, kinds, strict=True) if kind == "stream"]
        return {name for name in streams if self.has_native_streams or await self._is_own(name)}

    async def _is_own(self, name: bytes) -> bool:
        try:
            return bool(await self.streams.execute("TINFO", "STREAM", name))
        except CommandError:
            return False


def owner_of(name: bytes) -> bytes | None:
    """The stream whose side key has this name, if there is such a stream; None: it has a name of its own."""
    prefix, colon, suffix = name.rpartition(b":")
    if not colon or suffix not in SIDE_KEYS:
        return None
    candidates = [prefix.removesuffix(b":"), prefix.removeprefix(b"{").removesuffix(b"}")]
    if prefix.endswith(b"!") and b"}" in prefix:
        candidates.append(prefix.partition(b"}")[2].removesuffix(b"!"))
    return next((stream for stream in candidates if name in stream_keys(stream)), None)
