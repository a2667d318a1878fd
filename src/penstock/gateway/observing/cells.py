"""Numbers that all workers of a gateway can read: each has a file, mapped into its memory.

A worker adds to its own numbers as to any array, without locks or calls. Whoever is asked for metrics
reads the files of all. A worker that replaces a dead one has its number and goes on with its file, so
counters never fall back. A killed worker's numbers are not lost: the file is the system's, not the process's.

In the directory, for worker *n*:

=============  ====================================================================================
``n.series``   one JSON line for each series, in the order of their cells: name, label values, width
``n.cells``    ``CAPACITY`` 8-byte floats in the machine's order; cell 0 is the process's id
=============  ====================================================================================

Rules: a series' line is written before its first number; a reader ignores a line that is not complete. Only
one thread (the event loop's) adds. What the numbers mean is the business of ``metrics``.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from penstock.errors import ConfigError

#: Series beyond this are counted nowhere; a gateway has a tenth of it.
CAPACITY: Final = 16_384
#: Where series that found no room put their numbers: as wide as the widest.
_SPILL_WIDTH: Final = 64
_SPILL: Final = CAPACITY - _SPILL_WIDTH
_PROCESS: Final = 0
_FIRST: Final = 1
_CELL_BYTES: Final = 8

SeriesKey: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The numbers of one worker at one moment."""

    worker: int
    process_id: int
    #: by series, as many numbers as it is wide
    series: dict[SeriesKey, array[float]]


class Cells:
    """The numbers of this worker."""

    def __init__(self, directory: Path | None = None, worker: int = 0) -> None:
        """Without a directory nobody else sees them."""
        self.worker = worker
        self.directory = directory
        self._slots: dict[SeriesKey, tuple[int, int]] = {}
        self._next = _FIRST
        self._lines: int | None = None
        self._map: mmap.mmap | None = None
        #: write to ``values[slot + n]``
        self.values: memoryview[float] = _private()
        if directory is not None:
            self._open(directory)
        self.values[_PROCESS] = float(os.getpid())

    def _open(self, directory: Path) -> None:
        try:
            for name, labels, width in _read_series(directory, self.worker):
                self._place((name, labels), width)
            # What a killed process left of a line must not run into the next one.
            lines = _series_path(directory, self.worker)
            _end_last_line(lines)
            self._lines = os.open(lines, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            cells = os.open(_cells_path(directory, self.worker), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.ftruncate(cells, CAPACITY * _CELL_BYTES)
                self._map = mmap.mmap(cells, CAPACITY * _CELL_BYTES)
            finally:
                os.close(cells)
        except OSError as error:
            raise ConfigError(
                f"the metrics directory {directory} cannot be used ({error.strerror}): make it writable"
            ) from error
        self.values = memoryview(self._map).cast("d")

    def slot(self, name: str, labels: tuple[str, ...] = (), width: int = 1) -> int:
        """Where the first of a series' numbers is. The same series is always at the same place."""
        key = name, labels
        found = self._slots.get(key)
        if found is not None:
            return found[0]
        if self._next + width > _SPILL:
            return _SPILL
        if self._lines is not None:
            os.write(self._lines, msgspec.json.encode((name, labels, width)) + b"\n")
        return self._place(key, width)

    def _place(self, key: SeriesKey, width: int) -> int:
        at = self._next
        self._slots[key] = at, width
        self._next += width
        return at

    @property
    def is_full(self) -> bool:
        """Whether a series was, or the next may be, without a place."""
        return self._next + _SPILL_WIDTH > _SPILL

    def snapshots(self) -> Iterator[Snapshot]:
        """Of every worker, this one included."""
        if self.directory is None:
            series = {
                key: array("d", self.values[at : at + width]) for key, (at, width) in self._slots.items()
            }
            yield Snapshot(self.worker, os.getpid(), series)
            return
        for path in sorted(self.directory.glob("*.cells")):
            with suppress(OSError, ValueError):
                yield _read(self.directory, int(path.stem))

    def close(self) -> None:
        """The numbers stay in the files, and stop changing."""
        if self._map is None:
            return
        self.values.release()
        self.values = _private()
        self._map.close()
        self._map = None
        if self._lines is not None:
            os.close(self._lines)
            self._lines = None


def _private() -> memoryview[float]:
    return memoryview(bytearray(CAPACITY * _CELL_BYTES)).cast("d")


def _series_path(directory: Path, worker: int) -> Path:
    return directory / f"{worker}.series"


def _cells_path(directory: Path, worker: int) -> Path:
    return directory / f"{worker}.cells"


def _read_series(directory: Path, worker: int) -> Iterator[tuple[str, tuple[str, ...], int]]:
    try:
        lines = _series_path(directory, worker).read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for line in lines[:-1]:
        # A line cut by a crash had no cells yet.
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line, type=tuple[str, tuple[str, ...], int])


def _end_last_line(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.read_bytes()[-1:] not in (b"", b"\n"):
            with path.open("ab") as file:
                file.write(b"\n")


def _read(directory: Path, worker: int) -> Snapshot:
    # The lines first: every one of them has its cells by then.
    listed = list(_read_series(directory, worker))
    used = _FIRST + sum(width for _, _, width in listed)
    with _cells_path(directory, worker).open("rb") as file:
        numbers = array("d", file.read(used * _CELL_BYTES))
    series: dict[SeriesKey, array[float]] = {}
    at = _FIRST
    for name, labels, width in listed:
        series[name, labels] = numbers[at : at + width]
        at += width
    return Snapshot(worker, int(numbers[_PROCESS]), series)
