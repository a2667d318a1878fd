"""Three primaries with a replica each. To clients every node names the port of its proxy.

Replication is asynchronous: a replica that is promoted because its primary is *gone* may not know the last
writes that were confirmed. Redis does not promise more, so it is not tested here: a primary that was killed
comes back from its file, nobody takes its place meanwhile (``cluster-replica-no-failover``), and roles change
by CLUSTER FAILOVER alone, which waits until the replica has everything.

A failover waits for a replica whose own file is whole: after a full synchronisation it writes it anew, and
would forget everything if it were killed meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from penstock.errors import CommandError, ProtocolError
from penstock.testing.clusters import RealCluster
from penstock.testing.control import HOST
from penstock.testing.servers import RealServer, find_server
from tests.chaos.model import SceneKind
from tests.chaos.plan import Event
from tests.chaos.scenes.servers import OPTIONS, STARTUP_S, ServerPlace

_PRIMARIES: Final = 3
_NODES: Final = tuple(f"node-{number}" for number in range(2 * _PRIMARIES))
_OPTIONS: Final = {
    **OPTIONS,
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    # Longer than most outages here, or every one would end in minutes of CLUSTERDOWN.
    "cluster-node-timeout": "5000",
    "cluster-replica-no-failover": "yes",
    # Who follows whom stays as it is.
    "cluster-allow-replica-migration": "no",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}
#: How long a failover may take until it is given up, and a cluster until it is whole again.
_FAILOVER_S: Final = 15.0
_WHOLE_S: Final = 120.0
_LOOK_S: Final = 0.05


class _Cluster(RealCluster):
    """Whose nodes have directories and announced ports of their own."""

    def __init__(self, options_of_nodes: list[dict[str, str]]) -> None:
        super().__init__(_PRIMARIES, 1, binary=find_server("valkey"))
        binary = self.nodes[0].binary
        self.nodes = [
            RealServer(binary, options={**_OPTIONS, **own}, startup_timeout_s=STARTUP_S)
            for own in options_of_nodes
        ]


class ClusterPlace(ServerPlace):
    kind: SceneKind = "cluster"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nodes = _NODES

    async def _open(self, stack: AsyncExitStack) -> None:
        await super()._open(stack)
        self.kinds |= {"failover"}

    async def _start(self, stack: AsyncExitStack) -> dict[str, RealServer]:
        ports = {name: proxy.port for name, proxy in self.network.proxies.items()}
        cluster = _Cluster(
            [
                {"dir": self._directory_of(name), "cluster-announce-client-port": str(port)}
                for name, port in ports.items()
            ]
        )
        stack.callback(cluster.stop)
        await asyncio.to_thread(cluster.__enter__)
        url = "redis-cluster://" + ",".join(f"{HOST}:{port}" for port in ports.values())
        # The judge is announced the same ports; by then the proxies do nothing but pass on.
        self.scene = self._scene(url, url)
        self.about = f"{cluster.nodes[0].binary.label}, {_PRIMARIES} primaries with a replica each"
        return dict(zip(_NODES, cluster.nodes, strict=True))

    async def carry_out(self, event: Event) -> bool:
        if event.kind == "failover":
            return await asyncio.to_thread(self._fail_over, self.servers[event.target])
        return await super().carry_out(event)

    async def calm(self) -> None:
        await super().calm()
        if not await asyncio.to_thread(_until, self._is_whole, _WHOLE_S):
            raise AssertionError(f"the cluster is not whole {_WHOLE_S:g} s after the last fault")

    # ------------------------------------------------------------------------- failover

    def _fail_over(self, node: RealServer) -> bool:
        """In the shard of this node. False if it could not be: an earlier fault is still being dealt with."""
        try:
            pair = self._shard_of(node)
            if pair is None or not _until(lambda: _has_everything(pair[1]), _FAILOVER_S):
                return False
            primary, replica = pair
            replica.execute("CLUSTER", "FAILOVER")
            return _until(lambda: _role(replica) == "master" and _role(primary) == "slave", _FAILOVER_S)
        except (OSError, CommandError, ProtocolError):
            return False

    def _shard_of(self, node: RealServer) -> tuple[RealServer, RealServer] | None:
        """Primary and replica."""
        for replica in self.servers.values():
            told = replica.info("replication")
            if told["role"] != "slave":
                continue
            primary = next(each for each in self.servers.values() if str(each.port) == told["master_port"])
            if node in (primary, replica):
                return primary, replica
        return None

    def _is_whole(self) -> bool:
        """Every node sees all the others in health, and every replica follows."""
        try:
            return sum(_role(node) == "master" for node in self.servers.values()) == _PRIMARIES and all(
                b"cluster_state:ok" in node.execute("CLUSTER", "INFO")
                and not any(_is_failing(line) for line in node.execute("CLUSTER", "NODES").splitlines())
                and node.info("replication").get("master_link_status", "up") == "up"
                for node in self.servers.values()
            )
        except (OSError, CommandError, ProtocolError):
            return False


def _role(node: RealServer) -> str:
    return node.info("replication")["role"]


def _is_failing(line: bytes) -> bool:
    """Of CLUSTER NODES; its third word are flags, among them ``nofailover``, which is none of it."""
    return not {b"fail", b"fail?"}.isdisjoint(line.split()[2].split(b","))


def _has_everything(replica: RealServer) -> bool:
    """It follows, and what it has is in its own file."""
    told = replica.info("persistence")
    return (
        replica.info("replication").get("master_link_status") == "up"
        and told["loading"] == "0"
        and told["aof_enabled"] == "1"
        and told["aof_rewrite_in_progress"] == told["aof_rewrite_scheduled"] == "0"
        and told["aof_last_bgrewrite_status"] == told["aof_last_write_status"] == "ok"
    )


def _until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether it came true in time."""
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(_LOOK_S)
    return True
