"""PUBLISH and its relatives: find the listeners, reach each in its own process, bury the dead.

A listener of this process gets the message in memory, in order, with the commit of the
publisher's unit. A listener elsewhere finds it in its mailbox. Messages that other
processes posted to us before go first: a message published later never overtakes one
published (and answered) earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.bus.mailboxes import ENDPOINT_BYTES, Mailboxes
from penstock.engine.bus.subscriptions import CHANNEL, PATTERN, SHARD, Subscriptions
from penstock.engine.datatypes.glob import Matcher, matcher
from penstock.engine.storage.transaction import Unit
from penstock.protocol.replies import Push, Reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.session import Session


class PubSub:
    def __init__(self, engine: Engine, unit: Unit, mailboxes: Mailboxes) -> None:
        self._engine = engine
        self._unit = unit
        self._mailboxes = mailboxes
        self.subscriptions = Subscriptions(unit)
        #: every pattern somebody listens to, with the mailboxes; read when ``Unit.serial`` was so much
        self._patterns: list[tuple[bytes, Matcher, list[bytes]]] = []
        self._patterns_read_at = -1

    def subscribe(self, session: Session, kind: bytes, name: bytes) -> None:
        self.subscriptions.add(kind, name, self._mailboxes.address(session.number))

    def unsubscribe(self, session: Session, kind: bytes, name: bytes) -> None:
        # What was published before belongs before the confirmation.
        self._engine.collect_first()
        self.subscriptions.remove(kind, name, self._mailboxes.address(session.number))

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send to channel and pattern subscribers; answers the number of deliveries."""
        deliveries = 0
        for mailbox in self.subscriptions.listeners(CHANNEL, channel):
            deliveries += self._send(mailbox, Push([b"message", channel, message]))
        if self._patterns_read_at != self._unit.serial:
            self._read_patterns()
        for pattern, matches, mailboxes in self._patterns:
            if matches(channel):
                for mailbox in mailboxes:
                    deliveries += self._send(mailbox, Push([b"pmessage", pattern, channel, message]))
        return deliveries

    def _read_patterns(self) -> None:
        listeners: dict[bytes, list[bytes]] = {}
        for pattern, mailbox in self.subscriptions.patterns():
            listeners.setdefault(pattern, []).append(mailbox)
        self._patterns = [(pattern, matcher(pattern), boxes) for pattern, boxes in listeners.items()]
        self._patterns_read_at = self._unit.serial

    def publish_shard(self, channel: bytes, message: bytes) -> int:
        return sum(
            self._send(mailbox, Push([b"smessage", channel, message]))
            for mailbox in self.subscriptions.listeners(SHARD, channel)
        )

    def publish_event(self, database: int, event: bytes, key: bytes) -> None:
        """A keyspace notification, in the two forms that were asked for (letters K and E)."""
        classes = self._engine.changes.notify_classes
        if "K" in classes:
            self.publish(b"__keyspace@%d__:%b" % (database, key), event)
        if "E" in classes:
            self.publish(b"__keyevent@%d__:%b" % (database, event), key)

    def _send(self, mailbox: bytes, item: Reply) -> int:
        if self._mailboxes.is_own(mailbox):
            if self._mailboxes.has_mail():
                self._engine.collect_first()
            session = self._engine.sessions.get(int.from_bytes(mailbox[ENDPOINT_BYTES:], "big"))
            if session is None or session.closed:
                return 0
            session.push(item)
            return 1
        self._engine.require_write()
        if not self._mailboxes.is_alive(mailbox[:ENDPOINT_BYTES]):
            self._engine.bury(mailbox[:ENDPOINT_BYTES])
            return 0
        self._mailboxes.post_push(mailbox, item)
        return 1

    def pattern_count(self) -> int:
        return len(self.subscriptions.names(PATTERN))
