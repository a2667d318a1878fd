"""Receipts: what a fetch gives and an acknowledgement takes. Nobody else can make one.

A receipt is Base64 of a JSON object that has a part for each store which gave messages:

    {"default": "{\\"clk\\":17,\\"mid\\":\\"msg-1\\",\\"xs\\":\\"…\\"}"}

==========  ======================================================================
``clk``     clock of the last message of the batch
``mid``     its id: a channel that expired counts from the start again
``xs``      96 bits of HMAC-SHA256 under the store's secret, over the fields and
            the names of store, channel and subscriber, joined by NUL bytes
==========  ======================================================================

Only letters, digits and ``=`` occur in it, so that it survives a URL as it is. Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.channels.clocks import MAX, MIN
from penstock.channels.keys import is_id
from penstock.errors import ReceiptError

_MAC_BYTES: Final = 12
#: A receipt of many stores is a few hundred bytes.
_MAX_RECEIPT: Final = 16_384


class Mark(NamedTuple):
    """The last message of a batch."""

    clock: int
    id: str


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    clk: int
    mid: str
    xs: str


_PART: Final = msgspec.json.Decoder(_Part)
_PARTS: Final = msgspec.json.Decoder(dict[str, str])


def wrap(parts: Mapping[str, str]) -> str:
    """One receipt of the parts of several stores, by their names."""
    return base64.b64encode(msgspec.json.encode(parts)).decode()


def unwrap(receipt: str) -> dict[str, str]:
    """The parts of a receipt by store; at least one."""
    if len(receipt) > _MAX_RECEIPT:
        raise ReceiptError("the receipt is too long to be one")
    try:
        parts = _PARTS.decode(base64.b64decode(receipt, validate=True))
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        raise ReceiptError("the receipt does not decode; send it back as it came") from None
    if not parts:
        raise ReceiptError("the receipt is empty; send it back as it came")
    return parts


class Seal:
    """Makes and checks the parts of one store."""

    def __init__(self, store: str, secret: bytes) -> None:
        #: what every part begins with is hashed once
        self._keyed = hmac.new(secret, b"penstock.channel\0" + store.encode() + b"\0", "sha256")

    def issue(self, channel: str, subscriber: str, mark: Mark) -> str:
        # Ids need no escaping.
        xs = self._mac(channel, subscriber, mark)
        return f'{{"clk":{mark.clock},"mid":"{mark.id}","xs":"{xs}"}}'

    def open(self, channel: str, subscriber: str, part: str) -> Mark:
        try:
            fields = _PART.decode(part)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise ReceiptError("the receipt does not decode; send it back as it came") from None
        mark = Mark(fields.clk, fields.mid)
        if not MIN <= mark.clock <= MAX or not is_id(mark.id):
            raise ReceiptError("the receipt does not decode; send it back as it came")
        if not hmac.compare_digest(fields.xs.encode(), self._mac(channel, subscriber, mark).encode()):
            raise ReceiptError(
                f"the receipt was not issued for subscriber {subscriber!r} of channel {channel!r}"
            )
        return mark

    def _mac(self, channel: str, subscriber: str, mark: Mark) -> str:
        keyed = self._keyed.copy()
        keyed.update(f"{channel}\0{subscriber}\0{mark.clock}\0{mark.id}".encode())
        return base64.b64encode(keyed.digest()[:_MAC_BYTES]).decode()
