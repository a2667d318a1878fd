"""The process that reads a store for another one: ``python -m penstock.server.keeping.child check|copy DIR
[TARGET]``.

LMDB maps the file into memory: where a page is damaged or missing, reading it may end the whole process. So
it is done here, and the parent (``examining``) can tell what happened.

Its last line on stdout is JSON: ``{"faults": [[rule, text], …], "keys": {database: count}}``, or
``{"error": class, "text": sentence}`` with a class of ``penstock.errors``. When its stdin ends, the parent
is gone and it ends as well, wherever it is.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from penstock.engine import Engine
from penstock.engine.check import check_store
from penstock.engine.storage.copying import copy_store
from penstock.engine.storage.layout import DATABASES
from penstock.errors import PenstockError


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main(action: str, path: str, target: str | None = None) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if action == "copy" and target is not None:
            copy_store(Path(path), Path(target))
            path = target
        answer = _examine(Path(path))
    except PenstockError as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the thread waits for stdin, and has nothing to clean up


def _examine(path: Path) -> dict[str, Any]:
    with Engine.open(path) as engine:
        try:
            faults = [list(_split(fault)) for fault in check_store(engine)]
        except Exception as error:  # noqa: BLE001  (bytes that are damaged may raise anything)
            faults = [["R1", f"cannot be read to its end: {error!r}"]]
        return {"faults": faults, "keys": _count_keys(engine)}


def _split(fault: str) -> tuple[str, str]:
    rule, _, text = fault.partition(": ")
    return rule, text


def _count_keys(engine: Engine) -> dict[str, int]:
    counts: dict[str, int] = {}

    def count() -> None:
        for database in range(DATABASES):
            entries = engine.unit.entries(engine.unit.tables[f"keys:{database}"])
            if entries:
                counts[str(database)] = entries

    engine.run_task(count, write=False)
    return counts


if __name__ == "__main__":
    main(*sys.argv[1:])
