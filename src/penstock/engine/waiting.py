"""Who blocks on which key, and handing over what they wait for, in order of arrival.

A blocked command leaves rows that every process sees::

    waiters   db(1) physical key ticket(8)  →  mailbox(28)      one a key
    waiting   mailbox(28)                   →  [db, deadline, argv, keys, ticket] as RESP3

Whoever makes a key ready (in this or another process) serves its waiters inside the
same transaction: it tries the waiter's own command on its behalf, takes the rows away
and hands over the reply, in memory or through the mailbox. So elements go to clients in
the order in which they arrived, nobody can slip in between, and a reply that no living
process took is put back by whoever buries its mailbox.

A session that is held back by a pause is blocked too, but has no rows (see ``pausing``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.bus.mailboxes import ENDPOINT_BYTES, Mailboxes
from penstock.engine.commands.registry import ATTEMPTS
from penstock.engine.session import Session, Waiter
from penstock.engine.storage.layout import U64, physical
from penstock.engine.storage.transaction import Unit
from penstock.errors import CommandError
from penstock.protocol import catalogue
from penstock.protocol.encoder import encode3
from penstock.protocol.parsing import parse_reply
from penstock.protocol.replies import NO_REPLY, Reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine


class Waiting:
    def __init__(self, engine: Engine, unit: Unit, mailboxes: Mailboxes) -> None:
        self._engine = engine
        self._unit = unit
        self._mailboxes = mailboxes
        self._waiters = unit.tables["waiters"]
        self._waiting = unit.tables["waiting"]

    # ------------------------------------------------------------------- block

    def block(
        self, session: Session, argv: list[bytes], keys: list[bytes], timeout_ms: int, empty: Any
    ) -> Reply:
        """Register the session as a waiter; the reply comes later."""
        self._engine.require_write()
        mailbox = self._mailboxes.address(session.number)
        ticket = self._unit.take_number(b"ticket")
        deadline = self._unit.now_ms + timeout_ms if timeout_ms else None
        waiter = Waiter(argv, list(dict.fromkeys(keys)), session.ks.index, ticket, deadline, empty)
        for key in waiter.keys:
            self._unit.put(self._row(waiter.database, key, ticket), mailbox, db=self._waiters)
        packed = encode3([waiter.database, argv, waiter.keys, ticket])
        self._unit.put(mailbox, packed, db=self._waiting)
        self._engine.changes.awaited = True
        self.set_blocked(session, waiter)
        return NO_REPLY

    def release(self, session: Session) -> bool:
        """End a wait without an answer; False if there is none any more, since one has just arrived."""
        waiter = session.blocked
        if waiter is None:
            return False
        self._engine.collect_first()
        if session.blocked is not waiter:
            return False
        if waiter.keys:
            self._remove_rows(self._mailboxes.address(session.number))
        self.set_blocked(session, None)
        return True

    def set_blocked(self, session: Session, waiter: Waiter | None) -> None:
        """Change the state, and tell the owner of the connection once it is official."""
        session.assign(blocked=waiter)
        if session.on_block_change is not None:
            self._engine.dispatcher.after_delivery.append((session.on_block_change, session))

    def time_out(self, session: Session) -> None:
        """The time of a blocked session is up: answer its empty reply, unless it was just served."""
        waiter = session.blocked
        if self.release(session) and waiter is not None and waiter.empty is not NO_REPLY:
            session.push(waiter.empty)

    def interrupt(self, session: Session, error: CommandError) -> bool:
        """CLIENT UNBLOCK … ERROR, or a key that went away: end the wait with an error.

        False if nobody waits, or if what it waited for has just arrived.
        """
        if not self.release(session):
            return False
        session.push(error)
        return True

    # ------------------------------------------------------------------- serve

    def serve(self, ready: list[tuple[int, bytes]]) -> None:
        """Give waiters of these keys what they wait for, while there is something to give."""
        for database, key in dict.fromkeys(ready):
            self._serve_key(database, key)

    def _serve_key(self, database: int, key: bytes) -> None:
        keyspace = self._engine.keyspaces[database]
        prefix = bytes((database,)) + physical(key)
        rows = [row for row in self._unit.rows(self._waiters, prefix) if len(row[0]) == len(prefix) + 8]
        for row, mailbox in rows:
            if not keyspace.exists(key):
                return
            if self._unit.get(row, None, self._waiters) is None:
                continue  # served through another key of its list meanwhile
            if not self._mailboxes.is_alive(mailbox[:ENDPOINT_BYTES]):
                self._engine.bury(mailbox[:ENDPOINT_BYTES])
                continue
            self._serve_waiter(mailbox, key)

    def _serve_waiter(self, mailbox: bytes, key: bytes) -> None:
        session = self._own_session(mailbox)
        if session is None and self._mailboxes.is_own(mailbox):
            self._remove_rows(mailbox)  # it ended while the store could not be written
            return
        packed = self._unit.get(mailbox, None, self._waiting)
        assert packed is not None, "a waiter's row without its command"
        database, argv, keys, _ = parse_reply(packed)
        if len(keys) > 1:
            argv = _from_ready(argv, key)
        try:
            served = ATTEMPTS[argv[0].upper()](self._engine.keyspaces[database], argv)
        except CommandError:
            self._unit.serial += 1
            return  # the key is of another type now; the client goes on waiting
        if served is None:
            return
        self._remove_rows(mailbox)
        if session is None:
            restore = [[b"%d" % database, *command] for command in served.restore]
            self._mailboxes.post_reply(mailbox, served.reply, restore)
            return
        self.set_blocked(session, None)
        session.push(served.reply)

    def _own_session(self, mailbox: bytes) -> Session | None:
        """The session behind a mailbox of this process."""
        if not self._mailboxes.is_own(mailbox):
            return None
        session = self._engine.sessions.get(int.from_bytes(mailbox[ENDPOINT_BYTES:], "big"))
        return None if session is None or session.closed else session

    # -------------------------------------------------------------------- rows

    def forget(self, owner: bytes) -> None:
        """Remove the rows of a mailbox, or of all mailboxes of an endpoint."""
        for mailbox, _ in list(self._unit.rows(self._waiting, owner)):
            self._remove_rows(mailbox)

    def _remove_rows(self, mailbox: bytes) -> bool:
        packed = self._unit.pop(mailbox, db=self._waiting)
        if packed is None:
            return False
        database, _, keys, ticket = parse_reply(packed)
        for key in keys:
            self._unit.delete(self._row(database, key, ticket), db=self._waiters)
        return True

    def _row(self, database: int, key: bytes, ticket: int) -> bytes:
        return bytes((database,)) + physical(key) + U64.pack(ticket)


def _from_ready(argv: list[bytes], key: bytes) -> list[bytes]:
    """The command with the key that became ready in the place of each of its keys.

    Somebody who waits for several keys is served from the one that became ready. Should the
    same transaction have filled another one too, that has its turn, and those who waited for
    it longer come first.
    """
    narrowed = list(argv)
    for place in catalogue.find_keys(catalogue.CATALOGUE[argv[0].upper()], argv):
        narrowed[place] = key
    return narrowed
