"""Figures of the gateway's store: how much it holds, how busy it is, who is connected, what was slow.

    figures = StoreReader(client)
    (await figures.read()).keys

The store tells them itself: INFO, DBSIZE, CLIENT LIST, SLOWLOG GET. On a cluster every primary is asked, and
numbers are added up. An embedded store speaks for the process that asks: commands and clients are this
process's, keys and bytes everybody's.

Rules: nothing is written. Rates are differences between looks of this worker. What a server does not tell is
0 or left out. Nothing here knows HTTP.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from penstock.client.client import Client
from penstock.client.commands import server_conversions
from penstock.client.routes import ToAll
from penstock.clock import Clock, SystemClock
from penstock.errors import CommandError
from penstock.gateway.rates import Rates

#: How often it is asked how a server keeps what it is told: settings change seldom.
_SETTINGS_S: Final = 60.0
#: Keys under which gateways keep secrets: of tokens, webhooks and receipts.
_KEEPS_SECRETS: Final = re.compile(rb"penstock\.token\.|\{webhooks\}:|\{tx\.hooks\}:|channels\.secret")

Kind = Literal["embedded", "redis", "cluster"]
#: What INFO says, by section and name.
Sections = dict[str, dict[str, Any]]


class StoreFigures(msgspec.Struct, kw_only=True):
    """A store in numbers."""

    kind: Kind
    #: since the last look
    commands_per_s: float
    clients: int
    keys: int
    #: what the data takes: on disk if embedded, else in memory
    used_bytes: int
    #: where an embedded store is
    disk_free_bytes: int | None
    #: of the processes that hold the store
    memory_bytes: int
    #: embedded: always or relaxed; of a server aof-always, aof-everysec, aof-no, snapshots, none or unknown
    durability: str


class StoreClient(msgspec.Struct, kw_only=True):
    """A connection to the store. ``node``: of a cluster, the one that it is connected to."""

    id: int
    name: str
    address: str
    age_s: int
    idle_s: int
    flags: str
    db: int
    #: the last one
    command: str
    library: str
    node: str | None = None


class SlowCommand(msgspec.Struct, kw_only=True):
    """A command that took long; its arguments may be cut, by the store."""

    id: int
    at_ms: int
    duration_us: int
    command: list[str]
    #: its address, and its name if it has one
    client: str
    node: str | None = None


class StoreState(NamedTuple):
    """Everything that is known of a store at a moment."""

    figures: StoreFigures
    #: the directory of an embedded store
    path: str | None
    version: str
    uptime_s: int
    #: by server; one, unless it is a cluster
    nodes: dict[str, Sections]


class StoreReader:
    """Reads the figures of one store, for one worker."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._rates = Rates(self._clock)
        #: how a server keeps what it is told, and when that was read
        self._durability = ""
        self._settings_s: float | None = None

    @property
    def kind(self) -> Kind:
        if self._client.is_embedded:
            return "embedded"
        return "cluster" if self._client.is_cluster else "redis"

    async def read(self) -> StoreFigures:
        return (await self.state()).figures

    async def state(self) -> StoreState:
        keys, reports = await asyncio.gather(self._client.dbsize(), self._reports())
        nodes = {node: sections_of(report) for node, report in reports.items()}
        facts = [_facts(sections) for sections in nodes.values()]
        first = facts[0]
        path = first.get("store_path")
        figures = StoreFigures(
            kind=self.kind,
            commands_per_s=self._commands_per_s(nodes),
            clients=_sum(facts, "connected_clients"),
            keys=keys,
            used_bytes=_sum(facts, "store_used_bytes" if path else "used_memory"),
            disk_free_bytes=None if path is None else await asyncio.to_thread(_free_bytes, str(path)),
            memory_bytes=_sum(facts, "used_memory_rss"),
            durability=str(first.get("durability") or await self._server_durability(first)),
        )
        versions = (first.get(f"{name}_version") for name in ("penstock", "valkey", "redis"))
        version = next((str(text) for text in versions if text), "")
        return StoreState(
            figures, None if path is None else str(path), version, _sum([first], "uptime_in_seconds"), nodes
        )

    async def clients(self) -> list[StoreClient]:
        """Every connection, those that came last first."""
        found = [
            _client_of(line, self._shown(node))
            for node, reply in (await self._by_node("CLIENT", "LIST")).items()
            for line in server_conversions.client_list(reply)
        ]
        return sorted(found, key=lambda client: (client.age_s, -client.id))

    async def slow_commands(self, limit: int) -> list[SlowCommand]:
        """The latest of each server, newest first."""
        found = [
            _slow_of(entry, self._shown(node))
            for node, reply in (await self._by_node("SLOWLOG", "GET", limit)).items()
            for entry in server_conversions.slow_commands(reply)
        ]
        return sorted(found, key=lambda entry: (-entry.at_ms, -entry.id))[:limit]

    # ------------------------------------------------------------------------- inside

    async def _reports(self) -> Mapping[str, Any]:
        """What INFO says, by server; nothing if we may not ask: keys can be counted all the same."""
        try:
            return await self._by_node("INFO")
        except CommandError as error:
            if not is_not_told(error):
                raise
            return {"": ""}

    async def _by_node(self, *command: str | int) -> Mapping[str, Any]:
        reply: Any = await self._client.execute(*command, route=ToAll())
        return reply  # type: ignore[no-any-return]

    def _shown(self, node: str) -> str | None:
        return node if self.kind == "cluster" else None

    def _commands_per_s(self, nodes: Mapping[str, Sections]) -> float:
        """Of all servers; at the first look as they say themselves, if they do."""
        total = 0.0
        for node, sections in nodes.items():
            facts = _facts(sections)
            rate = self._rates.look(node, _sum([facts], "total_commands_processed"))
            total += _sum([facts], "instantaneous_ops_per_sec") if rate is None else rate
        return round(total, 1)

    async def _server_durability(self, facts: Mapping[str, Any]) -> str:
        now_s = self._clock.monotonic_s()
        if self._settings_s is None or now_s - self._settings_s >= _SETTINGS_S:
            self._durability = await self._asked_durability(is_log=bool(facts.get("aof_enabled")))
            self._settings_s = now_s
        return self._durability

    async def _asked_durability(self, *, is_log: bool) -> str:
        name = "appendfsync" if is_log else "save"
        try:
            text = (await self._client.config_get(name)).get(name, "")
        except CommandError as error:
            if not is_not_told(error):
                raise
            return "aof" if is_log else "unknown"
        if is_log:
            return f"aof-{text}"
        return "snapshots" if text else "none"


def is_not_told(error: CommandError) -> bool:
    """Whether a store refuses to tell something, to us or to anybody, and will not think better of it."""
    return error.code == "NOPERM" or str(error).startswith("ERR unknown")


def sections_of(report: bytes | str) -> Sections:
    """What INFO says, as numbers where they are; sections keep the server's names."""
    text = report.decode("utf-8", "replace") if isinstance(report, bytes) else report
    found: Sections = {}
    for part in text.split("# ")[1:]:
        name, _, lines = part.partition("\n")
        found[name.strip()] = server_conversions.info(lines)
    return found


def _facts(sections: Sections) -> dict[str, Any]:
    return {name: value for section in sections.values() for name, value in section.items()}


def _sum(facts: Iterable[Mapping[str, Any]], name: str) -> int:
    found = (each.get(name) for each in facts)
    return int(sum(value for value in found if isinstance(value, int | float)))


def _free_bytes(path: str) -> int | None:
    try:
        return shutil.disk_usage(Path(path)).free
    except OSError:
        return None


def _client_of(line: Mapping[str, str], node: str | None) -> StoreClient:
    library = " ".join(filter(None, (line.get("lib-name"), line.get("lib-ver"))))
    return StoreClient(
        id=_whole(line, "id"),
        name=line.get("name", ""),
        address=line.get("addr", ""),
        age_s=_whole(line, "age"),
        idle_s=_whole(line, "idle"),
        flags=line.get("flags", ""),
        db=_whole(line, "db"),
        command=line.get("cmd", ""),
        library=library,
        node=node,
    )


def _whole(line: Mapping[str, str], name: str) -> int:
    text = line.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _shown_words(words: Sequence[bytes]) -> list[str]:
    """The words of a command, up to a key that keeps secrets: whoever looks on must not learn those."""
    shown = []
    for word in words:
        shown.append(word.decode("utf-8", "backslashreplace"))
        if _KEEPS_SECRETS.match(word):
            return [*shown, "…"]
    return shown


def _slow_of(entry: server_conversions.SlowCommand, node: str | None) -> SlowCommand:
    return SlowCommand(
        id=entry.id,
        at_ms=entry.started_at * 1_000,
        duration_us=entry.duration_us,
        command=_shown_words(entry.arguments),
        client=" ".join(filter(None, (entry.client_address, entry.client_name))),
        node=node,
    )
