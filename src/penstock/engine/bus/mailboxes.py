"""The table half of signalling between processes: queued items, and the housekeeping of the dead.

A *mailbox* is one session of one endpoint: ``endpoint id(20) session number(8)``. What
must reach a session of another process is put into the ``messages`` table in the same
transaction as the change that caused it; after the commit the other endpoint's FIFO
says "look again". The database is the only truth about messages, the lock file the
only truth about life (see ``endpoint``).

Rows
----
============  =========================  ==============================================
``messages``  mailbox(28) ticket(8)      kind(1) RESP3 bytes; kind ``p`` push, ``r`` the
                                         reply of a blocked command
``system``    ``q`` mailbox(28)          count(8) dropped(8): length of that queue
============  =========================  ==============================================

A reply of a blocked command is encoded as [reply, restore commands]: if its process
died before it collected the reply, whoever buries it puts the elements back.

Bounds: at most ``queue_limit`` pushes wait a mailbox. Beyond that the oldest is dropped
and counted; the owner learns how many (:class:`Overflow`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.engine.bus.endpoint import Endpoint
from penstock.engine.bus.liveness import DeadEndpoint, probe, sweep
from penstock.engine.bus.signalling import Signaller
from penstock.engine.control import Overflow
from penstock.engine.storage.layout import U64
from penstock.engine.storage.transaction import Unit
from penstock.protocol.encoder import encode3
from penstock.protocol.parsing import parse_reply
from penstock.protocol.replies import Reply

ENDPOINT_BYTES: Final = 20
MAILBOX_BYTES: Final = 28
_PUSH: Final = b"p"
_REPLY: Final = b"r"


class Item(NamedTuple):
    """Something collected from a mailbox of this process."""

    session_number: int
    value: Reply
    is_reply: bool


class Mailboxes:
    """Posts to and collects from mailboxes. Methods that touch tables need an open unit."""

    def __init__(self, unit: Unit, directory: Path, queue_limit: int) -> None:
        self._unit = unit
        self._directory = directory
        self._messages = unit.tables["messages"]
        self._system = unit.tables["system"]
        self._signaller = Signaller(directory)
        self.queue_limit = queue_limit
        self.endpoint: Endpoint | None = None
        # Within one unit: what the lock files said, and the locks of the dead.
        self._life: dict[bytes, bool] = {}
        self._dead: dict[bytes, DeadEndpoint] = {}
        self._to_signal: set[bytes] = set()
        #: ``Unit.serial`` when nothing waited for this process: others cannot post meanwhile
        self._empty_at = -1

    # ---------------------------------------------------------------- identity

    def own_endpoint(self) -> Endpoint:
        """This process's endpoint; made when the first session subscribes or blocks."""
        if self.endpoint is None:
            self.endpoint = Endpoint.create(self._directory)
        return self.endpoint

    def address(self, session_number: int) -> bytes:
        return self.own_endpoint().id + U64.pack(session_number)

    def is_own(self, mailbox: bytes) -> bool:
        return self.endpoint is not None and mailbox[:ENDPOINT_BYTES] == self.endpoint.id

    # -------------------------------------------------------------------- life

    def begin(self) -> None:
        self._life.clear()
        self._dead.clear()
        self._to_signal.clear()

    def is_alive(self, endpoint_id: bytes) -> bool:
        """Whether the owner lives; asked once a unit. The lock of a dead one stays held until it ends."""
        if self.endpoint is not None and endpoint_id == self.endpoint.id:
            return True
        known = self._life.get(endpoint_id)
        if known is None:
            dead = probe(self._directory, endpoint_id)
            known = self._life[endpoint_id] = dead is None
            if dead is not None:
                self._dead[endpoint_id] = dead
        return known

    def committed(self) -> None:
        """After the commit: wake the living, remove the files of the dead."""
        for endpoint_id in self._to_signal:
            self._signaller.signal(endpoint_id)
        for dead in self._dead.values():
            dead.bury()
        self.begin()

    def aborted(self) -> None:
        for dead in self._dead.values():
            dead.release()
        self.begin()

    def find_dead(self, older_than_s: float, now_s: float) -> list[bytes]:
        """Endpoints that left files or rows behind; their locks are held until the unit ends."""
        for dead in sweep(self._directory, older_than_s=older_than_s, now_s=now_s):
            self._life[dead.id] = False
            self._dead[dead.id] = dead
        for endpoint_id in self._ids_in_tables():
            self.is_alive(endpoint_id)
        return list(self._dead)

    def _ids_in_tables(self) -> set[bytes]:
        """Endpoints that own rows, found by leaping from one to the next."""
        found: set[bytes] = set()
        for table in ("subscribed", "waiting", "messages"):
            cursor = self._unit.cursor(self._unit.tables[table])
            more = cursor.first()
            while more:
                endpoint_id = cursor.key()[:ENDPOINT_BYTES]
                found.add(endpoint_id)
                more = cursor.set_range(endpoint_id + b"\xff" * (MAILBOX_BYTES - ENDPOINT_BYTES + 1))
        return found

    def has_dead(self, older_than_s: float, now_s: float) -> bool:
        """Whether a sweep would find something; holds nothing."""
        found = bool(self.find_dead(older_than_s, now_s))
        self.aborted()
        return found

    # -------------------------------------------------------------------- post

    def post_push(self, mailbox: bytes, item: Reply) -> None:
        """Queue a push for a session of another process, dropping the oldest beyond the bound."""
        counter = b"q" + mailbox
        stored = self._unit.get(counter, None, self._system) or bytes(16)
        count, dropped = int.from_bytes(stored[:8], "big"), int.from_bytes(stored[8:], "big")
        if count >= self.queue_limit and self._drop_oldest_push(mailbox):
            count -= 1
            dropped += 1
        self._unit.put(counter, U64.pack(count + 1) + U64.pack(dropped), db=self._system)
        self._post(mailbox, _PUSH + encode3(item))

    def post_reply(self, mailbox: bytes, reply: Reply, restore: list[list[bytes]]) -> None:
        """Hand the reply of a blocked command to its session in another process."""
        self._post(mailbox, _REPLY + encode3([reply, restore]))

    def _post(self, mailbox: bytes, payload: bytes) -> None:
        ticket = U64.pack(self._unit.take_number(b"ticket"))
        self._unit.put(mailbox + ticket, payload, db=self._messages)
        self._empty_at = -1
        self._to_signal.add(mailbox[:ENDPOINT_BYTES])

    def _drop_oldest_push(self, mailbox: bytes) -> bool:
        cursor = self._unit.cursor(self._messages)
        found = cursor.set_range(mailbox)
        while found and cursor.key().startswith(mailbox):
            if cursor.value()[:1] == _PUSH:
                cursor.delete()
                return True
            found = cursor.next()
        return False

    # ----------------------------------------------------------------- collect

    def has_mail(self) -> bool:
        """Whether anything waits for this process."""
        if self.endpoint is None or self._empty_at == self._unit.serial:
            return False
        if self._unit.has_rows(self._messages, self.endpoint.id):
            return True
        self._empty_at = self._unit.serial
        return False

    def collect(self) -> list[Item]:
        """Take everything that waits for this process, in order of posting."""
        if self.endpoint is None:
            return []
        rows = list(self._unit.rows(self._messages, self.endpoint.id))
        items: list[tuple[bytes, Item]] = []
        for mailbox in {row[:MAILBOX_BYTES] for row, _ in rows}:
            stored = self._unit.pop(b"q" + mailbox, db=self._system)
            dropped = int.from_bytes(stored[8:], "big") if stored else 0
            if dropped:
                number = int.from_bytes(mailbox[ENDPOINT_BYTES:], "big")
                items.append((b"", Item(number, Overflow(dropped), False)))
        for row, payload in rows:
            self._unit.delete(row, db=self._messages)
            number = int.from_bytes(row[ENDPOINT_BYTES:MAILBOX_BYTES], "big")
            value = parse_reply(payload[1:])
            is_reply = payload[:1] == _REPLY
            items.append((row[MAILBOX_BYTES:], Item(number, value[0] if is_reply else value, is_reply)))
        items.sort(key=lambda pair: pair[0])
        return [item for _, item in items]

    def empty_mailbox(self, mailbox: bytes, restore: Callable[[list[bytes]], None]) -> None:
        """Remove what waits for a session that is gone, or for all sessions of an endpoint.

        Elements that were handed over and never taken go back, the last one first, so that
        they end up in the order in which they left.
        """
        for counter, _ in list(self._unit.rows(self._system, b"q" + mailbox)):
            self._unit.delete(counter, db=self._system)
        rows = list(self._unit.rows(self._messages, mailbox))
        for row, payload in sorted(rows, key=lambda item: item[0][MAILBOX_BYTES:], reverse=True):
            self._unit.delete(row, db=self._messages)
            if payload[:1] == _REPLY:
                for argv in parse_reply(payload[1:])[1]:
                    restore(argv)

    def close(self) -> None:
        self._signaller.close()
        if self.endpoint is not None:
            self.endpoint.close()
            self.endpoint = None
