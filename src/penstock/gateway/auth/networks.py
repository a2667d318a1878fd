"""Addresses: lists of networks, and whose address a request behind proxies really has.

Rules: nothing here raises over what a peer sent. A header counts only if the peer that sent it is trusted,
and lists are read from the right, where trusted proxies append: what stands further left may be forged.
Where a trusted proxy names nobody that can be understood the answer is ``UNKNOWN_ADDRESS``, which is inside
no network. It is never the proxy's own address, which may well be inside one that administrators come from.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.errors import ConfigError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Header lines in the order they came, as text or as the bytes of the wire.
HeaderLines: TypeAlias = Iterable[tuple[str, str] | tuple[bytes, bytes]]

UNKNOWN_ADDRESS: Final = "unknown"

_MAX_ADDRESS_CHARS: Final = 64
#: More proxies than this in a row, or more characters about them, are a forgery.
_MAX_HOPS: Final = 64
_MAX_HEADER_CHARS: Final = 8 * 1024

_PORT: Final = re.compile(r"(\[[^\]]*\]|[0-9.]+):[0-9]{1,5}")
#: One ``name=value`` of a ``Forwarded`` element, up to the next or the end.
_PARAMETER: Final = re.compile(
    r"""\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*(?:;|$)""",
)


def parse_address(text: str) -> Address | None:
    """An address with or without port, brackets and zone; None if it is none. IPv4 inside IPv6 is IPv4."""
    text = text.strip()
    return _parse_short(text) if len(text) <= _MAX_ADDRESS_CHARS else None


@lru_cache(maxsize=4096)
def _parse_short(text: str) -> Address | None:
    port = _PORT.fullmatch(text)
    if port is not None:
        text = port[1]
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class Networks:
    """A list of networks, parsed once."""

    __slots__ = ("_ranges", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        if isinstance(texts, str):
            raise ConfigError(f"networks must be a list of networks, not the text {texts!r}")
        #: as they were given
        self.texts = tuple(texts)
        self._ranges: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for text in self.texts:
            try:
                network = ipaddress.ip_network(text, strict=False)
            except ValueError:
                raise ConfigError(
                    f"networks: {text!r} is no network; write an address or a range like 10.0.0.0/8"
                ) from None
            self._ranges[network.version].append((int(network.netmask), int(network.network_address)))

    def is_inside(self, address: str | Address) -> bool:
        """Whether an address belongs to one of the networks; what is no address does not."""
        parsed = parse_address(address) if isinstance(address, str) else address
        if parsed is None:
            return False
        number = int(parsed)
        return any(number & mask == start for mask, start in self._ranges[parsed.version])

    def __repr__(self) -> str:
        return f"<Networks {', '.join(self.texts) or 'none'}>"


PRIVATE_NETWORKS: Final = Networks(
    (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "fc00::/7",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "::1/128",
        "fe80::/10",
    )
)


def client_address(peer: str | None, headers: HeaderLines, trusted: Networks, header_name: str = "") -> str:
    """Who asks: the peer itself, or whom the trusted peer names in a header.

    ``header_name`` is ``X-Forwarded-For``, ``Forwarded`` (RFC 7239), any header with one address, or "" if
    there is no proxy.
    """
    own = parse_address(peer or "")
    if own is None:
        return UNKNOWN_ADDRESS
    if not header_name or not trusted.is_inside(own):
        return str(own)
    wanted = header_name.lower()
    values = [value for name, value in _as_text(headers) if name.lower() == wanted]
    if not values:
        return str(own)  # a machine of ours that asks for itself
    joined = ",".join(values)
    if len(joined) > _MAX_HEADER_CHARS:
        return UNKNOWN_ADDRESS
    if wanted == "x-forwarded-for":
        return _first_untrusted(_listed_from_right(joined), trusted)
    if wanted == "forwarded":
        return _first_untrusted(map(_forwarded_for, _elements_from_right(joined)), trusted)
    # Two lines: one of them is the client's own invention, and nobody can say which.
    named = parse_address(values[0]) if len(values) == 1 else None
    return UNKNOWN_ADDRESS if named is None else str(named)


def _as_text(headers: HeaderLines) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        yield (
            name.decode("latin-1") if isinstance(name, bytes) else name,
            value.decode("latin-1") if isinstance(value, bytes) else value,
        )


def _first_untrusted(hops: Iterator[str | None], trusted: Networks) -> str:
    """Of hops from the right: the first that is not ours, else the last one; unknown behind nonsense."""
    farthest = UNKNOWN_ADDRESS
    for count, hop in enumerate(hops):
        address = None if hop is None or count >= _MAX_HOPS else parse_address(hop)
        if address is None:
            return UNKNOWN_ADDRESS
        farthest = str(address)
        if not trusted.is_inside(address):
            break
    return farthest


def _listed_from_right(text: str) -> Iterator[str]:
    for part in reversed(text.split(",")):
        if not part.isspace() and part:
            yield part


def _elements_from_right(text: str) -> Iterator[str]:
    """The elements of ``Forwarded``, cut at commas outside quotes, last one first.

    Reading from the right keeps a quote that a client left open away from what proxies appended.
    """
    end = len(text)
    is_quoted = False
    for index in range(len(text) - 1, -1, -1):
        character = text[index]
        if character == '"' and not _is_escaped(text, index):
            is_quoted = not is_quoted
        elif character == "," and not is_quoted:
            if text[index + 1 : end].strip():
                yield text[index + 1 : end]
            end = index
    if text[:end].strip():
        yield text[:end]


def _is_escaped(text: str, index: int) -> bool:
    before = text[max(0, index - _MAX_ADDRESS_CHARS) : index]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _forwarded_for(element: str) -> str | None:
    """The ``for`` of one element; None if the element is malformed, or names nobody."""
    found: str | None = None
    at = 0
    while at < len(element):
        parameter = _PARAMETER.match(element, at)
        if parameter is None:
            return None
        at = parameter.end()
        if parameter[1].lower() != "for":
            continue
        if found is not None:
            return None
        value = parameter[2]
        found = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
    return found
