"""Launcher of real Sentinels that watch a real primary and its replicas, for tests.

    with start_sentinels(3, 1) as watched:        # three sentinels, a primary, one replica
        url = watched.url                         # redis-sentinel://…/mymaster
        dead = watched.kill_primary()             # SIGKILL; the sentinels promote a replica
        watched.wait_for_failover(dead.port)

Rules are those of ``servers``: what was started is killed when the ``with`` block ends, and
waiting is polling with a deadline. Sentinels rewrite their configuration, so each has its own
in its own directory. Their periods are shortened (``SENTINEL DEBUG``), or agreeing would take
them several seconds each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Final, Self

from penstock.clock import SystemClock
from penstock.errors import CommandError, ProtocolError
from penstock.testing.control import HOST
from penstock.testing.servers import (
    POLL_INTERVAL_S,
    RealServer,
    ServerBinary,
    ServerUnavailableError,
    find_server,
)

SERVICE: Final = "mymaster"
#: How long sentinels may take to find each other, and to promote a replica.
SENTINELS_TIMEOUT_S: Final = 30.0
#: A server that is silent for so long is down. Long enough for a busy machine.
DOWN_AFTER_MS: Final = 1_000
#: After a failed election a sentinel waits twice this before it tries again.
FAILOVER_TIMEOUT_MS: Final = 3_000

#: In milliseconds; the defaults are made for networks and take seconds. Not PING-PERIOD: a replica
#: that was silent for five of them is not promoted, which a busy machine does to it.
_PERIODS_MS: Final[Mapping[str, int]] = {
    "INFO-PERIOD": 200,
    "PUBLISH-PERIOD": 200,
    "ASK-PERIOD": 100,
    "ELECTION-TIMEOUT": 1_000,
    "TILT-PERIOD": 1_000,
}

_clock: Final = SystemClock()


class RealSentinel(RealServer):
    """One sentinel. ``watches`` is the address of the primary when it starts."""

    def __init__(
        self, binary: ServerBinary, *, quorum: int, password: str | None, server_password: str | None
    ):
        super().__init__(binary, options={} if password is None else {"requirepass": password})
        self._quorum = quorum
        self._server_password = server_password
        self._watched_port = 0

    def watch(self, port: int) -> Self:
        """Start, and watch the primary on this port."""
        self._watched_port = port
        self.start()
        for name, period_ms in _PERIODS_MS.items():
            self.execute("SENTINEL", "DEBUG", name, period_ms)
        return self

    @property
    def primary_port(self) -> int:
        """Where this sentinel believes the primary to be."""
        return int(self.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def _command_line(self) -> list[str]:
        assert self._directory is not None
        lines = {
            "bind": HOST,
            "port": self._port,
            "dir": ".",
            "daemonize": "no",
            "sentinel monitor": f"{SERVICE} {HOST} {self._watched_port} {self._quorum}",
            "sentinel down-after-milliseconds": f"{SERVICE} {DOWN_AFTER_MS}",
            "sentinel failover-timeout": f"{SERVICE} {FAILOVER_TIMEOUT_MS}",
            **self._options,
        }
        if self._server_password is not None:
            lines["sentinel auth-pass"] = f"{SERVICE} {self._server_password}"
        path = self._directory / "sentinel.conf"
        if not path.exists():  # after a restart it goes on with what it knew
            path.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        return ["sentinel.conf", "--sentinel"]


class RealSentinels:
    """Sentinels, a primary and its replicas on the loopback.

    Entering returns when every sentinel knows all the others and every replica, and every
    replica follows.
    """

    def __init__(
        self,
        n_sentinels: int,
        n_replicas: int,
        *,
        binary: ServerBinary | None = None,
        password: str | None = None,
        sentinel_password: str | None = None,
        timeout_s: float = SENTINELS_TIMEOUT_S,
    ) -> None:
        if n_sentinels < 1 or n_replicas < 0:
            raise ValueError("sentinels need n_sentinels >= 1 and n_replicas >= 0")
        binary = binary or find_server()
        if binary.major < 7:
            raise ServerUnavailableError(
                f"Sentinels need Redis 7.0 or newer; {binary.path} is {binary.label}."
            )
        self._timeout_s = timeout_s
        options = {
            # Replicas attach without the pause that collects several of them for one transfer.
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
        }
        if password is not None:
            options |= {"requirepass": password, "masterauth": password}
        self.servers = [RealServer(binary, options=options) for _ in range(1 + n_replicas)]
        self.sentinels = [
            RealSentinel(
                binary,
                quorum=n_sentinels // 2 + 1,
                password=sentinel_password,
                server_password=password,
            )
            for _ in range(n_sentinels)
        ]

    def __repr__(self) -> str:
        return f"<RealSentinels {self.sentinels} of {self.servers}>"

    @property
    def url(self) -> str:
        """All sentinels and the service; no credentials."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels if sentinel.is_running)
        return f"redis-sentinel://{hosts}/{SERVICE}"

    @property
    def primary(self) -> RealServer:
        """The server that the sentinels name now; it may be dead while they have not noticed."""
        port = self._witness.primary_port
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[RealServer]:
        """The servers that run and are not the primary."""
        primary_port = self._witness.primary_port
        return [server for server in self._running_servers if server.port != primary_port]

    def kill_primary(self) -> RealServer:
        """SIGKILL. Returns the dead server; its ``restart`` brings it back, soon as a replica."""
        primary = self.primary
        primary.kill()
        return primary

    def fail_over(self) -> RealServer:
        """Have a replica promoted while the primary lives; returns the new one when all sentinels name it."""
        old_port = self.primary.port
        self._wait("a failover", lambda: self._has_moved(old_port) or self._insists(old_port))
        return self.primary

    def wait_for_failover(self, old_port: int) -> RealServer:
        """Until all sentinels name the same other primary, and it says itself that it is one."""
        self._wait("a failover", lambda: self._has_moved(old_port))
        return self.primary

    def wait_until_whole(self) -> None:
        """Until every sentinel sees all others, and all running servers in their roles."""
        self._wait("sentinels and replicas to find each other", self._is_whole)

    def __enter__(self) -> Self:
        try:
            primary, *replicas = [server.start() for server in self.servers]
            for replica in replicas:
                replica.execute("REPLICAOF", HOST, primary.port)
            for sentinel in self.sentinels:
                sentinel.watch(primary.port)
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        with ExitStack() as stack:
            for server in [*self.servers, *self.sentinels]:
                stack.callback(server.stop)

    # Behind the scenes.

    @property
    def _running_sentinels(self) -> list[RealSentinel]:
        return [sentinel for sentinel in self.sentinels if sentinel.is_running]

    @property
    def _running_servers(self) -> list[RealServer]:
        return [server for server in self.servers if server.is_running]

    @property
    def _witness(self) -> RealSentinel:
        return self._running_sentinels[0]

    def _insists(self, old_port: int) -> bool:
        """Ask as long as nothing has come of it: on a busy machine an accepted failover may be given up."""
        if self._witness.primary_port == old_port:
            with suppress(CommandError):  # one is under way, or no replica is good enough yet
                self._witness.execute("SENTINEL", "FAILOVER", SERVICE)
        return False

    def _has_moved(self, old_port: int) -> bool:
        ports = {sentinel.primary_port for sentinel in self._running_sentinels}
        if len(ports) != 1 or old_port in ports:
            return False
        return bool(self.primary.execute("ROLE")[0] == b"master")

    def _is_whole(self) -> bool:
        ports = {sentinel.primary_port for sentinel in self._running_sentinels}
        replicas = {server.port for server in self._running_servers} - ports
        return (
            len(ports) == 1
            and all(self._sees_all(sentinel, replicas) for sentinel in self._running_sentinels)
            and all(_follows(server) for server in self._running_servers if server.port in replicas)
        )

    def _sees_all(self, sentinel: RealSentinel, replicas: set[int]) -> bool:
        peers = {other.port for other in self._running_sentinels if other is not sentinel}
        primary = sentinel.execute("SENTINEL", "MASTER", SERVICE)
        return (
            _well([primary]) == {sentinel.primary_port}
            and peers <= _well(sentinel.execute("SENTINEL", "SENTINELS", SERVICE))
            and replicas <= _well(sentinel.execute("SENTINEL", "REPLICAS", SERVICE))
        )

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = _clock.monotonic_s() + self._timeout_s
        while not _holds(condition):
            if _clock.monotonic_s() > deadline:
                raise ServerUnavailableError(
                    f"Within {self._timeout_s:g} s there was no end of waiting for {what}: {self}"
                )
            time.sleep(POLL_INTERVAL_S)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (OSError, ProtocolError, CommandError):
        return False  # a server ends connections when it changes its role


def _follows(server: RealServer) -> bool:
    return server.info("replication").get("master_link_status") == "up"


def _well(entries: list[list[bytes]]) -> set[int]:
    """Ports of those that a sentinel sees and does not think down, from what it lists."""
    fields: list[dict[bytes, bytes]] = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in entries]
    ill = {b"s_down", b"o_down", b"disconnected"}
    return {int(each[b"port"]) for each in fields if ill.isdisjoint(each[b"flags"].split(b","))}


def start_sentinels(
    n_sentinels: int = 3,
    n_replicas: int = 1,
    binary: ServerBinary | None = None,
    *,
    password: str | None = None,
    sentinel_password: str | None = None,
    timeout_s: float = SENTINELS_TIMEOUT_S,
) -> RealSentinels:
    """Sentinels, a primary and its replicas, to enter with ``with``."""
    return RealSentinels(
        n_sentinels,
        n_replicas,
        binary=binary,
        password=password,
        sentinel_password=sentinel_password,
        timeout_s=timeout_s,
    )
