"""Addresses that whoever registers a webhook may choose: none leads to a machine that is not public.

A URL that passes is called the way the sender does it, through its guarded connections; names are resolved
by somebody hostile, who answers with a public address the first time and with another one the next time. What
is finally connected to is written down, and judged by Python's own idea of a public address.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

import httpcore

from penstock.errors import ConfigError
from penstock.webhooks.addresses import AddressPolicy, check_url
from penstock.webhooks.dialing import GuardedBackend
from tests.fuzz.running import Target

_PUBLIC: Final = "93.184.216.34"
#: What a name may turn out to be the second time.
_REBOUND: Final = (
    "127.0.0.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "::1",
    "::", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "2002:7f00:1::", "2001::1", "::127.0.0.1", "ff02::1", "224.0.0.1", "255.255.255.255", "168.63.129.16",
    "fec0::1", "::ffff:0:127.0.0.1",
)  # fmt: skip
_SEEDS: Final = (
    "https://example.com/hook", "http://example.com:8080/a?b=c", "https://127.0.0.1/", "http://localhost/",
    "http://[::1]:80/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/",
    "http://0/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://user:pw@127.0.0.1/",
    "http://example.com@127.0.0.1/", "http://127.0.0.1#@example.com/", "http://127.0.0.1%2f@example.com/",
    "http://example.com%00.127.0.0.1/", "http://169.254.169.254/latest/meta-data/",
    "http://[fe80::1%25eth0]/", "http://localhost.:80/", "http://foo.localhost/",
    "http://1.1.1.1 &@2.2.2.2# @3.3.3.3/", "https://example.com:443:80/", "http://example.com:0/",
    "http://example.com:99999/", "gopher://127.0.0.1/", "file:///etc/passwd", "http://[::]/",
    "http://0.0.0.0:6379/", "http://127.0.0.1.nip.io/", "http://EXAMPLE.com./", "http:///127.0.0.1/",
    "//127.0.0.1/", "http:\\\\127.0.0.1\\", "http://example.com\\@127.0.0.1/", "http://⑫⑦.⓪.⓪.①/",
    "http://[2001:4860:4860::8888]/", "http://8.8.8.8/",
)  # fmt: skip
_WORDS: Final = tuple(
    "http:// https:// @ : / // \\ # ? % %00 %2f %40 [ ] :: ::ffff: 127.0.0.1 127.1 0x7f 017 2130706433"
    " localhost . .. example.com 169.254.169.254 :80 :0 0 1 255 256 fe80 %25 \t \r\n".split(" ")
)


class WebhookUrls(Target):
    name = "webhook_urls"
    tries = 3_000

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._asked: dict[str, int] = {}
        self._dialed: list[str] = []

    def close(self) -> None:
        self._runner.close()

    def seeds(self) -> Sequence[bytes]:
        return [seed.encode() for seed in _SEEDS]

    def words(self) -> Sequence[bytes]:
        return [word.encode() for word in _WORDS]

    def check(self, data: bytes) -> None:
        url = data.decode("utf-8", "replace")
        try:
            check_url(url)
        except ConfigError:
            return
        self._asked.clear()
        self._dialed.clear()
        self._runner.run(self._call(url))
        for text in self._dialed:
            assert _is_public(text), f"{url!r} leads to {text}"

    async def _call(self, url: str) -> None:
        scheme = url.partition(":")[0].lower()
        backend = GuardedBackend(AddressPolicy(), scheme, self._resolve, _Recorder(self._dialed))
        async with httpcore.AsyncConnectionPool(network_backend=backend) as pool:
            for _ in range(3):
                try:
                    await pool.request("POST", url, content=b"{}")
                except (
                    ConfigError,
                    httpcore.ConnectError,
                    httpcore.UnsupportedProtocol,
                    httpcore.LocalProtocolError,
                ):
                    continue

    async def _resolve(self, host: str, port: int) -> list[str]:
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            pass
        turn = self._asked[host] = self._asked.get(host, -1) + 1
        return [_PUBLIC] if turn == 0 else [_REBOUND[(len(host) + turn) % len(_REBOUND)]]


class _Recorder(httpcore.AsyncNetworkBackend):
    """Connects to nothing, and remembers to what."""

    def __init__(self, dialed: list[str]) -> None:
        self._dialed = dialed

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self._dialed.append(host)
        raise httpcore.ConnectError("nobody is there")


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    return inner.is_global and not inner.is_multicast
