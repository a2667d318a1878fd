"""The network side of the sender: connects to addresses that were checked, and to nothing else.

A name is resolved once for each connection. The addresses that it has are filtered, and the connection goes
to one of what is left, as a number: there is no second look at the name that could end elsewhere. TLS is
still verified against the name.

Rules: this is the only place of the room that resolves or connects. Refusals are ``ConfigError``, everything
else is what ``httpcore`` raises for failed connections.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpcore

from penstock.webhooks.addresses import AddressPolicy

#: Answers the addresses of a host as numbers, the best first.
Resolver = Callable[[str, int], Awaitable[list[str]]]
#: Addresses of one name that are tried, one after the other.
MAX_TRIED: Final = 4
#: Names that are resolved at a time.
MAX_THREADS: Final = 32


class SystemResolver:
    """Asks the operating system, in threads of its own.

    A name whose servers do not answer keeps a thread for many seconds. Names are chosen by strangers, so
    these must not be the threads that the rest of the process works with.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._threads = ThreadPoolExecutor(max_threads, thread_name_prefix="penstock-webhook-names")

    async def __call__(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _ask_system, host, port)

    def close(self) -> None:
        """Threads end when what they ask for is answered; nobody waits for that."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _ask_system(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connections for one policy and one scheme."""

    def __init__(
        self,
        policy: AddressPolicy,
        scheme: str,
        resolver: Resolver,
        inner: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._policy = policy
        self._scheme = scheme
        self._resolver = resolver
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            resolved = await self._resolver(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        addresses = self._policy.choose(host, resolved, self._scheme)[:MAX_TRIED]
        # One that swallows packets must leave the others some time.
        share_s = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, share_s, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(addresses[-1], port, share_s, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("webhooks are not sent to sockets of this host")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
