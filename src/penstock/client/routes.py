"""Which server a command goes to, where its keys do not say so or the caller knows better.

On one server all of them mean that server.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeAlias

from penstock.client.link import Link
from penstock.client.router.base import Place, Router
from penstock.client.transports.base import Argument
from penstock.errors import UsageError
from penstock.protocol.slots import key_for_slot


@dataclass(frozen=True, slots=True)
class ByKey:
    """The server that holds this key, whatever the command's own arguments are."""

    key: Argument


@dataclass(frozen=True, slots=True)
class BySlot:
    """The server that holds this slot."""

    slot: int


@dataclass(frozen=True, slots=True)
class ToServer:
    """One server, as ``statistics()`` names it."""

    name: str


@dataclass(frozen=True, slots=True)
class ToAny:
    """Any server that holds data, another one each time."""


@dataclass(frozen=True, slots=True)
class ToAll:
    """Every server that holds data; the answer is a dict of replies by server."""


Route: TypeAlias = ByKey | BySlot | ToServer | ToAny | ToAll


def links_of(route: Route, router: Router) -> list[Link]:
    """The links to take."""
    match route:
        case ByKey(key):
            return [router.link_for(("GET", key))]
        case BySlot(slot):
            return [router.link_for(("GET", key_for_slot(slot)))]
        case ToServer(name):
            return [router.link_named(name)]
        case ToAny():
            return [random.choice(router.primaries())]
        case ToAll():
            return router.primaries()


def place_of(route: Route, router: Router) -> Place:
    """The way to the one server that a route means, for a connection of one's own."""
    match route:
        case ByKey(key):
            return router.place_for(("GET", key))
        case BySlot(slot):
            return router.place_for(("GET", key_for_slot(slot)))
        case ToAll():
            raise UsageError("a connection leads to one server: give another route than ToAll()")
        case _:
            link = links_of(route, router)[0]
            return Place(link.name, link.dial)
