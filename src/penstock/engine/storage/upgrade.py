"""The format version of a store, and the way from an older one to ours.

``system`` table: ``format`` → u32. A new store is stamped with the current version. An
older store is upgraded step by step inside one transaction, so that a crash leaves it
old and whole; a newer one is refused, since we cannot know what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.engine.storage.environment import ENGINE_FAULTS, Environment, translate
from penstock.engine.storage.layout import FORMAT_VERSION, U32
from penstock.engine.storage.transaction import Unit
from penstock.errors import StoreFormatError

#: from version → function that turns a store of that version into the next one
UPGRADES: Final[dict[int, Callable[[Unit], None]]] = {}


def check_format(env: Environment, unit: Unit) -> None:
    """Stamp a new store, upgrade an old one, refuse a newer one."""
    with env.lock:
        try:
            unit.begin(write=False)
            stored = unit.get(b"format", None, unit.tables["system"])
            unit.abort()
            if stored is None or int.from_bytes(stored, "big") != FORMAT_VERSION:
                unit.begin(write=True)
                _bring_up_to_date(env, unit)
                unit.commit()
        except ENGINE_FAULTS as fault:
            unit.abort()
            raise translate(fault) from fault
        except BaseException:
            unit.abort()
            raise


def _bring_up_to_date(env: Environment, unit: Unit) -> None:
    system = unit.tables["system"]
    # Read again under the write lock: another process may have been faster.
    stored = unit.get(b"format", None, system)
    version = FORMAT_VERSION if stored is None else int.from_bytes(stored, "big")
    if version > FORMAT_VERSION:
        raise StoreFormatError(
            f"{env.path} was written by a newer Penstock (format {version}, this one reads {FORMAT_VERSION});"
            " upgrade Penstock to open it"
        )
    while version < FORMAT_VERSION:
        upgrade = UPGRADES.get(version)
        if upgrade is None:
            raise StoreFormatError(f"{env.path} has format {version}, from which there is no upgrade path")
        upgrade(unit)
        version += 1
    unit.put(b"format", U32.pack(version), db=system)
