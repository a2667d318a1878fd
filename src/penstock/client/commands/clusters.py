"""Commands that ask a node about its cluster. Those that change the cluster have no helpers."""

from __future__ import annotations

from typing import Any

from penstock.client.commands import conversions as to
from penstock.client.commands import server_conversions as server
from penstock.client.commands.base import Coming, Runner, Value


class Clusters(Runner):
    """Commands that ask a node about its cluster."""

    __slots__ = ()

    def cluster_info(self) -> Coming[dict[str, Any]]:
        """State of the cluster as this node sees it."""
        return self._call(("CLUSTER", "INFO"), server.cluster_info)

    def cluster_myid(self) -> Coming[str]:
        """Identifier of this node."""
        return self._call(("CLUSTER", "MYID"), to.text)

    def cluster_nodes(self) -> Coming[list[server.ClusterNode]]:
        """The nodes."""
        return self._call(("CLUSTER", "NODES"), server.cluster_nodes)

    def cluster_replicas(self, node_id: Value) -> Coming[list[server.ClusterNode]]:
        """The replicas of a primary."""
        return self._call(("CLUSTER", "REPLICAS", node_id), server.cluster_nodes)

    def cluster_shards(self) -> Coming[list[dict[str, Any]]]:
        """Slot ranges with the nodes behind them."""
        return self._call(("CLUSTER", "SHARDS"), server.cluster_shards)

    def cluster_slots(self) -> Coming[list[server.SlotRange]]:
        """Slot ranges, each with its nodes (deprecated: cluster_shards)."""
        return self._call(("CLUSTER", "SLOTS"), server.cluster_slots)

    def cluster_links(self) -> Coming[list[dict[str, Any]]]:
        """Connections between this node and the others."""
        return self._call(("CLUSTER", "LINKS"), server.cluster_links)

    def cluster_keyslot(self, key: Value) -> Coming[int]:
        """Slot that a key hashes to."""
        return self._call(("CLUSTER", "KEYSLOT", key))

    def cluster_countkeysinslot(self, slot: int) -> Coming[int]:
        """How many keys a slot has on this node."""
        return self._call(("CLUSTER", "COUNTKEYSINSLOT", slot))

    def cluster_getkeysinslot(self, slot: int, count: int) -> Coming[list[bytes]]:
        """Some of the keys in a slot on this node."""
        return self._call(("CLUSTER", "GETKEYSINSLOT", slot, count))
