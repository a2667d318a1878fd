"""Launcher of a real cluster, for tests and benchmarks.

    with start_cluster(3, 1) as cluster:      # three primaries, one replica each
        client = redis.RedisCluster.from_url(cluster.url)

The rules of ``servers`` hold. This module knows nothing of the engine, nor of any client library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, Self

from penstock.clock import SystemClock
from penstock.protocol.slots import SLOT_COUNT
from penstock.testing.control import HOST, fields_of, lines_of
from penstock.testing.servers import (
    POLL_INTERVAL_S,
    REMEDY,
    RealServer,
    ServerBinary,
    ServerUnavailableError,
    find_server,
)

#: How long a cluster may take to agree on its slots and replicas.
CLUSTER_TIMEOUT_S: Final = 60.0

_clock: Final = SystemClock()


class RealCluster:
    """A real cluster on the loopback: ``n_primaries`` share the slots, each with ``n_replicas``.

    ``nodes`` lists the primaries in order of their slots, then the replicas of the
    first primary, of the second, and so on. Entering returns when every node agrees
    on the whole picture and every replica follows its primary.
    """

    def __init__(
        self,
        n_primaries: int,
        n_replicas: int,
        *,
        binary: ServerBinary | None = None,
        options: Mapping[str, str] | None = None,
        timeout_s: float = CLUSTER_TIMEOUT_S,
    ) -> None:
        if n_primaries < 1 or n_replicas < 0:
            raise ValueError("a cluster needs n_primaries >= 1 and n_replicas >= 0")
        binary = binary or find_server()
        if binary.major < 7:
            raise ServerUnavailableError(
                f"A cluster needs Redis 7.0 or newer; {binary.path} is {binary.label}. {REMEDY}"
            )
        self.n_primaries = n_primaries
        self.n_replicas = n_replicas
        self._timeout_s = timeout_s
        settings = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            # Failover within a few seconds, yet patient enough for a busy machine.
            "cluster-node-timeout": "3000",
            # Replicas attach without the pause that collects several of them for one transfer.
            "repl-diskless-sync-delay": "0",
            **(options or {}),
        }
        self.nodes = [RealServer(binary, options=settings) for _ in range(n_primaries * (1 + n_replicas))]

    def __repr__(self) -> str:
        return f"<RealCluster {self.n_primaries} primaries, {self.n_replicas} replicas each: {self.nodes}>"

    @property
    def primaries(self) -> list[RealServer]:
        """The nodes that began as primaries; a failover may have changed roles since."""
        return self.nodes[: self.n_primaries]

    @property
    def replicas(self) -> list[RealServer]:
        """The nodes that began as replicas."""
        return self.nodes[self.n_primaries :]

    @property
    def url(self) -> str:
        """The address of one node; clients learn the others from it."""
        return self.nodes[0].url

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            self._form()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.stop)

    def _form(self) -> None:
        deadline = _clock.monotonic_s() + self._timeout_s
        for index, node in enumerate(self.nodes):
            # Epochs that differ from the start spare the nodes from settling collisions.
            node.execute("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for index, primary in enumerate(self.primaries):
            first = index * SLOT_COUNT // self.n_primaries
            last = (index + 1) * SLOT_COUNT // self.n_primaries - 1
            primary.execute("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            self.nodes[0].execute("CLUSTER", "MEET", HOST, node.port, node.bus_port)
        self._wait("all nodes to know each other", deadline, self._is_acquainted)

        ids = [primary.execute("CLUSTER", "MYID") for primary in self.primaries]
        for index, replica in enumerate(self.replicas):
            replica.execute("CLUSTER", "REPLICATE", ids[index // self.n_replicas])
        self._wait("all replicas to follow their primaries", deadline, self._is_complete)

    def _wait(self, what: str, deadline: float, condition: Callable[[RealServer], bool]) -> None:
        """Until ``condition`` holds for every node."""
        waiting = list(self.nodes)
        while waiting := [node for node in waiting if not condition(node)]:
            dead = [node for node in self.nodes if not node.is_running]
            if dead or _clock.monotonic_s() > deadline:
                raise ServerUnavailableError(
                    f"The cluster was not formed within {self._timeout_s:g} s; waited for {what}. "
                    f"Dead: {dead}. Not ready: {waiting}"
                )
            time.sleep(POLL_INTERVAL_S)

    def _is_acquainted(self, node: RealServer) -> bool:
        """The node sees every other one past the handshake, and all slots served."""
        state = fields_of(node.execute("CLUSTER", "INFO"))
        flags = [set(line.split()[2].split(",")) for line in lines_of(node.execute("CLUSTER", "NODES"))]
        return (
            state["cluster_state"] == "ok"
            and len(flags) == len(self.nodes)
            and not any(each & {"handshake", "fail", "fail?", "noaddr"} for each in flags)
        )

    def _is_complete(self, node: RealServer) -> bool:
        """The node sees every replica as one; if it is one, its link to the primary is up."""
        lines = [line.split() for line in lines_of(node.execute("CLUSTER", "NODES"))]
        replication = node.info("replication")
        return (
            sum("slave" in line[2] for line in lines) == len(self.replicas)
            and (node not in self.replicas or replication.get("master_link_status") == "up")
            and self._is_acquainted(node)
        )


def start_cluster(
    n_primaries: int = 3,
    n_replicas: int = 0,
    *,
    binary: ServerBinary | None = None,
    options: Mapping[str, str] | None = None,
    timeout_s: float = CLUSTER_TIMEOUT_S,
) -> RealCluster:
    """A cluster to enter with ``with``. ``n_replicas`` counts the replicas of *each* primary."""
    return RealCluster(n_primaries, n_replicas, binary=binary, options=options, timeout_s=timeout_s)
