"""The facts behind INFO and MEMORY: sections of names and values, in Redis's words where it has them.

What Redis has and an embedded store has not (replication backlogs, allocator figures)
is left out rather than pretended. Names of our own: ``penstock_version``, ``store_…``,
``durability``. It must be called inside a unit of work; it knows nothing of replies.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.engine.bus.subscriptions import CHANNEL, PATTERN, SHARD
from penstock.engine.pausing import is_held
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

Facts: TypeAlias = Iterator[tuple[str, object]]

#: The Redis version whose behaviour we follow; clients choose features by it.
COMPATIBLE_VERSION: Final = "7.0.15"
_DAY_S: Final = 86_400
_STATM: Final = Path("/proc/self/statm")


def report(engine: Engine, wanted: Iterable[str]) -> str:
    """The text of INFO for some sections; none, ``default``, ``all`` and ``everything`` mean all of them."""
    names = {name.lower() for name in wanted} or {"default"}
    if names & {"default", "all", "everything"}:
        names = {name.lower() for name in _SECTIONS}
    parts = []
    for name, facts in _SECTIONS.items():
        if name.lower() in names:
            lines = [f"{key}:{value}\r\n" for key, value in facts(engine)]
            parts.append(f"# {name}\r\n{''.join(lines)}")
    return "\r\n".join(parts)


def resident_bytes() -> int:
    """Memory of this process that is in RAM, pages of the store included."""
    if not _STATM.exists():
        return peak_resident_bytes()
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes() -> int:
    # In kilobytes everywhere but on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def human(size_bytes: int) -> str:
    """A size as Redis abbreviates it: ``1.45M``."""
    if size_bytes < 1024:
        return f"{size_bytes}B"
    size = float(size_bytes)
    for unit in "KMGT":
        size /= 1024
        if size < 1024 or unit == "T":
            break
    return f"{size:.2f}{unit}"


# ---------------------------------------------------------------------------- sections


def _server(engine: Engine) -> Facts:
    uptime_s = (engine.clock.now_ms() - engine.statistics.started_ms) // 1000
    yield "redis_version", COMPATIBLE_VERSION
    yield "penstock_version", __version__
    yield "redis_mode", "standalone"
    yield "os", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "arch_bits", sys.maxsize.bit_length() + 1
    yield "process_id", os.getpid()
    yield "run_id", engine.statistics.run_id
    yield "tcp_port", engine.config.port
    yield "server_time_usec", engine.clock.now_us()
    yield "uptime_in_seconds", uptime_s
    yield "uptime_in_days", uptime_s // _DAY_S
    yield "executable", sys.executable
    yield "config_file", ""


def _clients(engine: Engine) -> Facts:
    sessions = list(engine.sessions.values())
    waiting = sum(session.blocked is not None and not is_held(session) for session in sessions)
    yield "connected_clients", len(sessions)
    yield "cluster_connections", 0
    yield "maxclients", engine.config.max_clients
    yield "blocked_clients", waiting
    yield "tracking_clients", engine.tracking.session_count


def _memory(engine: Engine) -> Facts:
    resident, peak = resident_bytes(), peak_resident_bytes()
    yield "used_memory", resident
    yield "used_memory_human", human(resident)
    yield "used_memory_rss", resident
    yield "used_memory_rss_human", human(resident)
    yield "used_memory_peak", peak
    yield "used_memory_peak_human", human(peak)
    yield "maxmemory", 0
    yield "maxmemory_human", human(0)
    yield "maxmemory_policy", "noeviction"


def _persistence(engine: Engine) -> Facts:
    env = engine.env
    yield "loading", 0
    yield "async_loading", 0
    yield "durability", env.durability
    yield "store_path", env.path
    yield "store_used_bytes", env.used_bytes()
    yield "store_used_human", human(env.used_bytes())
    yield "store_map_bytes", env.map_bytes()
    yield "store_max_bytes", env.max_bytes
    yield "rdb_bgsave_in_progress", 0
    yield "rdb_last_save_time", engine.statistics.last_save_ms // 1000
    yield "rdb_last_bgsave_status", "ok"
    yield "aof_enabled", 1
    yield "aof_rewrite_in_progress", 0


def _stats(engine: Engine) -> Facts:
    statistics, subscriptions = engine.statistics, engine.pubsub.subscriptions
    yield "total_connections_received", statistics.sessions_opened
    yield "total_commands_processed", statistics.commands_processed
    yield "rejected_connections", statistics.sessions_rejected
    yield "expired_keys", statistics.keys_expired
    yield "evicted_keys", 0
    yield "pubsub_channels", len(subscriptions.names(CHANNEL))
    yield "pubsub_patterns", len(subscriptions.names(PATTERN))
    yield "pubsubshard_channels", len(subscriptions.names(SHARD))
    yield "tracking_total_keys", engine.tracking.key_count
    yield "tracking_total_prefixes", engine.tracking.prefix_count
    yield "total_error_replies", sum(statistics.errors_by_code.values())


def _replication(engine: Engine) -> Facts:
    yield "role", "master"
    yield "connected_slaves", 0
    yield "master_replid", engine.statistics.run_id
    yield "master_repl_offset", 0


def _cpu(engine: Engine) -> Facts:
    times = os.times()
    yield "used_cpu_sys", f"{times.system:.6f}"
    yield "used_cpu_user", f"{times.user:.6f}"
    yield "used_cpu_sys_children", f"{times.children_system:.6f}"
    yield "used_cpu_user_children", f"{times.children_user:.6f}"


def _modules(engine: Engine) -> Facts:
    yield from ()


def _errorstats(engine: Engine) -> Facts:
    for code, count in sorted(engine.statistics.errors_by_code.items()):
        yield f"errorstat_{code}", f"count={count}"


def _cluster(engine: Engine) -> Facts:
    yield "cluster_enabled", 0


def _keyspace(engine: Engine) -> Facts:
    unit = engine.unit
    for keyspace in engine.keyspaces:
        keys = keyspace.size()
        if keys:
            expires = unit.entries(unit.tables[f"expiry:{keyspace.index}"])
            yield f"db{keyspace.index}", f"keys={keys},expires={expires},avg_ttl=0"


_SECTIONS: Final[dict[str, Callable[[Engine], Facts]]] = {
    "Server": _server,
    "Clients": _clients,
    "Memory": _memory,
    "Persistence": _persistence,
    "Stats": _stats,
    "Replication": _replication,
    "CPU": _cpu,
    "Modules": _modules,
    "Errorstats": _errorstats,
    "Cluster": _cluster,
    "Keyspace": _keyspace,
}
