"""A unit of work: one LMDB transaction and what must happen when it commits.

Rules
-----
* One :class:`Unit` a keyspace, used again for every transaction; ``begin`` … ``commit``
  or ``abort``. The caller holds ``Environment.lock`` meanwhile.
* The hot operations (``get``, ``put``, ``delete`` …) are LMDB's own bound methods,
  exchanged at ``begin``: a wrapper would cost more than the operation.
* ``enter_savepoint`` opens a child transaction, so that a script can be undone alone.
* Records that were put off (``late``; why and for whom: ``datatypes.kept``) are written
  before anybody could miss them: when a cursor is opened, when a savepoint begins or
  ends, and by the commit. A point read of such a record is the keyspace's concern.
* Time stands still inside a unit: ``now_ms`` is read once at ``begin``.

``system`` table, what this module keeps there
----------------------------------------------
============  ==========================================
``version``   u64, the next unused collection version
``ticket``    u64, the next unused ticket of a waiter
============  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import lmdb

from penstock.clock import Clock
from penstock.engine.storage.environment import Environment, Table
from penstock.engine.storage.layout import U64

_COUNTERS = (b"version", b"ticket")


class Late(Protocol):
    """Something whose row is not written yet."""

    def write_late(self) -> None: ...


class Unit:
    """The current transaction. Attributes below are only valid between begin and the end of it."""

    get: Callable[..., bytes | None]  #: get(key, default, table)
    #: put(key, value, overwrite=…, db=table), or put(key, value, True, True, False, table), which is faster
    put: Callable[..., bool]
    delete: Callable[..., bool]  #: delete(key, db=table), or delete(key, b"", table), which is faster
    pop: Callable[..., bytes | None]  #: pop(key, db=table): get and delete in one
    replace: Callable[..., bytes | None]  #: replace(key, value, table): put, answering the old value
    cursor: Callable[..., Any]  #: cursor(table)
    _open_cursor: Callable[..., Any]

    def __init__(self, env: Environment, clock: Clock) -> None:
        self.env = env
        self.clock = clock
        self.tables = env.tables
        self.writable = False
        self.now_ms = 0
        #: the same as deadlines are stored
        self.now_packed = bytes(8)
        #: changes whenever what was read before may not be trusted any more
        self.serial = 0
        self._txn: lmdb.Transaction | None = None
        self._parents: list[lmdb.Transaction] = []
        self._counters: dict[bytes, int] = {}
        #: what is still to be written, in no order
        self.late: dict[Late, None] = {}

    def begin(self, write: bool) -> None:
        assert self._txn is None, "units do not nest; use savepoints"
        self.writable = write
        self._bind(self.env.begin(write))
        self.serial += 1
        self.now_ms = self.clock.now_ms()
        self.now_packed = U64.pack(self.now_ms)

    def commit(self) -> None:
        txn = self._txn
        assert txn is not None
        self.write_late()
        if self._counters:
            for name, value in self._counters.items():
                txn.put(name, U64.pack(value), db=self.tables["system"])
            self._counters.clear()
        self._txn = None
        txn.commit()

    def abort(self) -> None:
        txn, self._txn = self._txn, None
        self._counters.clear()
        self.late.clear()
        if self._parents:  # aborting the outermost ends those inside
            txn = self._parents[0]
            self._parents.clear()
        if txn is not None:
            txn.abort()

    def enter_savepoint(self) -> None:
        """From here on changes can be undone alone; no effect in a read-only unit."""
        if self.writable:
            parent = self._txn
            assert parent is not None
            self.write_late()
            child = self.env.begin(True, parent)
            self._parents.append(parent)
            self._bind(child)
            self.serial += 1

    def leave_savepoint(self, keep: bool) -> None:
        """Make what happened since part of the unit, or undo it."""
        if not self.writable:
            return
        child = self._txn
        assert child is not None
        if keep:
            self.write_late()
        self.late.clear()
        self._bind(self._parents.pop())
        if keep:
            child.commit()
        else:
            self.serial += 1
            child.abort()

    def write_late(self) -> None:
        """Write what was put off, since somebody might look."""
        late = self.late
        while late:
            late.popitem()[0].write_late()

    def entries(self, table: Table) -> int:
        assert self._txn is not None
        return int(self._txn.stat(table)["entries"])

    def has_rows(self, table: Table, prefix: bytes = b"") -> bool:
        """Whether any row's key starts with ``prefix``; cheaper than counting."""
        cursor = self._open_cursor(table)  # late records are of keys that are there
        return bool(cursor.set_range(prefix)) and cursor.key().startswith(prefix)

    def empty(self, table: Table) -> None:
        """Remove every row of a table."""
        assert self._txn is not None
        self._txn.drop(table, delete=False)

    def take_number(self, counter: bytes) -> int:
        """The next value of a persistent counter, unique over all processes and time."""
        assert counter in _COUNTERS
        value = self._counters.get(counter)
        if value is None:
            stored = self.get(counter, None, self.tables["system"])
            value = int.from_bytes(stored, "big") if stored else 1
        self._counters[counter] = value + 1
        return value

    def rows(self, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key starts with ``prefix``, in order. Do not write to the table meanwhile."""
        cursor = self.cursor(table)
        if not cursor.set_range(prefix):
            return
        for row in cursor.iternext():
            if not row[0].startswith(prefix):
                return
            yield row

    @staticmethod
    def seek(cursor: Any, prefix: bytes, rest: bytes) -> bool:
        """Put a cursor on the last row of a prefix at or before ``prefix + rest``, else on its first."""
        found = cursor.set_range(prefix + rest)
        if found and cursor.key() == prefix + rest:
            return True
        if (cursor.prev() if found else cursor.last()) and cursor.key().startswith(prefix):
            return True
        return bool(cursor.set_range(prefix)) and cursor.key().startswith(prefix)

    def _cursor_seeing_all(self, table: Table) -> Any:
        if self.late:
            self.write_late()
        return self._open_cursor(table)

    def _bind(self, txn: lmdb.Transaction) -> None:
        self._txn = txn
        # The stubs allow for memoryviews, which only transactions with buffers=True return.
        self.get = cast("Callable[..., bytes | None]", txn.get)
        self.put = txn.put
        self.delete = txn.delete
        self.pop = cast("Callable[..., bytes | None]", txn.pop)
        self.replace = cast("Callable[..., bytes | None]", txn.replace)
        self._open_cursor = txn.cursor
        self.cursor = self._cursor_seeing_all if self.writable else txn.cursor
