"""Replies about the server itself: statistics, clients, commands, functions, the cluster.

Rules: as in ``conversions``. Names of statistics stay as the server spells them; what a newer
server adds is passed on, and what this module has a name for may not be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from penstock.client.commands.conversions import (
    each,
    figure,
    flat_pairs,
    optional,
    pairs,
    record,
    text,
    text_map,
    words,
)

# ---------------------------------------------------------------- INFO

_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,18})")
_DECIMAL: Final = re.compile(r"-?\d+\.\d+")
_PARTS: Final = re.compile(r"\w[\w.-]*=[^,]*(,\w[\w.-]*=[^,]*)*")
#: Text that may look like a number.
_NAMES: Final = frozenset({"redis_version", "valkey_version", "redis_build_id", "run_id", "redis_git_sha1"})


def info(reply: Any) -> dict[str, Any]:
    """INFO: numbers as numbers, ``a=1,b=2`` as a dict, everything else as text."""
    return {
        name: value if name in _NAMES else _statistic(value) for name, value in _lines(text(reply)) if name
    }


def _lines(report: str) -> Iterator[tuple[str, str]]:
    for line in report.splitlines():
        if not line.startswith("#"):
            name, _, value = line.partition(":")
            yield name, value


def _statistic(value: str) -> Any:
    if _PARTS.fullmatch(value):
        return {name: _number(part) for name, _, part in (one.partition("=") for one in value.split(","))}
    return _number(value)


def _number(value: str) -> int | float | str:
    if _INTEGER.fullmatch(value):
        return int(value)
    return float(value) if _DECIMAL.fullmatch(value) else value


# ---------------------------------------------------------------- clients


def client(reply: Any) -> dict[str, str]:
    """One line of CLIENT LIST."""
    return {name: value for name, _, value in (word.partition("=") for word in text(reply).split(" "))}


def client_info(reply: Any) -> dict[str, str]:
    return client(text(reply).rstrip("\n"))


def client_list(reply: Any) -> list[dict[str, str]]:
    return [client(line) for line in text(reply).splitlines() if line]


tracking_info = record({"flags": words})

# ---------------------------------------------------------------- users

_rules = record({}, other=text)
optional_user = optional(
    record({"flags": words, "passwords": each(text), "selectors": each(_rules)}, other=text)
)
#: Numbers that RESP2 sends as text (age-seconds) beside text that is a name.
acl_log = each(record({"count": int, "age-seconds": float, "entry-id": int}, other=figure))


# ---------------------------------------------------------------- delays


class SlowCommand(NamedTuple):
    """An entry of the slow log."""

    id: int
    #: seconds since 1970
    started_at: int
    duration_us: int
    arguments: list[bytes]
    client_address: str
    client_name: str


def slow_commands(reply: Any) -> list[SlowCommand]:
    return [
        SlowCommand(number, started_at, duration_us, list(arguments), text(address), text(name))
        for number, started_at, duration_us, arguments, address, name in reply
    ]


class LatencyEvent(NamedTuple):
    """The most recent delay of a kind, and the longest."""

    event: str
    #: seconds since 1970
    at: int
    latest_ms: int
    max_ms: int


def latency_events(reply: Any) -> list[LatencyEvent]:
    """Newer servers append sums and counts, which we leave out."""
    return [LatencyEvent(text(event[0]), *event[1:4]) for event in reply]


def latency_history(reply: Any) -> list[tuple[int, int]]:
    return [(at, delay_ms) for at, delay_ms in reply]


def latency_histograms(reply: Any) -> dict[str, dict[str, Any]]:
    return {text(name): _histogram(histogram) for name, histogram in flat_pairs(reply)}


_histogram = record({"histogram_usec": lambda reply: dict(flat_pairs(reply))})

# ---------------------------------------------------------------- memory


def memory_stats(reply: Any) -> dict[str, Any]:
    """Figures by name; those of one database are a dict of their own."""
    return {
        text(name): memory_stats(value) if isinstance(value, list | dict) else figure(value)
        for name, value in flat_pairs(reply)
    }


def time_of_day(reply: Any) -> tuple[int, int]:
    return int(reply[0]), int(reply[1])


# ---------------------------------------------------------------- functions

_function = record({"flags": words}, other=text)
libraries = each(record({"functions": each(_function)}, other=text))
_running = record({"name": text, "command": each(text)})


def _engines(reply: Any) -> dict[str, dict[str, Any]]:
    return {text(name): record({})(counts) for name, counts in flat_pairs(reply)}


function_stats = record({"running_script": _running, "engines": _engines})

# ---------------------------------------------------------------- commands


class CommandInfo(NamedTuple):
    """Facts about one command."""

    name: str
    arity: int
    flags: frozenset[str]
    first_key: int
    last_key: int
    key_step: int
    acl_categories: frozenset[str]
    tips: list[str]
    key_specifications: list[dict[str, Any]]
    subcommands: list[CommandInfo]


def _plain(reply: Any) -> int | str:
    return reply if isinstance(reply, int) else text(reply)


_place = record({"type": text, "spec": record({}, other=_plain)})
_key_specification = record({"flags": words, "begin_search": _place, "find_keys": _place}, other=text)


def _command(reply: Any) -> CommandInfo:
    name, arity, flags, first, last, step, categories, tips, keys, subcommands = reply
    return CommandInfo(
        text(name),
        arity,
        words(flags),
        first,
        last,
        step,
        words(categories),
        [text(tip) for tip in tips],
        [_key_specification(key) for key in keys],
        [_command(subcommand) for subcommand in subcommands],
    )


def commands(reply: Any) -> list[CommandInfo]:
    return [_command(item) for item in reply]


def optional_commands(reply: Any) -> list[CommandInfo | None]:
    """COMMAND INFO: None for one that does not exist."""
    return [None if item is None else _command(item) for item in reply]


def keys_and_flags(reply: Any) -> list[tuple[Any, frozenset[str]]]:
    return [(key, words(flags)) for key, flags in reply]


def command_docs(reply: Any) -> dict[str, dict[str, Any]]:
    return {text(name): _documentation(documentation) for name, documentation in flat_pairs(reply)}


def _history(reply: Any) -> list[tuple[str, str]]:
    return [(text(version), text(change)) for version, change in pairs(reply)]


def _documented_arguments(reply: Any) -> list[dict[str, Any]]:
    return [_documented_argument(argument) for argument in reply]


# These two hold themselves: arguments of arguments, subcommands of commands.
_documented_argument = record({"flags": words, "arguments": _documented_arguments}, other=_plain)
_documentation = record(
    {
        "doc_flags": words,
        "history": _history,
        "arguments": _documented_arguments,
        "subcommands": command_docs,
        "reply_schema": lambda reply: reply,
    },
    other=_plain,
)

# ---------------------------------------------------------------- cluster


class ClusterNode(NamedTuple):
    """A line of CLUSTER NODES."""

    id: str
    #: as the server writes it: ``host:port@bus-port``, then ``,name`` where there is one
    address: str
    flags: frozenset[str]
    #: None for a primary
    primary_id: str | None
    #: milliseconds since 1970; 0 when no ping is pending
    ping_sent_ms: int
    pong_received_ms: int
    epoch: int
    link_state: str
    #: first and last of each range
    slots: list[tuple[int, int]]
    #: slots on their way, as ``[93-<-node]``
    migrations: list[str]


def cluster_info(reply: Any) -> dict[str, Any]:
    return {name: _number(value) for name, value in _lines(text(reply)) if name}


def cluster_nodes(reply: Any) -> list[ClusterNode]:
    """CLUSTER NODES is one text, CLUSTER REPLICAS a list of its lines."""
    lines = [text(line) for line in reply] if isinstance(reply, list) else text(reply).splitlines()
    return [_cluster_node(line.split()) for line in lines if line]


def _cluster_node(fields: list[str]) -> ClusterNode:
    number, address, flags, primary, ping_sent, pong_received, epoch, link_state, *slots = fields
    return ClusterNode(
        number,
        address,
        frozenset(flags.split(",")),
        None if primary == "-" else primary,
        int(ping_sent),
        int(pong_received),
        int(epoch),
        link_state,
        [_slot_range(slot) for slot in slots if not slot.startswith("[")],
        [slot for slot in slots if slot.startswith("[")],
    )


def _slot_range(slot: str) -> tuple[int, int]:
    first, _, last = slot.partition("-")
    return int(first), int(last or first)


class SlotNode(NamedTuple):
    """A node in CLUSTER SLOTS; host None: the one that was asked."""

    host: str | None
    port: int
    id: str
    metadata: dict[str, str]


class SlotRange(NamedTuple):
    """A range of slots with the nodes that serve it, the primary first."""

    first: int
    last: int
    nodes: list[SlotNode]


def cluster_slots(reply: Any) -> list[SlotRange]:
    return [SlotRange(first, last, [_slot_node(*node) for node in nodes]) for first, last, *nodes in reply]


def _slot_node(host: Any, port: int, number: Any = "", metadata: Any = ()) -> SlotNode:
    return SlotNode(None if host is None else text(host), port, text(number), text_map(metadata))


_shard_node = record({}, other=_plain)
cluster_shards = each(record({"slots": flat_pairs, "nodes": each(_shard_node)}, other=text))
cluster_links = each(record({}, other=_plain))
