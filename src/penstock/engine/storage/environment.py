"""One LMDB environment a process and directory: open, grow, sync, clear stale readers.

Rules
-----
* LMDB forbids opening a directory twice in one process, so environments are shared
  here by identity of the directory and counted.
* Whoever holds a transaction holds ``Environment.lock``. The map may only change size
  while no transaction of this process is open; the lock is what guarantees it.
* Nothing survives ``fork``: in the child every environment counts as closed.
* ``max_bytes`` is the limit of ordinary work. Beyond it lies a reserve for work that frees
  room: LMDB copies pages before it gives any back, so a store that is full to the last
  page could not even be emptied. And it hands out a free page only one transaction after
  the one that freed it, so there must be one in between (``recover_pages``).

``system`` table, what this module keeps there: ``turn`` → empty or one byte, in turns.
* Foreign exceptions end here: :func:`translate` turns LMDB's into ours.

Durability: ``always`` syncs at every commit. ``relaxed`` leaves it to the operating
system and to :meth:`Environment.sync`; it survives a killed process but a power cut
may lose or damage the store.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import lmdb

from penstock.engine.storage.layout import DATABASES
from penstock.errors import (
    ClosedError,
    ConfigError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFormatError,
    StoreFullError,
)

Durability: TypeAlias = Literal["always", "relaxed"]
Table: TypeAlias = "lmdb._Database"
DURABILITIES: Final = ("always", "relaxed")

#: What LMDB raises inside a transaction; translate it with :func:`translate`.
ENGINE_FAULTS: Final = (lmdb.Error, OSError)

INITIAL_MAP_BYTES: Final = 256 << 20
DEFAULT_MAX_BYTES: Final = 1 << 40
MAX_READERS: Final = 512
_LEAST_RESERVE_BYTES: Final = 1 << 20
_MOST_RESERVE_BYTES: Final = 64 << 20
#: Room for the pages that one deletion copies, even where the reserve is used up.
_LAST_RESERVE_BYTES: Final = 256 << 10
_SHARED_TABLES: Final = (
    "system", "garbage", "watched", "scripts", "channels", "subscribed", "messages", "waiters", "waiting",
    "tended", "due",
)  # fmt: skip

#: The disk, a quota or the largest allowed file is used up. LMDB tells them by their text only.
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_map_full(fault: BaseException) -> bool:
    """Whether the map ended before the disk did: grow it and try again."""
    return isinstance(fault, lmdb.MapFullError)


def translate(fault: BaseException) -> StoreError:
    """Our error for what LMDB or the operating system said."""
    if isinstance(fault, lmdb.MapFullError):
        return StoreFullError("the store reached its size limit; delete keys or raise max_size_bytes")
    if isinstance(fault, lmdb.ReadersFullError):
        return StoreBusyError(f"all {MAX_READERS} reader slots are taken; close some processes")
    if isinstance(fault, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.InvalidError):
        return StoreCorruptError(f"the store is damaged ({fault}); restore it from a backup")
    if isinstance(fault, lmdb.VersionMismatchError):
        return StoreFormatError(f"the directory holds an LMDB file of another version ({fault})")
    text = str(fault)
    number = fault.errno if isinstance(fault, OSError) else None
    if number in _NO_SPACE or any(os.strerror(code) in text for code in _NO_SPACE):
        return StoreFullError("no space left on the disk of the store; nothing of this request was written")
    if number == errno.EIO or os.strerror(errno.EIO) in text:
        # What LMDB says of a write that came to an end halfway, too: then the disk is full.
        return StoreError(f"the disk of the store is full or failing ({text}); nothing of this was written")
    return StoreError(f"the store failed: {text}")


class Environment:
    """An open directory. Get one from :func:`open_environment`, give it back with :meth:`close`."""

    def __init__(self, path: Path, durability: Durability, max_bytes: int, map_bytes: int) -> None:
        self.path = path
        self.durability = durability
        self.max_bytes = _round_up(max_bytes)
        self.lock = threading.RLock()
        self.references = 1
        self._closed = False
        self._in_reserve = False
        #: the transaction after which pages were recovered last
        self._recovered = 0
        self._env = self._open(map_bytes)
        self.tables: dict[str, Table] = {}
        self._open_tables()

    def _open(self, map_bytes: int) -> lmdb.Environment:
        data = self.path / "data.mdb"
        size = max(map_bytes, data.stat().st_size if data.exists() else 0)
        return lmdb.open(
            str(self.path),
            # LMDB takes more by itself where more is in use.
            map_size=min(_round_up(size), self.max_bytes),
            max_dbs=len(_SHARED_TABLES) + 3 * DATABASES + 8,
            max_readers=MAX_READERS,
            sync=self.durability == "always",
            metasync=self.durability == "always",
            meminit=False,
            max_spare_txns=4,
            mode=0o600,
        )

    def _open_tables(self) -> None:
        names = [*_SHARED_TABLES, *(f"{k}:{n}" for n in range(DATABASES) for k in ("keys", "data", "expiry"))]
        # In one transaction, and a committed one: a handle opened in a read transaction dies with it.
        with self._env.begin(write=True) as txn:
            for name in names:
                self.tables[name] = self._env.open_db(name.encode(), txn=txn)

    def begin(self, write: bool, parent: lmdb.Transaction | None = None) -> lmdb.Transaction:
        """A transaction; adopts a map that another process has grown."""
        if self._closed:
            raise ClosedError(f"the store {self.path} is closed in this process (closed, or used after fork)")
        while True:
            try:
                return self._env.begin(write=write, parent=parent)
            except lmdb.MapResizedError:
                self._env.set_mapsize(0)
                if self.map_bytes() > self.max_bytes:
                    self._env.set_mapsize(self.max_bytes)  # what the other one took may be its reserve
            except lmdb.ReadersFullError:
                if self._env.reader_check() == 0:
                    raise

    def grow(self) -> bool:
        """Double the map up to the limit. False when the limit is reached. No transaction may be open."""
        current = self._env.info()["map_size"]
        if current >= self.max_bytes:
            return False
        self._env.set_mapsize(min(_round_up(current * 2), self.max_bytes))
        return True

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Room beyond the limit, for work that frees room. No transaction may be open on either end."""
        reserve = min(max(self.max_bytes // 16, _LEAST_RESERVE_BYTES), _MOST_RESERVE_BYTES)
        least = _round_up(self.used_bytes()) + _LAST_RESERVE_BYTES
        self._env.set_mapsize(max(self.map_bytes(), self.max_bytes + reserve, least))
        self._in_reserve = True
        try:
            yield
        finally:
            self._in_reserve = False
            # Not less than what is in use: LMDB sees to it.
            self._env.set_mapsize(self.max_bytes)

    def recover_pages(self) -> bool:
        """Make usable what the last transaction freed. False if none has been since the last time."""
        if self._in_reserve or self._env.info()["last_txnid"] == self._recovered:
            return False
        system = self.tables["system"]
        try:
            with self.reserve(), self._env.begin(write=True) as txn:
                # A transaction that changes nothing would not count.
                txn.put(b"turn", b"" if txn.get(b"turn", db=system) else b"1", db=system)
        except ENGINE_FAULTS:
            return False  # not even that, so there is nothing to be won
        self._recovered = self._env.info()["last_txnid"]
        return True

    def grow_if_tight(self) -> None:
        """Grow ahead of need, so that running into the end of the map stays rare."""
        if self.used_bytes() > self._env.info()["map_size"] * 3 // 4:
            self.grow()

    def used_bytes(self) -> int:
        """Bytes of the file up to its last page, free pages inside included."""
        return int((self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"])

    def map_bytes(self) -> int:
        return int(self._env.info()["map_size"])

    def sync(self) -> None:
        self._env.sync(True)

    def clear_stale_readers(self) -> int:
        return int(self._env.reader_check())

    def copy_to(self, target: Path, *, compact: bool) -> None:
        """Write what is committed now into an empty directory. Others may write meanwhile."""
        with self.lock:
            while True:
                try:
                    self._env.copy(str(target), compact=compact)
                    return
                except lmdb.MapResizedError:
                    self.begin(write=False).abort()  # adopts what another process has grown
                    (target / "data.mdb").unlink(missing_ok=True)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Give back one reference; the last one closes the environment. Idempotent."""
        with _registry_lock:
            if self._closed:
                return
            self.references -= 1
            if self.references > 0:
                return
            self._closed = True
            _registry.pop(_identity(self.path), None)
        with self.lock:
            if self.durability == "relaxed":
                self._env.sync(True)
            self._env.close()

    def abandon(self) -> None:
        """In a forked child: the handle must neither be used nor closed."""
        self._closed = True

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"open, {self.references} references"
        return f"<Environment {self.path} {self.durability} {state}>"


_registry: weakref.WeakValueDictionary[tuple[int, int], Environment] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()
#: stores that the parent had open when this process was forked
_inherited: set[tuple[int, int]] = set()


def open_environment(
    path: Path, durability: Durability, max_bytes: int = DEFAULT_MAX_BYTES, map_bytes: int | None = None
) -> Environment:
    """Open a directory, or share the environment that this process has open on it already.

    ``map_bytes`` is how much is mapped at first (``INITIAL_MAP_BYTES``); it grows by itself.
    """
    if durability not in DURABILITIES:
        raise ConfigError(f"durability must be 'always' or 'relaxed', not {durability!r}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot use {path} as a store directory: {error.strerror}") from error
    with _registry_lock:
        if _identity(path) in _inherited:
            # LMDB allows one handle a process, and the parent's may be neither used nor closed here.
            raise StoreError(
                f"{path} was open when this process was forked, so it cannot be opened here:"
                " start the process by spawn, or fork before opening"
            )
        known = _registry.get(_identity(path))
        if known is not None and not known.closed:
            if known.durability != durability:
                raise ConfigError(
                    f"{path} is already open in this process with durability {known.durability!r};"
                    f" open it with the same, not {durability!r}"
                )
            known.references += 1
            return known
        try:
            env = Environment(path, durability, max_bytes, map_bytes or INITIAL_MAP_BYTES)
        except ENGINE_FAULTS as fault:
            raise translate(fault) from fault
        _registry[_identity(path)] = env
        return env


def is_open_here(path: Path) -> bool:
    """Whether this process has a directory open, or inherited it from one that has."""
    with _registry_lock:
        if not path.exists():
            return False
        known = _registry.get(_identity(path))
        return (known is not None and not known.closed) or _identity(path) in _inherited


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _round_up(size: int) -> int:
    page = 1 << 16
    return (size + page - 1) // page * page


def _forget_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for identity, env in list(_registry.items()):
        if not env.closed:
            env.abandon()
            _inherited.add(identity)
    _registry.clear()


os.register_at_fork(after_in_child=_forget_in_child)
