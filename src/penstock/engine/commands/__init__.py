"""Argument parsing and replies, one file a family. Importing this package registers every handler."""

from penstock.engine.commands import (
    connection,
    pubsub,
    strings,
    transactions,
)

__all__ = [
    "connection",
    "pubsub",
    "strings",
    "transactions",
]
