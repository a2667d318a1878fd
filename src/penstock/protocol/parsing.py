"""Reading replies back from RESP3 bytes: hiredis, wrapped so that nobody else needs it."""

from __future__ import annotations

from typing import Any

import hiredis

from penstock.errors import CommandError, ProtocolError
from penstock.protocol.replies import Push

_MORE = object()


def parse_reply(data: bytes) -> Any:
    """The one value in ``data``, strings as bytes. Raises :class:`ProtocolError` if it is not exactly one."""
    reader = hiredis.Reader(protocolError=ProtocolError, replyError=CommandError, notEnoughData=_MORE)
    reader.feed(data)
    value = reader.gets()
    if value is _MORE:
        raise ProtocolError("a stored reply ends too early")
    return Push(value) if type(value) is hiredis.PushNotification else value
