"""The one catalogue of commands, shared by dispatch, COMMAND, the docs and the cluster router.

=============  =============================================================
``table``      the facts, as tables written by hand
``spec``       ``CommandSpec`` and ``KeySpec``, what the facts become
``loader``     reads the tables into ``CATALOGUE``
``lookup``     name to spec, arity, and the errors that refuse a command
``keys``       which arguments are keys
``describe``   the rows of COMMAND and COMMAND DOCS
=============  =============================================================

Rules: facts are Redis 7.0's. Everything is built once, at import, and never
changes. It knows commands as words; what they do is the engine's business.
"""

from __future__ import annotations

from penstock.protocol.catalogue.describe import command_docs, command_info
from penstock.protocol.catalogue.keys import find_keys, key_positions, keys_and_flags, keys_of
from penstock.protocol.catalogue.loader import CATALOGUE
from penstock.protocol.catalogue.lookup import (
    arity_error,
    check_arity,
    every_command,
    find_subcommand,
    lookup,
    lookup_full,
    resolve,
    unknown_command,
    unknown_subcommand,
)
from penstock.protocol.catalogue.spec import CommandSpec, KeySpec
from penstock.protocol.catalogue.table import CATEGORIES

__all__ = [
    "CATALOGUE",
    "CATEGORIES",
    "CommandSpec",
    "KeySpec",
    "arity_error",
    "check_arity",
    "command_docs",
    "command_info",
    "every_command",
    "find_keys",
    "find_subcommand",
    "key_positions",
    "keys_and_flags",
    "keys_of",
    "lookup",
    "lookup_full",
    "resolve",
    "unknown_command",
    "unknown_subcommand",
]
