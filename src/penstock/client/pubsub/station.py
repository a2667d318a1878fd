"""The topics of one server, on a link that carries nothing else.

What comes from the server is worked off in the order it comes:

=====================  =================================================================
a message              appended to the inbox of everybody who has joined the topic
a confirmation         of SUBSCRIBE: the topic is live, whoever asked joins
                       of UNSUBSCRIBE: it is idle
                       of an UNSUBSCRIBE that we did not send: the server has ended it
the answer to a PING   whoever came to a live topic and waited for it joins: all that
                       comes from now on was published later
the loss               every topic is idle, and was missed since now if anybody had joined
=====================  =================================================================

After a reconnection everything wanted is asked for in as few commands as there can be:
one a kind, and a slot for shard channels (keys of several slots are refused). A subscriber
hears of the gap when all its server had is back, or before the first message that comes
earlier than that.

Rules: nothing is sent while the link is not open, so nothing of a former connection is ever
sent by the next. Confirmations are read from the pushes, which are in order with the messages; of
a command's future only the refusal counts. Where a topic belongs is the owner's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from penstock.client.config import Settings
from penstock.client.connection import ReplyFuture, Slot
from penstock.client.events import Event
from penstock.client.link import Link, LinkState
from penstock.client.pubsub.inbox import Inbox
from penstock.client.pubsub.items import Gap, Message, Name
from penstock.client.pubsub.topics import Kind, State, Topic, Want
from penstock.client.router.base import Place
from penstock.client.router.reporting import report_state
from penstock.errors import CommandError
from penstock.protocol.slots import key_slot

#: Names in one command; more make a server that is busy with it keep others waiting.
MAX_NAMES: Final = 1000

#: Kind, and whether it is a subscription. Pushes are text with ``decode_responses``.
_CONFIRMATIONS: Final[dict[Any, tuple[Kind, bool]]] = {
    form: (kind, is_subscription)
    for kind in Kind
    for word, is_subscription in ((kind.subscribe.lower(), True), (kind.unsubscribe.lower(), False))
    for form in (word, word.encode())
}


class StationOwner(Protocol):
    """Who knows what is wanted, and where it belongs."""

    def settle(self, topic: Topic) -> None:
        """A topic has another state: take the next step towards what is wanted."""

    def on_refused(self, topics: list[Topic], error: CommandError, *, is_alone: bool) -> None:
        """The server does not take these; they are idle. Unless one was asked for alone, it may be for
        the sake of another that is not wanted any more."""

    def on_evicted(self, topic: Topic) -> None:
        """The server has ended a subscription by itself."""

    def on_lost(self, station: Station) -> None:
        """The connection is lost, or could not be made; all topics are idle."""

    def on_ended(self, station: Station) -> None:
        """There will be no further connection."""


class Station:
    """One server, for subscriptions only."""

    def __init__(
        self, place: Place, owner: StationOwner, settings: Settings, tell: Callable[[Event], None]
    ) -> None:
        self.name = place.name
        self.link = Link(place.name, self, place.dial, settings)
        #: given up by the owner: what it still reports is of no interest
        self.is_retired = False
        self._owner = owner
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._tables: dict[Kind, dict[Any, Topic]] = {kind: {} for kind in Kind}
        self._messages = {
            form: (self._tables[kind], make)
            for word, kind, make in (
                ("message", Kind.CHANNEL, _message),
                ("pmessage", Kind.PATTERN, _pmessage),
                ("smessage", Kind.SHARD, _smessage),
            )
            for form in (word, word.encode())
        }
        #: commands on their way
        self._flights: set[ReplyFuture] = set()
        #: topics on their way whose members miss messages meanwhile
        self._restoring: set[Topic] = set()
        #: those that are back, and since when they were missed, as long as their members do not know
        self._restored: dict[Inbox, list[tuple[Name, float]]] = {}

    @property
    def is_open(self) -> bool:
        return self.link.state is LinkState.OPEN

    def topics(self) -> Iterator[Topic]:
        for table in self._tables.values():
            yield from table.values()

    @property
    def is_empty(self) -> bool:
        return not any(self._tables.values())

    # -------------------------------------------------------------- what is here

    def take(self, topics: Iterable[Topic]) -> None:
        """These belong here from now on; asked for at once, or when the link is open."""
        topics = list(topics)
        for topic in topics:
            if topic.station is not self:
                assert topic.state is State.IDLE, f"{topic} is still at another server"
                if topic.station is not None:
                    topic.station.release(topic)
                topic.station = self
                self._tables[topic.kind][topic.name] = topic
        if self.is_open:
            self.ask(topic for topic in topics if topic.state is State.IDLE)

    def release(self, topic: Topic) -> None:
        """It belongs here no more."""
        topic.station = None
        del self._tables[topic.kind][topic.name]
        self._not_restoring([topic])

    # ---------------------------------------------------------------- what is sent

    def ask(self, topics: Iterable[Topic]) -> None:
        for kind, batch in _batches(topics):
            for topic in batch:
                topic.asked()
                if topic.lapsed_since_s is not None:
                    self._restoring.add(topic)
            self._send(kind.subscribe, batch, self._on_asked)

    def drop(self, topics: Iterable[Topic]) -> None:
        for kind, batch in _batches(topics):
            for topic in batch:
                topic.state = State.LEAVING
            self._send(kind.unsubscribe, batch, self._on_dropped)

    def admit(self, wants: list[Want]) -> None:
        """Let these join topics that are live, or about to be, after all that is on its way."""
        self._call(("PING",), partial(self._on_pong, wants))

    def _send(
        self, verb: str, batch: list[Topic], answered: Callable[[list[Topic], ReplyFuture], None]
    ) -> None:
        self._call((verb, *(topic.raw for topic in batch)), partial(answered, batch))

    def _call(self, arguments: tuple[str | bytes, ...], answered: Callable[[ReplyFuture], None]) -> None:
        future = self.link.call(arguments)
        self._flights.add(future)
        future.add_done_callback(self._flights.discard)
        future.add_done_callback(answered)

    def _on_asked(self, batch: list[Topic], future: ReplyFuture) -> None:
        error = _refusal(future)
        refused = [topic for topic in batch if error and self._is_at(topic, State.ASKED)]
        if error is None or not refused:
            return
        for topic in refused:
            topic.lost(self._loop.time())
        self._not_restoring(refused)
        self._owner.on_refused(refused, error, is_alone=len(batch) == 1)

    def _on_dropped(self, batch: list[Topic], future: ReplyFuture) -> None:
        if _refusal(future) is None:
            return
        # The slot has moved, or the user may not even leave: what may come of it is for nobody.
        for topic in batch:
            if self._is_at(topic, State.LEAVING):
                self._gone(topic)

    def _on_pong(self, wants: list[Want], future: ReplyFuture) -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or (error is not None and not isinstance(error, CommandError)):
            return  # the connection is lost; they join when the topic is asked for again
        # A refusal says as much: what comes after it was published after it.
        for want in wants:
            if self._is_at(want.topic, State.LIVE):
                want.topic.join(want)

    def _is_at(self, topic: Topic, state: State) -> bool:
        return topic.station is self and topic.state is state

    # ------------------------------------------------------------- what comes in

    def on_push(self, link: Link, push: list[Any]) -> None:
        found = self._messages.get(push[0])
        if found is None:
            self._on_confirmation(push)
            return
        table, make = found
        topic = table.get(push[1])
        if topic is None:
            return
        if self._restored:
            self._tell_gaps(topic.members)
        message = make(push)
        for inbox in topic.members:
            inbox.put(message)

    def _on_confirmation(self, push: list[Any]) -> None:
        kind, is_subscription = _CONFIRMATIONS.get(push[0], (None, False))
        topic = self._tables[kind].get(push[1]) if kind is not None else None
        if topic is None:
            return
        if is_subscription:
            if topic.state is State.ASKED:
                self._confirmed(topic)
        elif topic.state is State.LEAVING:
            self._gone(topic)
        elif topic.state is State.LIVE:
            topic.lost(self._loop.time())
            self._owner.on_evicted(topic)

    def _confirmed(self, topic: Topic) -> None:
        since_s, topic.lapsed_since_s = topic.lapsed_since_s, None
        if since_s is not None:
            for inbox in topic.members:
                self._restored.setdefault(inbox, []).append((topic.name, since_s))
        topic.confirmed()
        self._not_restoring([topic])
        self._owner.settle(topic)

    def _gone(self, topic: Topic) -> None:
        topic.lost(self._loop.time())
        self._owner.settle(topic)

    # --------------------------------------------------------------------- gaps

    def _not_restoring(self, topics: Iterable[Topic]) -> None:
        self._restoring.difference_update(topics)
        if self._restored and not self._restoring:
            self._tell_gaps(tuple(self._restored))

    def _tell_gaps(self, inboxes: tuple[Inbox, ...]) -> None:
        for inbox in inboxes:
            back = self._restored.pop(inbox, None)
            if back is not None:
                names = tuple(name for name, _ in back)
                since_s = min(since_s for _, since_s in back)
                inbox.put_gap(Gap(self.name, names, self._loop.time() - since_s))

    # --------------------------------------------------------- what the link says

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False  # the command's future says it

    def on_state(self, link: Link) -> None:
        if self.is_retired:
            return
        if link.state is LinkState.OPEN:
            self.ask([topic for topic in self.topics() if topic.state is State.IDLE])
        else:
            self.lose()
            if link.state is LinkState.WAITING:
                self._owner.on_lost(self)
            else:
                self._owner.on_ended(self)
        report_state(link, self)

    def on_event(self, event: Event) -> None:
        self._tell(event)

    def lose(self) -> None:
        """Nothing is at the server any more."""
        for future in list(self._flights):
            # What was not written yet must not be written by the next connection.
            future.cancel()
        self._restoring.clear()
        self._tell_gaps(tuple(self._restored))
        now_s = self._loop.time()
        for topic in self.topics():
            topic.lost(now_s)

    def retire(self) -> list[Topic]:
        """Be of no interest any more; answers the topics that were here."""
        self.is_retired = True
        self.lose()
        topics = list(self.topics())
        for topic in topics:
            self.release(topic)
        return topics

    def __repr__(self) -> str:
        return f"<Station {self.name} {self.link.state.value} topics={len(list(self.topics()))}>"


def _message(push: list[Any]) -> Message:
    return Message(push[1], push[2])


def _pmessage(push: list[Any]) -> Message:
    return Message(push[2], push[3], push[1], "pmessage")


def _smessage(push: list[Any]) -> Message:
    return Message(push[1], push[2], None, "smessage")


def _refusal(future: ReplyFuture) -> CommandError | None:
    """What the server says against it. That the connection is lost, the link says."""
    error = None if future.cancelled() else future.exception()
    return error if isinstance(error, CommandError) else None


def _batches(topics: Iterable[Topic]) -> Iterator[tuple[Kind, list[Topic]]]:
    """What can go in one command."""
    groups: dict[tuple[Kind, int], list[Topic]] = {}
    for topic in topics:
        slot = key_slot(topic.raw) if topic.kind is Kind.SHARD else 0
        groups.setdefault((topic.kind, slot), []).append(topic)
    for (kind, _), group in groups.items():
        for start in range(0, len(group), MAX_NAMES):
            yield kind, group[start : start + MAX_NAMES]
