"""Who keeps copies of what it read (CLIENT TRACKING), and telling them when it changes.

Two ways to track, told apart by ``Tracking.prefixes``:

=========  ==========================================================================
by reads   a session is told once about each key that it read since it was told last
broadcast  a session is told about every changed key that starts with its prefixes
=========  ==========================================================================

What a session read is remembered in this process alone, so that reading writes nothing.
Whoever changes keys tells every *process* that has such sessions (rows of kind ``t``, one
a process, to mailbox 0), and each looks up its own sessions. That is posted in the
transaction of the change itself, one item a unit. Hence no change is missed: who read
the old value has remembered the key before the item can be collected.

Rules
-----
1. Sessions of this process are told with the reply of the command that changed the key,
   those that broadcast at the end of the unit, as Redis does it before it sleeps.
2. The session that runs the command is told after its reply, never inside that of EXEC.
3. Keys are names: who read ``k`` is told about ``k`` of any database, as in Redis.
4. What is forgotten here is remembered again if the unit is done again (``undo``).
5. The memory is bounded by ``tracking-table-max-keys``: the key remembered first goes first,
   as if it had changed. Who lost posted items is told that everything changed.

It knows nothing of connections and of how commands are spelled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.engine.bus.mailboxes import ENDPOINT_BYTES, Mailboxes
from penstock.engine.bus.subscriptions import TRACKER
from penstock.engine.control import Overflow
from penstock.engine.storage.transaction import Unit
from penstock.protocol.catalogue import CommandSpec, find_keys
from penstock.protocol.replies import Push, Reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.session import Session

#: Where RESP2 clients get what RESP3 clients get as pushes.
CHANNEL: Final = b"__redis__:invalidate"
#: Of one unit, to other processes; beyond it they are told that everything changed.
_MOST_KEYS_POSTED: Final = 10_000
#: The mailbox of a process itself: no session has this number.
_NOBODY: Final = 0

#: Numbers of sessions. Most keys have one reader, and there may be a million of them.
_Readers = int | set[int]


@dataclass(frozen=True, slots=True)
class Tracking:
    """How one session tracks. Exchanged as a whole, by ``Session.assign``."""

    #: number of the session that is told instead; 0: none
    redirect: int = 0
    #: sorted; None: by reads
    prefixes: tuple[bytes, ...] | None = None
    #: only what is read after CLIENT CACHING YES
    optin: bool = False
    #: all but what is read after CLIENT CACHING NO
    optout: bool = False
    #: not what the session changes itself
    noloop: bool = False
    #: CLIENT CACHING was called for the next command
    caching: bool = False
    #: the session to be told instead is gone
    broken: bool = False

    @property
    def remembers(self) -> bool:
        """Whether what the session reads now counts."""
        return self.prefixes is None and not (
            (self.optin and not self.caching) or (self.optout and self.caching)
        )


class KeyTracking:
    """The sessions of this process that track, and what they read. Used inside units only."""

    def __init__(self, engine: Engine, unit: Unit, mailboxes: Mailboxes) -> None:
        self._engine = engine
        self._unit = unit
        self._mailboxes = mailboxes
        #: sessions that track, by number
        self._sessions: dict[int, Session] = {}
        #: who read what, the key remembered first in front
        self._readers: OrderedDict[bytes, _Readers] = OrderedDict()
        #: (who changed it, key) of this unit: for those who broadcast, and for other processes
        self.announcements: list[tuple[Session | None, bytes | None]] = []

    # ------------------------------------------------------------------ on and off

    def start(self, session: Session, tracking: Tracking) -> None:
        """Let a session track, or do it in another way."""
        if not self._sessions:
            self._engine.pubsub.subscriptions.add(TRACKER, b"", self._mailboxes.address(_NOBODY))
        if session.tracking is None:
            self._sessions[session.number] = session
            session.remember(lambda: self._remove(session))
        session.assign(tracking=tracking)
        self._engine.changes.tracked = True
        self._engine.changes.refresh()

    def stop(self, session: Session) -> None:
        """What it read stays remembered, as in Redis: it may start again."""
        if session.tracking is None:
            return
        session.assign(tracking=None)
        self._remove(session)
        session.remember(lambda: self._sessions.update({session.number: session}))
        if not self._sessions:
            mailbox = self._mailboxes.address(_NOBODY)
            self._engine.pubsub.subscriptions.remove(TRACKER, b"", mailbox)
            self._mailboxes.empty_mailbox(mailbox, lambda _: None)
            self._forget_all()

    def _remove(self, session: Session) -> None:
        self._sessions.pop(session.number, None)

    def is_wanted(self) -> bool:
        """Whether any process wants to know about changes."""
        return self._unit.has_rows(self._unit.tables["channels"], TRACKER)

    # ----------------------------------------------------------------------- facts

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    @property
    def key_count(self) -> int:
        return len(self._readers)

    @property
    def prefix_count(self) -> int:
        """Different prefixes that sessions of this process broadcast."""
        modes = (session.tracking for session in self._sessions.values())
        return len({prefix for mode in modes if mode is not None for prefix in mode.prefixes or ()})

    # ----------------------------------------------------------------------- reads

    def remember(self, session: Session, spec: CommandSpec, argv: list[bytes]) -> None:
        """A session that tracks has read keys."""
        if session.tracking is None or not session.tracking.remembers:
            return
        for position in find_keys(spec, argv):
            self._add(argv[position], session.number)
        limit = self._engine.config.tracking_max_keys
        while 0 < limit < len(self._readers):
            self._tell_readers(next(iter(self._readers)), session, is_change=False)

    def _add(self, key: bytes, number: int) -> None:
        known = self._readers.setdefault(key, number)
        if isinstance(known, set):
            known.add(number)
        elif known != number:
            self._readers[key] = {known, number}

    def _take(self, key: bytes) -> Collection[int]:
        """Forget who read a key; answers who."""
        known = self._readers.pop(key, None)
        if known is None:
            return ()
        numbers = known if isinstance(known, set) else (known,)
        self._engine.dispatcher.undo.append(lambda: self._add_all(key, numbers))
        return numbers

    def _add_all(self, key: bytes, numbers: Collection[int]) -> None:
        for number in numbers:
            self._add(key, number)

    def _forget_all(self) -> None:
        before, self._readers = self._readers, OrderedDict()

        def undo() -> None:
            self._readers = before

        self._engine.dispatcher.undo.append(undo)

    def spend_caching(self, session: Session, argv: list[bytes]) -> None:
        """CLIENT CACHING holds for one command, or for one transaction; CLIENT itself does not count."""
        tracking = session.tracking
        if tracking is None or not tracking.caching or session.queue is not None:
            return
        if argv[0].upper() != b"CLIENT":
            session.assign(tracking=replace(tracking, caching=False))

    # --------------------------------------------------------------------- changes

    def invalidate(self, touched: list[bytes | None], current: Session | None) -> None:
        """Keys were changed, by ``current`` or by nobody in particular; None stands for all keys."""
        for key in touched:
            self.announcements.append((current, key))
            if key is None:
                self._tell_all(current)
            elif key in self._readers:
                self._tell_readers(key, current)

    def announce(self) -> None:
        """Tell those who broadcast, and other processes, what the unit changed so far."""
        announced, self.announcements = self.announcements, []
        # Who changed a key last is the one whom NOLOOP spares.
        writers = {key: writer for writer, key in announced if key is not None}
        self._broadcast(writers)
        everything = any(key is None for _, key in announced) or len(writers) > _MOST_KEYS_POSTED
        item = Push([b"invalidate", None if everything else list(writers)])
        for mailbox in self._engine.pubsub.subscriptions.listeners(TRACKER, b""):
            if self._mailboxes.is_own(mailbox):
                continue
            if self._mailboxes.is_alive(mailbox[:ENDPOINT_BYTES]):
                self._mailboxes.post_push(mailbox, item)
            else:
                self._engine.bury(mailbox[:ENDPOINT_BYTES])

    def receive(self, item: Reply) -> None:
        """What another process announced, or the news that some of it was lost."""
        keys = None if isinstance(item, Overflow) else item[1]
        if keys is None:
            self._tell_all(None)
            return
        for key in keys:
            self._tell_readers(key, None)
        self._broadcast(dict.fromkeys(keys))

    def _tell_readers(self, key: bytes, current: Session | None, *, is_change: bool = True) -> None:
        for number in self._take(key):
            session = self._sessions.get(number)
            if session is None or session.tracking is None or session.tracking.prefixes is not None:
                continue
            if session is current and session.tracking.noloop and is_change:
                continue
            self._tell(session, [key], current)

    def _tell_all(self, current: Session | None) -> None:
        """Everything changed, also for those with NOLOOP."""
        self._forget_all()
        for session in list(self._sessions.values()):
            self._tell(session, None, current)

    def _broadcast(self, writers: Mapping[bytes, Session | None]) -> None:
        """One message a prefix; ``writers`` are the changed keys with who changed them."""
        for session in list(self._sessions.values()):
            mode = session.tracking
            if mode is None or mode.prefixes is None:
                continue
            news = [key for key, writer in writers.items() if writer is not session or not mode.noloop]
            for prefix in mode.prefixes:
                keys = sorted(key for key in news if key.startswith(prefix))
                if keys:
                    self._tell(session, keys, None)

    # ---------------------------------------------------------------------- telling

    def _tell(self, session: Session, keys: list[bytes] | None, current: Session | None) -> None:
        """Send a session what it must know, or to the one that it named."""
        tracking = session.tracking
        assert tracking is not None
        receiver = session
        if tracking.redirect:
            found = self._engine.sessions.get(tracking.redirect)
            if found is None:
                self._tell_broken(session, tracking, current)
                return
            receiver = found
        if receiver.protocol == 3:
            self._send(receiver, Push([b"invalidate", keys]), current)
        elif tracking.redirect and receiver.is_subscribed:
            self._send(receiver, Push([b"message", CHANNEL, keys]), current)

    def _tell_broken(self, session: Session, tracking: Tracking, current: Session | None) -> None:
        if not tracking.broken:
            session.assign(tracking=replace(tracking, broken=True))
        if session.protocol == 3:
            self._send(session, Push([b"tracking-redir-broken", tracking.redirect]), current)

    def _send(self, receiver: Session, item: Push, current: Session | None) -> None:
        if receiver is current or receiver.in_exec:
            self._engine.dispatcher.late.append((receiver, item))
            self._engine.changes.unsettled = True
        else:
            receiver.push(item)
