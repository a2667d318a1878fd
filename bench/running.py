"""One run: what its parts are told, and the order in which they are asked.

A part is a module with ``SECTIONS``: a function for each of its sections in ``plan.py``, called with the
``Run``. It prints its tables and adds its figures to ``run.results``. What cannot be measured here raises
``NotMeasuredError`` (the whole section), or is told by ``run.leave_out`` (one contender), and the run goes
on. Results are saved after every section, so that a run that is interrupted has not measured for nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.environments import NotMeasuredError
from bench.plan import Section, Sizes
from bench.results import Results
from penstock.testing.servers import Kind, ServerBinary, ServerUnavailableError, find_server

Measure = Callable[["Run"], None]

_SERVERS: Final = {"redis": "Redis", "valkey": "Valkey"}
#: Those whose names on a page would be mistaken for others.
_PACKAGES: Final = {"redis": "redis-py", "penstock": "Penstock"}


@dataclass(slots=True)
class Run:
    sizes: Sizes
    #: where environments of peers are kept
    cache: Path
    is_large: bool = False
    #: parts of names; all contenders if there are none
    contenders: Sequence[str] = ()
    results: Results = field(default_factory=Results)
    #: sections that ended with an error which is not the machine's
    failed: list[str] = field(default_factory=list)

    _directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def directory(self) -> Path:
        """For data that several sections need; gone when the run is closed."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(
                prefix="penstock-bench-", ignore_cleanup_errors=True
            )
        return Path(self._directory.name)

    def close(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def wants(self, contender: str) -> bool:
        return not self.contenders or any(part.lower() in contender.lower() for part in self.contenders)

    def leave_out(self, section: str, what: str, reason: Exception) -> None:
        print(f"{what} is left out: {reason}\n", flush=True)
        self.results.note(section, f"{what} is left out: {reason}")

    def took_part(self, contender: str, versions: Mapping[str, str]) -> None:
        """With these libraries; where it has another version than was told before, it is told of whom."""
        known = self.results.versions
        for package, number in versions.items():
            name = _PACKAGES.get(package, package)
            if known.setdefault(name, number) != number:
                known[f"{name} of {contender.partition(',')[0]}"] = number

    def real_server(self) -> ServerBinary:
        """Redis where it is installed, else Valkey; ``NotMeasuredError`` without either."""
        kinds: tuple[Kind | None, ...] = ("redis", None)
        for kind in kinds:
            try:
                binary = find_server(kind)
            except ServerUnavailableError as error:
                problem = error
                continue
            self.results.versions[server_name(binary)] = binary.version
            return binary
        raise NotMeasuredError(str(problem))


def server_name(binary: ServerBinary) -> str:
    return _SERVERS[binary.kind]


def measure_all(run: Run, sections: Sequence[Section], measures: Mapping[str, Measure], file: Path) -> None:
    """All of them, one after the other; results are in the file after each."""
    for number, section in enumerate(sections, 1):
        expected_s = section.large_s if run.is_large else section.short_s
        print(
            f"[{number}/{len(sections)}] {section.key}: {section.about} (about {expected_s} s) …",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        started = time.monotonic()
        try:
            measures[section.key](run)
        except NotMeasuredError as error:
            run.leave_out(section.key, section.key, error)
        except Exception as error:  # noqa: BLE001 - an hour of figures must not go with one section
            traceback.print_exc()
            run.leave_out(section.key, section.key, error)
            run.failed.append(section.key)
        run.results.took_s[section.key] = round(time.monotonic() - started, 1)
        run.results.save(file)
