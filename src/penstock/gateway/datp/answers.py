"""How the DATP API words what it says.

    {"metadata": {"owner", "txId", "externalId", "transactionType", "status", …}, "progressReport", "data"}

``status`` is ``running`` until the transaction has ended, then how. A refusal is ``{"status": "error",
"error": …}``, with the HTTP status that it has everywhere else. Pure: values in, values out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.gateway.http.responses import JSON, Refusal, Response
from penstock.transactions.model import Transaction
from penstock.transactions.notifying import summary_of

_encode = msgspec.json.Encoder().encode


def summary(transaction: Transaction) -> dict[str, Any]:
    """What a reply says of a transaction. A report of progress is over when the transaction is."""
    found = summary_of(transaction)
    return {
        "metadata": found["metadata"],
        "progressReport": None if transaction.has_ended else found["progressReport"],
        "data": found["data"],
    }


def answer(value: Any, status: int = 200) -> Response:
    return Response(status, _encode(value))


def refuse(refusal: Refusal) -> Response:
    body = {"status": "error", "error": refusal.detail, "code": refusal.code}
    return Response(refusal.status, _encode(body), (JSON, *refusal.headers))
