"""Commands about the server: INFO, CONFIG, SLOWLOG, LATENCY, MEMORY, MONITOR, saving, stopping.

"The server" is this process with its share of the store; an embedded engine answers
the same. Every commit of a durable store is a save, so SAVE has little left to do.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any, Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.connection import start_monitoring
from penstock.engine.commands.registry import Argv, command
from penstock.engine.config import PARAMETERS, read_settings
from penstock.engine.datatypes.glob import matcher
from penstock.engine.datatypes.numbers import parse_float, parse_int
from penstock.engine.information import COMPATIBLE_VERSION, human, peak_resident_bytes, report, resident_bytes
from penstock.engine.session import Session
from penstock.engine.storage.environment import ENGINE_FAULTS, translate
from penstock.errors import CommandError
from penstock.protocol.replies import NO_REPLY, OK, Reply, Status, Verbatim


def _wrong_arguments(argv: Argv) -> CommandError:
    subcommand, container = argv[1].decode("utf-8", "surrogateescape"), argv[0].decode().upper()
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {container} HELP."
    )


@command("INFO")
def info(s: Session, argv: Argv) -> Reply:
    wanted = [word.decode("utf-8", "replace") for word in argv[1:]]
    return Verbatim(report(s.engine, wanted).encode("utf-8", "surrogateescape"))


@command("TIME")
def time_(s: Session, argv: Argv) -> Reply:
    return [b"%d" % part for part in divmod(s.engine.clock.now_us(), 1_000_000)]


@command("ROLE")
def role(s: Session, argv: Argv) -> Reply:
    return [b"master", 0, []]


# ------------------------------------------------------------------------------ config


@command("CONFIG|GET")
def config_get(s: Session, argv: Argv) -> Reply:
    config = s.engine.config
    # Another process may have changed it, and a unit that only reads did not look yet.
    unit = s.engine.unit
    config.load_shared(unit.get(b"config", None, unit.tables["system"]))
    found: dict[bytes, bytes] = {}
    for pattern in argv[2:]:
        lowered = pattern.lower()
        if any(wild in pattern for wild in b"*?["):
            matches = matcher(lowered)
            found |= {name: config.get(name) for name in PARAMETERS if matches(name)}
        elif lowered in PARAMETERS:
            found[pattern] = config.get(lowered)
    return found


@command("CONFIG|SET")
def config_set(s: Session, argv: Argv) -> Reply:
    if len(argv) % 2:
        raise syntax_error()
    values = read_settings(list(zip(argv[2::2], argv[3::2], strict=True)))
    before = s.engine.config.assign(values)
    s.remember(lambda: _undo_settings(s, before))
    if "slowlog_max_len" in values:
        s.engine.slowlog.resize(values["slowlog_max_len"])
    if values.get("requirepass") == "":
        for session in list(s.engine.sessions.values()):
            session.assign(authenticated=True)
    if "notify_classes" in values:
        _share_events(s)
    return OK


def _undo_settings(s: Session, before: dict[str, Any]) -> None:
    # The slow log may have lost entries; its length is right again with the next attempt.
    s.engine.config.assign(before)


def _share_events(s: Session) -> None:
    """Let every process know which events are wanted: this unit at once, others with their next."""
    engine = s.engine
    row = engine.config.dump_shared()
    engine.unit.put(b"config", row, db=engine.unit.tables["system"])
    engine.config.load_shared(row)
    engine.changes.notify_classes = engine.config.notify_classes
    engine.changes.refresh()


@command("CONFIG|RESETSTAT")
def config_resetstat(s: Session, argv: Argv) -> Reply:
    s.engine.statistics.reset()
    return OK


@command("CONFIG|REWRITE")
def config_rewrite(s: Session, argv: Argv) -> Reply:
    raise CommandError("ERR The server is running without a config file")


# ------------------------------------------------------------------------ save and stop


@command("SAVE")
def save(s: Session, argv: Argv) -> Reply:
    _sync_after_commit(s)
    return OK


@command("BGSAVE")
def bgsave(s: Session, argv: Argv) -> Reply:
    if len(argv) > 2 or (len(argv) == 2 and argv[1].upper() != b"SCHEDULE"):
        raise syntax_error()
    _sync_after_commit(s)
    return Status(b"Background saving started")


def _sync_after_commit(s: Session) -> None:
    """Put everything on disk, this unit included, before the reply leaves."""
    engine = s.engine

    def sync() -> None:
        if engine.env.durability != "always":
            try:
                engine.env.sync()
            except ENGINE_FAULTS as fault:
                raise translate(fault) from fault
        engine.statistics.last_save_ms = engine.clock.now_ms()

    engine.dispatcher.after_commit.append(sync)


@command("LASTSAVE")
def lastsave(s: Session, argv: Argv) -> Reply:
    return s.engine.statistics.last_save_ms // 1000


@command("SHUTDOWN")
def shutdown(s: Session, argv: Argv) -> Reply:
    options = {word.upper() for word in argv[1:]}
    if options - {b"NOSAVE", b"SAVE", b"NOW", b"FORCE", b"ABORT"} or options >= {b"SAVE", b"NOSAVE"}:
        raise syntax_error()
    if b"ABORT" in options:
        if len(options) > 1:
            raise syntax_error()
        raise CommandError("ERR No shutdown in progress.")
    stop = s.engine.on_shutdown
    if stop is None:
        raise CommandError("ERR SHUTDOWN is for servers; close an embedded engine where it was opened")
    s.engine.dispatcher.after_commit.append(stop)
    return NO_REPLY


# --------------------------------------------------------------------------- observing


@command("MONITOR")
def monitor(s: Session, argv: Argv) -> Reply:
    if s.may_not_block:
        raise CommandError("ERR MONITOR isn't allowed for DENY BLOCKING client")
    if s.monitoring:
        return NO_REPLY
    start_monitoring(s)
    return OK


@command("SLOWLOG|GET")
def slowlog_get(s: Session, argv: Argv) -> Reply:
    if len(argv) > 3:
        raise _wrong_arguments(argv)
    count = 10
    if len(argv) == 3:
        message = "ERR count should be greater than or equal to -1"
        count = integer(argv[2], message)
        if count < -1:
            raise CommandError(message)
    entries = s.engine.slowlog.entries
    return [
        [entry.number, entry.unix_time_s, entry.duration_us, entry.argv, entry.address, entry.name]
        for entry in islice(entries, None if count == -1 else count)
    ]


@command("SLOWLOG|LEN")
def slowlog_len(s: Session, argv: Argv) -> Reply:
    return len(s.engine.slowlog.entries)


@command("SLOWLOG|RESET")
def slowlog_reset(s: Session, argv: Argv) -> Reply:
    s.engine.slowlog.entries.clear()
    return OK


@command("LATENCY|LATEST")
def latency_latest(s: Session, argv: Argv) -> Reply:
    """No latency events are recorded; the slow log has what takes long."""
    return []


@command("LATENCY|RESET")
def latency_reset(s: Session, argv: Argv) -> Reply:
    return 0


# ------------------------------------------------------------------------------ memory


@command("MEMORY|STATS")
def memory_stats(s: Session, argv: Argv) -> Reply:
    """Memory of the process, and the store on disk as the dataset."""
    engine = s.engine
    keys = sum(keyspace.size() for keyspace in engine.keyspaces)
    dataset = engine.env.used_bytes()
    return {
        b"peak.allocated": peak_resident_bytes(),
        b"total.allocated": resident_bytes(),
        b"keys.count": keys,
        b"keys.bytes-per-key": dataset // keys if keys else 0,
        b"dataset.bytes": dataset,
        b"map.bytes": engine.env.map_bytes(),
    }


@command("MEMORY|DOCTOR")
def memory_doctor(s: Session, argv: Argv) -> Reply:
    env = s.engine.env
    used, limit = env.used_bytes(), env.max_bytes
    advice = "Nothing is wrong with it."
    if used > limit // 4 * 3:
        advice = "It will soon be full: delete keys or raise max_size_bytes."
    text = f"The store takes {human(used)} of the {human(limit)} it may grow to. {advice}\n"
    return Verbatim(text.encode())


# ------------------------------------------------------------------------ debug, lolwut


@command("DEBUG")
def debug(s: Session, argv: Argv) -> Reply:
    word = argv[1].upper()
    if word == b"SLEEP" and len(argv) == 3:
        seconds = parse_float(argv[2]) or 0.0
        if seconds > _LONGEST_SLEEP_S:
            raise CommandError(f"ERR the server may sleep for {_LONGEST_SLEEP_S:.0f} seconds at most")
        time.sleep(max(seconds, 0.0))
        return OK
    if word == b"SET-ACTIVE-EXPIRE" and len(argv) == 3:
        s.engine.duties.active_expire = bool(parse_int(argv[2]))
        return OK
    if word == b"HELP" and len(argv) == 2:
        return [Status(line) for line in _DEBUG_HELP]
    raise _wrong_arguments(argv)


#: Not for ever: nobody could wake it.
_LONGEST_SLEEP_S: Final = 86_400.0

_DEBUG_HELP: Final = (
    b"DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"SLEEP <seconds>",
    b"    Stop the server for that time; decimals allowed.",
    b"SET-ACTIVE-EXPIRE <0|1>",
    b"    Turn the sweeping of expired keys off or on; a key that is looked at expires anyway.",
    b"HELP",
    b"    What DEBUG understands.",
)

_ART: Final = r"""
  ~~~~~~~~~~~.
  ~~~~~~~~~~~|
  ~~~~~~~~~~~|\
  ~~~~~~~~~~~| \
  ___________|  \        _____
             |\  \      |  _  |
             | \  \_____| (*) |
             |  \_______|_____|~~~~~~
"""


@command("LOLWUT")
def lolwut(s: Session, argv: Argv) -> Reply:
    if len(argv) >= 3 and argv[1].upper() == b"VERSION":
        integer(argv[2])
    return Verbatim(f"{_ART}\nRedis ver. {COMPATIBLE_VERSION}\n".encode())
