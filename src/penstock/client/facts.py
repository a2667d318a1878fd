"""What the client must know of a command before it sends it: may it share a connection, where are its keys.

=======================  ========================================================
``kind_of``              whether a command can be pipelined with everybody's
``exclusive_hint``       why one cannot, and what to use instead
``blocking_timeout_ms``  how long one may wait at the server
``keys_of``              the keys, for routing; ``key_positions`` where they are
``is_readonly``          whether it reads keys and changes nothing
``overtakes``            whether it must not wait behind others on their connection
``suits_replicas``       whether replicas may answer it in turn
``is_repeatable``        whether sending it twice changes nothing
``is_idempotent``        whether sending it twice leaves what sending it once does
=======================  ========================================================

Rules: facts come from the catalogue. What the catalogue does not have (Redis's own streams,
functions, modules) stands in ``_EXTRA``; where both speak, the catalogue is right. All
tables are built at import; a lookup is one look into a dict for the usual spellings.
Arguments are taken as callers pass them, text and numbers included; ``args`` is a whole
command, its name first. Nothing here raises: what makes no sense is the server's to refuse.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar, cast

from penstock.protocol.catalogue import CommandSpec, every_command, find_keys

Argument: TypeAlias = bytes | str | int | float | memoryview
Arguments: TypeAlias = tuple[Argument, ...]


class Kind(enum.Enum):
    """What a command may do to the connection it runs on.

    ``BLOCKING`` and ``EXCLUSIVE`` are what the name allows for; the arguments may say otherwise:
    XREAD without BLOCK (``blocking_timeout_ms`` is None), CLIENT ID (``exclusive_hint`` is None).
    """

    #: One reply at once: pipelined with everybody's.
    PLAIN = "plain"
    #: May wait at the server, and everything behind it.
    BLOCKING = "blocking"
    #: Changes the connection for whoever shares it, or ends it.
    EXCLUSIVE = "exclusive"
    #: Answered by pushes.
    SUBSCRIBE = "subscribe"


#: Commands that change their connection, and what to use instead.
_EXCLUSIVE: Final[Mapping[str, str]] = {
    "AUTH": "give username and password, or a credential_provider, when opening the client",
    "HELLO": "give protocol, username and password when opening the client",
    "SELECT": "give db when opening the client; open one client for each database",
    "QUIT": "close the client",
    "RESET": "close the client and open another",
    "SHUTDOWN": "use an exclusive connection",
    "MULTI": "use a transaction, which is sent in one piece",
    "EXEC": "use a transaction, which is sent in one piece",
    "DISCARD": "use a transaction, which is sent in one piece",
    "WATCH": "use an exclusive connection",
    "UNWATCH": "use an exclusive connection",
    "MONITOR": "use the client's monitor",
    "SYNC": "replicate with a server, not with a client",
    "PSYNC": "replicate with a server, not with a client",
    "REPLCONF": "replicate with a server, not with a client",
    "ASKING": "the client follows redirections by itself",
    "READONLY": "give read_from when opening the client",
    "READWRITE": "give read_from when opening the client",
    "CLIENT|CACHING": "use client-side caching of the client",
    "CLIENT|NO-EVICT": "use an exclusive connection",
    "CLIENT|NO-TOUCH": "use an exclusive connection",
    "CLIENT|REPLY": "every command of a shared connection needs its reply",
    "CLIENT|SETNAME": "give client_name when opening the client",
    "CLIENT|TRACKING": "use client-side caching of the client",
    "SCRIPT|DEBUG": "use an exclusive connection",
}

#: They count what their own connection has written: on another they would confirm nothing, at once.
_OF_OWN_WRITES: Final = dict.fromkeys(
    ("WAIT", "WAITAOF"), "write and wait on an exclusive connection, whose writes it counts"
)

#: By name, the subcommands about what the server runs at the moment.
_OVERTAKING: Final = {b"SCRIPT": frozenset({b"KILL"}), b"FUNCTION": frozenset({b"KILL", b"STATS"})}

_WITH_CURSOR: Final = frozenset(b"SCAN HSCAN SSCAN ZSCAN".split())

_SUBSCRIBE: Final = frozenset("SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE".split())

#: Commands that touch no data (or, SCRIPT LOAD, only add what is there already). ``|*`` is a
#: container with all it has.
_ASKS_ONLY: Final = """
PING ECHO TIME INFO ROLE LASTSAVE LOLWUT COMMAND COMMAND|* PUBSUB|* OBJECT|* MEMORY|* XINFO|HELP
CLIENT|ID CLIENT|INFO CLIENT|LIST CLIENT|GETNAME CLIENT|GETREDIR CLIENT|TRACKINGINFO CLIENT|HELP
CLUSTER|INFO CLUSTER|NODES CLUSTER|SLOTS CLUSTER|SHARDS CLUSTER|MYID CLUSTER|KEYSLOT CLUSTER|HELP
CLUSTER|COUNTKEYSINSLOT CLUSTER|GETKEYSINSLOT CLUSTER|LINKS CLUSTER|MYSHARDID CLUSTER|REPLICAS
CONFIG|GET CONFIG|HELP SCRIPT|EXISTS SCRIPT|LOAD SCRIPT|HELP SLOWLOG|GET SLOWLOG|LEN SLOWLOG|HELP
LATENCY|LATEST LATENCY|HISTORY LATENCY|HISTOGRAM LATENCY|HELP FUNCTION|LIST FUNCTION|STATS
FUNCTION|DUMP FUNCTION|HELP ACL|CAT ACL|GETUSER ACL|LIST ACL|USERS ACL|WHOAMI ACL|DRYRUN ACL|HELP
"""

#: As many digits as any number that a server accepts has.
_LEADING_INTEGER: Final = re.compile(rb"\s*([+-]?\d{1,19})")

# ------------------------------------------------------------------- places of keys

Locate: TypeAlias = Callable[[Arguments], Sequence[int]]


def _nowhere(args: Arguments) -> Sequence[int]:
    return ()


@dataclass(frozen=True, slots=True)
class _At:
    """One key."""

    position: int

    def __call__(self, args: Arguments) -> Sequence[int]:
        return (self.position,) if self.position < len(args) else ()


def _every(first: int, last: int, step: int = 1) -> Locate:
    """From ``first`` to ``last``, which counts from the end."""
    return lambda args: range(first, len(args) + last + 1, step)


def _counted(position: int) -> Locate:
    """An argument says how many keys follow it."""

    def locate(args: Arguments) -> Sequence[int]:
        if position >= len(args):
            return ()
        count = _integer(args[position])
        if count is None or not 0 < count < len(args) - position:
            return ()
        return range(position + 1, position + 1 + count)

    return locate


def _streams(args: Arguments) -> Sequence[int]:
    """XREAD and XREADGROUP: the first half of what follows STREAMS; the second half are ids."""
    for position, word in _options(args, 1, _XREAD_OPTIONS):
        if word == b"STREAMS":
            first = position + 1
            return range(first, first + (len(args) - first) // 2)
    return ()


def _catalogued(spec: CommandSpec) -> Locate:
    """What the catalogue says, shard channels included: they have a slot as keys have."""
    if not spec.key_specs:
        return _nowhere
    if not spec.movable_keys:
        if spec.first_key == spec.last_key:
            return _At(spec.first_key)
        # Only the number of arguments counts here, not their types.
        return lambda args: find_keys(spec, cast("Sequence[bytes]", args), channels=True)
    if len(spec.key_specs) == 1 and spec.key_specs[0].counted:
        return _counted(spec.key_specs[0].start)  # EVAL: must not cost a copy of all its arguments
    return lambda args: find_keys(spec, [to_bytes(argument) for argument in args], channels=True)


#: Commands that the catalogue does not have: names, access ("r": reads only), keys. Everything
#: that is listed nowhere is taken to write, with its key at 1, as most commands of modules have
#: it; a wrong guess costs a redirection.
_EXTRA: Final[tuple[tuple[str, str, Locate], ...]] = (
    # Redis's streams
    ("XLEN XPENDING XRANGE XREVRANGE", "r", _At(1)),
    ("XACK XACKDEL XADD XAUTOCLAIM XCLAIM XDEL XDELEX XSETID XTRIM", "w", _At(1)),
    ("XREAD", "r", _streams),
    ("XREADGROUP", "w", _streams),
    ("XINFO|CONSUMERS XINFO|GROUPS XINFO|STREAM", "r", _At(2)),
    ("XGROUP|CREATE XGROUP|CREATECONSUMER XGROUP|DELCONSUMER XGROUP|DESTROY XGROUP|SETID", "w", _At(2)),
    # functions
    ("FCALL", "w", _counted(2)),
    ("FCALL_RO", "r", _counted(2)),
    # fields that expire
    ("HTTL HPTTL HEXPIRETIME HPEXPIRETIME", "r", _At(1)),
    # JSON, the commands whose keys are not at 1 or that only read
    ("JSON.ARRINDEX JSON.ARRLEN JSON.GET JSON.OBJKEYS JSON.OBJLEN JSON.STRLEN JSON.TYPE", "r", _At(1)),
    ("JSON.MGET", "r", _every(1, -2)),
    ("JSON.MSET", "w", _every(1, -1, 3)),
    ("JSON.DEBUG|MEMORY", "r", _At(2)),
    # time series over many keys choose them by labels
    ("TS.MGET TS.MRANGE TS.MREVRANGE TS.QUERYINDEX", "r", _nowhere),
    ("TS.MADD", "w", _every(1, -1, 3)),
    # no keys
    ("WAITAOF FAILOVER REPLICAOF SLAVEOF BGREWRITEAOF SYNC PSYNC REPLCONF", "w", _nowhere),
    ("FUNCTION MODULE SENTINEL COMMANDLOG FT._LIST PFSELFTEST", "w", _nowhere),
    ("CLIENT|NO-TOUCH", "w", _nowhere),
    ("MIGRATE", "w", _At(3)),
)

# ------------------------------------------------------------------- timeouts

#: Options by the number of their arguments, so that a group called "block" is none.
_XREAD_OPTIONS: Final = {b"BLOCK": 1, b"COUNT": 1, b"GROUP": 2, b"CLAIM": 1, b"STREAMS": 1 << 30}
_TREAD_OPTIONS: Final = {b"BLOCK": 1, b"GROUP": 1, b"CONSUMER": 1, b"RETRY": 2}

ReadTimeout: TypeAlias = Callable[[Arguments], int | None]


def _options(args: Arguments, start: int, sizes: Mapping[bytes, int]) -> Iterator[tuple[int, bytes]]:
    """Positions and names of the options of a command, arguments of options skipped."""
    position = start
    while position < len(args):
        word = to_bytes(args[position]).upper()
        yield position, word
        position += 1 + sizes.get(word, 0)


def _seconds_at(position: int) -> ReadTimeout:
    def read(args: Arguments) -> int | None:
        if len(args) <= max(position, 1):
            return None
        try:
            seconds = float(to_bytes(args[position]))
        except ValueError:
            return 0
        return math.ceil(seconds * 1000) if 0 <= seconds < 1e12 else 0

    return read


def _milliseconds_at(position: int) -> ReadTimeout:
    return lambda args: max(0, _integer(args[position]) or 0) if position < len(args) else None


def _milliseconds_after_block(start: int, sizes: Mapping[bytes, int]) -> ReadTimeout:
    def read(args: Arguments) -> int | None:
        timeout_ms = None
        for position, word in _options(args, start, sizes):
            if word == b"BLOCK" and position + 1 < len(args):
                timeout_ms = max(0, _integer(args[position + 1]) or 0)
        return timeout_ms

    return read


_TIMEOUTS: Final[Mapping[str, ReadTimeout]] = {
    **dict.fromkeys("BLPOP BRPOP BRPOPLPUSH BLMOVE BZPOPMIN BZPOPMAX".split(), _seconds_at(-1)),
    **dict.fromkeys("BLMPOP BZMPOP".split(), _seconds_at(1)),
    **dict.fromkeys("XREAD XREADGROUP".split(), _milliseconds_after_block(1, _XREAD_OPTIONS)),
    "TREAD": _milliseconds_after_block(4, _TREAD_OPTIONS),
    "WAIT": _milliseconds_at(2),
    "WAITAOF": _milliseconds_at(3),
}


def _for_ever(args: Arguments) -> int | None:
    """A blocking command of the catalogue that has no rule here may wait without end."""
    return 0


# ------------------------------------------------------------------- repeated writes


def _set_again(args: Arguments) -> bool:
    """SET with a condition that stays true and a deadline that does not move."""
    harmless = {b"XX": 0, b"KEEPTTL": 0, b"EXAT": 1, b"PXAT": 1}
    return len(args) >= 3 and all(word in harmless for _, word in _options(args, 3, harmless))


def _add_again(args: Arguments) -> bool:
    """ZADD and GEOADD that neither add up nor answer who was first."""
    for argument in args[2:]:
        word = to_bytes(argument).upper()
        if word in (b"NX", b"INCR"):
            return False
        if word not in (b"XX", b"GT", b"LT", b"CH"):
            break  # the first score
    return len(args) >= 4


def _without_options(args: Arguments) -> bool:
    return len(args) == 3


def _always(args: Arguments) -> bool:
    return True


#: Writes that leave the same data when they run twice in a row. Replies may differ: DEL counts
#: nothing the second time. Not here, although the data would be the same: commands whose reply is
#: what they are sent for (SETNX, SET NX, SET GET, SETBIT, GETDEL, RENAME), deadlines from now
#: (EXPIRE, SETEX), and results stored over their own sources (SDIFFSTORE, ZUNIONSTORE, BITOP).
_IDEMPOTENT: Final[Mapping[str, Callable[[Arguments], bool]]] = {
    **dict.fromkeys("DEL UNLINK MSET PERSIST SETRANGE LSET HSET HMSET HDEL SADD SREM".split(), _always),
    **dict.fromkeys("SINTERSTORE SUNIONSTORE ZREM ZREMRANGEBYSCORE ZREMRANGEBYLEX".split(), _always),
    **dict.fromkeys("PFADD PFMERGE XACK XDEL TACK".split(), _always),
    **dict.fromkeys("EXPIREAT PEXPIREAT".split(), _without_options),
    **dict.fromkeys("ZADD GEOADD".split(), _add_again),
    "SET": _set_again,
}


# ------------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class _Facts:
    """Everything about one command or subcommand."""

    kind: Kind
    locate: Locate
    #: The place of the key, where it is one and the same always; 0: ask ``locate``.
    key_position: int = 0
    is_readonly: bool = False
    is_repeatable: bool = False
    hint: str | None = None
    read_timeout_ms: ReadTimeout | None = None
    is_idempotent: Callable[[Arguments], bool] | None = None
    #: By name in capitals.
    subcommands: Mapping[bytes, _Facts] = field(default_factory=dict)


_UNKNOWN: Final = _Facts(Kind.PLAIN, _At(1), key_position=1)


def _facts(name: str, locate: Locate, *, is_readonly: bool, is_blocking: bool = False) -> _Facts:
    """``name`` in capitals, ``CLIENT|ID`` for a subcommand."""
    kind = Kind.PLAIN
    if name in _EXCLUSIVE:
        kind = Kind.EXCLUSIVE
    elif name in _SUBSCRIBE:
        kind = Kind.SUBSCRIBE
    elif is_blocking or name in _TIMEOUTS:
        kind = Kind.BLOCKING
    return _Facts(
        kind,
        locate,
        key_position=locate.position if isinstance(locate, _At) else 0,
        is_readonly=is_readonly,
        is_repeatable=is_readonly or name in _HARMLESS or f"{name.partition('|')[0]}|*" in _HARMLESS,
        hint=_EXCLUSIVE.get(name) or _OF_OWN_WRITES.get(name),
        read_timeout_ms=_TIMEOUTS.get(name, _for_ever) if kind is Kind.BLOCKING else None,
        is_idempotent=_IDEMPOTENT.get(name),
    )


_HARMLESS: Final = frozenset(_ASKS_ONLY.split())


def _build() -> dict[bytes, _Facts]:
    """Commands by name in capitals, subcommands inside their containers."""
    flat = {
        name: _facts(name, locate, is_readonly=access == "r")
        for names, access, locate in _EXTRA
        for name in names.split()
    }
    for name in _HARMLESS:
        if "*" not in name:
            flat.setdefault(name, _facts(name, _nowhere, is_readonly=False))
    for spec in every_command():
        name = spec.full_name.decode().upper()
        flat[name] = _facts(
            name, _catalogued(spec), is_readonly=spec.is_readonly, is_blocking=spec.is_blocking
        )
    inside: dict[str, dict[bytes, _Facts]] = {}
    for name, facts in flat.items():
        container, bar, subcommand = name.partition("|")
        if bar:
            inside.setdefault(container, {})[subcommand.encode()] = facts
    table = {name.encode(): facts for name, facts in flat.items() if "|" not in name}
    for container, subcommands in inside.items():
        own = flat.get(container)
        is_mixed = any(facts.kind is Kind.EXCLUSIVE for facts in subcommands.values())
        table[container.encode()] = _Facts(
            Kind.EXCLUSIVE if is_mixed else Kind.PLAIN,
            _nowhere,
            is_repeatable=own is not None and own.is_repeatable,
            subcommands=subcommands,
        )
    return table


_TABLE: Final = _build()

Word = TypeVar("Word", bytes, str)


class _Spellings(dict[Word, _Facts]):
    """Facts by the exact spelling of a name; learns spellings as they come, up to a limit."""

    #: Names come from callers; whoever makes them up must not fill the memory.
    LIMIT: Final = 4096

    def __missing__(self, name: Word) -> _Facts:
        facts = _TABLE.get(to_bytes(name).upper(), _UNKNOWN)
        if len(self) < self.LIMIT:
            self[name] = facts
        return facts


# Two dicts, since b"GET" and "GET" have the same hash and would be compared again and again.
_BY_TEXT: Final = _Spellings[str]()
_BY_BYTES: Final = _Spellings[bytes]()
for _name, _known in _TABLE.items():
    for _spelling in (_name, _name.lower()):
        _BY_BYTES[_spelling] = _BY_TEXT[_spelling.decode()] = _known

#: The usual spellings of commands that are PLAIN whatever their arguments are: most of a program's
#: commands are found here by one look.
PLAIN_NAMES: Final = frozenset(
    name
    for name, facts in _BY_TEXT.items()
    if facts.kind is Kind.PLAIN and name.upper().encode() not in _OVERTAKING
)


# ------------------------------------------------------------------- questions


def to_bytes(argument: Argument) -> bytes:
    """An argument as it goes over the wire."""
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, str):
        return argument.encode("utf-8", "surrogateescape")
    return bytes(argument) if isinstance(argument, memoryview) else str(argument).encode()


def kind_of(name: Argument) -> Kind:
    """What a command of that name, in any case, may do to its connection; unknown ones are PLAIN."""
    if type(name) is str:
        return _BY_TEXT[name].kind
    return _BY_BYTES[name if type(name) is bytes else to_bytes(name)].kind


def exclusive_hint(args: Arguments) -> str | None:
    """What to use instead of sending this over a shared connection; None: it may be sent."""
    return _find(args).hint


def blocking_timeout_ms(args: Arguments) -> int | None:
    """How long the server may take, 0 for ever; None: it answers at once.

    A timeout that cannot be read is "for ever": the server will refuse it, or knows better.
    """
    read = _find(args).read_timeout_ms
    return read(args) if read is not None else None


def is_readonly(name: Argument, *arguments: Argument) -> bool:
    """Whether it reads keys and changes nothing, so that a replica may answer.

    The name decides, except for OBJECT, MEMORY and XINFO, which need their subcommand.
    """
    return _find((name, *arguments[:1])).is_readonly


def overtakes(args: Arguments) -> bool:
    """Whether it is about a script that runs, so that it must not wait behind it on its connection."""
    subcommands = _OVERTAKING.get(to_bytes(args[0]).upper(), ())
    return bool(subcommands) and len(args) > 1 and to_bytes(args[1]).upper() in subcommands


def suits_replicas(args: Arguments) -> bool:
    """Whether any replica may answer it, another one each time. A cursor belongs to one server."""
    return is_readonly(*args[:2]) and to_bytes(args[0]).upper() not in _WITH_CURSOR


def is_repeatable(args: Arguments) -> bool:
    """Whether running it twice changes nothing at all: it reads, or asks about the server."""
    facts = _find(args)
    if not facts.is_repeatable:
        return False
    # "$" is whatever comes after the call; called again, it would skip what came in between.
    return not (facts.locate is _streams and any(to_bytes(argument) == b"$" for argument in args))


def is_idempotent(args: Arguments) -> bool:
    """Whether running it twice in a row leaves the data as running it once does.

    Reads do, and the writes of ``_IDEMPOTENT``, for which the user has to opt in.
    """
    rule = _find(args).is_idempotent
    return rule(args) if rule is not None else is_repeatable(args)


def key_positions(args: Arguments) -> Sequence[int]:
    """Where the keys and shard channels stand among the arguments."""
    return _find(args).locate(args)


def keys_of(args: Arguments) -> list[bytes]:
    """The keys and shard channels, for routing. For unknown commands the first argument is a guess."""
    name = args[0]
    facts = _BY_TEXT[name] if type(name) is str else _BY_BYTES[to_bytes(name)]
    position = facts.key_position
    if 0 < position < len(args):  # nearly every command: no more than two lookups
        key = args[position]
        return [key if type(key) is bytes else to_bytes(key)]
    return [to_bytes(args[position]) for position in key_positions(args)]


def _find(args: Arguments) -> _Facts:
    """The facts that rule a command: the subcommand's where there is one."""
    name = args[0]
    facts = _BY_TEXT[name] if type(name) is str else _BY_BYTES[to_bytes(name)]
    if not facts.subcommands or len(args) == 1:
        return facts
    return facts.subcommands.get(to_bytes(args[1]).upper(), facts)


def _integer(argument: Argument) -> int | None:
    """A number as C reads it: from the start as far as there are digits."""
    if type(argument) is int:
        return argument
    match = _LEADING_INTEGER.match(to_bytes(argument))
    return int(match[1]) if match else None
