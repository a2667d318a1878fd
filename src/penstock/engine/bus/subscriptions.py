"""Who listens to what: channels, patterns, shard channels and changes of keys, in tables that all see.

Rows of ``channels`` and ``subscribed`` mirror one another (see ``storage.layout``): the
first answers "who listens to this?", the second "what does this mailbox listen to?",
which is all that is needed to clean up after a dead process.

Whoever remembers what it read here may trust it until ``Unit.serial`` changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.engine.bus.mailboxes import MAILBOX_BYTES
from penstock.engine.storage.layout import fit
from penstock.engine.storage.transaction import Unit

CHANNEL: Final = b"c"
PATTERN: Final = b"p"
SHARD: Final = b"s"
#: Wants to know which keys change (see ``tracking``); has no name.
TRACKER: Final = b"t"


class Subscriptions:
    """Methods need an open unit; adding and removing a writable one."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._channels = unit.tables["channels"]
        self._subscribed = unit.tables["subscribed"]

    def add(self, kind: bytes, name: bytes, mailbox: bytes) -> None:
        self._unit.put(kind + fit(name) + mailbox, name, db=self._channels)
        self._unit.put(mailbox + kind + fit(name), name, db=self._subscribed)
        self._unit.serial += 1

    def remove(self, kind: bytes, name: bytes, mailbox: bytes) -> None:
        self._unit.delete(kind + fit(name) + mailbox, db=self._channels)
        self._unit.delete(mailbox + kind + fit(name), db=self._subscribed)
        self._unit.serial += 1

    def remove_all(self, owner: bytes) -> None:
        """Remove every subscription of a mailbox, or of all mailboxes of an endpoint."""
        for row, name in list(self._unit.rows(self._subscribed, owner)):
            mailbox, kind = row[:MAILBOX_BYTES], row[MAILBOX_BYTES : MAILBOX_BYTES + 1]
            self.remove(kind, name, mailbox)

    def listeners(self, kind: bytes, name: bytes) -> list[bytes]:
        """Mailboxes subscribed to exactly this name."""
        prefix = kind + fit(name)
        cursor = self._unit.cursor(self._channels)
        found: list[bytes] = []
        if not cursor.set_range(prefix) or not cursor.key().startswith(prefix):
            return found
        width = len(prefix) + MAILBOX_BYTES
        for row, full in cursor.iternext():
            if not row.startswith(prefix):
                break
            if len(row) == width and full == name:
                found.append(row[-MAILBOX_BYTES:])
        return found

    def patterns(self) -> Iterator[tuple[bytes, bytes]]:
        """(pattern, mailbox) of every pattern subscription."""
        for row, pattern in self._unit.rows(self._channels, PATTERN):
            yield pattern, row[-MAILBOX_BYTES:]

    def names(self, kind: bytes) -> list[bytes]:
        """Every name that somebody is subscribed to, once."""
        return list(dict.fromkeys(name for _, name in self._unit.rows(self._channels, kind)))
