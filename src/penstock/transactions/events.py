"""Events of webhooks as values: what they are called, what they say, and how they have ended.

=====================  ========================  ==================================================
event in the store     type                      says
=====================  ========================  ==================================================
``complete.<run>``     ``transaction.complete``  how it has ended; a run is a start or a replay
``progress.<number>``  ``transaction.progress``  a report, as it was made
=====================  ========================  ==================================================

The body is that of Standard Webhooks: ``type``, ``timestamp``, ``data``; a converter may replace ``data``.

Pure: nothing here sends anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.transactions.model import Record, State, Transaction, from_json, transaction_from
from penstock.transactions.receivers import COMPLETE, PROGRESS
from penstock.webhooks import Delivery, Status, event_body

_LOG = logging.getLogger(__name__)

#: What replies say instead of :func:`summary_of`: a value that has JSON, or its text.
ReplyConverter = Callable[[Transaction], Mapping[str, Any] | bytes]


def event_id(tx: str, event: str) -> str:
    """The same for every attempt to tell the same."""
    return f"{tx}.{event}"


def event_of(delivery: Delivery) -> tuple[str | None, str]:
    """The transaction and its event; None if it is not of ours."""
    if not delivery.endpoint.startswith((f"{COMPLETE}-", f"{PROGRESS}-")):
        return None, ""
    tx, kind, number = delivery.event.rsplit(".", 2)
    return tx, f"{kind}.{number}"


def kind_of(event: str) -> str:
    return PROGRESS if event.startswith("progress.") else COMPLETE


# --------------------------------------------------------------------------------------------- bodies


def body_of(record: Record, event: str, now_ms: int, converter: ReplyConverter | None = None) -> bytes:
    """``UsageError`` if the converter makes nothing that can be sent."""
    transaction = transaction_from(record)
    if kind_of(event) == PROGRESS:
        transaction.progress = from_json(record.fields.get(f"w:{event}".encode(), b"null"))
        # As it was when it was reported, whatever has come of it since.
        transaction.state, transaction.status = State.RUNNING, "running"
        transaction.ended_ms = transaction.output = None
        return event_body("transaction.progress", _time(now_ms) or "", _data_of(transaction, converter))
    transaction.progress = None
    at_ms = transaction.ended_ms or now_ms
    return event_body("transaction.complete", _time(at_ms) or "", _data_of(transaction, converter))


def _data_of(transaction: Transaction, converter: ReplyConverter | None) -> bytes:
    if converter is None:
        return msgspec.json.encode(summary_of(transaction))
    try:
        data = converter(transaction)
        text = bytes(data) if isinstance(data, bytes | bytearray) else msgspec.json.encode(data)
        msgspec.json.decode(text)
    except Exception as error:
        _LOG.exception("the reply converter failed for %s", transaction.id)
        raise UsageError(f"the reply converter failed: {type(error).__name__}: {error}") from error
    return text


def summary_of(transaction: Transaction) -> dict[str, Any]:
    """What replies say of a transaction."""
    moments = (transaction.created_ms, transaction.queued_ms, transaction.taken_ms, transaction.ended_ms)
    return {
        "metadata": {
            "owner": transaction.owner,
            "txId": transaction.id,
            "externalId": transaction.external_id,
            "transactionType": transaction.pipeline,
            "status": transaction.status,
            "completionTime": _time(transaction.ended_ms),
            "lastUpdated": _time(max(moment or 0 for moment in moments)),
            "notifiedTime": _time(transaction.notified_ms),
        },
        "progressReport": transaction.progress,
        "data": transaction.output,
        "note": transaction.note,
    }


def _time(at_ms: int | None) -> str | None:
    if not at_ms:
        return None
    moment = datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


# -------------------------------------------------------------------------------------------- endings


def is_finished(delivery: Delivery) -> bool:
    return delivery.status in (Status.DONE, Status.DEAD)


def ending_of(delivery: Delivery) -> tuple[str, str]:
    """The outcome and its comment."""
    times = f"{delivery.attempts} attempt{'' if delivery.attempts == 1 else 's'}"
    last = delivery.error or f"HTTP {delivery.code}"
    if delivery.status is Status.DONE:
        return "delivered", f"{last} after {times}"
    return "failed", f"{delivery.reason}; {last} after {times}"
