"""Who wants what, and which server has it: the one follows the other.

``settle`` is the whole of it for one topic:

=========  ==============  ==================================================
state      wanted          next step
=========  ==============  ==================================================
idle       yes             ask its station, when that is open
idle       no              forget it
live       no              drop it at its station
otherwise                  nothing: its answer will settle it
=========  ==============  ==================================================

Where a topic belongs
    Channels and patterns all go to one server, the *home*; a shard channel goes to the owner of
    its slot. The router says which. It is asked again when that server is lost, when a
    server ends a subscription by itself (the slot has moved), and when a server is gone
    from the topology. A MOVED is followed.

A refusal
    that asks for patience (CLUSTERDOWN, TRYAGAIN, too many redirections) is tried again at the
    pace of the reconnect policy. Any other is final for its topic: whoever waits for it
    is told, whoever had it (a right was withdrawn while the connection was lost) fails with
    it, since a subscriber that hears nothing must not believe that nothing is said. One
    name among many is found by asking for each alone.

Rules: everything happens in callbacks of one loop, without an ``await``; only links that end
have tasks. The desk does not know what a message is.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.client.config import Settings
from penstock.client.events import Event
from penstock.client.link import LinkState
from penstock.client.policies import Remedy, classify_error
from penstock.client.pubsub.inbox import Inbox, fresh
from penstock.client.pubsub.items import Name
from penstock.client.pubsub.station import Station
from penstock.client.pubsub.topics import Key, Kind, State, Topic, Want
from penstock.client.redialing import Redialing
from penstock.client.router.base import Place, Router
from penstock.errors import ClosedError, CommandError, NotSentError, PenstockError


class Desk:
    """The subscriptions of one client."""

    def __init__(self, router: Router, settings: Settings, tell: Callable[[Event], None]) -> None:
        self._router = router
        self._settings = settings
        self._tell = tell
        # A topic stays asked for until it is answered or the connection ends; how long a caller
        # waits for that is the caller's business.
        self._link_settings = replace(settings, command_timeout_ms=0, when_full="wait", fail_fast=False)
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        # What outlives the call that caused it must not keep that call's context alive.
        self._context = contextvars.Context()
        self._topics: dict[Key, Topic] = {}
        #: of everybody who ever wanted something and has not left for good
        self._wants: dict[Inbox, dict[Key, Want]] = {}
        self._stations: dict[str, Station] = {}
        #: where channels and patterns are
        self._home: Station | None = None
        #: topics for which the router will be asked again
        self._unplaced: dict[Topic, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: how long to wait before that
        self._pace = Redialing(settings)
        self._is_troubled = False
        self._closing_links: set[asyncio.Task[None]] = set()
        self.is_closed = False

    def check_usable(self) -> None:
        """Raise for a use that could only hang."""
        if self.is_closed:
            raise ClosedError("the client is closed")
        if os.getpid() != self._pid:
            raise ClosedError("this client was opened before fork and cannot be used in the child")
        if asyncio.get_running_loop() is not self._loop:
            raise ClosedError("this client belongs to another event loop; open one for each loop")

    # ---------------------------------------------------------- for subscribers

    def join(self, inbox: Inbox, kind: Kind, names: Iterable[Name]) -> list[Want]:
        """Want these from now on. The future of each is done when it is so, or will not be."""
        self.check_usable()
        mine = self._wants.setdefault(inbox, {})
        wants: list[Want] = []
        new: list[Want] = []
        for key in dict.fromkeys((kind, name) for name in names):
            want = mine.get(key)
            if want is None:
                topic = self._topics.setdefault(key, Topic(*key))
                want = mine[key] = topic.want(inbox, self._loop.create_future())
                new.append(want)
            wants.append(want)
        try:
            self._bring_in(new)
        except PenstockError:
            self.leave(inbox, [want.topic.key for want in new])
            raise
        return wants

    def _bring_in(self, new: list[Want]) -> None:
        idle = [want.topic for want in new if want.topic.state is State.IDLE]
        busy: dict[Station, list[Want]] = {}
        for want in new:
            station = want.topic.station
            if want.topic.state in (State.ASKED, State.LIVE) and station is not None:
                busy.setdefault(station, []).append(want)
        for station, wants in busy.items():
            station.admit(wants)
        self._place(idle)
        if self._settings.fail_fast:
            for topic in idle:
                self._refuse_joining(topic)

    def leave(self, inbox: Inbox, keys: Iterable[Key]) -> list[asyncio.Future[None]]:
        """Want these no more. The answers are done when no server has what nobody wants."""
        mine = self._wants.get(inbox, {})
        unwanted: list[Topic] = []
        for key in keys:
            want = mine.pop(key, None)
            if want is None:
                continue
            want.resolve()
            want.topic.leave(inbox)
            if not want.topic.wants:
                unwanted.append(want.topic)
        departures: list[asyncio.Future[None]] = []
        for topic in unwanted:
            if topic.state is not State.IDLE:
                departures.append(self._loop.create_future())
                topic.departures.append(departures[-1])
        self._let_go(unwanted)
        return departures

    def _let_go(self, unwanted: list[Topic]) -> None:
        """As ``settle``, in few commands."""
        live: dict[Station, list[Topic]] = {}
        for topic in unwanted:
            if topic.state is State.LIVE and topic.station is not None:
                live.setdefault(topic.station, []).append(topic)
            else:
                self.settle(topic)
        for station, topics in live.items():
            station.drop(topics)

    def leave_all(self, inbox: Inbox, error: PenstockError) -> None:
        """For good; whoever waits is told why. With the last, the links go."""
        mine = self._wants.get(inbox)
        if mine is None:
            return
        for want in mine.values():
            want.resolve(fresh(error))
        if len(self._wants) > 1:
            self.leave(inbox, list(mine))
            del self._wants[inbox]
            return
        del self._wants[inbox]
        for want in mine.values():
            want.topic.leave(inbox)
        self._rest()

    def wanted(self, inbox: Inbox, kind: Kind) -> list[Name]:
        return [name for its_kind, name in self._wants.get(inbox, ()) if its_kind is kind]

    # ------------------------------------------------------------- for stations

    def settle(self, topic: Topic) -> None:
        station = topic.station
        if topic.state is State.LIVE:
            if self._is_troubled:
                self._is_troubled = False
                self._pace = Redialing(self._settings)
            if not topic.wants and station is not None:
                station.drop([topic])
        elif topic.state is State.IDLE:
            if not topic.wants:
                self._forget(topic)
            elif station is not None and station.is_open:
                station.ask([topic])

    def on_refused(self, topics: list[Topic], error: CommandError, *, is_alone: bool) -> None:
        for topic in topics:
            if not topic.wants:
                self._forget(topic)
        topics = [topic for topic in topics if topic.wants]
        if not topics:
            return
        remedy = classify_error(str(error)).remedy
        if remedy is Remedy.REDIRECT and self._redirect(topics, error):
            return
        if remedy in (Remedy.REDISCOVER, Remedy.WAIT):
            self._place_later(topics, error)
        elif is_alone:
            self._refuse(topics[0], error)
        else:
            for topic in topics:
                self.settle(topic)

    def on_evicted(self, topic: Topic) -> None:
        # The others of its slot follow with the next pushes.
        self._place_at([topic], self._loop.time())

    def on_lost(self, station: Station) -> None:
        error = station.link.last_error
        for topic in list(station.topics()):
            if not topic.wants:
                self._forget(topic)
            elif self._settings.fail_fast:
                self._refuse_joining(topic)
        delay_s = self._delay_s(error or NotSentError(f"{station.name} is not connected"))
        if delay_s is not None:  # else the link ends as well, and says so
            self._place_at(station.topics(), self._loop.time() + delay_s)

    def on_ended(self, station: Station) -> None:
        error = station.link.last_error
        if not isinstance(error, PenstockError):
            error = ClosedError(f"the connection to {station.name} has ended: {error}")
        for topic in self._retire(station):
            self._refuse(topic, error)

    # -------------------------------------------------------------------- places

    def _place(self, topics: Iterable[Topic]) -> None:
        """Bring topics that are idle to where the router says."""
        by_station: dict[Station, list[Topic]] = {}
        for topic in topics:
            by_station.setdefault(self._station_for(topic), []).append(topic)
        for station, group in by_station.items():
            station.take(group)

    def _station_for(self, topic: Topic) -> Station:
        if topic.kind is not Kind.SHARD and self._home is not None:
            return self._home
        station = self._station_at(self._router.place_for((topic.kind.subscribe, topic.raw)))
        if topic.kind is not Kind.SHARD:
            self._home = station
        return station

    def _station_at(self, place: Place) -> Station:
        station = self._stations.get(place.name)
        if station is None:
            station = Station(place, self, self._link_settings, self._tell)
            self._stations[place.name] = station
            station.link.start()
        return station

    def _redirect(self, topics: list[Topic], error: CommandError) -> bool:
        """Follow MOVED; False if it leads nowhere. The topics are of one slot."""
        redirection = self._router.follow(error)
        if redirection is None:
            return False
        for topic in topics:
            topic.redirections += 1
        if redirection.is_ask or topics[0].redirections > self._settings.max_redirections:
            # The servers do not agree yet on who owns the slot.
            for topic in topics:
                topic.redirections = 0
            self._place_later(topics, error)
        else:
            self._station_at(redirection.place).take(topics)
            self._retire_empty()
        return True

    def _place_later(self, topics: list[Topic], error: PenstockError) -> None:
        """Ask the router again, at the pace of the reconnect policy; refuse them if that has an end."""
        delay_s = self._delay_s(error)
        if delay_s is not None:
            self._place_at(topics, self._loop.time() + delay_s)
        else:
            for topic in topics:
                self._refuse(topic, error)

    def _delay_s(self, error: Exception) -> float | None:
        self._is_troubled = True
        return self._pace.delay_after_failure_s(error)

    def _place_at(self, topics: Iterable[Topic], when_s: float) -> None:
        self._unplaced.update(dict.fromkeys(topics))
        if self._timer is not None:
            if self._timer.when() <= when_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._place_now, context=self._context)

    def _place_now(self) -> None:
        self._timer = None
        unplaced, self._unplaced = self._unplaced, {}
        if self._home is not None and not self._home.is_open:
            # Channels and patterns go together.
            unplaced.update((topic, None) for topic in self._home.topics() if topic.kind is not Kind.SHARD)
            self._home = None
        by_station: dict[Station, list[Topic]] = {}
        for topic in unplaced:
            if topic.state is not State.IDLE or not topic.wants:
                continue  # it has settled meanwhile
            try:
                station = self._station_for(topic)
            except PenstockError as error:
                self._place_later([topic], error)
                continue
            by_station.setdefault(station, []).append(topic)
        for station, topics in by_station.items():
            station.take(topics)
        self._retire_empty()

    # ------------------------------------------------------------------- refusals

    def _refuse(self, topic: Topic, error: PenstockError) -> None:
        """It cannot be had: tell everybody who wants it."""
        for inbox, want in list(topic.wants.items()):
            if want.is_joined:
                inbox.fail(fresh(error))
            else:
                self._withdraw(want, fresh(error))
        self.settle(topic)

    def _refuse_joining(self, topic: Topic) -> None:
        """``fail_fast``: nobody waits for a connection that is lost."""
        station = topic.station
        if station is None or station.link.state is not LinkState.WAITING:
            return
        for want in list(topic.wants.values()):
            if not want.is_joined:
                why = f"{station.name} is not connected: {station.link.last_error}"
                self._withdraw(want, NotSentError(why))
        self.settle(topic)

    def _withdraw(self, want: Want, error: PenstockError) -> None:
        want.resolve(error)
        want.topic.leave(want.inbox)
        self._wants[want.inbox].pop(want.topic.key, None)

    # ------------------------------------------------------------------------ end

    def _forget(self, topic: Topic) -> None:
        self._topics.pop(topic.key, None)
        self._unplaced.pop(topic, None)
        topic.tell_departures()
        if topic.station is not None:
            topic.station.release(topic)

    def forget_servers(self, names: Iterable[str]) -> None:
        """These are not part of the topology any more, even if they still answer."""
        for name in names:
            if name in self._stations:
                topics = self._retire(self._stations[name])
                self._place_at([topic for topic in topics if topic.wants], self._loop.time())

    def _retire(self, station: Station) -> list[Topic]:
        """End a link; answers the topics that were there, idle."""
        self._stations.pop(station.name, None)
        if self._home is station:
            self._home = None
        topics = station.retire()
        task = self._loop.create_task(station.link.close(at_once=True), context=self._context)
        self._closing_links.add(task)
        task.add_done_callback(self._closing_links.discard)
        return topics

    def _retire_empty(self) -> None:
        for station in list(self._stations.values()):
            if station.is_empty and station is not self._home:
                self._retire(station)

    def _rest(self) -> None:
        """Nobody wants anything: forget all, and end the links. What is to come begins anew."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for station in list(self._stations.values()):
            self._retire(station)
        for topic in list(self._topics.values()):
            self._forget(topic)

    async def wait_rested(self) -> None:
        """Until the links that are ending have ended."""
        if self._closing_links:
            await asyncio.wait(set(self._closing_links))

    def close(self) -> None:
        """Nothing can be wanted any more; ``wait_rested`` waits for the links."""
        self.is_closed = True
        for inbox in list(self._wants):
            self.leave_all(inbox, ClosedError("the client is closed"))
        self._rest()

    def statistics(self) -> dict[str, Any]:
        kinds = [topic.kind for topic in self._topics.values()]
        return {
            "channels": kinds.count(Kind.CHANNEL),
            "patterns": kinds.count(Kind.PATTERN),
            "shard_channels": kinds.count(Kind.SHARD),
            "servers": {name: station.link.statistics() for name, station in self._stations.items()},
        }
