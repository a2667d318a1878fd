"""One attempt over HTTP: a request out, and what came back of it, within bounds.

=======================  ==================================================================
bound                    how
=======================  ==================================================================
time                     ``timeout_ms`` of the request covers resolving, connecting, sending and
                         reading; a server that drips bytes gains nothing
answer                   ``MAX_READ_BYTES`` are read, then the connection is closed
connections              ``max_connections`` in all, idle ones are closed after a while
redirections             none is followed
=======================  ==================================================================

Rules: ``send`` answers an ``Attempt`` whatever the network does. Proxies and other settings of the
environment are not looked at: they would lead around the checks of ``dialing.py``. Answers are not
decompressed. Needs ``httpcore`` (``penstock[gateway]``).
"""

from __future__ import annotations

import asyncio
import email.utils
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from types import TracebackType
from typing import Final, Self

import httpcore

from penstock.clock import Clock, SystemClock
from penstock.errors import ClosedError, ConfigError
from penstock.webhooks.addresses import AddressPolicy, check_url, policy
from penstock.webhooks.dialing import GuardedBackend, Resolver, SystemResolver
from penstock.webhooks.model import MAX_ERROR, MAX_EXCERPT, Attempt, Request

MAX_READ_BYTES: Final = 65_536
#: Different sets of allowed networks that have connections at a time. They do not share any: what one
#: may call must not be open to the other.
MAX_POOLS: Final = 64
_KEEPALIVE_S: Final = 30.0
_USER_AGENT: Final = "penstock-webhooks"


class HttpSender:
    """Sends requests; of use by any number of tasks of one loop. Close it in the end."""

    def __init__(
        self,
        policy: AddressPolicy | None = None,
        *,
        max_connections: int = 100,
        max_idle: int = 20,
        ssl_context: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_connections < 1 or max_idle < 0:
            raise ConfigError("max_connections must be at least 1 and max_idle at least 0")
        self._policy = policy or AddressPolicy()
        self._max_idle = max_idle
        # Made once: reading the certificates of all authorities takes long enough to be felt.
        self._ssl_context = ssl_context or httpcore.default_ssl_context()
        self._system_resolver = SystemResolver()  # its threads start with the first name
        self._resolver: Resolver = resolver or self._system_resolver
        self._clock = clock or SystemClock()
        self._max_connections = max_connections
        self._slots = asyncio.Semaphore(max_connections)
        self._pools: dict[tuple[AddressPolicy, str], _Pool] = {}
        self._is_closed = False

    async def send(self, request: Request) -> Attempt:
        """One attempt. Raises ``ClosedError`` after ``close``, and nothing else."""
        if self._is_closed:
            raise ClosedError("the sender is closed")
        began_s = self._clock.monotonic_s()

        def ended(**facts: object) -> Attempt:
            duration_ms = round((self._clock.monotonic_s() - began_s) * 1000)
            return Attempt(duration_ms=duration_ms, **facts)  # type: ignore[arg-type]

        try:
            async with asyncio.timeout(request.timeout_ms / 1000), self._slots:
                return await self._exchange(request, ended)
        except TimeoutError:
            return ended(error=f"no complete answer within {request.timeout_ms} ms")
        except ConfigError as error:
            return ended(error=_shortened(str(error)))
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            return ended(error=_shortened(f"{type(error).__name__}: {error}"))
        except (httpcore.UnsupportedProtocol, OSError, ssl.SSLError, ValueError) as error:
            return ended(error=_shortened(f"{type(error).__name__}: {error}"))

    async def _exchange(self, request: Request, ended: Callable[..., Attempt]) -> Attempt:
        allowed = self._policy
        if request.allowed_networks:
            more = policy(request.allowed_networks).allowed
            allowed = AddressPolicy(allowed.allowed + more, allowed.https_only, allowed.ports)
        scheme = check_url(request.url, allowed).scheme
        async with (
            self._connections(allowed, scheme) as pool,
            pool.stream(
                request.method, request.url, headers=_wire_headers(request), content=request.body
            ) as response,
        ):
            content = bytearray()
            async for part in response.aiter_stream():
                content += part
                if len(content) >= MAX_READ_BYTES:
                    break
            asked = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
            return ended(
                status=response.status,
                response_excerpt=bytes(content[: 4 * MAX_EXCERPT]).decode("utf-8", "replace")[:MAX_EXCERPT],
                retry_after_ms=retry_after_ms(asked.decode("latin-1"), self._clock.now_ms()),
            )

    @asynccontextmanager
    async def _connections(
        self, allowed: AddressPolicy, scheme: str
    ) -> AsyncGenerator[httpcore.AsyncConnectionPool, None]:
        key = (allowed, scheme)
        pool = self._pools.pop(key, None)
        if pool is None:
            pool = _Pool(
                httpcore.AsyncConnectionPool(
                    ssl_context=self._ssl_context,
                    max_connections=self._max_connections,
                    max_keepalive_connections=self._max_idle,
                    keepalive_expiry=_KEEPALIVE_S,
                    network_backend=GuardedBackend(allowed, scheme, self._resolver),
                )
            )
        self._pools[key] = pool  # the last one is the one that was used last
        pool.users += 1
        try:
            unused = next((key for key, other in self._pools.items() if not other.users), None)
            if len(self._pools) > MAX_POOLS and unused is not None:
                await self._pools.pop(unused).connections.aclose()
            yield pool.connections
        finally:
            pool.users -= 1

    async def close(self) -> None:
        """End all connections; what is being sent fails. Idempotent."""
        self._is_closed = True
        self._system_resolver.close()
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@dataclass(slots=True, eq=False)
class _Pool:
    """The connections of one policy, and how many requests use them."""

    connections: httpcore.AsyncConnectionPool
    users: int = 0


def _wire_headers(request: Request) -> list[tuple[str, str]]:
    headers = {"user-agent": _USER_AGENT, "accept": "*/*", **request.headers, "accept-encoding": "identity"}
    return list(headers.items())


def retry_after_ms(value: str, now_ms: int) -> int | None:
    """What ``Retry-After`` asks for: seconds, or a date; None if that cannot be read."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return int(value[:12]) * 1000
    try:
        date = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0, int(date.timestamp() * 1000) - now_ms)


def _shortened(text: str) -> str:
    return text[:MAX_ERROR]
