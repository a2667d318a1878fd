"""Commands about the server: settings, statistics, delays, memory, its commands.

On a cluster they concern the one server that is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.commands import conversions as to
from penstock.client.commands import server_conversions as server
from penstock.client.commands.arguments import at_most_one, flag, flat, option, optional
from penstock.client.commands.base import Coming, FlushMode, Key, Runner, Value, ValueT
from penstock.client.router.sentinel_replies import ServerRole, parse_role


class Server(Runner):
    """Commands about the server."""

    __slots__ = ()

    # ------------------------------------------------------------ state

    def info(self, *sections: Value) -> Coming[dict[str, Any]]:
        """State and statistics by name; numbers are numbers, lists of ``a=1`` are dicts."""
        return self._call(("INFO", *sections), server.info)

    def time(self) -> Coming[tuple[int, int]]:
        """Clock of the server: seconds since 1970, and microseconds."""
        return self._call(("TIME",), server.time_of_day)

    def role(self) -> Coming[ServerRole]:
        """Place of this server in replication."""
        return self._call(("ROLE",), parse_role)

    def lolwut(self, *args: Value) -> Coming[str]:
        """Version, and a little art."""
        return self._call(("LOLWUT", *args), to.text)

    def config_get(self, pattern: Value, *patterns: Value) -> Coming[dict[str, str]]:
        """Read settings."""
        return self._call(("CONFIG", "GET", pattern, *patterns), to.text_map)

    def config_set(self, mapping: Mapping[ValueT, Value]) -> Coming[bytes]:
        """Change settings, all or none."""
        return self._call(("CONFIG", "SET", *flat("mapping", mapping)))

    def config_resetstat(self) -> Coming[bytes]:
        """Start the counters of info afresh."""
        return self._call(("CONFIG", "RESETSTAT"))

    def config_rewrite(self) -> Coming[bytes]:
        """Write the settings in force to their file."""
        return self._call(("CONFIG", "REWRITE"))

    # ------------------------------------------------------------ data as a whole

    def dbsize(self) -> Coming[int]:
        """How many keys the database has."""
        return self._call(("DBSIZE",))

    def flushdb(self, mode: FlushMode | None = None) -> Coming[bytes]:
        """Delete every key of this database."""
        return self._call(("FLUSHDB", *optional(mode)))

    def flushall(self, mode: FlushMode | None = None) -> Coming[bytes]:
        """Delete every key of every database."""
        return self._call(("FLUSHALL", *optional(mode)))

    def swapdb(self, index1: int, index2: int) -> Coming[bytes]:
        """Exchange the contents of two databases."""
        return self._call(("SWAPDB", index1, index2))

    def save(self) -> Coming[bytes]:
        """Make a snapshot and wait for it; stops the server for that long."""
        return self._call(("SAVE",))

    def bgsave(self, *, schedule: bool = False) -> Coming[bytes]:
        """Make a snapshot while serving on."""
        return self._call(("BGSAVE", *flag("SCHEDULE", schedule)))

    def lastsave(self) -> Coming[int]:
        """When the last snapshot succeeded, in seconds since 1970."""
        return self._call(("LASTSAVE",))

    # ------------------------------------------------------------ delays

    def slowlog_get(self, count: int | None = None) -> Coming[list[server.SlowCommand]]:
        """Read entries of the slow log, the most recent first (-1: all)."""
        return self._call(("SLOWLOG", "GET", *optional(count)), server.slow_commands)

    def slowlog_len(self) -> Coming[int]:
        """How many entries the slow log has."""
        return self._call(("SLOWLOG", "LEN"))

    def slowlog_reset(self) -> Coming[bytes]:
        """Empty the slow log."""
        return self._call(("SLOWLOG", "RESET"))

    def latency_latest(self) -> Coming[list[server.LatencyEvent]]:
        """Most recent delay of each kind."""
        return self._call(("LATENCY", "LATEST"), server.latency_events)

    def latency_history(self, event: Value) -> Coming[list[tuple[int, int]]]:
        """Delays of one kind: seconds since 1970, and milliseconds."""
        return self._call(("LATENCY", "HISTORY", event), server.latency_history)

    def latency_histogram(self, *commands: Value) -> Coming[dict[str, dict[str, Any]]]:
        """How long commands took: calls, and counts by microseconds."""
        return self._call(("LATENCY", "HISTOGRAM", *commands), server.latency_histograms)

    def latency_doctor(self) -> Coming[str]:
        """Advice on delays."""
        return self._call(("LATENCY", "DOCTOR"), to.text)

    def latency_reset(self, *events: Value) -> Coming[int]:
        """Forget the recorded delays; of how many kinds."""
        return self._call(("LATENCY", "RESET", *events))

    # ------------------------------------------------------------ memory

    def memory_usage(self, key: Key, *, samples: int | None = None) -> Coming[int | None]:
        """Bytes that a key takes; ``samples`` elements are looked at, 0 all of them."""
        return self._call(("MEMORY", "USAGE", key, *option("SAMPLES", samples)))

    def memory_stats(self) -> Coming[dict[str, Any]]:
        """Memory use in figures."""
        return self._call(("MEMORY", "STATS"), server.memory_stats)

    def memory_doctor(self) -> Coming[str]:
        """Advice on memory."""
        return self._call(("MEMORY", "DOCTOR"), to.text)

    def memory_purge(self) -> Coming[bytes]:
        """Give memory back to the system."""
        return self._call(("MEMORY", "PURGE"))

    # ------------------------------------------------------------ commands

    def command(self) -> Coming[list[server.CommandInfo]]:
        """Facts about every command."""
        return self._call(("COMMAND",), server.commands)

    def command_info(self, *names: Value) -> Coming[list[server.CommandInfo | None]]:
        """Facts about some commands; None for one that does not exist."""
        return self._call(("COMMAND", "INFO", *names), server.optional_commands)

    def command_count(self) -> Coming[int]:
        """How many commands there are."""
        return self._call(("COMMAND", "COUNT"))

    def command_docs(self, *names: Value) -> Coming[dict[str, dict[str, Any]]]:
        """What commands are for."""
        return self._call(("COMMAND", "DOCS", *names), server.command_docs)

    def command_list(
        self, *, module: Value | None = None, aclcat: Value | None = None, pattern: Value | None = None
    ) -> Coming[list[str]]:
        """Command names: all, those of a module or category, or those that fit a pattern."""
        at_most_one(module=module, aclcat=aclcat, pattern=pattern)
        chosen = (*option("MODULE", module), *option("ACLCAT", aclcat), *option("PATTERN", pattern))
        return self._call(("COMMAND", "LIST", *flag("FILTERBY", bool(chosen)), *chosen), to.texts)

    def command_getkeys(self, command: Value, *args: Value) -> Coming[list[bytes]]:
        """The keys among a command's arguments."""
        return self._call(("COMMAND", "GETKEYS", command, *args))

    def command_getkeysandflags(
        self, command: Value, *args: Value
    ) -> Coming[list[tuple[bytes, frozenset[str]]]]:
        """Those keys and what is done with them."""
        return self._call(("COMMAND", "GETKEYSANDFLAGS", command, *args), server.keys_and_flags)
