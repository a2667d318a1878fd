"""The pipelines of a store: drafts, versions that never change, and which version is active.

    registry = PipelineRegistry(client, store.partitions)
    version = await registry.deploy(Pipeline("checkout", ["validate", "charge-card"]))

==========================================  ===================================================
``{pipelines}.names``                       set of names
``{pipelines}.pipelineH:<name>``            the home: hash of draft, versions, active version
``{p<N>}.pipelineH:<name>``                 a head: what scripts of partition N need to start it
==========================================  ===================================================

``lua/pipeline.lua`` tells the fields. Rules: the home is the truth and changes in one script; heads follow,
partition by partition, and never go back (revisions). Whoever dies in between is made good by the next
``activate`` or ``deploy``, or by :meth:`PipelineRegistry.repair`. Each change is told on ``tx.pipelines``
when the home has it, and again when the heads do. Knows nothing of transactions or who runs them.
"""

from __future__ import annotations

import asyncio
import difflib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from penstock.client.client import Client
from penstock.errors import DefinitionError, UnknownPipelineError, UsageError
from penstock.transactions.keys import check_name, prefix_of
from penstock.transactions.model import DEFAULT_PRIORITY
from penstock.transactions.pipelines.codec import decode, dump, parse, version_of, version_of_text
from penstock.transactions.pipelines.definition import Pipeline
from penstock.transactions.pipelines.validation import MAX_NOTE_LENGTH

NAMES_KEY: Final = "{pipelines}.names"
#: Of one pipeline.
MAX_VERSIONS: Final = 1_000
#: What ``diff`` takes in place of a version.
DRAFT: Final = "draft"
_CACHED: Final = 256
#: Heads that are written at the same time.
_AT_ONCE: Final = 64
#: How often a draft may change under a commit before it gives up.
_COMMIT_ATTEMPTS: Final = 10
_FORMAT: Final = "penstock-pipeline-1"

IsInUse = Callable[[str, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """One version, without its steps."""

    version: str
    comment: str
    by: str
    committed_ms: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """A pipeline as it stands. Versions are in the order in which they were committed."""

    name: str
    active: str | None
    draft: Pipeline | None
    versions: list[VersionInfo]


class _Info(msgspec.Struct):
    """What is kept beside a version."""

    committed_ms: int
    by: str = ""
    comment: str = ""


class _Export(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A version outside of the store."""

    format: str
    version: str
    definition: msgspec.Raw
    committed_ms: int = 0
    by: str = ""
    comment: str = ""


class _Snapshot(NamedTuple):
    """What a change came to, and what heads must say from now on."""

    word: str
    revision: str
    spread: str
    active: str
    #: versions that may be started, and their lines
    lines: dict[str, str]


def home_key(name: str) -> str:
    return f"{{pipelines}}.pipelineH:{name}"


def head_key(partition: int, name: str) -> str:
    return f"{prefix_of(partition)}pipelineH:{name}"


class PipelineRegistry:
    """Drafts and versions of pipelines in one store. One object serves any number of tasks."""

    def __init__(self, client: Client, partitions: Callable[[], Awaitable[int]]) -> None:
        self._client = client
        #: how many there are; the store knows
        self._partitions = partitions
        self._script = client.scripts("penstock.transactions").pipeline
        #: by name and version; the one that was not used for longest goes first
        self._cache: OrderedDict[tuple[str, str], Pipeline] = OrderedDict()

    # -------------------------------------------------------------------------- reading

    async def names(self) -> list[str]:
        """All pipelines that have a draft or a version."""
        return sorted(name.decode() for name in await self._client.smembers(NAMES_KEY))

    async def get(self, name: str) -> PipelineInfo | None:
        """Everything about one pipeline but the steps of its versions; None if there is none."""
        reply: Any = await self._script(_keys(name), ("show", name), readonly=True)
        draft, active, *flat = (bytes(part).decode() for part in reply)
        if not draft and not flat:
            return None
        versions = [
            VersionInfo(version, info.comment, info.by, info.committed_ms, version == active)
            for version, text in zip(flat[::2], flat[1::2], strict=True)
            for info in (msgspec.json.decode(text, type=_Info),)
        ]
        return PipelineInfo(name, active or None, decode(draft) if draft else None, versions)

    async def load(self, name: str, version: str | None = None) -> Pipeline:
        """A version of a pipeline, or the active one. Versions do not change, so they are kept in memory."""
        if version is None:
            version = await self._active(name)
        found = self._cache.get((name, version))
        if found is None:
            found = decode(await self._text(name, version))
            if version == DRAFT:
                return found  # it changes
            self._cache[name, version] = found
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end((name, version))
        return found

    def known(self, name: str, version: str) -> Pipeline | None:
        """A version that was read lately; ``load`` reads it otherwise."""
        return self._cache.get((name, version))

    def forget(self, name: str) -> None:
        """Read its versions again when they are next asked for; for whoever hears of a change."""
        for key in [key for key in self._cache if key[0] == name]:
            del self._cache[key]

    async def _active(self, name: str) -> str:
        found = await self._client.hget(home_key(check_name("name", name)), "active")
        if found is None:
            if await self._client.sismember(NAMES_KEY, name):
                raise UnknownPipelineError(f"pipeline {name!r} has no active version, activate one")
            raise _unknown(name)
        return found.decode()

    async def _text(self, name: str, version: str) -> bytes:
        """The canonical JSON of a version, or of the draft."""
        field = version if version == DRAFT else f"v:{version}"
        found = await self._client.hget(home_key(check_name("name", name)), field)
        if found is None:
            is_known = await self._client.sismember(NAMES_KEY, name)
            raise _unknown(name, version) if is_known else _unknown(name)
        return found

    # -------------------------------------------------------------------------- drafts

    async def save_draft(self, pipeline: Pipeline | Mapping[str, Any]) -> None:
        """Keep it as the draft of its name, in place of the one before; DefinitionError if it is wrong."""
        checked = parse(pipeline)
        await self._change(checked.name, "draft", dump(checked))

    async def clone_to_draft(self, name: str, version: str) -> None:
        """Make a draft of a version, to change it."""
        await self._change(name, "draft", await self._text(name, version))

    async def discard_draft(self, name: str) -> None:
        """Drop the draft; harmless without one."""
        await self._change(name, "discard")

    # -------------------------------------------------------------------------- versions

    async def commit(self, name: str, comment: str = "", by: str = "") -> str:
        """Make the draft a version, which is not active yet. The same content is the same version."""
        for _ in range(_COMMIT_ATTEMPTS):
            text = await self._client.hget(home_key(check_name("name", name)), DRAFT)
            if text is None:
                raise UsageError(f"pipeline {name!r} has no draft to commit, save one or clone a version")
            # Saved under the rules of another release, perhaps.
            checked = parse(text)
            done = await self._commit(checked, comment, by, draft=text)
            if done.word != "changed":
                await self._spread(name, done)
                return version_of(checked)
        raise UsageError(
            f"the draft of pipeline {name!r} changes all the time, commit it when nobody saves it"
        )

    async def deploy(self, pipeline: Pipeline | Mapping[str, Any], comment: str = "", by: str = "") -> str:
        """Commit and activate in one go; drafts stay. Writes nothing if it is active already."""
        checked = parse(pipeline)
        done = await self._commit(checked, comment, by, is_active=True)
        if done.word != "same" or done.spread != f"{done.revision} {await self._partitions()}":
            await self._spread(checked.name, done)
        return version_of(checked)

    async def _commit(
        self, pipeline: Pipeline, comment: str, by: str, *, draft: bytes = b"", is_active: bool = False
    ) -> _Snapshot:
        for argument, given in (("comment", comment), ("by", by)):
            if len(given) > MAX_NOTE_LENGTH:
                raise UsageError(f"{argument} must not be longer than {MAX_NOTE_LENGTH} characters")
        text = dump(pipeline)
        # The script puts the time before it.
        info = msgspec.json.encode({"by": by, "comment": comment}).removeprefix(b"{")
        priority = DEFAULT_PRIORITY if pipeline.priority is None else pipeline.priority
        line = f"{pipeline.node_group} {pipeline.deadline_ms or 0} {priority} {int(pipeline.is_startable)}"
        version = version_of_text(text)
        done = await self._change(
            pipeline.name, "commit", version, text, info, line, draft, int(is_active), MAX_VERSIONS
        )
        if done.word == "full":
            raise UsageError(f"pipeline {pipeline.name!r} has {MAX_VERSIONS} versions, delete old ones first")
        return done

    async def activate(self, name: str, version: str) -> None:
        """Start this version from now on; what runs goes on with its own. Every head is written anew."""
        done = await self._change(name, "activate", version)
        if done.word == "missing":
            raise await self._missing(name, version)
        await self._spread(name, done)

    async def deactivate(self, name: str) -> None:
        """Start it no more; what runs goes on. Harmless if nothing is active."""
        await self._spread(name, await self._change(name, "deactivate"))

    async def delete_version(self, name: str, version: str, *, is_in_use: IsInUse | None = None) -> None:
        """Delete a version that is neither active nor, as ``is_in_use(name, version)`` tells, in use."""
        done = await self._change(name, "retire", version)
        if done.word == "missing":
            raise await self._missing(name, version)
        if done.word == "active":
            raise UsageError(
                f"version {version!r} of pipeline {name!r} is active, activate another one first"
            )
        # From here on nobody can start it, so that the answer stays true.
        try:
            await self._spread(name, done)
            is_used = is_in_use is not None and await is_in_use(name, version)
        except BaseException:
            await self._spread(name, await self._change(name, "keep", version))
            raise
        if is_used:
            await self._spread(name, await self._change(name, "keep", version))
            raise UsageError(
                f"version {version!r} of pipeline {name!r} is in use, delete it when that has ended"
            )
        done = await self._change(name, "remove", version)
        if done.word == "active":
            raise UsageError(f"version {version!r} of pipeline {name!r} was taken up again, so it stays")

    async def _missing(self, name: str, version: str) -> UnknownPipelineError:
        is_known = await self._client.sismember(NAMES_KEY, name)
        return _unknown(name, version) if is_known else _unknown(name)

    # -------------------------------------------------------------------------- outside

    async def export(self, name: str, version: str) -> bytes:
        """A version as a file, for ``import_`` into another store."""
        text = await self._text(name, version)
        kept = await self._client.hget(home_key(name), f"i:{version}")
        if kept is None:
            raise _unknown(name, version)
        info = msgspec.json.decode(kept, type=_Info)
        file = _Export(
            format=_FORMAT,
            version=version,
            definition=msgspec.Raw(text),
            committed_ms=info.committed_ms,
            by=info.by,
            comment=info.comment,
        )
        return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"

    async def import_(self, data: bytes) -> str:
        """Take an exported version, which is not activated; DefinitionError if it was changed on its way."""
        try:
            file = msgspec.json.decode(data, type=_Export)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DefinitionError(f"data: must be an exported pipeline: {error}") from None
        if file.format != _FORMAT:
            raise DefinitionError(f"format: must be {_FORMAT!r}, not {file.format!r:.60}, export it again")
        pipeline = parse(bytes(file.definition))
        version = version_of(pipeline)
        if version != file.version:
            raise DefinitionError(
                f"version: {file.version!r:.60} is not that of the definition, {version}: export it again"
            )
        await self._spread(pipeline.name, await self._commit(pipeline, file.comment, file.by))
        return version

    async def diff(self, name: str, a: str, b: str) -> str:
        """What changed from one version to another, line by line; either may be "draft"."""
        old, new = [
            msgspec.json.format(await self._text(name, version), indent=2).decode().splitlines()
            for version in (a, b)
        ]
        return "\n".join(difflib.unified_diff(old, new, f"{name}@{a}", f"{name}@{b}", lineterm=""))

    # -------------------------------------------------------------------------- heads

    async def repair(self) -> None:
        """Make the heads of all pipelines what their homes say: what a worker does when it starts.

        Reads everything, and writes only what is wrong.
        """
        for name in await self.names():
            await self._spread(name, await self._change(name, "snapshot", readonly=True))

    async def _change(
        self, name: str, verb: str, *arguments: str | bytes | int, readonly: bool = False
    ) -> _Snapshot:
        reply: Any = await self._script(_keys(name), (verb, name, *arguments), readonly=readonly)
        word, revision, spread, active, *flat = (bytes(part).decode() for part in reply)
        return _Snapshot(word, revision, spread, active, dict(zip(flat[::2], flat[1::2], strict=True)))

    async def _spread(self, name: str, snapshot: _Snapshot) -> None:
        """Write all heads. One that cannot be reached does not keep the others from it, and raises."""
        if not snapshot.revision:
            return
        line = snapshot.lines.get(snapshot.active)
        active = "" if line is None else f"{snapshot.active} {line}"
        arguments = ("head", name, snapshot.revision, active, *chain.from_iterable(snapshot.lines.items()))
        outcomes: list[Any] = []
        partitions = await self._partitions()
        for first in range(0, partitions, _AT_ONCE):
            several = range(first, min(first + _AT_ONCE, partitions))
            calls = (self._script((head_key(partition, name),), arguments) for partition in several)
            outcomes += await asyncio.gather(*calls, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if any(outcomes) or snapshot.spread != f"{snapshot.revision} {partitions}":
            await self._change(name, "spread", snapshot.revision, partitions)

    def __repr__(self) -> str:
        return f"<PipelineRegistry of {self._client!r}, {len(self._cache)} cached>"


def _keys(name: str) -> tuple[str, str]:
    return home_key(check_name("name", name)), NAMES_KEY


def _unknown(name: str, version: str | None = None) -> UnknownPipelineError:
    if version is None:
        return UnknownPipelineError(f"there is no pipeline {name!r}, commit or deploy it first")
    return UnknownPipelineError(f"pipeline {name!r} has no version {version!r}, use one that get() lists")
