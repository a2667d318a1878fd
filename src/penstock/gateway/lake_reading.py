"""The lake that a gateway shows: where it is, what it has, some of its rows.

Which one: what the configuration says (``lake``), else the archive of transactions if that is a lake, else
the directory that a runner of the data pipeline has published, if it is on this machine.

Rules: read by a thread, never by the loop. A lake is opened once, so that each version of a table is read
once. What a lake needs (``penstock[lake]``) is imported when somebody asks for it. Nothing is written, and
nothing here knows HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, UsageError
from penstock.gateway.job_states import JobState

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.sampling import Sample, TableSize


class LakeReader:
    """Shows the lake of one gateway. ``ConfigError``: there is none; the message says what to do."""

    def __init__(self, configured: str | None, archive: str | None = None) -> None:
        """``archive``: the directory of archived transactions, which may be a lake."""
        self._configured = configured
        self._archive = archive
        self._lakes: dict[Path, Lake] = {}

    async def tables(self, jobs: Iterable[JobState]) -> tuple[Path, list[TableSize]]:
        """Where the lake is, and its tables in their usual order."""
        return await asyncio.to_thread(self._tables, list(jobs))

    async def rows(self, jobs: Iterable[JobState], table: str, limit: int) -> Sample:
        """Some of the newest rows of a table; ``UsageError`` if the lake has no such table."""
        return await asyncio.to_thread(self._rows, list(jobs), table, limit)

    def _tables(self, jobs: list[JobState]) -> tuple[Path, list[TableSize]]:
        lake = self._lake(jobs)
        from penstock.lake.sampling import describe

        return lake.root, [describe(lake, name) for name in lake.names()]

    def _rows(self, jobs: list[JobState], table: str, limit: int) -> Sample:
        lake = self._lake(jobs)
        from penstock.lake.sampling import newest_rows

        names = lake.names()
        if table not in names:
            has = f"it has {', '.join(names)}" if names else "it is empty"
            raise UsageError(f"the lake has no table {table!r}: {has}")
        return newest_rows(lake.table(table), limit)

    # ------------------------------------------------------------------------- which one

    def _lake(self, jobs: list[JobState]) -> Lake:
        path = self._path(jobs)
        if path not in self._lakes:
            from penstock.lake.lake import Lake

            self._lakes = {path: Lake.open(path, create=False)}
        return self._lakes[path]

    def _path(self, jobs: list[JobState]) -> Path:
        if self._configured is not None:
            return Path(self._configured).absolute()
        # Those that run before those that ran; of these the ones that were heard of last.
        told = sorted(jobs, key=lambda job: (job.is_alive, job.at_ms), reverse=True)
        for place in (self._archive, *(job.lake for job in told)):
            if place is not None and _is_lake(Path(place)):
                return Path(place).absolute()
        raise ConfigError(
            "this gateway knows no lake: set lake in its configuration, start it with --lake DIR, or run the"
            " jobs of the data pipeline on this machine (penstock spark run)"
        )


def _is_lake(path: Path) -> bool:
    """As ``lake.lake.is_lake``, which only those can ask who have delta-rs."""
    return (path / "_penstock" / "lake.json").is_file()
