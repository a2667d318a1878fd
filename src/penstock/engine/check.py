"""Does a store hold together? Reads every row and compares what must agree.

:func:`check_store` looks at one snapshot and says, one line a fault, what breaks a rule;
an empty answer means that every rule below holds, whoever else uses the store meanwhile.

=====  ================================================================================
rule   what must hold
=====  ================================================================================
K1     a row of ``keys:N`` decodes, and stands under the hash of the name it holds
K2     records that expire and rows of ``expiry:N`` belong to one another, one to one
K3     no two collections have the same version, and none a version that is garbage
K4     a version is smaller than the next one to be given away; likewise tickets
D1     each row of ``data:N`` is of a live collection of that database, or of garbage
D2     the size of a collection is the number of its elements, and not 0 (a stream may be empty)
D3     elements have the shape of their type: indexes of a list without a gap, names
       under their hash, a member of a sorted set under its score and the other way round
L, G   what must hold within a stream: see ``datatypes.stream.check``
T1     a stream that says so is in ``tended`` under its key and version. (Other rows of
       ``tended``, and of ``due``, are stale: whoever meets them removes them.)
S1     ``channels`` and ``subscribed`` mirror one another
S2     ``waiters`` and ``waiting`` mirror one another
S3     the count of a queue is the number of pushes in it
=====  ================================================================================

:func:`find_leftovers` tells what dead processes left behind and nobody swept yet. That
is no fault: the next sweep removes it.

:func:`find_damage` looks at some keys alone, inside a unit: for commands that have failed.

It only reads, knows every table, and takes nothing that it reads for granted: whatever a decoder raises is a
fault of the row that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.engine.bus.files import parse_name
from penstock.engine.bus.liveness import probe
from penstock.engine.bus.mailboxes import ENDPOINT_BYTES, MAILBOX_BYTES
from penstock.engine.datatypes.stream import Stream
from penstock.engine.datatypes.stream.check import faults_of
from penstock.engine.keyspace import Keyspace
from penstock.engine.storage import layout
from penstock.engine.storage.environment import ENGINE_FAULTS
from penstock.engine.storage.layout import (
    DATABASES,
    HASH,
    LIST,
    SET,
    STREAM,
    STRING,
    TENDED,
    ZSET,
    fit,
    physical,
)
from penstock.engine.storage.transaction import Unit
from penstock.errors import ProtocolError
from penstock.protocol.parsing import parse_reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

#: Element rows of one collection without the version: (space and rest, value).
_Rows: TypeAlias = Iterable[tuple[bytes, bytes]]

#: How many keys :func:`find_damage` looks at, where a command does not name any.
_MOST_LOOKED_AT: Final = 100_000

_TABLES_OF_PROCESSES: Final = ("subscribed", "channels", "messages", "waiters", "waiting")


class _Head(NamedTuple):
    """What ``keys:N`` says about a collection."""

    name: bytes
    type: int
    size: int
    extra: bytes
    record: bytes


def check_store(engine: Engine) -> list[str]:
    """Every broken rule, as a sentence that names the row; empty if the store holds together."""
    faults: list[str] = []

    def read_all() -> None:
        faults[:] = _Checker(engine.unit, engine.keyspaces).run()

    engine.run_task(read_all, write=False)
    return faults


def find_damage(engine: Engine, database: int, keys: Sequence[bytes]) -> str | None:
    """The first fault of these keys (of any, if none are given), as a sentence; None if they are sound."""
    checker = _Checker(engine.unit, engine.keyspaces)
    return next(iter(checker.run_for(database, keys)), None)


def find_leftovers(engine: Engine) -> list[str]:
    """Rows and files of processes that are dead, as sentences."""
    found: list[str] = []
    directory = engine.path / "signals"
    files = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []

    def is_dead(endpoint_id: bytes) -> bool:
        dead = probe(directory, endpoint_id)
        if dead is not None:
            dead.release()
        return dead is not None

    def read_rows() -> None:
        found.clear()
        for table in _TABLES_OF_PROCESSES:
            owners = [_owner(table, *row) for row in engine.unit.rows(engine.unit.tables[table], b"")]
            dead = {owner for owner in set(owners) if is_dead(owner)}
            found.extend(f"{table}: a row of {owner.hex()}" for owner in owners if owner in dead)
        counters = engine.unit.rows(engine.unit.tables["system"], b"q")
        dead_owners = (row[1 : 1 + ENDPOINT_BYTES] for row, _ in counters)
        found.extend(f"system: a queue of {owner.hex()}" for owner in dead_owners if is_dead(owner))

    engine.run_task(read_rows, write=False)
    for name in files:
        parsed = parse_name(name)
        if parsed is None:
            found.append(f"signals: {name} is no file of ours")
        elif is_dead(parsed[0]) and (directory / name).exists():
            found.append(f"signals: {name}")
    return found


def _owner(table: str, row: bytes, value: bytes) -> bytes:
    """The endpoint that a row belongs to."""
    if table == "channels":
        return row[-MAILBOX_BYTES:][:ENDPOINT_BYTES]
    return (value if table == "waiters" else row)[:ENDPOINT_BYTES]


class _Checker:
    """One pass over one snapshot."""

    def __init__(self, unit: Unit, keyspaces: Sequence[Keyspace]) -> None:
        self._unit = unit
        self._keyspaces = keyspaces
        self._faults: list[str] = []
        self._versions: dict[bytes, str] = {}

    def run(self) -> list[str]:
        garbage = [row for row, _ in self._rows("garbage")]
        for version in (row[1:] for row in garbage):
            if version in self._versions:
                self._fault("K3", f"version {version.hex()} is garbage twice")
            self._versions[version] = "garbage"
        for database in range(DATABASES):
            dead = {row[1:] for row in garbage if row[0] == database}
            heads, deadlines = self._check_keys(database)
            self._check_expiry(database, deadlines)
            self._check_streams(database, heads)
            self._check_data(database, heads, dead)
        self._check_subscriptions()
        self._check_waiters()
        self._check_queues()
        self._check_counter(b"version", self._versions)
        tickets = [row[MAILBOX_BYTES:] for row, _ in self._rows("messages")]
        self._check_counter(b"ticket", tickets + [row[-8:] for row, _ in self._rows("waiters")])
        return self._faults

    def run_for(self, database: int, keys: Sequence[bytes]) -> list[str]:
        """Faults of some keys, or of the first ones that there are."""
        table, heads = self._unit.tables[f"keys:{database}"], dict[bytes, _Head]()
        named = ((physical(key), self._unit.get(physical(key), None, table)) for key in keys)
        for row, record in named if keys else islice(self._rows(f"keys:{database}"), _MOST_LOOKED_AT):
            if record is not None:
                self._check_key(database, row, record, heads, set())
        if keys:
            self._check_streams(database, heads)
            for version, head in heads.items():
                if head.type != STREAM:
                    rows = self._rows(f"data:{database}", version)
                    self._check_elements(f"keys:{database} {head.name[:32]!r}", head, rows)
        return self._faults

    def _fault(self, rule: str, text: str) -> None:
        self._faults.append(f"{rule}: {text}")

    def _rows(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._unit.rows(self._unit.tables[table], prefix)

    def _check_counter(self, name: bytes, used: Iterable[bytes]) -> None:
        stored = self._unit.get(name, None, self._unit.tables["system"])
        upcoming = int.from_bytes(stored, "big") if stored else 1
        highest = int.from_bytes(max(used, default=b"\0"), "big")
        if highest >= upcoming:
            self._fault("K4", f"{name.decode()} {highest} is in use, yet the next one would be {upcoming}")

    # -------------------------------------------------------------------- keys

    def _check_keys(self, database: int) -> tuple[dict[bytes, _Head], set[bytes]]:
        """Collections by version, and the rows that ``expiry:N`` must have."""
        heads: dict[bytes, _Head] = {}
        deadlines: set[bytes] = set()
        for row, record in self._rows(f"keys:{database}"):
            self._check_key(database, row, record, heads, deadlines)
        return heads, deadlines

    def _check_key(
        self, database: int, row: bytes, record: bytes, heads: dict[bytes, _Head], deadlines: set[bytes]
    ) -> None:
        where = f"keys:{database} {row[8:40]!r}"
        head = layout.decode_head(record) if record else None
        is_long = len(row) == layout.LONG_PHYSICAL_BYTES
        if (
            head is None
            or head.type not in layout.TYPE_NAMES
            or record[0] & layout.UNUSED
            or head.body > len(record)
            or is_long != (head.long_name is not None)
        ):
            self._fault("K1", f"{where} does not decode")
            return
        name = layout.name_of(row, record)
        if physical(name) != row:
            self._fault("K1", f"{where} is not where its name {name[:40]!r} belongs")
        if head.deadline_ms is not None:
            deadlines.add(layout.U64.pack(head.deadline_ms) + row)
        if head.type != STRING:
            self._add_head(where, heads, name, head.type, record, head.body)

    def _add_head(
        self, where: str, heads: dict[bytes, _Head], name: bytes, type_: int, record: bytes, start: int
    ) -> None:
        body = record[start:]
        if len(body) < 16:
            self._fault("K1", f"{where} is a collection without version and size")
            return
        version, size = body[:8], int.from_bytes(body[8:16], "big")
        if version in self._versions:
            self._fault("K3", f"{where} has the version of {self._versions[version]}")
        self._versions[version] = where
        if size == 0 and type_ != STREAM:
            self._fault("D2", f"{where} is an empty collection")
        heads[version] = _Head(name, type_, size, body[16:], record)

    def _check_expiry(self, database: int, deadlines: set[bytes]) -> None:
        for row, _ in self._rows(f"expiry:{database}"):
            if row in deadlines:
                deadlines.remove(row)
            else:
                self._fault("K2", f"expiry:{database} has a row for {row[16:56]!r}, no record does")
        for row in deadlines:
            self._fault("K2", f"keys:{database} {row[16:56]!r} expires, yet expiry:{database} does not know")

    # ---------------------------------------------------------------- elements

    def _check_data(self, database: int, heads: dict[bytes, _Head], garbage: set[bytes]) -> None:
        for version, rows in groupby(self._rows(f"data:{database}"), key=lambda row: row[0][:8]):
            head = heads.pop(version, None)
            if head is not None and head.type != STREAM:
                self._check_elements(f"keys:{database} {head.name[:32]!r}", head, rows)
            elif head is None and version not in garbage:
                self._fault("D1", f"data:{database} has rows of version {version.hex()}, which nobody owns")
        for head in heads.values():
            if head.type != STREAM:
                self._fault("D2", f"keys:{database} {head.name[:32]!r} has size {head.size} and no elements")

    def _check_elements(self, where: str, head: _Head, rows: _Rows) -> None:
        check = _SHAPES.get(head.type)
        if check is None:
            self._fault("K1", f"{where} has a type that has no elements")
            return
        count, odd = check(head, ((row[8:], value) for row, value in rows))
        if count != head.size:
            self._fault("D2", f"{where} has size {head.size} and {count} elements")
        for text in odd:
            self._fault("D3", f"{where} {text}")

    def _check_streams(self, database: int, heads: dict[bytes, _Head]) -> None:
        tended = dict(self._rows("tended", bytes((database,))))
        for version, head in heads.items():
            if head.type != STREAM:
                continue
            where = f"keys:{database} {head.name[:32]!r}"
            stream = self._read_stream(database, head, where)
            if stream is None:
                continue
            is_listed = tended.get(bytes((database,)) + physical(head.name)) == version
            if is_listed != bool(stream.flags & TENDED):
                self._fault("T1", f"{where} {'is' if is_listed else 'is not'} in tended, and says otherwise")

    def _read_stream(self, database: int, head: _Head, where: str) -> Stream | None:
        """The stream, after a look at everything in it; None if it cannot be read."""
        stream = None
        try:
            stream = Stream(self._keyspaces[database], head.name, head.record)
            for rule, text in faults_of(stream):
                self._fault(rule, f"{where} {text}")
        except ENGINE_FAULTS:
            raise
        except Exception as error:  # noqa: BLE001 - what decoders raise is what is looked for
            what = "a row that does not decode" if stream else "a head that does not decode"
            self._fault("L1" if stream else "K1", f"{where} is a stream with {what}: {error!r}")
        return stream

    # --------------------------------------------------------------- processes

    def _check_subscriptions(self) -> None:
        mirrored = set()
        for row, name in self._rows("subscribed"):
            mailbox, kind = row[:MAILBOX_BYTES], row[MAILBOX_BYTES : MAILBOX_BYTES + 1]
            mirrored.add(kind + fit(name) + mailbox)
        listed = {row for row, _ in self._rows("channels")}
        for row in listed ^ mirrored:
            missing = "subscribed" if row in listed else "channels"
            self._fault("S1", f"{missing} lacks {row[:-MAILBOX_BYTES]!r} of {row[-MAILBOX_BYTES:].hex()}")

    def _check_waiters(self) -> None:
        mirrored = set()
        for mailbox, packed in self._rows("waiting"):
            try:
                database, _, keys, ticket = parse_reply(packed)
            except (ProtocolError, TypeError, ValueError):
                self._fault("S2", f"waiting {mailbox.hex()} does not decode")
                continue
            head = bytes((database,))
            mirrored |= {(head + physical(key) + layout.U64.pack(ticket), mailbox) for key in keys}
        for row, mailbox in set(self._rows("waiters")) ^ mirrored:
            missing = "waiters" if (row, mailbox) in mirrored else "waiting"
            self._fault("S2", f"{missing} lacks {row[9:-8]!r} of {mailbox.hex()}")

    def _check_queues(self) -> None:
        pushes: dict[bytes, int] = {}
        for row, payload in self._rows("messages"):
            if payload[:1] == b"p":
                pushes[row[:MAILBOX_BYTES]] = pushes.get(row[:MAILBOX_BYTES], 0) + 1
        counts = {row[1:]: int.from_bytes(value[:8], "big") for row, value in self._rows("system", b"q")}
        for mailbox in pushes.keys() | counts.keys():
            held, said = pushes.get(mailbox, 0), counts.get(mailbox, 0)
            if held != said:
                self._fault("S3", f"the queue of {mailbox.hex()} has {held} pushes, its count is {said}")


# ------------------------------------------------------------------ shapes of types
#
# Each answers the number of elements and what is odd about them.

_Shape: TypeAlias = tuple[int, list[str]]


def _list_shape(head: _Head, rows: _Rows) -> _Shape:
    if len(head.extra) != 8:
        return head.size, ["lacks its first index"]
    upcoming = int.from_bytes(head.extra, "big")
    count = 0
    for row, _ in rows:
        if row[:1] != b"i" or int.from_bytes(row[1:], "big") != upcoming:
            return count, [f"has {row!r} where element {count} should be"]
        upcoming += 1
        count += 1
    return count, []


def _members_shape(head: _Head, rows: _Rows) -> _Shape:
    count = 0
    odd = []
    for row, value in rows:
        name = _member(row[1:], value)
        if row[:1] != b"m" or name is None:
            odd.append(f"has a row {row[:40]!r} that is no element")
        count += 1
    return count, odd


def _sorted_set_shape(head: _Head, rows: _Rows) -> _Shape:
    places: dict[bytes, bytes] = {}
    count = 0
    odd = []
    for row, value in rows:
        if row[:1] == b"m":
            name = _member(row[1:], value)
            if name is None:
                odd.append(f"has a row {row[:40]!r} that is no member")
            else:
                places[b"s" + value[-8:] + fit(name)] = name
            count += 1
        elif places.pop(row, None) != (value or row[9:]):
            odd.append(f"has a score row {row[:40]!r} without its member")
    odd.extend(f"has a member {name[:40]!r} without its score row" for name in places.values())
    return count, odd


def _member(rest: bytes, value: bytes) -> bytes | None:
    """The name in a row ``hash(8) fit(name)``; None if it is not where it belongs."""
    is_long = len(rest) == layout.LONG_PHYSICAL_BYTES
    name = layout.unwrap_long(value)[0] if is_long else rest[8:]
    return name if physical(name) == rest else None


_SHAPES: Final[dict[int, Callable[[_Head, _Rows], _Shape]]] = {
    LIST: _list_shape,
    SET: _members_shape,
    HASH: _members_shape,
    ZSET: _sorted_set_shape,
}
