"""Functions that ``transactions.replyConverter`` names in tests."""

from __future__ import annotations

from typing import Any

from penstock.transactions import Transaction


def convert(transaction: Transaction) -> dict[str, Any]:
    return {"status": 207, "body": {"order": transaction.external_id, "n": transaction.output}}


def fail(transaction: Transaction) -> dict[str, Any]:
    raise RuntimeError("no words")


def confuse(transaction: Transaction) -> Any:
    return {"status": 99, "body": object()}


NOT_CALLABLE = 5
