"""Copies of stores that are in use, stores made of copies, and stores that are looked at: backup, restore,
check.

===============  ==================================================================================
module           role
===============  ==================================================================================
``backup``       a copy of one moment, checked, under its name only when it is whole
``restore``      a store made of such a copy
``examining``    asks another process to copy or to check, since reading what is damaged may end it
``child``        that process
``manifest``     what lies beside a copy: when, by whom, how many keys, which digest
``archive``      a copy as one file (.tar.zst)
``staging``      a place beside the final one, locked, and gone if nothing comes of it
===============  ==================================================================================

Rules: nothing is ever half there under its final name. Errors are one sentence that names the path. Nothing
here knows terminals; whoever wants to show how far it is passes ``on_progress``.
"""

from penstock.engine.storage.copying import has_store, is_open
from penstock.server.keeping.backup import Backup, backup
from penstock.server.keeping.examining import Fault, Findings, OnProgress, check
from penstock.server.keeping.manifest import Manifest
from penstock.server.keeping.restore import restore

__all__ = [
    "Backup",
    "Fault",
    "Findings",
    "Manifest",
    "OnProgress",
    "backup",
    "check",
    "has_store",
    "is_open",
    "restore",
]
