"""One server: every command goes the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.client.config import Settings
from penstock.client.connection import ReplyFuture, Slot
from penstock.client.dialing import Dialer
from penstock.client.link import Link
from penstock.client.policies import classify_error
from penstock.client.router.base import Observer, Place, Redirection
from penstock.client.router.reporting import report_state
from penstock.client.targets import Address
from penstock.client.transports.base import Arguments
from penstock.errors import CommandError, ConfigError


class StandaloneRouter:
    """A router with one link. ``address`` None is the path of the target (a socket, a store)."""

    def __init__(
        self, dialer: Dialer, address: Address | None, settings: Settings, observer: Observer
    ) -> None:
        self._place = Place(dialer.name_of(address), dialer.to(address))
        self._observer = observer
        self._open_within_s = (settings.connect_timeout_ms + settings.handshake_timeout_ms) / 1000
        self._link = Link(self._place.name, self, dialer.to(address, is_shared=True), settings)
        #: the hot path: no frame of ours between caller and link
        self.call: Callable[[Arguments], ReplyFuture] = self._link.call

    async def open(self) -> None:
        await self._link.wait_open(self._open_within_s)

    async def close(self) -> None:
        await self._link.close()

    def link_for(self, arguments: Arguments) -> Link:
        return self._link

    def place_for(self, arguments: Arguments) -> Place:
        return self._place

    def follow(self, error: CommandError) -> Redirection | None:
        return None

    def primaries(self) -> list[Link]:
        return [self._link]

    def link_named(self, name: str) -> Link:
        if name != self._link.name:
            raise ConfigError(f"there is no server {name!r}, only {self._link.name!r}")
        return self._link

    def statistics(self) -> Mapping[str, Any]:
        return {self._link.name: self._link.statistics()}

    # ------------------------------------------------------ what the link reports

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        if classify_error(str(error)).redirect is not None:
            error.add_note(f"{link.name} is a node of a cluster: use redis-cluster:// instead of redis://")
        return False

    def on_push(self, link: Link, push: list[Any]) -> None:
        self._observer.on_push(link, push)

    def on_state(self, link: Link) -> None:
        report_state(link, self._observer)

    def __repr__(self) -> str:
        return f"<StandaloneRouter {self._link!r}>"
