"""Values of a table as JSON has words for them.

Moments are RFC 3339 in UTC, bytes are text, or Base64 where they are none; dates, spans of time and decimals
are text. For rows of Arrow and rows of Spark alike; nothing is imported for either.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from typing import Any


def plain(value: Any) -> Any:
    """What JSON has words for."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if hasattr(value, "asDict"):  # a row of Spark, which is a tuple as well
        return plain(value.asDict())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        # Spark hands out local times without a zone; its sessions are in UTC.
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date | dt.timedelta | decimal.Decimal):
        return str(value)
    return value
