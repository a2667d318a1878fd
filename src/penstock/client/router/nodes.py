"""The links to the nodes of a cluster: made when they are asked for, retired when their node is gone.

A node can have two: one for everything, and one that has said READONLY, for reads from a
replica. Which node serves what is not known here.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Collection, Iterator
from itertools import chain, cycle

from penstock.client.config import Settings
from penstock.client.dialing import Dialer
from penstock.client.link import Link, LinkOwner, LinkState
from penstock.client.router import topology
from penstock.client.targets import Address


class Nodes:
    """Links by address."""

    def __init__(
        self, dialer: Dialer, settings: Settings, owner: LinkOwner, context: contextvars.Context
    ) -> None:
        self._dialer = dialer
        self._settings = settings
        self._owner = owner
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._primaries: dict[topology.Address, Link] = {}
        self._replicas: dict[topology.Address, Link] = {}
        self._closings: set[asyncio.Task[None]] = set()

    def primary(self, address: topology.Address) -> Link:
        """The link for everything; not connected before it is used."""
        link = self._primaries.get(address)
        if link is None:
            link = self._primaries[address] = self._make(address, reads_from_replica=False)
        return link

    def replica(self, address: topology.Address) -> Link:
        """The link for reads from a replica; not connected before it is used."""
        link = self._replicas.get(address)
        if link is None:
            link = self._replicas[address] = self._make(address, reads_from_replica=True)
        return link

    def _make(self, address: topology.Address, *, reads_from_replica: bool) -> Link:
        where = Address(*address)
        dial = self._dialer.to(where, reads_from_replica=reads_from_replica, is_shared=True)
        return Link(self._dialer.name_of(where), self._owner, dial, self._settings)

    def is_replica(self, link: Link) -> bool:
        return link in self._replicas.values()

    def __contains__(self, link: Link) -> bool:
        return link in self._primaries.values() or link in self._replicas.values()

    def __iter__(self) -> Iterator[Link]:
        return chain(self._primaries.values(), self._replicas.values())

    # ------------------------------------------------------------------ retiring

    def leave(
        self,
        former: Collection[topology.Address],
        primaries: Collection[topology.Address],
        replicas: Collection[topology.Address],
    ) -> list[Link]:
        """Forget the links to all but these primaries and replicas; they are the caller's to retire.

        A node that is not even among the ``former`` ones was named by ASK: it gets its first
        slot, and may come into the map or not. Its link stays while there is something on it.
        """
        gone: list[Link] = []
        for links, wanted in ((self._primaries, primaries), (self._replicas, replicas)):
            unwanted = [address for address in links if address not in wanted]
            gone += [links.pop(each) for each in unwanted if each in former or not links[each].is_busy]
        return gone

    def retire(self, link: Link) -> None:
        """Close a link in the background: what is in flight is answered."""
        task = self._loop.create_task(link.close(), context=self._context)
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        """Close every link. Idempotent."""
        await asyncio.gather(*(link.close() for link in self))
        if self._closings:
            await asyncio.wait(self._closings)


class Readers:
    """The replicas of one primary, taken in turn.

    ``waits`` says what happens while none is connected: wait for one that is being
    connected for the first time, or read from the primary meanwhile. One that has failed is
    never waited for.
    """

    __slots__ = ("_in_turn", "_links", "_primary", "_waits")

    def __init__(self, primary: Link, links: list[Link], *, waits: bool) -> None:
        self._primary = primary
        self._links = links
        self._in_turn = cycle(links)
        self._waits = waits

    def next(self) -> Link:
        """Where to send a read."""
        for _ in self._links:
            link = next(self._in_turn)
            if link.state is LinkState.OPEN:
                return link
            if link.state is LinkState.NEW:
                link.start()
            if self._waits and link.state is LinkState.CONNECTING and link.last_error is None:
                return link
        return self._primary
