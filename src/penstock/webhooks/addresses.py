"""Which addresses a webhook may call: the public ones, and networks that the operator has allowed.

Whoever registers a URL chooses where this process connects to. So a URL is checked twice: by its text when it
is registered (:func:`check_url`), and by the address that its name has at the moment of the connection
(:meth:`AddressPolicy.choose`). The connection then goes to that address, not to the name (``dialing.py``):
a name that answers differently the second time it is asked gains nothing.

An IPv6 address can carry an IPv4 address. All of these are judged by the address inside as well:

======================  ==============================  ===========================
form                    prefix                          where the IPv4 address is
======================  ==============================  ===========================
mapped                  ``::ffff:0:0/96``               last 32 bits
compatible              ``::/96``                       last 32 bits
translated (SIIT)       ``::ffff:0:0:0/96``             last 32 bits
NAT64                   ``64:ff9b::/96``                last 32 bits
local NAT64             ``64:ff9b:1::/48``              refused as a whole
6to4                    ``2002::/16``                   bits 16 to 48
Teredo                  ``2001::/32``                   refused as a whole
======================  ==============================  ===========================

Rules: pure, no I/O, no HTTP library. What is not known to be public is refused. The tables are written out
because the ideas of ``ipaddress`` about what is global differ between Python versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from penstock.errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MAX_URL_LENGTH: Final = 2048
#: Addresses of one name that are looked at.
MAX_ADDRESSES: Final = 32

_REFUSED: Final[dict[str, str]] = {
    "0.0.0.0/8": "an address of this host",
    "10.0.0.0/8": "a private address",
    "100.64.0.0/10": "an address of carrier-grade NAT",
    "127.0.0.0/8": "a loopback address",
    "168.63.129.16/32": "a metadata address",
    "169.254.0.0/16": "a link-local address",
    "172.16.0.0/12": "a private address",
    "192.0.0.0/24": "a reserved address",
    "192.0.2.0/24": "a documentation address",
    "192.31.196.0/24": "a reserved address",
    "192.52.193.0/24": "a reserved address",
    "192.88.99.0/24": "a relay address",
    "192.168.0.0/16": "a private address",
    "192.175.48.0/24": "a reserved address",
    "198.18.0.0/15": "a benchmark address",
    "198.51.100.0/24": "a documentation address",
    "203.0.113.0/24": "a documentation address",
    "224.0.0.0/4": "a multicast address",
    "240.0.0.0/4": "a reserved address",
    "64:ff9b:1::/48": "a translated address",
    "2001::/23": "a reserved address",
    "2001:db8::/32": "a documentation address",
    "3fff::/20": "a documentation address",
}
#: Today's public IPv6 space; everything else is refused.
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_V6_NAMES: Final[dict[str, str]] = {
    "::1/128": "a loopback address",
    "::/128": "an address of this host",
    "fc00::/7": "a private address",
    "fe80::/10": "a link-local address",
    "fec0::/10": "a private address",
    "ff00::/8": "a multicast address",
}
_TABLE: Final[list[tuple[Network, str]]] = [
    (ip_network(text), why) for text, why in (_REFUSED | _V6_NAMES).items()
]
_LAST_32_BITS: Final = tuple(
    IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")

#: What a host must not consist of, besides what ``idna`` and the resolver refuse.
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9_.-]*[a-z0-9])?\.?")
_NUMBER: Final = re.compile(r"([0-9]+|0x[0-9a-f]*)")
_CANONICAL_V4: Final = re.compile(r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(\.(?!$)|$)){4}")


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Public addresses and ``allowed`` networks; with ``https_only``, plain HTTP only into the latter."""

    allowed: tuple[Network, ...] = ()
    https_only: bool = False
    #: None: any but 0
    ports: frozenset[int] | None = None

    def refusal(self, address: Address) -> str | None:
        """Why this address must not be called; None if it may."""
        inner = embedded_v4(address)
        if self.is_allowed(address) or (inner is not None and self.is_allowed(inner)):
            return None
        return _why_not_public(address)

    def is_allowed(self, address: Address) -> bool:
        """Whether it is inside a network that was allowed by name."""
        return any(address.version == network.version and address in network for network in self.allowed)

    def choose(self, host: str, resolved: Sequence[str], scheme: str = "https") -> list[str]:
        """Those of a host's addresses that may be called, in their order; ``ConfigError`` if none may."""
        chosen: list[str] = []
        why = "has no address"
        for text in resolved[:MAX_ADDRESSES]:
            address = ip_address(text.partition("%")[0])
            refusal = self.refusal(address)
            if refusal is None and scheme == "http" and self.https_only and not self.is_allowed(address):
                refusal = "not to be called without TLS"
            if refusal is None:
                chosen.append(str(address))
            else:
                why = f"is {address}, {refusal}"
        if not chosen:
            raise ConfigError(f"url: {host} {why}; call a public address, or allow its network")
        return chosen


def policy(
    allowed: Iterable[str] = (), *, https_only: bool = False, ports: Iterable[int] | None = None
) -> AddressPolicy:
    """A policy from texts, such as ``10.1.0.0/16``."""
    networks: list[Network] = []
    for text in allowed:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise ConfigError(f"allowed_networks: {text!r} is no network: {error}") from None
    return AddressPolicy(tuple(networks), https_only, None if ports is None else frozenset(ports))


def embedded_v4(address: Address) -> IPv4Address | None:
    """The IPv4 address that packets to this IPv6 address end at."""
    if isinstance(address, IPv4Address):
        return None
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    if any(address in network for network in _LAST_32_BITS) and int(address) > 1:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def _why_not_public(address: Address) -> str | None:
    inner = embedded_v4(address)
    if inner is not None:
        # 2002::/16 and the like lead to the inner address; the outer tables would only hide why.
        why = _why_not_public(inner)
        return f"{why} in disguise" if why else _refuse_forms(address)
    for network, why in _TABLE:
        if address.version == network.version and address in network:
            return why
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return "not a public address"
    return None


def _refuse_forms(address: Address) -> str | None:
    """Forms around a public IPv4 address: only NAT64 and mapped ones are in use by anybody honest."""
    if address in _LAST_32_BITS[1] or address in _LAST_32_BITS[3]:
        return None
    return "an IPv4 address in an outdated form"


# ------------------------------------------------------------------------------------------------ URLs


def check_url(url: str, policy: AddressPolicy = AddressPolicy()) -> SplitResult:  # noqa: B008 - frozen
    """The parts of a URL that may be called as far as its text tells; ``ConfigError`` says what is wrong."""
    if len(url) > MAX_URL_LENGTH:
        raise ConfigError(f"url must be at most {MAX_URL_LENGTH} characters long, not {len(url)}")
    if any(not "!" <= letter <= "~" or letter in '\\"<>^`{|}' for letter in url):
        # Parsers disagree about these, and what one checks another must not read differently.
        raise ConfigError('url must be visible ASCII without \\ " < > ^ ` { | }: encode the rest')
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"url cannot be read: {error}") from None
    if parts.scheme not in ("https", "http"):
        raise ConfigError(f"url must begin with https:// or http://, not {parts.scheme or 'nothing'!r}")
    if "@" in parts.netloc:
        raise ConfigError("url must not contain a user or password: put credentials into headers")
    if "%" in parts.netloc:
        raise ConfigError("url must not have escapes or zones in its host")
    if "#" in url:
        raise ConfigError("url must not have a fragment: it would never be sent")
    _check_port(parts, port, policy)
    _check_host(parts, policy)
    return parts


def _check_port(parts: SplitResult, port: int | None, policy: AddressPolicy) -> None:
    after_host = parts.netloc.rpartition("]")[2] if "[" in parts.netloc else parts.netloc
    if after_host.endswith(":"):
        raise ConfigError("url has a colon and no port: leave it out or give a number")
    if port == 0:
        raise ConfigError("url must not have port 0")
    effective = port or (443 if parts.scheme == "https" else 80)
    if policy.ports is not None and effective not in policy.ports:
        raise ConfigError(f"url has port {effective}, allowed are {sorted(policy.ports)}")


def _check_host(parts: SplitResult, policy: AddressPolicy) -> None:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        try:
            literal: Address = IPv6Address(host)
        except ValueError:
            raise ConfigError(f"url: {host!r} is no IPv6 address") from None
        policy.choose(f"[{host}]", [str(literal)], parts.scheme)
        return
    if len(host) > 253 or not _HOST.fullmatch(host) or ".." in host:
        raise ConfigError("url must have a host: a name of letters, digits, dots and hyphens, or an address")
    last = host.removesuffix(".").rpartition(".")[2]
    if _NUMBER.fullmatch(last):
        # 0x7f.1, 2130706433, 127.1, 0177.0.0.1: resolvers take them all for addresses.
        if not _CANONICAL_V4.fullmatch(host) or re.search(r"(^|\.)0[0-9]", host):
            raise ConfigError(f"url: write the address {host!r} as four decimal numbers")
        policy.choose(host, [host], parts.scheme)
    elif last == "localhost" and not any(
        policy.is_allowed(ip_address(text)) for text in ("127.0.0.1", "::1")
    ):
        raise ConfigError("url: localhost is a loopback address; call a public one, or allow its network")
    elif policy.https_only and parts.scheme == "http" and not policy.allowed:
        raise ConfigError("url must begin with https://")
