"""What a Sentinel answers and announces, and what a server says of its own role, as values.

========================================  ===========================  ====================
asked or heard                            read by                      gives
========================================  ===========================  ====================
``SENTINEL GET-MASTER-ADDR-BY-NAME``      ``parse_primary_address``    an address, or None
``SENTINEL SENTINELS``                    ``parse_sentinels``          ``Peer`` values
``SENTINEL REPLICAS`` (or ``SLAVES``)     ``parse_replicas``           ``ReplicaPeer`` values
``ROLE``                                  ``parse_role``               one of three roles
message on ``+switch-master``             ``parse_switch``             ``Switch``
========================================  ===========================  ====================

Down, in a Sentinel's words: ``s_down`` is its own opinion, ``o_down`` that of a quorum,
``disconnected`` only that it has no link at the moment. A peer it has just heard of is
``disconnected`` for an instant, and so is an old primary just after a failover. Hence three
answers: ``is_down`` (either of the first two), ``is_disconnected``, and for replicas
``is_readable``, which wants neither.

Rules:

1. RESP2 and RESP3, bytes and text are read alike. Numbers may be strings: Sentinels send them so.
2. Every address passes through the caller's ``AddressMap``, once, except in ``ROLE``: that is
   what the servers call each other.
3. A reply that makes no sense is a ``ProtocolError`` that names the part; an error reply is raised.

This module does no I/O and decides nothing: whom to believe is the router's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.client.router.topology import (
    ROLES,
    Address,
    AddressMap,
    as_announced,
    fields_of,
    integer_of,
    items_of,
    malformed,
    port_of,
    text_of,
)
from penstock.protocol.replies import Reply

#: The channel on which Sentinels announce a failover.
SWITCH_CHANNEL: Final = b"+switch-master"

_DOWN: Final = frozenset({"s_down", "o_down"})


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Peer:
    """Another Sentinel of the same primary, as the one that was asked sees it."""

    host: str
    port: int
    run_id: str
    flags: frozenset[str]

    @property
    def address(self) -> Address:
        return self.host, self.port

    @property
    def is_down(self) -> bool:
        return not _DOWN.isdisjoint(self.flags)

    @property
    def is_disconnected(self) -> bool:
        return "disconnected" in self.flags


@dataclass(frozen=True, slots=True)
class ReplicaPeer(Peer):
    """A replica, as the Sentinel that was asked sees it."""

    #: Whether its link to the primary was up when the Sentinel last looked, up to ten seconds ago.
    is_linked: bool
    #: Lower is promoted first; 0 is never promoted.
    priority: int
    offset: int
    #: False: its operator does not want clients to find it.
    is_announced: bool

    @property
    def is_readable(self) -> bool:
        """Whether reads may be sent there. It may lag: ``is_linked`` and ``offset`` tell."""
        return self.is_announced and not self.is_down and not self.is_disconnected


@dataclass(frozen=True, slots=True)
class FollowerOffset:
    """A replica, as its primary sees it."""

    host: str
    port: int
    offset: int


@dataclass(frozen=True, slots=True)
class PrimaryRole:
    offset: int
    replicas: tuple[FollowerOffset, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRole:
    primary_host: str
    primary_port: int
    #: ``connected`` when it follows; otherwise what it is doing about it.
    link: str
    #: -1 before the first synchronisation.
    offset: int

    @property
    def is_linked(self) -> bool:
        return self.link == "connected"


@dataclass(frozen=True, slots=True)
class SentinelRole:
    #: Names of the primaries it watches.
    names: tuple[str, ...]


ServerRole: TypeAlias = PrimaryRole | ReplicaRole | SentinelRole


@dataclass(frozen=True, slots=True)
class Switch:
    """A failover is done: the primary of this name has another address."""

    name: str
    old: Address
    new: Address


# ---------------------------------------------------------------- SENTINEL


def parse_primary_address(reply: Reply, *, address_map: AddressMap = as_announced) -> Address | None:
    """The address of the primary; None if this Sentinel does not know the name."""
    if reply is None:
        return None
    what = "the primary's address"
    items = items_of(reply, what)
    if len(items) != 2:
        raise malformed(what, "a host and a port", reply)
    return _address(items[0], items[1], what, address_map)


def parse_sentinels(reply: Reply, *, address_map: AddressMap = as_announced) -> list[Peer]:
    """The other Sentinels; the one that was asked is not among them."""
    return [
        Peer(*_address(fields.get("ip"), fields.get("port"), what, address_map), *_identity(fields, what))
        for fields, what in _peers(reply, "SENTINEL SENTINELS")
    ]


def parse_replicas(reply: Reply, *, address_map: AddressMap = as_announced) -> list[ReplicaPeer]:
    """All replicas, the dead ones too: ``is_readable`` tells."""
    return [
        ReplicaPeer(
            *_address(fields.get("ip"), fields.get("port"), what, address_map),
            *_identity(fields, what),
            is_linked=text_of(fields.get("master-link-status", ""), f"the link of {what}") == "ok",
            priority=integer_of(fields.get("slave-priority", 100), f"the priority of {what}"),
            offset=integer_of(fields.get("slave-repl-offset", 0), f"the offset of {what}"),
            # Absent before Redis 6.2, where every replica is announced.
            is_announced=integer_of(fields.get("replica-announced", 1), f"replica-announced of {what}") != 0,
        )
        for fields, what in _peers(reply, "SENTINEL REPLICAS")
    ]


def _peers(reply: Reply, command: str) -> Iterator[tuple[dict[str, Any], str]]:
    for index, value in enumerate(items_of(reply, f"the reply to {command}")):
        what = f"entry {index} of {command}"
        yield fields_of(value, what), what


def _identity(fields: dict[str, Any], what: str) -> tuple[str, frozenset[str]]:
    flags = text_of(fields.get("flags"), f"the flags of {what}")
    return text_of(fields.get("runid", ""), f"the run id of {what}"), frozenset(flags.split(","))


def _address(host: Reply, port: Reply, what: str, address_map: AddressMap) -> Address:
    return address_map(text_of(host, f"the host of {what}"), port_of(port, f"the port of {what}"))


# ---------------------------------------------------------------- ROLE


def parse_role(reply: Reply) -> ServerRole:
    """What a server is: primary, replica or Sentinel."""
    what = "the reply to ROLE"
    items = items_of(reply, what)
    name = text_of(items[0], "the role") if items else ""
    role = ROLES.get(name)
    if role == "primary" and len(items) == 3:
        followers = items_of(items[2], "the replicas of ROLE")
        return PrimaryRole(integer_of(items[1], "the offset of ROLE"), tuple(map(_follower, followers)))
    if role == "replica" and len(items) == 5:
        return ReplicaRole(
            text_of(items[1], "the primary's host of ROLE"),
            port_of(items[2], "the primary's port of ROLE"),
            text_of(items[3], "the link of ROLE"),
            integer_of(items[4], "the offset of ROLE"),
        )
    if name == "sentinel" and len(items) == 2:
        names = items_of(items[1], "the names of ROLE")
        return SentinelRole(tuple(text_of(each, "a name of ROLE") for each in names))
    raise malformed(what, "that of a primary, a replica or a Sentinel", reply)


def _follower(value: Reply) -> FollowerOffset:
    what = "a replica of ROLE"
    items = items_of(value, what)
    if len(items) != 3:
        raise malformed(what, "a host, a port and an offset", value)
    return FollowerOffset(text_of(items[0], what), port_of(items[1], what), integer_of(items[2], what))


# ---------------------------------------------------------------- announcements


def parse_switch(payload: bytes | str, *, address_map: AddressMap = as_announced) -> Switch:
    """Read ``mymaster 10.0.0.1 6379 10.0.0.2 6379``: the name, the old address, the new one."""
    what = "the message of +switch-master"
    words = text_of(payload, what).split(" ")
    if len(words) != 5:
        raise malformed(what, "a name and two addresses", payload)
    name, old_host, old_port, new_host, new_port = words
    return Switch(
        name, _address(old_host, old_port, what, address_map), _address(new_host, new_port, what, address_map)
    )
