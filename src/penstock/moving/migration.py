"""The whole of a migration: look at both places, copy page by page, go on where another run stopped, compare.

    migration = Migration(source, target, source_url="./shop.pen", match="shop:*")
    await migration.prepare()
    report = await migration.run()          # or migration.rehearse(), which writes nothing

1. A destination must be empty, or have the notes of the same migration (``journal``), or the caller wants
   to merge; then a key that both places have becomes that of the source.
2. Every key is written whole, from its deletion to its deadline, and may be written again: SCAN names some
   twice, and a run that goes on repeats the page in which the one before it was killed.
3. What a destination cannot hold is told (``Report.problems``), and everything else is copied.
4. The source should be quiet. If it visibly was not, the report says so; comparing both finds the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from penstock.client.client import Client
from penstock.client.targets import parse_url
from penstock.errors import CommandError, UsageError
from penstock.moving import journal, values
from penstock.moving.comparing import compare
from penstock.moving.journal import Journal
from penstock.moving.keys import Key, Place, owner_of
from penstock.moving.report import Report
from penstock.moving.streams import (
    LARGEST_IN_SCRIPTS,
    Export,
    copy_stream,
    distant_letters,
    drop_letters,
    export,
)

#: Called with keys that are done with, and elements that were copied.
OnProgress = Callable[[int, int], None]

#: Elements of collections that are read at once.
_PAGE_ELEMENTS: Final = 20_000
_STREAM: Final = "stream"


def _be_quiet(_keys: int, _elements: int) -> None:
    """Nobody looks."""


class Migration:
    """From one open client to another. Use it once."""

    def __init__(
        self,
        source: Client,
        target: Client,
        *,
        source_url: str,
        match: str | None = None,
        merges: bool = False,
        on_progress: OnProgress = _be_quiet,
    ) -> None:
        self._clients = source, target
        self._match = match
        self._merges = merges
        self._on_progress = on_progress
        self._journal = Journal(target, parse_url(source_url).redacted, match)
        self.report = Report()
        #: keys of the source that may be gone by the end
        self._expiring = 0
        self._source: Place
        self._target: Place

    # ------------------------------------------------------------------------ whole

    async def prepare(self) -> int:
        """Look at both places, refuse what cannot be done; answers how many keys the source has."""
        self._source, self._target = [await Place.of(client) for client in self._clients]
        if await journal.is_unfinished(self._source.client):
            raise UsageError(
                "the source is itself the destination of a migration that was not finished:"
                " finish that one first"
            )
        await self._journal.read()
        there = await self._target.size()
        if there and not self._journal.goes_on and not self._merges:
            raise UsageError(
                f"the destination is not empty ({there:,} keys): choose an empty one, or say --merge to"
                " replace what both have and keep the rest"
            )
        chosen = self._source.client.settings.db
        self.report.other_databases = [each for each in await self._source.databases() if each != chosen]
        return await self._source.size()

    @property
    def goes_on(self) -> bool:
        """Whether another run of this migration was killed; known after :meth:`prepare`."""
        return self._journal.goes_on

    async def run(self) -> Report:
        """Copy everything; after :meth:`prepare`."""
        before = await self._source.size()
        if not self._journal.goes_on:
            await self._journal.begin(merges=self._merges)
        elif self._journal.merges != self._merges:
            raise UsageError(
                "the run that was interrupted was begun "
                + ("with --merge: say it again" if self._journal.merges else "without --merge: leave it out")
            )
        async for keys in self._pages():
            if self._merges:
                await self._count_replaced(keys)
            await self._copy_page(keys)
        await self._journal.end()
        self._note_changes(before, await self._source.size())
        return self.report

    async def rehearse(self) -> Report:
        """Count, and find what cannot be carried over; writes nothing. After :meth:`prepare`."""
        async for keys in self._pages():
            await self._count_replaced(keys)
            for key in keys:
                await self._rehearse_key(key)
            self._on_progress(len(keys), 0)
        return self.report

    async def verify(self) -> Report:
        """Compare both places, after :meth:`run`."""
        known = {problem.key for problem in self.report.problems}
        is_whole = not self._merges and self._match is None
        async for count, difference in compare(
            self._source, self._target, match=self._match, known=known, is_whole=is_whole
        ):
            self.report.compared += count
            if difference is not None:
                self.report.differences.append(difference)
            self._on_progress(count, 0)
        return self.report

    async def _count_replaced(self, keys: Sequence[Key]) -> None:
        pipe = self._target.client.pipeline()
        for key in keys:
            pipe.exists(key.name)
        self.report.replaced += sum(await pipe.all())

    def _note_changes(self, before: int, after: int) -> None:
        if after > before or before - after > self._expiring:
            self.report.changes.append(
                f"it had {before:,} keys at the beginning and {after:,} at the end;"
                " stop who writes there and run it again"
            )

    # ------------------------------------------------------------------------ pages

    async def _pages(self) -> AsyncIterator[list[Key]]:
        """Keys that are to be copied, side keys and what was done before left out."""
        async for names in self._source.pages(self._match):
            own = await self._without_side_keys([name for name in names if name != journal.KEY])
            new = await self._without_done(own)
            self._on_progress(len(names) - len(new), 0)
            if new:
                yield await self._source.look(new)

    async def _without_side_keys(self, names: Sequence[bytes]) -> list[bytes]:
        owners = {name: owner for name in names if (owner := owner_of(name)) is not None}
        if not owners:
            return list(names)
        streams = await self._source.own_streams(list(set(owners.values())))
        belonging = {name for name, owner in owners.items() if owner in streams}
        if self._source.has_native_streams:
            if not self._target.has_native_streams:
                for name in sorted(belonging):
                    self.report.refuse(
                        name, f"is the name of a side key of the stream {_shown(owners[name])} there"
                    )
            else:
                belonging = set()
        return [name for name in names if name not in belonging]

    async def _without_done(self, names: Sequence[bytes]) -> list[bytes]:
        if not self._journal.goes_on or self._journal.merges or not names:
            return list(names)
        pipe = self._target.client.pipeline()
        for name in names:
            pipe.exists(name)
        there = await pipe.all()
        left = [
            name
            for name, is_there in zip(names, there, strict=True)
            if not is_there or name in self._journal.interrupted
        ]
        self.report.done_before += len(names) - len(left)
        return left

    async def _copy_page(self, keys: Sequence[Key]) -> None:
        self._expiring += sum(key.deadline_ms > 0 for key in keys)
        plain = [key for key in keys if key.kind in values.KINDS]
        for batch in _batches([key for key in plain if not _is_large(key)]):
            await self._journal.note([key.name for key in batch])
            await self._copy_small(batch)
        for key in keys:
            if key.kind in values.KINDS and not _is_large(key):
                continue
            await self._journal.note([key.name])
            if key.kind in values.KINDS:
                await self._copy_large(key)
            elif key.kind == _STREAM:
                await self._copy_stream(key)
            else:
                await self._copy_foreign(key)
            self._on_progress(1, 0)

    # ----------------------------------------------------------------------- values

    async def _copy_small(self, keys: Sequence[Key]) -> None:
        source = self._source
        found = await values.read_small(
            source.client,
            [(key.kind, key.name) for key in keys],
            has_field_deadlines=source.has_field_deadlines,
        )
        pipe = self._target.client.pipeline()
        elements = 0
        for key, value in zip(keys, found, strict=True):
            if not value:
                continue  # it is gone since it was looked at
            pipe.delete(key.name)
            for command in values.commands_for(key.kind, key.name, self._holdable(key, value)):
                pipe.execute(*command)
            if key.deadline_ms:
                pipe.pexpireat(key.name, key.deadline_ms)
            self.report.count(key.kind, len(value))
            elements += len(value)
        await pipe.all()
        self._on_progress(len(keys), elements)

    async def _copy_large(self, key: Key) -> None:
        client, total = self._target.client, 0
        await client.delete(key.name)
        async for part in values.pieces(
            self._source.client, key.kind, key.name, has_field_deadlines=self._source.has_field_deadlines
        ):
            pipe = client.pipeline()
            for command in values.commands_for(key.kind, key.name, self._holdable(key, part)):
                pipe.execute(*command)
            await pipe.all()
            total += len(part)
            self._on_progress(0, len(part))
        if total and key.deadline_ms:
            await client.pexpireat(key.name, key.deadline_ms)
        if total:
            self.report.count(key.kind, total)

    def _holdable(self, key: Key, elements: Sequence[values.Element]) -> Sequence[values.Element]:
        """The elements as the destination can hold them."""
        if key.kind != "hash" or self._target.has_field_deadlines:
            return elements
        if any(deadline_ms for _, _, deadline_ms in elements):
            self.report.refuse(key.name, "has fields that expire, which stay for ever there")
        return values.without_deadlines(elements)

    # ---------------------------------------------------------------------- streams

    async def _copy_stream(self, key: Key) -> None:
        head = await self._export(key.name)
        if head is None:
            return
        source, target = self._source, self._target
        goes_on = self._journal.goes_on and not self._journal.merges
        counted = 0

        def count(messages: int) -> None:
            nonlocal counted
            counted += messages
            self._on_progress(0, messages)

        try:
            await copy_stream(
                source.streams, target.streams, key.name, head, goes_on=goes_on, on_messages=count
            )
        except CommandError as error:
            await target.client.delete(key.name)
            self.report.refuse(key.name, f"is a stream that was refused there: {error}")
            return
        if target.client.is_cluster:
            distant = await distant_letters(source.streams, key.name)
            await drop_letters(target.streams, key.name, distant)
            for sentence in distant.values():
                self.report.refuse(key.name, sentence)
        if key.deadline_ms:
            await target.client.pexpireat(key.name, key.deadline_ms)
        self.report.count(_STREAM, counted)

    async def _export(self, name: bytes) -> Export | None:
        """None: there is nothing to copy as a stream of ours, and what could be done was done."""
        head = await self._head(name)
        if head is None:
            found = await self._source.look([name])
            if found:
                await self._copy_foreign(found[0])
        return head

    async def _head(self, name: bytes) -> Export | None:
        """What a stream of ours is; None if it is another one, or gone."""
        try:
            head = await export(self._source.streams, name)
        except CommandError as error:
            if error.code != "WRONGTYPE":
                raise
            return None
        if head is not None and head.nameless:
            self.report.refuse(
                name, f"has {head.nameless} producers with names of 450 bytes and more, which are forgotten"
            )
        return head

    async def _copy_foreign(self, key: Key) -> None:
        """A type that only servers of its kind have travels as they pack it."""
        reason = _foreign_reason(key)
        if self._target.has_native_streams:
            self.report.refuse(key.name, reason)
            return
        payload = await self._source.client.dump(key.name)
        if payload is None:
            return
        try:
            await self._target.client.execute(
                "RESTORE", key.name, key.deadline_ms, payload, "REPLACE", "ABSTTL"
            )
        except CommandError as error:
            self.report.refuse(key.name, f"{reason}: {error}")
            return
        self.report.count(key.kind, 1)

    async def _rehearse_key(self, key: Key) -> None:
        if key.kind == _STREAM:
            await self._rehearse_stream(key)
        elif key.kind not in values.KINDS and self._target.has_native_streams:
            self.report.refuse(key.name, _foreign_reason(key))
        else:
            await self._rehearse_fields(key)
            self.report.count(key.kind, 1 if key.kind == "string" else key.size)

    async def _rehearse_fields(self, key: Key) -> None:
        if key.kind == "hash" and self._source.has_field_deadlines and not self._target.has_field_deadlines:
            async for part in values.pieces(self._source.client, "hash", key.name, has_field_deadlines=True):
                self._holdable(key, part)

    async def _rehearse_stream(self, key: Key) -> None:
        target = self._target
        head = await self._head(key.name)
        if head is None and target.has_native_streams:
            self.report.refuse(key.name, _foreign_reason(key))
            return
        if head is not None and head.last > LARGEST_IN_SCRIPTS and not target.has_native_streams:
            self.report.refuse(
                key.name, f"has offsets above {LARGEST_IN_SCRIPTS:,}, which Redis cannot count"
            )
            return
        if head is not None and target.client.is_cluster:
            for sentence in (await distant_letters(self._source.streams, key.name)).values():
                self.report.refuse(key.name, sentence)
        self.report.count(_STREAM, 0)


def _is_large(key: Key) -> bool:
    return key.size > (values.PAGE_BYTES if key.kind == "string" else values.SMALL)


def _batches(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """Keys whose values are read at once."""
    batch: list[Key] = []
    size = elements = 0
    for key in keys:
        if batch and (size > values.PAGE_BYTES or elements > _PAGE_ELEMENTS):
            yield batch
            batch, size, elements = [], 0, 0
        batch.append(key)
        size += key.size if key.kind == "string" else 0
        elements += 0 if key.kind == "string" else key.size
    if batch:
        yield batch


def _foreign_reason(key: Key) -> str:
    if key.kind == _STREAM:
        return "is a stream of Redis itself (XADD), which a store of ours does not have"
    return f"has the type {key.kind}, which the destination does not have"


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
