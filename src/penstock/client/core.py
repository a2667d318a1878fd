"""Everything of a client that belongs to one event loop: router, private links, blocking calls.

Made when the client is first used, so that a client can be made before its loop runs. The
client is its only user; this module knows nothing of how commands are spelled for people.

``call`` is what every shared command goes through. It is the router's own, with these
before it where a client asks for them:

=================  ===========================================================
the cache          answers reads that it knows
the spans          one around each command, with a ``tracer``
the gate           while a command waits on a shared connection, and
                   ``blocking_policy`` is ``error`` or ``interrupt``
=================  ===========================================================
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.client.blocked import BlockingCalls
from penstock.client.caching import Cache
from penstock.client.config import Settings
from penstock.client.connection import ReplyFuture, Slot
from penstock.client.dialing import Dialer
from penstock.client.events import CacheFlushed, Disconnected, Event, TopologyChanged
from penstock.client.link import Link
from penstock.client.listening import Listeners
from penstock.client.private import PrivateLink, PrivateLinks
from penstock.client.pubsub import PubSub
from penstock.client.router.base import Place, Router
from penstock.client.router.broadcasting import merge_of
from penstock.client.router.cluster import ClusterRouter
from penstock.client.router.scattering import scatter
from penstock.client.router.sentinel import SentinelRouter
from penstock.client.router.splitting import Split, can_split, split
from penstock.client.router.standalone import StandaloneRouter
from penstock.client.targets import Target
from penstock.client.telemetry import Spans
from penstock.client.transports.base import Arguments
from penstock.errors import BackpressureError, ClosedError, CommandTimeoutError
from penstock.protocol.replies import Reply

Call = Callable[[Arguments], ReplyFuture]


class Core:
    """The working half of a client."""

    def __init__(self, target: Target, settings: Settings, dialer: Dialer, listeners: Listeners) -> None:
        self.settings = settings
        self.is_cluster = target.kind == "cluster"
        self._listeners = listeners
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._cache = Cache(settings.client_cache_entries) if settings.client_cache_entries else None
        self.router = _make_router(target, settings, dialer, self)
        self.links = PrivateLinks(settings, self._orphaned)
        self._blocking = BlockingCalls(
            self.router, self.links, settings, listeners.tell, self._shared_wait_changed
        )
        self.pubsub = PubSub(self.router, settings, listeners.tell)
        self._spans = Spans(settings.tracer, target, settings) if settings.tracer is not None else None
        self._ungated: Call = self.router.call if self._cache is None else self._call_cached
        if self._spans is not None:
            self._ungated = self._spans.around(self._ungated)
        self.call: Call = self._ungated
        self._is_ready = False
        self._closing: asyncio.Task[None] | None = None

    # --------------------------------------------------------------------- calls

    def _call_cached(self, arguments: Arguments) -> ReplyFuture:
        assert self._cache is not None
        return self._cache.call(arguments, self.router.call)

    async def call_blocking(
        self, arguments: Arguments, own_timeout_ms: int, timeout_ms: int | None, place: Place | None = None
    ) -> Reply:
        """Run a command that waits at the server: the one that has its keys, or ``place``."""
        return await self.aside(arguments, self._blocking.call(arguments, own_timeout_ms, timeout_ms, place))

    def call_blocking_on(
        self, link: PrivateLink, arguments: Arguments, own_timeout_ms: int
    ) -> Awaitable[Reply]:
        """The same on a connection that the caller has; cache and tracer are the caller's business."""
        return self._blocking.call_on(link, arguments, own_timeout_ms)

    def call_longer(self, arguments: Arguments, extra_s: float) -> ReplyFuture:
        """A shared command that may take so much longer than ``command_timeout_ms``; first be ``ready``."""
        router = self.router
        merge = merge_of(arguments) if self.is_cluster else None
        if merge is not None:
            links = router.primaries()
            parts = [(place, arguments) for place in range(len(links))]
            return scatter(Split(parts, merge), lambda place, part: links[place].call_blocking(part, extra_s))
        if self.is_cluster and self.settings.split_multi_key and can_split(arguments[0]):
            return scatter(
                split(arguments), lambda _, part: router.link_for(part).call_blocking(part, extra_s)
            )
        return router.link_for(arguments).call_blocking(arguments, extra_s)

    async def call_overtaking(self, arguments: Arguments) -> Reply:
        """Run a command about what the servers run, beside the connections that wait for that."""
        await self.ready()
        replies = await asyncio.gather(
            *(self.links.tell(Place(link.name, link.dial), arguments) for link in self.router.primaries()),
            return_exceptions=True,
        )
        # Of many servers one runs the script; the others have nothing to say.
        reply = next((each for each in replies if not isinstance(each, BaseException)), replies[0])
        if isinstance(reply, BaseException):
            raise reply
        return reply

    async def aside(self, arguments: Arguments, work: Awaitable[Reply]) -> Reply:
        """Await a command that goes another way than ``call``; cache and tracer are told of it."""
        self.touch(arguments)
        try:
            return await (work if self._spans is None else self._spans.around_waiting(arguments, work))
        finally:
            self.touch(arguments)

    async def ready(self, timeout_ms: int | None = None) -> int | None:
        """Until the servers are known, for commands that are not sent where their keys are. Answers
        what is left of the timeout; without one, ``command_timeout_ms`` is the limit."""
        if self._is_ready:
            return timeout_ms
        limit_ms = self.settings.command_timeout_ms if timeout_ms is None else timeout_ms
        started_s = self._loop.time()
        try:
            async with asyncio.timeout(limit_ms / 1000 if limit_ms else None):
                await self.router.open()
        except TimeoutError:
            raise CommandTimeoutError(
                f"there was no connection within {limit_ms} ms; it was not sent"
            ) from None
        self._is_ready = True
        waited_ms = int((self._loop.time() - started_s) * 1000)
        return None if timeout_ms is None else max(1, timeout_ms - waited_ms)

    def touch(self, arguments: Arguments) -> None:
        """A command goes, or went, another way than ``call``: the cache must not outlive what it writes."""
        if self._cache is not None:
            self._cache.touch(arguments)

    def _shared_wait_changed(self, someone_waits: bool) -> None:
        policy = self.settings.blocking_policy
        if self._closing is not None:
            return  # everything is refused
        if someone_waits and policy == "error":
            self.call = self._refuse
        elif someone_waits and policy == "interrupt":
            self.call = self._interrupt
        else:
            self.call = self._ungated

    def _refuse(self, arguments: Arguments) -> ReplyFuture:
        future: ReplyFuture = self._loop.create_future()
        future.set_exception(
            BackpressureError(
                f"the connection waits for {self._blocking.what_waits} (blocking_policy error);"
                " try again later, or use the policy dedicated"
            )
        )
        return future

    def _interrupt(self, arguments: Arguments) -> ReplyFuture:
        self._blocking.interrupt()
        return self._ungated(arguments)

    # ------------------------------------------------------------------- observer

    def on_push(self, link: Link, push: list[Any]) -> None:
        if self._cache is not None:
            self._cache.on_push(push)

    def on_event(self, event: Event) -> None:
        self._listeners.tell(event)
        if self._cache is not None and isinstance(event, Disconnected | TopologyChanged):
            # Whoever would have told us of changes is not there any more, or serves other keys.
            self._cache.flush()
            self._listeners.tell(CacheFlushed())
        if isinstance(event, TopologyChanged):
            self.pubsub.on_topology(event)

    def _orphaned(self, server: str, slot: Slot, reply: Reply) -> None:
        self._blocking.tell_orphan(server, slot.arguments, reply)

    # ------------------------------------------------------------------ lifecycle

    def check_usable(self) -> None:
        """Raise for a use that could only hang: in a forked child, on another loop."""
        if os.getpid() != self._pid:
            raise ClosedError("this client was opened before fork and cannot be used in the child")
        if asyncio.get_running_loop() is not self._loop:
            raise ClosedError("this client belongs to another event loop; open one for each loop")

    async def close(self) -> None:
        """End everything; nobody is left waiting. Idempotent, and safe to call from several tasks."""
        if os.getpid() != self._pid:
            return  # everything is the parent's
        self.check_usable()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.call = self._refuse_closed
        await self.pubsub.close()
        await self._blocking.close()
        await asyncio.gather(self.links.close(), self.router.close())
        self._listeners.end()

    def _refuse_closed(self, arguments: Arguments) -> ReplyFuture:
        raise ClosedError("the client is closed")

    def statistics(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "servers": dict(self.router.statistics()),
            "private_links": self.links.statistics(),
            "pubsub": self.pubsub.statistics(),
        }
        if self._cache is not None:
            figures["cache"] = self._cache.statistics()
        return figures


def _make_router(target: Target, settings: Settings, dialer: Dialer, core: Core) -> Router:
    match target.kind:
        case "cluster":
            return ClusterRouter(dialer, target.addresses, settings, core)
        case "sentinel":
            return SentinelRouter(dialer, target.addresses, target.service, settings, core)
        case _:
            address = target.addresses[0] if target.addresses else None
            return StandaloneRouter(dialer, address, settings, core)
