"""Reads from the replicas that sentinels know of.

Rules: a read goes to the replicas that are connected, in turn; if there is none, to the
primary. A replica that is lost, loading or cut off from its primary passes its reads on to the
primary: they changed nothing and may run again. The list is asked for when something has
changed, and now and then, since sentinels do not announce everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.client.backlog import kept_after_loss
from penstock.client.config import Settings
from penstock.client.connection import Connection, Slot
from penstock.client.dialing import Dialer
from penstock.client.facts import is_readonly
from penstock.client.link import Link, LinkOwner, LinkState
from penstock.client.policies import ErrorClass, classify_error
from penstock.client.router.base import Observer
from penstock.client.router.reporting import report_state
from penstock.client.router.sentinel_asking import Sentinels
from penstock.client.targets import Address
from penstock.errors import CommandError, ConnectionLostError, PenstockError

log = logging.getLogger("penstock.client")

#: How often the list is asked for when nothing seems to change, …
_INTERVAL_S: Final = 10.0
#: … and while it is not settled: there are none, or some that are neither down nor up.
_INTERVAL_UNSETTLED_S: Final = 1.0

_NOT_READY: Final = (ErrorClass.LOADING, ErrorClass.MASTERDOWN)


class ReplicaLink(Link):
    """A link that passes on what it cannot have answered."""

    def __init__(
        self, name: str, owner: LinkOwner, dialer: Dialer, address: Address, settings: Settings, primary: Link
    ) -> None:
        dial = dialer.to(address, reads_from_replica=True, is_shared=True)
        super().__init__(name, owner, dial, settings)
        self._primary = primary

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        if connection is not self._connection:
            super().on_lost(connection, error, unanswered, unsent)
            return
        cause = error or ConnectionLostError(f"{self.name} closed the connection")
        kept = kept_after_loss(unanswered, unsent, self._settings, lambda: self._outcome_unknown(cause))
        kept += self._backlog.take(len(self._backlog))
        # Who named this server to ask it about itself does not want to hear of another.
        super().on_lost(connection, cause, [], [slot for slot in kept if not _is_read(slot)])
        for slot in filter(_is_read, kept):
            if not slot.future.done():
                self._primary.resume(slot)

    async def leave(self) -> None:
        """End, without anybody waiting for a server that may be dead."""
        connection = self._connection
        if connection is not None:
            connection.abort()
            connection.transport_lost(ConnectionLostError(f"{self.name} is no replica to read from"))
        await self.close(at_once=True)


def _is_read(slot: Slot) -> bool:
    return is_readonly(*slot.arguments[:2])


class Replicas:
    """Links to the replicas of one service, from the first ``refresh_soon`` on."""

    def __init__(
        self,
        dialer: Dialer,
        sentinels: Sentinels,
        service: str,
        settings: Settings,
        observer: Observer,
        primary: Link,
    ) -> None:
        self._dialer = dialer
        self._sentinels = sentinels
        self._service = service
        self._settings = settings
        self._observer = observer
        self._primary = primary
        self._links: dict[Address, ReplicaLink] = {}
        #: not to be read from any more, not ended yet
        self._leaving: list[ReplicaLink] = []
        self._open: tuple[ReplicaLink, ...] = ()
        self._turn = 0
        self._has_news = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    def next(self) -> Link:
        """Whoever is to answer the next read."""
        links = self._open
        if not links:
            return self._primary
        self._turn = (self._turn + 1) % len(links)
        return links[self._turn]

    def refresh_soon(self) -> None:
        """Something has changed; also starts it all."""
        self._has_news.set()
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await asyncio.gather(*(link.close() for link in [*self._links.values(), *self._leaving]))

    def __iter__(self) -> Iterator[ReplicaLink]:
        return iter(self._links.values())

    def by_address(self) -> Mapping[str, Link]:
        return {str(address): link for address, link in self._links.items()}

    # ----------------------------------------------------------------- the list

    async def _keep(self) -> None:
        while True:
            self._has_news.clear()
            is_settled = False
            try:
                is_settled = await self._refresh()
            except PenstockError as error:
                log.info("%s: cannot list the replicas: %s", self._service, error)
            try:
                async with asyncio.timeout(_INTERVAL_S if is_settled else _INTERVAL_UNSETTLED_S):
                    await self._has_news.wait()
            except TimeoutError:
                pass

    async def _refresh(self) -> bool:
        """Connect to those that may be read from now, leave the others; whether the list is settled."""
        peers = [peer for peer in await self._sentinels.find_replicas() if peer.is_announced]
        addresses = [Address(*peer.address) for peer in peers if peer.is_readable and peer.is_linked]
        self._leaving += [self._links.pop(each) for each in list(self._links) if each not in addresses]
        for address in addresses:
            link = self._links.get(address)
            if link is None or link.state is LinkState.CLOSED:
                name = f"{self._service}@{address}"
                link = ReplicaLink(name, self, self._dialer, address, self._settings, self._primary)
                self._links[address] = link
                link.start()
        self._note_open()
        await asyncio.gather(*(link.leave() for link in self._leaving))
        self._leaving.clear()
        return bool(addresses) and len(addresses) == sum(not peer.is_down for peer in peers)

    def _note_open(self) -> None:
        self._open = tuple(link for link in self._links.values() if link.state is LinkState.OPEN)

    # ------------------------------------------------------ what the links report

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        if classify_error(str(error)).kind not in _NOT_READY or not _is_read(slot):
            return False
        self._primary.resume(slot)
        return True

    def on_push(self, link: Link, push: list[Any]) -> None:
        self._observer.on_push(link, push)

    def on_state(self, link: Link) -> None:
        self._note_open()
        report_state(link, self._observer)
