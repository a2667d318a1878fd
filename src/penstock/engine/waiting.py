"""Who blocks on which key, and handing over what they wait for, in order of arrival.

A blocked command leaves rows that every process sees::

    waiters   db(1) physical key ticket(8)  →  mailbox(28)      one a key
    waiting   mailbox(28)                   →  [db, deadline, argv, keys, ticket] as RESP3

Whoever makes a key ready (in this or another process) serves its waiters inside the
same transaction: it tries the waiter's own command on its behalf, takes the rows away
and hands over the reply, in memory or through the mailbox. So elements go to clients in
the order in which they arrived, nobody can slip in between, and a reply that no living
process took is put back by whoever buries its mailbox.

Readers of a stream (TREAD) differ in two ways: those of a group share what there is, and their wait
ends with an error when the stream goes from its key, since offsets begin anew with the next one.

A session that is held back by a pause is blocked too, but has no rows (see ``pausing``).
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from penstock.engine.bus.mailboxes import ENDPOINT_BYTES, Mailboxes
from penstock.engine.commands.registry import ATTEMPTS, Served
from penstock.engine.commands.stream_reading import Line, line_of, read_share
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session, Waiter
from penstock.engine.storage.layout import STREAM, U64, physical
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

    def serve(self, ready: list[tuple[int, bytes, bool]]) -> None:
        """Give waiters of these keys what they wait for, while there is something to give.

        Readers of streams that are gone come first: whatever is at such a key now is not what
        they wait for.
        """
        keys = list(dict.fromkeys(ready))
        for database, key, is_gone in keys:
            if is_gone:
                self._end_readers(database, key)
        for database, key, is_gone in keys:
            if not is_gone:
                self._serve_key(database, key)

    def _serve_key(self, database: int, key: bytes) -> None:
        keyspace = self._engine.keyspaces[database]
        rows = self._rows_of(database, key)
        if rows and keyspace.type_of(key) == STREAM:
            self._serve_readers(keyspace, rows)
            return
        for row, mailbox in rows:
            if not keyspace.exists(key):
                return
            if self._is_there(row, mailbox):
                self._serve_waiter(mailbox, key)

    def _serve_waiter(self, mailbox: bytes, key: bytes) -> None:
        database, argv, keys, _ = parse_reply(self._packed(mailbox))
        if len(keys) > 1:
            argv = _from_ready(argv, key)
        try:
            served = ATTEMPTS[argv[0].upper()](self._engine.keyspaces[database], argv)
        except CommandError:
            self._unit.serial += 1
            return  # the key is of another type now; the client goes on waiting
        if served is not None:
            self._hand_over(mailbox, served, database)

    def _hand_over(self, mailbox: bytes, served: Served, database: int) -> None:
        """End a wait with its reply."""
        self._remove_rows(mailbox)
        session = self._own_session(mailbox)
        if session is None:
            restore = [[b"%d" % database, *command] for command in served.restore]
            self._mailboxes.post_reply(mailbox, served.reply, restore)
            return
        self.set_blocked(session, None)
        session.push(served.reply)

    def _is_there(self, row: bytes, mailbox: bytes) -> bool:
        """Whether a waiter still waits; what is left of one that is gone is removed."""
        if self._unit.get(row, None, self._waiters) is None:
            return False  # served through another key of its list meanwhile
        if not self._mailboxes.is_alive(mailbox[:ENDPOINT_BYTES]):
            self._engine.bury(mailbox[:ENDPOINT_BYTES])
            return False
        if self._mailboxes.is_own(mailbox) and self._own_session(mailbox) is None:
            self._remove_rows(mailbox)  # it ended while the store could not be written
            return False
        return True

    # ----------------------------------------------------------------- streams

    def _serve_readers(self, keyspace: Keyspace, rows: list[tuple[bytes, bytes]]) -> None:
        """Serve those who wait for a stream; a group is a line, whose readers share what there is."""
        readers = [(row, mailbox, _line(self._packed(mailbox))) for row, mailbox in rows]
        dry: set[Line] = set()
        for at, (row, mailbox, line) in enumerate(readers):
            if line is None or line in dry or not self._is_there(row, mailbox):
                continue
            argv = parse_reply(self._packed(mailbox))[1]
            served = read_share(keyspace, argv, partial(self._count_line, line.group, readers[at:]))
            if served is not None:
                self._hand_over(mailbox, served, keyspace.index)
            elif line.group is not None:
                dry.add(line)

    def _count_line(self, group: bytes | None, readers: list[tuple[bytes, bytes, Line | None]]) -> int:
        """How many of these wait in a group."""
        return sum(
            line is not None and line.group == group and self._is_there(row, mailbox)
            for row, mailbox, line in readers
        )

    def has_readers(self, database: int, key: bytes, group: bytes) -> bool:
        """Whether somebody is blocked in a group of a stream."""
        return any(
            self._is_there(row, mailbox)
            and (line := _line(self._packed(mailbox))) is not None
            and line.group == group
            for row, mailbox in self._rows_of(database, key)
        )

    def _end_readers(self, database: int, key: bytes) -> None:
        """The stream at a key is gone: offsets begin anew, so it would be wrong to wait on."""
        shown = key.decode("utf-8", "backslashreplace")
        gone = Served(CommandError(f"UNBLOCKED the stream {shown} is gone"))
        for row, mailbox in self._rows_of(database, key):
            if self._is_there(row, mailbox) and _line(self._packed(mailbox)) is not None:
                self._hand_over(mailbox, gone, database)

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

    def _rows_of(self, database: int, key: bytes) -> list[tuple[bytes, bytes]]:
        """Rows of those who wait for a key, in order of arrival."""
        prefix = bytes((database,)) + physical(key)
        return [row for row in self._unit.rows(self._waiters, prefix) if len(row[0]) == len(prefix) + 8]

    def _packed(self, mailbox: bytes) -> bytes:
        packed = self._unit.get(mailbox, None, self._waiting)
        assert packed is not None, "a waiter's row without its command"
        return packed

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


@lru_cache(maxsize=4_096)
def _line(packed: bytes) -> Line | None:
    """Where a waiter stands if it reads a stream."""
    argv = parse_reply(packed)[1]
    return line_of(argv) if argv[0].upper() == b"TREAD" else None


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
