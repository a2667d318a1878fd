"""The keys of one SELECT database: find, create, delete, expire, and tell who must know.

Rules
-----
1. Every read and write of a key's record passes here; data types only touch ``data:N``.
2. A record that expired is as good as gone: :meth:`find` never returns one, and deletes
   it when the unit is writable.
3. Each row of ``expiry:N`` belongs to exactly one live record with that deadline.
4. Whoever changed a key says so with :meth:`changed`; that is what WATCH, keyspace
   notifications, key tracking and blocked clients live on.
5. What was loaded stays at hand (``_held``), so that a queue or counter that is hit again
   and again in a unit is neither loaded nor written each time: its record is written late
   (``datatypes.kept`` has the rules). Whoever writes a record by another way lets go of
   it; so does the end of a unit, of a savepoint or of a command that failed
   (``Unit.serial``).

It knows nothing of commands and replies. It may be used only inside a unit of work.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.engine.changes import EVENT_EXPIRED, EVENT_NEW, Changes
from penstock.engine.datatypes.stream import timers
from penstock.engine.storage import layout
from penstock.engine.storage.environment import Table
from penstock.engine.storage.layout import (
    EXPIRES,
    EXPIRING_HEAD,
    EXPIRING_STRING,
    FIT_BYTES,
    GROUPS_AT,
    LONG_PHYSICAL_BYTES,
    STREAM,
    STRING,
    TENDED,
    TYPE_MASK,
    U64,
    hash64,
    physical,
)
from penstock.engine.storage.scanning import scan_rows
from penstock.engine.storage.transaction import Unit
from penstock.errors import WrongTypeError

if TYPE_CHECKING:
    from penstock.engine.datatypes.collection import Collection
    from penstock.engine.datatypes.kept import Kept

K = TypeVar("K", bound="Kept")
C = TypeVar("C", bound="Collection")

#: Collections up to this size are removed at once; larger ones by the sweeper.
INLINE_DELETE_SIZE: Final = 64
#: Values that are kept at hand before all are let go of.
MOST_HELD: Final = 256


class Keyspace:
    """One of the sixteen databases."""

    __slots__ = (
        "_expiry", "_found", "_found_name", "_held", "_held_in", "_keys", "_watched",
        "changes", "data", "index", "unit",
    )  # fmt: skip

    def __init__(self, unit: Unit, index: int, changes: Changes) -> None:
        self.unit = unit
        self.index = index
        self.changes = changes
        tables = unit.tables
        self._keys = tables[f"keys:{index}"]
        self.data = tables[f"data:{index}"]
        self._expiry = tables[f"expiry:{index}"]
        self._watched = tables["watched"]
        #: by key; good while ``Unit.serial`` is ``_held_in``, and late ones until they are written
        self._held: dict[bytes, Kept] = {}
        self._held_in = 0
        #: the key looked up last, and its physical name: it is often written next
        self._found = b""
        self._found_name = physical(b"")

    # ---------------------------------------------------------------- records

    def find(self, key: bytes) -> bytes | None:
        """The live record of a key, or None."""
        if self.unit.late:
            self._write_late(key)
        # physical() written out: every command on every key comes this way.
        name = hash64(key) + key if len(key) < FIT_BYTES else physical(key)
        self._found, self._found_name = key, name
        record = self.unit.get(name, None, self._keys)
        if record is not None and record[0] & EXPIRES and record[1:9] <= self.unit.now_packed:
            if self.unit.writable:
                self.expire_now(key, record)
            return None
        return record

    def name_at(self, name: bytes) -> bytes | None:
        """The key behind a physical one; None if there is no record."""
        record = self.unit.get(name, None, self._keys)
        return None if record is None else layout.name_of(name, record)

    def exists(self, key: bytes) -> bool:
        return self.find(key) is not None

    def _is_past(self, record: bytes) -> bool:
        return record[1:9] <= self.unit.now_packed

    def store(self, key: bytes, record: bytes) -> None:
        """Write the record of a key whose deadline did not change."""
        self._let_go(key)
        name = self._found_name if key is self._found else physical(key)
        self.unit.put(name, record, True, True, False, self._keys)

    def type_of(self, key: bytes) -> int | None:
        record = self.find(key)
        return None if record is None else record[0] & TYPE_MASK

    def size(self) -> int:
        """Number of keys, expired ones that nobody touched included, as DBSIZE counts."""
        return self.unit.entries(self._keys)

    # ---------------------------------------------------------------- strings

    def get_string(self, key: bytes) -> bytes | None:
        """The value of a string; WRONGTYPE for another type."""
        record = self.find(key)
        if record is None:
            return None
        tag = record[0]
        if tag == STRING:
            return record[1:]
        if tag == EXPIRING_STRING:
            return record[9:]
        if tag & TYPE_MASK != STRING:
            raise WrongTypeError
        return layout.string_in(record)

    def get_strings(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys; None where there is no string."""
        if self.unit.late:
            self.unit.write_late()
        get, table, now = self.unit.get, self._keys, self.unit.now_packed
        values: list[bytes | None] = []
        for key in keys:
            record = get(hash64(key) + key if len(key) < FIT_BYTES else physical(key), None, table)
            if record is not None and record[0] & EXPIRES and record[1:9] <= now:
                record = self.find(key)  # which removes it
            if record is None or record[0] & TYPE_MASK != STRING:
                values.append(None)
            else:
                values.append(record[9:] if record[0] == EXPIRING_STRING else layout.string_in(record))
        return values

    def set_string(self, key: bytes, value: bytes, deadline_ms: int | None = None) -> None:
        """Make the key a string, whatever it was; its old deadline goes unless given again."""
        if self._held:
            self._let_go(key)
        # physical() and encode_head() written out, as in find().
        if len(key) < FIT_BYTES:
            name = hash64(key) + key
            head = b"\x01" if deadline_ms is None else EXPIRING_HEAD.pack(EXPIRING_STRING, deadline_ms)
        else:
            name = physical(key)
            head = layout.encode_head(STRING, deadline_ms, key)
        old = self.unit.replace(name, head + value, self._keys)
        if old is None:
            if self.changes.observed:
                self._notify_new(key)
        elif old[0] == EXPIRING_STRING and not self.changes.observed:
            if old[:9] == head:
                return  # its row of expiry:N is right as it is
            self.unit.delete(old[1:9] + name, b"", self._expiry)
        elif old[0] != STRING:
            self._replaced(key, name, old)
        if deadline_ms is not None:
            self.unit.put(head[1:9] + name, b"", db=self._expiry)

    def update_string(self, key: bytes, value: bytes) -> None:
        """Exchange the value of a string and keep its deadline; creates the key if it is missing."""
        record = self.find(key)
        if record is None or record[0] == STRING:
            self.set_string(key, value)
            return
        self.store(key, record[: layout.decode_head(record).body] + value)

    # ------------------------------------------------------- at hand (rule 5)

    def load(self, key: bytes, kind: type[K]) -> K | None:
        """The collection or counter at a key, None if there is none; WRONGTYPE for another type."""
        held = self._held.get(key)
        if type(held) is kind and self._held_in == self.unit.serial:
            return held
        record = self.find(key)
        if record is None:
            return None
        if record[0] & TYPE_MASK != kind.TYPE:
            raise WrongTypeError
        loaded = kind(self, key, record)
        self.keep_at_hand(loaded)
        return loaded

    def load_or_new(self, key: bytes, kind: type[C]) -> C:
        """As :meth:`load`, with an empty collection where there is none; ``save`` makes it official."""
        held = self._held.get(key)  # as in load(): the usual case of a write
        if type(held) is kind and self._held_in == self.unit.serial:
            return held
        found = self.load(key, kind)
        return kind(self, key, None) if found is None else found

    def comes_again(self, key: bytes) -> bool:
        """Whether a key is at hand, or was the one looked up last: worth keeping there."""
        return key in self._held or key == self._found

    def has_at_hand(self, value: Kept) -> bool:
        """Whether :meth:`load` would answer just this object, so that its record may be late."""
        return self._held.get(value.key) is value and self._held_in == self.unit.serial

    def keep_at_hand(self, value: Kept) -> None:
        """What was saved last is the truth about its key; another object of the same key is let go of."""
        if self._held.get(value.key) is value and self._held_in == self.unit.serial:
            return
        self._let_go(value.key)
        if self._held_in != self.unit.serial or len(self._held) >= MOST_HELD:
            self._let_go_of_all()
        self._held[value.key] = value

    def store_late(self, key: bytes, record: bytes) -> None:
        """Write the record of something at hand, which stays there."""
        name = self._found_name if key is self._found else physical(key)
        self.unit.put(name, record, True, True, False, self._keys)

    def _write_late(self, key: bytes) -> None:
        """Somebody is going to read the record of a key."""
        held, late = self._held.get(key), self.unit.late
        if held is not None and held in late:
            del late[held]
            held.write_late()

    def _let_go(self, key: bytes) -> None:
        """Another record takes the place of this one, whatever would have been written of it."""
        held = self._held.pop(key, None)
        if held is not None:
            self.unit.late.pop(held, None)

    def _let_go_of_all(self) -> None:
        self.unit.write_late()
        self._held.clear()
        self._held_in = self.unit.serial

    # ---------------------------------------------------------------- deletion

    def delete(self, key: bytes) -> bool:
        """Remove a live key. Says nothing to observers: the caller calls :meth:`changed`."""
        record = self.find(key)
        if record is None:
            return False
        self._remove(key, record)
        return True

    def _remove(self, key: bytes, record: bytes) -> None:
        self._let_go(key)
        name = physical(key)
        self.unit.delete(name, db=self._keys)
        if record[0] != STRING:
            self._release(name, record)

    def _replaced(self, key: bytes, name: bytes, old: bytes) -> None:
        """Another record took the place of ``old``, which may have been past its time."""
        self._release(name, old)
        if self.changes.observed and old[0] & EXPIRES and self._is_past(old):
            self.changed(key, EVENT_EXPIRED, b"expired")
            self._notify_new(key)

    def _release(self, name: bytes, record: bytes) -> None:
        """Let go of what hangs on an old record: its expiry row and its elements."""
        head = layout.decode_head(record)
        if head.deadline_ms is not None:
            self.unit.delete(U64.pack(head.deadline_ms) + name, db=self._expiry)
        if head.type != STRING:
            version = record[head.body : head.body + 8]
            size = int.from_bytes(record[head.body + 8 : head.body + 16], "big")
            self._release_elements(version, size)
        self.tell_gone(name, record)

    def _release_elements(self, version: bytes, size: int) -> None:
        if size > INLINE_DELETE_SIZE:
            self.add_garbage(version)
            return
        self.remove_elements(version, None)

    def add_garbage(self, version: bytes) -> None:
        """Leave the elements of a version to the sweeper."""
        self.unit.put(bytes((self.index,)) + version, b"", db=self.unit.tables["garbage"])

    def remove_elements(self, version: bytes, limit: int | None) -> int:
        """Remove up to ``limit`` element rows of a version (all if None); answers how many."""
        cursor = self.unit.cursor(self.data)
        removed = 0
        found = cursor.set_range(version)
        while found and cursor.key()[:8] == version and (limit is None or removed < limit):
            found = cursor.delete()
            removed += 1
        return removed

    # ------------------------------------------------------------------ expiry

    def deadline_of(self, key: bytes) -> int | None:
        """When a key expires; None if never or if there is no key."""
        record = self.find(key)
        return None if record is None else layout.deadline_in(record)

    def set_deadline(self, key: bytes, deadline_ms: int | None) -> bool:
        """Give a live key a new deadline, or none. False if there is no key."""
        record = self.find(key)
        if record is None:
            return False
        name = self._found_name
        old = record[1:9] if record[0] & EXPIRES else b""
        new = b"" if deadline_ms is None else U64.pack(deadline_ms)
        if new == old:
            return True
        if old:
            self.unit.delete(old + name, b"", self._expiry)
        if new:
            self.unit.put(new + name, b"", db=self._expiry)
        self._let_go(key)
        self.unit.put(name, layout.with_deadline(record, new), db=self._keys)
        return True

    def expire_now(self, key: bytes, record: bytes) -> None:
        """Remove a key whose time has come."""
        self._remove(key, record)
        self.changed(key, EVENT_EXPIRED, b"expired")

    def next_deadline_ms(self) -> int | None:
        cursor = self.unit.cursor(self._expiry)
        return int.from_bytes(cursor.key()[:8], "big") if cursor.first() else None

    def sweep_expired(self, limit: int) -> int:
        """Remove up to ``limit`` expired keys, oldest deadline first; answers how many."""
        due = list(islice(self._due_rows(), limit))
        for row in due:
            record = self.unit.get(row[8:], None, self._keys)
            if record and record[1:9] == row[:8] and record[0] & EXPIRES:
                self.expire_now(layout.name_of(row[8:], record), record)
            else:
                # Damage (rule 3). Who does not say when it expires does not; the others have to go on.
                self.unit.delete(row, db=self._expiry)
        return len(due)

    def _due_rows(self) -> Iterator[bytes]:
        """Rows of ``expiry:N`` whose deadline has passed, oldest first."""
        end = U64.pack(self.unit.now_ms + 1)
        cursor = self.unit.cursor(self._expiry)
        return takewhile(lambda row: row < end, cursor.iternext(keys=True, values=False))

    # -------------------------------------------------------------- move, copy

    def rename(self, old: bytes, new: bytes) -> None:
        """Move a live record to another name, replacing what was there; O(1) for any size."""
        self.move_record(old, self, new)

    def move_record(self, key: bytes, target: Keyspace, new_key: bytes) -> None:
        record = self.find(key)
        assert record is not None
        head = layout.decode_head(record)
        body = record[head.body :]
        if target is not self and head.type != STRING:
            body = self._copy_elements(body, target)
            self._remove(key, record)
        else:
            self._let_go(key)
            self.unit.delete(physical(key), db=self._keys)
            if head.deadline_ms is not None:
                self.unit.delete(U64.pack(head.deadline_ms) + physical(key), db=self._expiry)
            self.tell_gone(physical(key), record)
        target.put_body(new_key, head.type, head.deadline_ms, body)

    def copy_record(self, key: bytes, target: Keyspace, new_key: bytes) -> None:
        """Make ``new_key`` in ``target`` an independent copy, deadline included."""
        record = self.find(key)
        assert record is not None
        head = layout.decode_head(record)
        body = record[head.body :]
        if head.type != STRING:
            body = self._copy_elements(body, target)
        target.put_body(new_key, head.type, head.deadline_ms, body)

    def put_body(self, key: bytes, type_: int, deadline_ms: int | None, body: bytes) -> None:
        """Write a record from its parts, releasing what the key held before."""
        self._let_go(key)
        name = physical(key)
        old = self.unit.replace(name, layout.encode_head(type_, deadline_ms, key) + body, db=self._keys)
        if old is not None:
            self._replaced(key, name, old)
        elif self.changes.observed:
            self._notify_new(key)
        if deadline_ms is not None:
            self.unit.put(U64.pack(deadline_ms) + name, b"", db=self._expiry)
        if type_ == STREAM and body[-1] & TENDED:
            self.unit.put(bytes((self.index,)) + name, body[:8], db=self.unit.tables["tended"])
        if type_ == STREAM and body[GROUPS_AT] != bytes(4):
            timers.look_soon(self.unit, self.index, name)

    def _copy_elements(self, body: bytes, target: Keyspace) -> bytes:
        old = body[:8]
        new = U64.pack(self.unit.take_number(b"version"))
        for row, value in list(self.unit.rows(self.data, old)):
            self.unit.put(new + row[8:], value, db=target.data)
        return new + body[8:]

    # ------------------------------------------------------------ as a whole

    def all_tables(self) -> tuple[Table, Table, Table]:
        """Of this database, for who is about to change them as a whole (``databases``)."""
        self._let_go_of_all()
        return self._keys, self.data, self._expiry

    def awaited_records(self) -> list[tuple[bytes, bytes]]:
        """Physical keys that clients are blocked on, as far as they exist, with their records."""
        if not self.changes.awaited:
            return []
        rows = self.unit.rows(self.unit.tables["waiters"], bytes((self.index,)))
        names = dict.fromkeys(row[1:-8] for row, _ in rows)
        found = ((name, self.unit.get(name, None, self._keys)) for name in names)
        return [(name, record) for name, record in found if record is not None]

    # --------------------------------------------------------------- iteration

    def keys(self) -> Iterator[bytes]:
        """Every live key, in the order of SCAN. Do not write meanwhile.

        Records are not read, since they may be large: who has expired is known from the deadlines.
        """
        expired = {row[8:] for row in self._due_rows()}
        get, table = self.unit.get, self._keys
        for name in self.unit.cursor(table).iternext(keys=True, values=False):
            if name in expired:
                continue
            if len(name) == LONG_PHYSICAL_BYTES:
                yield layout.name_of(name, get(name, b"", table) or b"")
            else:
                yield name[8:]

    def scan(self, cursor: int, count: int) -> tuple[int, list[tuple[bytes, int]]]:
        """At least ``count`` live keys with their types from a cursor on, and the next cursor (0 = end).

        A key that exists during a whole scan has a fixed place (its hash), so it is
        returned; keys with equal hashes are never split over two calls.
        """
        return scan_rows(self.unit, self._keys, b"", cursor, count, self._scan_item)

    def _scan_item(self, row: bytes, record: bytes) -> tuple[bytes, int] | None:
        if record[0] & EXPIRES and self._is_past(record):
            return None
        return layout.name_of(row, record), record[0] & TYPE_MASK

    def random_key(self) -> bytes | None:
        """A live key, picked by a random place in hash order."""
        cursor = self.unit.cursor(self._keys)
        if not cursor.set_range(random.randbytes(8)) and not cursor.first():
            return None
        for _ in range(self.size()):
            name, record = cursor.item()
            if not record[0] & EXPIRES or not self._is_past(record):
                return layout.name_of(name, record)
            if not cursor.next():
                cursor.first()
        return None

    # --------------------------------------------------------------- observers

    def changed(self, key: bytes, event_class: str, event: bytes) -> None:
        """Tell observers that a key changed."""
        changes = self.changes
        if changes.observed:
            if changes.watching:
                self._touch_watched(key)
            if changes.tracked:
                changes.touched.append(key)
                changes.unsettled = True
            if event_class in changes.notify_classes:
                changes.events.append((self.index, event, key))
                changes.unsettled = True

    def ready(self, key: bytes) -> None:
        """The key gained content that a blocked client may be waiting for."""
        if self.changes.awaited:
            self.changes.ready.append((self.index, key, False))
            self.changes.unsettled = True

    def tell_gone(self, name: bytes, record: bytes) -> None:
        """A record went from its key: whoever waits in a stream must not wait for another one."""
        if self.changes.awaited and record[0] & TYPE_MASK == STREAM:
            self.changes.ready.append((self.index, layout.name_of(name, record), True))
            self.changes.unsettled = True

    def _notify_new(self, key: bytes) -> None:
        if EVENT_NEW in self.changes.notify_classes:
            self.changes.events.append((self.index, b"new", key))
            self.changes.unsettled = True

    def watch(self, key: bytes) -> int:
        """Put a key under watch; answers the revision to compare with :meth:`revision`."""
        row = bytes((self.index,)) + physical(key)
        revision = self.revision(key)
        if revision is None:
            # A revision never used before: a row that was swept and made anew is another watch.
            revision = self.unit.take_number(b"ticket") << 20
        self.unit.put(row, U64.pack(revision) + U64.pack(self.unit.now_ms), db=self._watched)
        self.changes.watching = True
        self.changes.refresh()
        return revision

    def revision(self, key: bytes) -> int | None:
        row = self.unit.get(bytes((self.index,)) + physical(key), None, self._watched)
        return None if row is None else int.from_bytes(row[:8], "big")

    def _touch_watched(self, key: bytes) -> None:
        row = bytes((self.index,)) + physical(key)
        stored = self.unit.get(row, None, self._watched)
        if stored is not None:
            self._bump(row, stored)

    def touch_watched_in(self, *keyspaces: Keyspace) -> None:
        """Touch the watched keys of this database that exist in any of these ones."""
        get = self.unit.get
        for row, stored in list(self.unit.rows(self._watched, bytes((self.index,)))):
            if any(get(row[1:], None, keyspace._keys) is not None for keyspace in keyspaces):
                self._bump(row, stored)

    def _bump(self, row: bytes, stored: bytes) -> None:
        bumped = int.from_bytes(stored[:8], "big") + 1
        self.unit.put(row, U64.pack(bumped) + stored[8:], db=self._watched)
