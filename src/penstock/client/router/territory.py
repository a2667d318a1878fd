"""The slot map as links: where a slot's commands go now.

What is known comes from two sides: whole maps (``adopt``) and single redirections (``move``).
A redirection comes from the node that had to serve the slot, a map from any node, which may
not have heard of it yet. So a fresh redirection outranks a map, for ``_OUTRANKS_S``, unless
it points to a node that cannot be reached; then the map is right again.

Before the first map every slot leads to the lobby, a link that holds commands back and
never opens.

Rules: decides and rearranges, without waiting for anything. What waits at a link that is
left is handed back to the caller, who knows where each command belongs.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from penstock.client.config import Settings
from penstock.client.events import TopologyChanged
from penstock.client.link import Link, LinkState
from penstock.client.router.nodes import Nodes, Readers
from penstock.client.router.topology import Address, Node, SlotMap, diff
from penstock.errors import ConfigError, NotSentError
from penstock.protocol.slots import SLOT_COUNT

#: For how long a redirection is believed more than a map that says otherwise.
_OUTRANKS_S: Final = 1.0


class _Move(NamedTuple):
    address: Address
    at_s: float


class Territory:
    """Slots, and the links to the nodes that serve them."""

    def __init__(self, nodes: Nodes, lobby: Link, settings: Settings) -> None:
        #: by slot; always the same list, for those who look often
        self.owners: list[Link] = [lobby] * SLOT_COUNT
        self._nodes = nodes
        self._lobby = lobby
        self._reads_from = settings.read_from
        self._loop = asyncio.get_running_loop()
        self._map = SlotMap.empty()
        #: the last whole map, without redirections
        self._last_map = self._map
        self._moves: dict[int, _Move] = {}
        self._readers: dict[Link, Readers] = {}
        self._anyone = lobby

    # -------------------------------------------------------------------- looking

    @property
    def is_known(self) -> bool:
        """Whether there is a map at all."""
        return bool(self._map.primaries)

    @property
    def is_well(self) -> bool:
        """Whether every primary can be reached, as far as we know, and redirections and map agree."""
        return not self._moves and not any(map(_is_failing, self.primaries()))

    def addresses(self) -> list[Address]:
        """Of all nodes, primaries first."""
        return [node.address for node in self._map.nodes]

    def primaries(self) -> list[Link]:
        if not self.is_known:
            raise NotSentError(
                "the nodes of the cluster are not known yet: wait until the client is connected"
            )
        return [self._nodes.primary(node.address) for node in self._map.primaries]

    def anyone(self) -> Link:
        """A primary for commands without a key: the same one as long as it is connected."""
        if self._anyone.state is not LinkState.OPEN and self.is_known:
            links = self.primaries()
            self._anyone = next((link for link in links if link.state is LinkState.OPEN), links[0])
        return self._anyone

    def reader_for(self, owner: Link) -> Link:
        """Where a read of this primary's data goes: one of its replicas, or itself."""
        readers = self._readers.get(owner)
        return owner if readers is None else readers.next()

    def named(self, name: str) -> Link:
        """The link to one node."""
        for node in self._map.nodes:
            if str(node) == name:
                is_primary = node.role == "primary"
                return (self._nodes.primary if is_primary else self._nodes.replica)(node.address)
        names = ", ".join(map(str, self._map.nodes)) or "none is known yet"
        raise ConfigError(f"there is no server {name!r} in the cluster: {names}")

    # ------------------------------------------------------------------- changing

    def move(self, slot: int, address: Address) -> bool:
        """A slot belongs to this node, as a redirection says. Whether that is news."""
        link = self._nodes.primary(address)
        if self.owners[slot] is link:
            return False
        self._moves[slot] = _Move(address, self._loop.time())
        self._map = self._map.with_slot_moved(slot, Node(*address))
        self.owners[slot] = link
        return True

    def adopt(self, new: SlotMap) -> tuple[TopologyChanged | None, list[Link]]:
        """Follow a whole map. What has changed since the last one, and the links that are left."""
        changes = diff(self._last_map, new)
        former = set(self.addresses())
        self._last_map = new
        self._map = self._with_moves(new)
        self._rearrange()
        if not former or not (changes.added or changes.removed or changes.moved_slots):
            event = None
        else:
            event = TopologyChanged(
                tuple(map(str, changes.added)), tuple(map(str, changes.removed)), len(changes.moved_slots)
            )
        primaries = {node.address for node in self._map.primaries}
        replicas = {node.address for node in self._map.nodes if node.role == "replica"}
        return event, self._nodes.leave(former, primaries, replicas)

    def _with_moves(self, new: SlotMap) -> SlotMap:
        """The map with those redirections that outrank it; the others are forgotten."""
        horizon_s = self._loop.time() - _OUTRANKS_S
        moves, self._moves = self._moves, {}
        for slot, move in moves.items():
            owner = new.node_of(slot)
            agrees = owner is not None and owner.address == move.address
            if agrees or move.at_s < horizon_s or _is_failing(self._nodes.primary(move.address)):
                continue
            self._moves[slot] = move
            new = new.with_slot_moved(slot, Node(*move.address))
        return new

    def _rearrange(self) -> None:
        """Give every slot the link of its primary, and every primary its readers."""
        links = {id(node): self._nodes.primary(node.address) for node in self._map.primaries}
        for link in links.values():
            if link.state is LinkState.NEW:
                link.start()
        anyone = self.anyone()
        node_of = self._map.node_of
        # A slot that nobody serves: whoever is asked says so, and the command is tried again.
        self.owners[:] = [links.get(id(node_of(slot)), anyone) for slot in range(SLOT_COUNT)]
        if self._reads_from != "primary":
            self._readers = self._new_readers()

    def _new_readers(self) -> dict[Link, Readers]:
        node_of = self._map.node_of
        some_slot = {owner: slot for slot, owner in enumerate(self.owners) if node_of(slot) is not None}
        readers: dict[Link, Readers] = {}
        for owner, slot in some_slot.items():
            links = [self._nodes.replica(node.address) for node in self._map.replicas_of(slot)]
            if links:
                readers[owner] = Readers(owner, links, waits=self._reads_from == "replica")
        return readers


def _is_failing(link: Link) -> bool:
    """Whether it has no connection and tries to get one again."""
    return link.last_error is not None and link.state in (LinkState.CONNECTING, LinkState.WAITING)
