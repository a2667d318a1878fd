"""Delta's log as files: what each version of a table added and removed.

    <table>/_delta_log/00000000000000000017.json             version 17, a line of JSON an action
    <table>/_delta_log/00000000000000000050.checkpoint.parquet  everything up to version 50

delta-rs gives the table as it is; this module tells how it came to be so. Only what is needed here is
decoded:

==========  =====================================================================================
action      what is taken from it
==========  =====================================================================================
commitInfo  ``timestamp`` (ms), ``penstock`` (who committed, see committing.py)
add         ``path`` (percent-encoded, relative to the table), ``dataChange``
remove      ``path``
==========  =====================================================================================

Rules: reads only. A version that is not there is None; one that does not decode is a ``LakeError``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from penstock.errors import LakeError
from penstock.lake.delta import translated

LOG: Final = "_delta_log"
#: Field of ``commitInfo`` that names a commit of ours.
MARK: Final = "penstock"
_VERSION: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.\d+\.\d+)?(?:\.[0-9a-f-]+)?\.(?:parquet|json)")


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One version of a table."""

    version: int
    #: when, by the clock of whoever did
    at_ms: int
    mark: str
    #: paths whose rows are new, relative to the table; those of a rewrite are left out
    added: tuple[str, ...]
    removed: tuple[str, ...]


class DeltaLog:
    """The log of one table."""

    def __init__(self, table: Path) -> None:
        self.path = table / LOG

    def file(self, version: int) -> Path:
        return self.path / f"{version:020d}.json"

    def has(self, version: int) -> bool:
        return self.file(version).exists()

    def versions(self) -> list[int]:
        """Those whose files are there, oldest first."""
        return sorted(self._numbers(_VERSION))

    def checkpoints(self) -> list[int]:
        return sorted(set(self._numbers(_CHECKPOINT)))

    def checkpoint_files(self, version: int) -> list[Path]:
        return sorted(self.path.glob(f"{version:020d}.checkpoint*"))

    def _numbers(self, pattern: re.Pattern[str]) -> Iterator[int]:
        with translated(f"{self.path} cannot be listed"):
            names = [path.name for path in self.path.iterdir()]
        return (int(found[1]) for name in names if (found := pattern.fullmatch(name)))

    def commit(self, version: int) -> LoggedCommit | None:
        """None: its file is gone, or there is no such version yet."""
        path = self.file(version)
        with translated(f"{path} cannot be read"):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            return _decoded(version, content)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(f"{path} is no commit of a Delta table: {error}") from error


def _decoded(version: int, content: bytes) -> LoggedCommit:
    at_ms, mark = 0, ""
    added: list[str] = []
    removed: list[str] = []
    for line in content.splitlines():
        action: dict[str, Any] = msgspec.json.decode(line)
        if add := action.get("add"):
            if add["dataChange"]:
                added.append(unquote(add["path"]))
        elif remove := action.get("remove"):
            removed.append(unquote(remove["path"]))
        elif info := action.get("commitInfo"):
            at_ms, mark = int(info.get("timestamp", 0)), str(info.get(MARK, ""))
    return LoggedCommit(version, at_ms, mark, tuple(added), tuple(removed))
