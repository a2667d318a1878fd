"""Argument parsing and replies, one file a family. Importing this package registers every handler."""

from penstock.engine.commands import (
    bitmaps,
    blocking,
    clients,
    connection,
    geo,
    hashes,
    hyperloglogs,
    lists,
    pubsub,
    sets,
    sorted_set_algebra,
    sorted_set_ranges,
    sorted_sets,
    strings,
    transactions,
)

__all__ = [
    "bitmaps",
    "blocking",
    "clients",
    "connection",
    "geo",
    "hashes",
    "hyperloglogs",
    "lists",
    "pubsub",
    "sets",
    "sorted_set_algebra",
    "sorted_set_ranges",
    "sorted_sets",
    "strings",
    "transactions",
]
