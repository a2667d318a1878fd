"""The hook by which an application words replies: a function that the configuration names.

    # shop/replies.py; transactions.replyConverter: shop.replies:convert
    def convert(transaction: Transaction) -> dict:
        return {"status": 200, "body": {"order": transaction.external_id, "state": transaction.status}}

``body`` is the reply of the DATP API and the data of webhooks, ``status`` the HTTP status of the reply.

Rules: it is found when the gateway starts, or the gateway does not start. Whatever it does wrong later makes
the plain reply and a line in the log: a transaction must not look lost because nobody could word its reply.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.errors import ConfigError
from penstock.gateway.datp.answers import summary
from penstock.transactions.model import Transaction
from penstock.transactions.notifying import summary_of

_LOG = logging.getLogger("penstock.gateway")
#: Statuses that an answer with a body can have.
_STATUSES: Final = range(200, 600)
_WITHOUT_BODY: Final = frozenset({204, 205, 304})

Function = Callable[[Transaction], Mapping[str, Any]]


class Converter:
    """Words replies, with the function of this name or without any."""

    def __init__(self, name: str | None = None) -> None:
        self._function = None if name is None else _load(name)

    def reply(self, transaction: Transaction) -> tuple[int, Any]:
        """The HTTP status and the body of a reply of the DATP API."""
        return self._converted(transaction) or (200, summary(transaction))

    def data(self, transaction: Transaction) -> bytes:
        """The data of an event that is sent to a webhook, as JSON."""
        converted = self._converted(transaction)
        return msgspec.json.encode(summary_of(transaction) if converted is None else converted[1])

    def _converted(self, transaction: Transaction) -> tuple[int, Any] | None:
        if self._function is None:
            return None
        try:
            found = self._function(transaction)
            status, body = found.get("status", 200), found["body"]
            if type(status) is not int or status not in _STATUSES or status in _WITHOUT_BODY:
                raise ValueError(f"status must be one of an answer with a body, not {status!r}")
            return status, msgspec.Raw(msgspec.json.encode(body))
        except Exception:  # noqa: BLE001 - it is not ours, and its transaction must be told all the same
            _LOG.exception("the reply converter failed for %s; the plain reply is given", transaction.id)
            return None


def _load(name: str) -> Function:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigError(
            f"transactions.replyConverter: {name} cannot be loaded ({error}): mend it"
        ) from error
    if not callable(found):
        raise ConfigError(
            f"transactions.replyConverter: {name} must be a function, not {type(found).__name__}"
        )
    function: Function = found
    return function
