"""One caller's state: selected database, protocol, MULTI queue, watches, subscriptions.

A session belongs to one engine. Replies and pushes leave through its ``sink``, in
order, after the transaction that produced them is safe. The engine changes sessions
only while it holds its lock, and every change made inside a unit is undone if the unit
is done again (``remember``).

States that make a session ``gated`` (each command passes the dispatcher's gate first):

=================  ====================================================
state              what the gate does
=================  ====================================================
hanging up         commands after QUIT are ignored
blocked            commands wait in ``deferred``, until the connection's owner
                   has taken them over again
not authenticated  only AUTH, HELLO, QUIT, RESET
in MULTI           commands are queued
subscribed, RESP2  only the subscribe family, PING, QUIT, RESET
monitor            nothing that reads or writes keys
tracks its reads   the keys of what is only read are remembered
=================  ====================================================

While any session monitors, or while clients are paused, every session is gated: the
gate is where commands are shown and held back, so that the usual path need not ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.engine.control import ReplyMode
from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.keyspace import Keyspace
    from penstock.engine.table import Entry
    from penstock.engine.tracking import Tracking

Sink: TypeAlias = Callable[[Reply], None]


@dataclass(slots=True)
class Waiter:
    """A session that waits for one of its keys (see ``waiting``)."""

    argv: list[bytes]
    keys: list[bytes]
    database: int
    ticket: int
    deadline_ms: int | None
    empty: Any


class Session:
    """State of one connection or one embedded caller."""

    def __init__(self, engine: Engine, number: int, sink: Sink) -> None:
        self.engine = engine
        self.number = number
        self.sink = sink
        self.ks: Keyspace = engine.keyspaces[0]
        self.protocol = 2
        self.created_ms = engine.clock.now_ms()
        self.last_used_ms = self.created_ms

        # what CLIENT LIST shows
        self.name = b""
        self.address = b""
        self.local_address = b""
        self.last_entry: Entry | None = None
        self.no_evict = False
        self.reply_mode = ReplyMode.ON

        self.authenticated = True
        self.queue: list[tuple[list[bytes], Any]] | None = None
        self.queue_broken = False
        self.watches: dict[tuple[int, bytes], tuple[int, bool]] = {}
        self.channels: set[bytes] = set()
        self.patterns: set[bytes] = set()
        self.shard_channels: set[bytes] = set()
        self.blocked: Waiter | None = None
        self.deferred: deque[list[bytes]] = deque()
        self.tracking: Tracking | None = None
        self.monitoring = False
        self.in_script = False
        #: in a script: who called it
        self.caller: Session | None = None
        self.in_exec = False
        self.hanging_up = False
        self.closed = False

        # Set by whoever owns the connection.
        #: ends the connection from outside (CLIENT KILL)
        self.kill: Callable[[], None] | None = None
        #: told after a commit in which the session blocked or was unblocked
        self.on_block_change: Callable[[Session], None] | None = None
        #: whether it came over a socket, where passwords count
        self.is_remote = False
        self.refresh_gate()

    # ------------------------------------------------------------------- facts

    @property
    def subscription_count(self) -> int:
        """Channels and patterns, as SUBSCRIBE's reply counts them."""
        return len(self.channels) + len(self.patterns)

    @property
    def is_subscribed(self) -> bool:
        return bool(self.channels or self.patterns or self.shard_channels)

    @property
    def may_not_block(self) -> bool:
        return self.in_script or self.in_exec

    # ----------------------------------------------------------------- changes

    def remember(self, undo: Callable[[], None]) -> None:
        """Register how to take back a change of session state should the unit be done again."""
        self.engine.dispatcher.undo.append(undo)

    def assign(self, **values: Any) -> None:
        """Change attributes, undone with the unit; refreshes the gate."""
        before = {name: getattr(self, name) for name in values}
        self.remember(lambda: self._restore(before))
        self._restore(values)

    def _restore(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.refresh_gate()

    def refresh_gate(self) -> None:
        engine = self.engine
        self.gated = (
            not self.authenticated
            or self.blocked is not None
            or bool(self.deferred)
            or self.queue is not None
            or self.hanging_up
            or (self.tracking is not None and self.tracking.prefixes is None)
            or engine.pause is not None
            or bool(engine.monitors)
            or (self.protocol == 2 and self.is_subscribed)
        )

    def select(self, index: int) -> None:
        self.assign(ks=self.engine.keyspaces[index])

    def push(self, item: Reply) -> None:
        """Send something beside the reply of the current command, in order."""
        self.engine.dispatcher.out.append((self, item))

    def block(self, argv: list[bytes], keys: list[bytes], timeout_ms: int, empty: Any) -> Reply:
        """Wait for one of the keys; the reply comes when one is ready or time is up."""
        return self.engine.waiting.block(self, argv, keys, timeout_ms, empty)

    def __repr__(self) -> str:
        state = (
            "closed"
            if self.closed
            else "blocked"
            if self.blocked
            else "multi"
            if self.queue is not None
            else "idle"
        )
        return f"<Session {self.number} db={self.ks.index} resp={self.protocol} {state}>"
