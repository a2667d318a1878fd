"""One channel, pattern or shard channel: who wants it, and how far it is at a server.

=========  ==============================  ================================================
state      means                           leaves by
=========  ==============================  ================================================
idle       no server has it                ``Station.ask``: asked
asked      SUBSCRIBE is on its way         confirmation: live; refusal, loss: idle
live       the server has confirmed        ``Station.drop``: leaving; loss, or the server
                                           ended it (its slot moved): idle
leaving    UNSUBSCRIBE is on its way       confirmation, refusal, loss: idle
=========  ==============================  ================================================

There is never more than one command on its way for a topic. What changes meanwhile is looked
at when it is answered (``Desk.settle``), so the state follows what is wanted without a
record of how it came to be wanted.

Rules: only values here; nothing is sent. Those who *want* a topic are not yet those who get
its messages: one *joins* at the answer to a command that was issued after it began to want.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.client.pubsub.inbox import Inbox
from penstock.client.pubsub.items import Name
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client.pubsub.station import Station


class Kind(Enum):
    """Its commands."""

    CHANNEL = ("SUBSCRIBE", "UNSUBSCRIBE")
    PATTERN = ("PSUBSCRIBE", "PUNSUBSCRIBE")
    SHARD = ("SSUBSCRIBE", "SUNSUBSCRIBE")

    def __init__(self, subscribe: str, unsubscribe: str) -> None:
        self.subscribe: Final = subscribe
        self.unsubscribe: Final = unsubscribe


#: A topic among all others. The name as it comes from the wire.
Key: TypeAlias = tuple[Kind, Name]


class State(Enum):
    IDLE = "idle"
    ASKED = "asked"
    LIVE = "live"
    LEAVING = "leaving"


class Want:
    """One subscriber's wish for one topic."""

    __slots__ = ("calls", "future", "inbox", "is_asked", "is_joined", "is_kept", "topic")

    def __init__(self, topic: Topic, inbox: Inbox, future: asyncio.Future[None]) -> None:
        self.topic = topic
        self.inbox = inbox
        #: done when it has joined, was refused, or is not wanted any more
        self.future = future
        #: how many ``subscribe`` wait for it, and whether one has returned: without either it goes
        self.calls = 0
        self.is_kept = False
        #: whether the SUBSCRIBE on its way was issued for this one too
        self.is_asked = False
        self.is_joined = False

    def resolve(self, error: PenstockError | None = None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)
            # Whoever waited may have been cancelled: that is no error that nobody saw.
            self.future.exception()


class Topic:
    """What is known of one name."""

    __slots__ = (
        "departures",
        "kind",
        "lapsed_since_s",
        "members",
        "name",
        "raw",
        "redirections",
        "state",
        "station",
        "wants",
    )

    def __init__(self, kind: Kind, name: Name) -> None:
        self.kind = kind
        self.name = name
        #: as it goes over the wire
        self.raw = to_bytes(name)
        self.state = State.IDLE
        #: where it is, or will be asked for
        self.station: Station | None = None
        self.wants: dict[Inbox, Want] = {}
        #: Those who have joined. Replaced when it changes: a delivery may end a subscriber.
        self.members: tuple[Inbox, ...] = ()
        #: since when those who have joined may miss messages
        self.lapsed_since_s: float | None = None
        #: followed since the last confirmation
        self.redirections = 0
        #: told when no server has it any more, or it is wanted again
        self.departures: list[asyncio.Future[None]] = []

    @property
    def key(self) -> Key:
        return self.kind, self.name

    def want(self, inbox: Inbox, future: asyncio.Future[None]) -> Want:
        want = self.wants[inbox] = Want(self, inbox, future)
        self.tell_departures()
        return want

    def leave(self, inbox: Inbox) -> None:
        want = self.wants.pop(inbox)
        if want.is_joined:
            self.members = tuple(member for member in self.members if member is not inbox)
        if not self.members:
            self.lapsed_since_s = None

    def join(self, want: Want) -> None:
        if not want.is_joined and self.wants.get(want.inbox) is want:
            want.is_joined = True
            self.members = (*self.members, want.inbox)
            want.resolve()

    def asked(self) -> None:
        self.state = State.ASKED
        for want in self.wants.values():
            want.is_asked = True

    def confirmed(self) -> None:
        self.state = State.LIVE
        self.redirections = 0
        for want in list(self.wants.values()):
            if want.is_asked:
                self.join(want)

    def lost(self, now_s: float) -> None:
        """No server has it any more."""
        self.state = State.IDLE
        if self.members and self.lapsed_since_s is None:
            self.lapsed_since_s = now_s
        for want in self.wants.values():
            want.is_asked = False
        self.tell_departures()

    def tell_departures(self) -> None:
        departures, self.departures = self.departures, []
        for future in departures:
            if not future.done():
                future.set_result(None)

    def __repr__(self) -> str:
        wanted = f"wanted={len(self.wants)} joined={len(self.members)}"
        return f"<Topic {self.kind.name.lower()} {self.name!r} {self.state.value} {wanted}>"


def to_bytes(name: Name) -> bytes:
    return name if isinstance(name, bytes) else name.encode(errors="surrogateescape")


def from_wire(name: Name, is_decoded: bool) -> Name:
    """A name in the form in which the connection tells it."""
    if isinstance(name, str) == is_decoded:
        return name
    return (
        name.encode(errors="surrogateescape")
        if isinstance(name, str)
        else name.decode(errors="surrogateescape")
    )
