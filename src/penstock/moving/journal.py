"""How far a migration is, kept in its destination: so that another run goes on, and nobody takes half for
all.

Key ``penstock.migration``, a hash, from the first write until everything is there:

==========  =================================================================================
source      where from, without secrets
match       which keys; empty: all
merge       ``yes`` if the destination had keys of its own
page        the keys that are being written, packed: they may be half there
==========  =================================================================================

Rules: the page is noted before the first of its keys is written. So after a crash a key that exists in the
destination is whole unless it is in the page, and need not be copied again. Where the destination had keys
of its own nobody can tell them from copies, and everything is copied again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.client.client import Client
from penstock.errors import UsageError

KEY: Final = b"penstock.migration"


class Journal:
    """The notes of one migration."""

    def __init__(self, client: Client, source: str, match: str | None) -> None:
        self._client = client
        self._source = source
        self._match = match or ""
        #: keys that a run which was killed may have left half written
        self.interrupted: frozenset[bytes] = frozenset()
        #: whether this run goes on with another one
        self.goes_on = False
        #: whether the destination had keys of its own
        self.merges = False

    async def read(self) -> None:
        """Find the notes of a run that did not come to its end."""
        notes = {name.decode(): value for name, value in (await self._client.hgetall(KEY)).items()}
        if not notes:
            return
        source, match = notes["source"].decode(), notes["match"].decode()
        if (source, match) != (self._source, self._match):
            which = f" of keys like {match}" if match else ""
            raise UsageError(
                f"the destination has an unfinished migration from {source}{which}: finish that one first,"
                f" or empty the destination"
            )
        self.goes_on = True
        self.merges = notes["merge"] == b"yes"
        self.interrupted = frozenset(msgspec.msgpack.decode(notes["page"], type=list[bytes]))

    async def begin(self, *, merges: bool) -> None:
        self.merges = merges
        await self._client.hset(
            KEY,
            {
                "source": self._source,
                "match": self._match,
                "merge": "yes" if merges else "no",
                "page": msgspec.msgpack.encode([]),
            },
        )

    async def note(self, page: Sequence[bytes]) -> None:
        """These keys are written next. What was half there stays noted until it is written again."""
        self.interrupted -= set(page)
        await self._client.hset(KEY, {"page": msgspec.msgpack.encode([*page, *self.interrupted])})

    async def end(self) -> None:
        await self._client.delete(KEY)


async def is_unfinished(client: Client) -> bool:
    """Whether a place is the destination of a migration that did not come to its end."""
    return bool(await client.exists(KEY))
