"""Who serves which slot: an immutable map, read from what one node of a cluster answers.

How an announced address is read
--------------------------------
By ``resolve`` for MOVED and ASK, and in the same way for CLUSTER SLOTS:

==================  ==========================================  ========================
host announced      when a server says so                       host used
==================  ==========================================  ========================
a name or address   the usual case                              as announced
empty or null       ``cluster-preferred-endpoint-type           the host we asked
                    unknown-endpoint``, or a node that has
                    not learnt its own address yet
``?``               host names are preferred, and this node     its ``ip`` if it is told,
                    has none                                    else the node is left out
==================  ==========================================  ========================

A node with port 0 is left out too. What remains passes through the caller's
``AddressMap``, once: tunnels and containers announce addresses that only they can reach.

Which nodes count
-----------------
A primary counts when it has slots, even while it is failing: the slots are still its own, and
the client waits or retries. A replica counts when it can answer, so not while it is failing or
has nothing to show yet: CLUSTER SLOTS leaves such replicas out by itself.

Rules:

1. A map never changes. A redirection gives another map that differs in one slot.
2. Within a map one address is one ``Node`` object a role, so identity decides quickly.
3. Nodes are compared by address. The id serves people and logs: a redirection does not tell it.
4. A reply that makes no sense is a ``ProtocolError`` that names the part; an error reply is raised.

This module does no I/O and knows nothing of connections, nor of when to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from penstock.errors import CommandError, ProtocolError
from penstock.protocol.replies import Reply
from penstock.protocol.slots import SLOT_COUNT

Address: TypeAlias = tuple[str, int]
#: From the address a server announced to the one to connect to.
AddressMap: TypeAlias = Callable[[str, int], Address]
Role: TypeAlias = Literal["primary", "replica"]

#: What servers call the two roles, in any version.
ROLES: Final[Mapping[str, Role]] = {
    "master": "primary",
    "primary": "primary",
    "slave": "replica",
    "replica": "replica",
}

_UNKNOWN_HOST: Final = "?"


def as_announced(host: str, port: int) -> Address:
    """The ``AddressMap`` that changes nothing."""
    return host, port


def resolve(host: str, port: int, *, asked_host: str, address_map: AddressMap = as_announced) -> Address:
    """Where to connect for an address that the node at ``asked_host`` announced."""
    return address_map(host or asked_host, port)


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Node:
    """One server of the cluster. ``id`` is empty when only a redirection has told of it."""

    host: str
    port: int
    id: str = ""
    role: Role = "primary"

    @property
    def address(self) -> Address:
        return self.host, self.port

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed between two maps, by address."""

    added: tuple[Node, ...]
    removed: tuple[Node, ...]
    #: Slots whose primary is another one, or that gained or lost theirs, in order.
    moved_slots: tuple[int, ...]
    #: Nodes in both maps, as they are now, that were promoted or demoted.
    changed_roles: tuple[Node, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.moved_slots or self.changed_roles)


# ---------------------------------------------------------------- the map


class SlotMap:
    """Slot to primary and replicas. Made by ``from_slots`` or ``empty``."""

    def __init__(
        self,
        owners: list[Node | None],
        replicas: Mapping[Address, tuple[Node, ...]],
        known: Mapping[Address, Node],
    ) -> None:
        assert len(owners) == SLOT_COUNT
        self._owners = owners
        #: By address of their primary, so that a patched slot finds its new owner's replicas.
        self._replicas = replicas
        #: Every node met, with or without slots. With it a redirection costs no more than a copy.
        self._known = known

    @staticmethod
    def empty() -> SlotMap:
        """The map before anything is known."""
        return SlotMap([None] * SLOT_COUNT, {}, {})

    @staticmethod
    def from_slots(reply: Reply, *, asked_host: str, address_map: AddressMap = as_announced) -> SlotMap:
        """Read CLUSTER SLOTS, as RESP2 or RESP3 gives it. Its ports suit the connection that asked."""
        draft = _Draft(asked_host, address_map)
        for index, entry in enumerate(items_of(reply, "the reply to CLUSTER SLOTS")):
            draft.add_slots_entry(entry, f"entry {index} of CLUSTER SLOTS")
        return draft.finished()

    def __repr__(self) -> str:
        replicas = len(self.nodes) - len(self.primaries)
        return (
            f"<SlotMap {self.covered_slots}/{SLOT_COUNT} slots, "
            f"{len(self.primaries)} primaries, {replicas} replicas>"
        )

    def node_of(self, slot: int) -> Node | None:
        """The primary of a slot, None if nobody serves it."""
        return self._owners[slot]

    def replicas_of(self, slot: int) -> tuple[Node, ...]:
        """The replicas that can answer for a slot, in the server's order."""
        owner = self._owners[slot]
        return () if owner is None else self._replicas.get(owner.address, ())

    @cached_property
    def primaries(self) -> tuple[Node, ...]:
        """The primaries that have slots, in order of their first."""
        # By identity (rule 2): hashing 16,384 nodes would take ten times as long.
        return tuple({id(node): node for node in self._owners if node is not None}.values())

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Primaries, then replicas; each address once."""
        replicas = chain.from_iterable(self._replicas.get(node.address, ()) for node in self.primaries)
        by_address: dict[Address, Node] = {}
        for node in chain(self.primaries, replicas):
            by_address.setdefault(node.address, node)
        return tuple(by_address.values())

    @cached_property
    def covered_slots(self) -> int:
        """How many slots somebody serves."""
        return sum(node is not None for node in self._owners)

    @property
    def is_complete(self) -> bool:
        return self.covered_slots == SLOT_COUNT

    def with_slot_moved(self, slot: int, node: Node) -> SlotMap:
        """The map after MOVED: one slot belongs to ``node``. This very map if it did already.

        The rest stays as it is, although more has probably changed: the next full refresh tells.
        """
        if not 0 <= slot < SLOT_COUNT:
            raise ValueError(f"slot {slot} is not in 0..{SLOT_COUNT - 1}")
        owner = self._owners[slot]
        if owner is not None and owner.address == node.address:
            return self
        known = self._known
        promoted = known.get(node.address, node)
        if promoted.role != "primary":
            promoted = replace(promoted, role="primary")
        if known.get(node.address) is not promoted:
            known = {**known, node.address: promoted}
        owners = self._owners.copy()
        owners[slot] = promoted
        return SlotMap(owners, self._replicas, known)


def diff(old: SlotMap, new: SlotMap) -> Diff:
    """What it takes to follow from one map to the next: whom to connect, whom to leave."""
    before = {node.address: node for node in old.nodes}
    after = {node.address: node for node in new.nodes}
    return Diff(
        added=tuple(node for address, node in after.items() if address not in before),
        removed=tuple(node for address, node in before.items() if address not in after),
        moved_slots=tuple(_moved_slots(old, new)),
        changed_roles=tuple(
            node for address, node in after.items() if address in before and before[address].role != node.role
        ),
    )


def _moved_slots(old: SlotMap, new: SlotMap) -> Iterable[int]:
    last_was: Node | None = None
    last_now: Node | None = None
    differs = False
    for slot, (was, now) in enumerate(zip(old._owners, new._owners, strict=True)):
        if was is not last_was or now is not last_now:  # slots come in runs: compare once a run
            last_was, last_now = was, now
            differs = _address_of(was) != _address_of(now)
        if differs:
            yield slot


def _address_of(node: Node | None) -> Address | None:
    return None if node is None else node.address


# ---------------------------------------------------------------- reading a reply


class _Draft:
    """A map in the making. What lies where in a reply is known here only."""

    def __init__(self, asked_host: str, address_map: AddressMap) -> None:
        self._asked_host = asked_host
        self._address_map = address_map
        self._owners: list[Node | None] = [None] * SLOT_COUNT
        self._replicas: dict[Address, dict[Node, None]] = {}
        self._nodes: dict[tuple[Address, Role], Node] = {}

    def finished(self) -> SlotMap:
        replicas = {address: tuple(nodes) for address, nodes in self._replicas.items()}
        known: dict[Address, Node] = {}
        for (address, role), node in self._nodes.items():
            if role == "primary" or address not in known:
                known[address] = node
        return SlotMap(self._owners, replicas, known)

    def add_slots_entry(self, entry: Reply, what: str) -> None:
        """``[first, last, [host, port, id, metadata], [replica], …]``; before Redis 7 without metadata."""
        items = items_of(entry, what)
        if len(items) < 3:
            raise malformed(what, "a first slot, a last slot and nodes", entry)
        primary = self._slots_node(items[2], "primary", f"the primary in {what}")
        replicas = [self._slots_node(item, "replica", f"a replica in {what}") for item in items[3:]]
        self._assign([items[0], items[1]], primary, replicas, what)

    def _slots_node(self, value: Reply, role: Role, what: str) -> Node | None:
        items = items_of(value, what)
        if len(items) < 2:
            raise malformed(what, "a host, a port and an id", value)
        metadata = fields_of(items[3], f"the metadata of {what}") if len(items) > 3 else {}
        return self._node(
            items[0], items[1], metadata.get("ip"), items[2] if len(items) > 2 else "", role, what
        )

    def _node(
        self, host: Reply, port: Reply, ip: Reply, node_id: Reply, role: Role, what: str
    ) -> Node | None:
        """The node at an announced address, None if the address cannot be used."""
        name = "" if host is None else text_of(host, f"the host of {what}")
        number = port_of(port, f"the port of {what}")
        if name == _UNKNOWN_HOST:
            name = "" if ip is None else text_of(ip, f"the ip of {what}")
            if not name:
                return None
        if number == 0:
            return None
        address = resolve(name, number, asked_host=self._asked_host, address_map=self._address_map)
        known = self._nodes.get((address, role))
        if known is None:
            known = Node(*address, text_of(node_id, f"the id of {what}"), role)
            self._nodes[address, role] = known
        return known

    def _assign(
        self, bounds: list[Reply], owner: Node | None, replicas: Iterable[Node | None], what: str
    ) -> None:
        """Give a range to a primary. Were a slot given twice, the last holds; MOVED corrects it."""
        first, last = (_slot_of(bound, f"a slot of {what}") for bound in bounds)
        if first > last:
            raise malformed(f"the slots of {what}", "ranges that begin before they end", bounds)
        self._owners[first : last + 1] = [owner] * (last + 1 - first)
        if owner is not None:
            followers = self._replicas.setdefault(owner.address, {})
            followers.update((node, None) for node in replicas if node is not None)


def _slot_of(value: Reply, what: str) -> int:
    slot = integer_of(value, what)
    if not 0 <= slot < SLOT_COUNT:
        raise malformed(what, f"in 0..{SLOT_COUNT - 1}", value)
    return slot


# ---------------------------------------------------------------- parts of replies
# Also used for what Sentinels answer. ``what`` names the part in the error.

#: Characters of a bad value that an error repeats.
_PREVIEW_CHARACTERS: Final = 120


def malformed(what: str, expected: str, value: object) -> ProtocolError:
    preview = repr(value)
    if len(preview) > _PREVIEW_CHARACTERS:
        preview = preview[:_PREVIEW_CHARACTERS] + "…"
    return ProtocolError(f"{what} should be {expected}, not {preview}")


def text_of(value: Reply, what: str) -> str:
    """A string, which is bytes or text depending on the connection."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise malformed(what, "text", value)


def integer_of(value: Reply, what: str) -> int:
    """An integer, or its digits: Sentinels write numbers as strings."""
    if isinstance(value, int):
        return value
    if isinstance(value, bytes | str):
        try:
            return int(value)
        except ValueError:
            pass
    raise malformed(what, "an integer", value)


def port_of(value: Reply, what: str) -> int:
    port = integer_of(value, what)
    if not 0 <= port <= 65_535:
        raise malformed(what, "in 0..65535", value)
    return port


def items_of(value: Reply, what: str) -> list[Any]:
    """An array. An error in its place is what the server had to say, so it is raised."""
    if isinstance(value, CommandError):
        raise value
    if not isinstance(value, list):
        raise malformed(what, "an array", value)
    return value


def fields_of(value: Reply, what: str) -> dict[str, Any]:
    """A map by field name: a RESP3 map, or in RESP2 an array of names and values in turn."""
    if isinstance(value, dict):
        pairs: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and len(value) % 2 == 0:
        pairs = zip(value[::2], value[1::2], strict=True)
    else:
        raise malformed(what, "a map", value)
    return {text_of(name, f"a field name of {what}"): field for name, field in pairs}
