"""The way from members to servers: a proxy before each, which cuts, delays and silences connections.

Between a proxy and its server all is well, and so is what servers say to one another. Bytes that vanish do so
at the end of a connection only, which is then reset: TCP promises no less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from tests.chaos.plan import ALL, Event, Kind
from tests.integration.proxy import Plan, Proxy

FAULTS: Final[frozenset[Kind]] = frozenset({"cut", "delay", "silence"})


class Network:
    """A proxy for each node, by its name."""

    def __init__(self, nodes: Sequence[str]) -> None:
        # Where to is known when the servers run; the port on which they are announced must be there before.
        self.proxies = {node: Proxy(0) for node in nodes}

    async def open(self, stack: AsyncExitStack) -> None:
        for proxy in self.proxies.values():
            await stack.enter_async_context(proxy)

    async def carry_out(self, event: Event) -> None:
        every = list(self.proxies.values())
        chosen = every if event.target == ALL else [self.proxies[event.target]]
        for proxy in chosen:
            proxy.passages[:] = proxy.live
        match event.kind:
            case "cut":
                self._cut(chosen, event.amount)
            case "delay":
                await self._delay(chosen, event)
            case "silence":
                await self._silence(chosen, event)

    def calm(self) -> None:
        for proxy in self.proxies.values():
            _set_plan(proxy, Plan())
            _cut_silent(proxy)

    def _cut(self, proxies: Sequence[Proxy], share: float) -> None:
        for proxy in proxies:
            for passage in proxy.live[:: round(1 / share)]:
                passage.cut()

    async def _delay(self, proxies: Sequence[Proxy], event: Event) -> None:
        for proxy in proxies:
            _set_plan(proxy, Plan(delay_s=event.amount / 1_000))
        try:
            await asyncio.sleep(event.lasts_s)
        finally:
            for proxy in proxies:
                _set_plan(proxy, Plan())

    async def _silence(self, proxies: Sequence[Proxy], event: Event) -> None:
        for proxy in proxies:
            proxy.usual = Plan(swallow=True)
            for passage in proxy.live:
                passage.is_swallowing = True
        try:
            await asyncio.sleep(event.lasts_s)
        finally:
            for proxy in proxies:
                proxy.usual = Plan()
                _cut_silent(proxy)


def _set_plan(proxy: Proxy, plan: Plan) -> None:
    proxy.usual = plan
    for passage in proxy.live:
        passage.plan = plan


def _cut_silent(proxy: Proxy) -> None:
    for passage in proxy.live:
        if passage.is_swallowing:
            passage.cut()
