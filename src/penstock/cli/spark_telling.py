"""One line a pass: what ``penstock spark run`` tells people while jobs run.

    export: 3 batches, 12,000 rows in 1.2 s, 40 behind (streams 2)
    archive: failed: table transactions: no room on the disk

Rules: a pass that found nothing to do is not told, unless somebody waits for it; a pass that takes long tells
how far it is, every few seconds. Lines of several threads never mix. Nothing here reads a store.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final, TextIO

from penstock.cli.asking import json_line
from penstock.clock import Clock, SystemClock
from penstock.configuration.durations import format_duration

if TYPE_CHECKING:
    from penstock.spark.config import PipelineConfig
    from penstock.spark.jobs.job import JobReport
    from penstock.spark.noticeboard import JobStatus

#: Between two lines about one pass that runs.
_BETWEEN_S: Final = 5.0
#: Numbers that have words of their own: for one, and for more.
_WORDS: Final = (("batches", "batch", "batches"), ("rows", "row", "rows"))
_COUNTED: Final = ("batches", "rows", "lag")


class Teller:
    """Hears every change of a job's status."""

    def __init__(
        self, *, is_json: bool, tells_all: bool, out: TextIO | None = None, clock: Clock | None = None
    ) -> None:
        self._is_json = is_json
        self._tells_all = tells_all
        self._out = out or sys.stdout
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: by job: the passes that were told or passed over, and when something was last said
        self._seen: dict[str, tuple[int, int]] = {}
        self._said_s: dict[str, float] = {}

    def announce(self, config: PipelineConfig) -> None:
        if self._is_json:
            return
        times = [
            f"{each.name} every {format_duration(each.every_ms)}"
            for each in config.jobs
            if each.every_ms is not None
        ]
        self._say(f"Runs on {config.node}: {', '.join(times)}. Ctrl-C stops it.")

    def __call__(self, status: JobStatus) -> None:
        with self._lock:
            passes, failed = self._seen.get(status.job, (0, 0))
            self._seen[status.job] = status.passes, status.failed_passes
            if status.failed_passes > failed:
                self._tell(status, f"{status.job}: failed: {status.error}")
            elif status.passes > passes and status.report is not None:
                if self._tells_all or status.report.rows or status.report.batches:
                    self._tell(status, f"{status.job}: {_report_text(status.report)}")
            elif status.state == "running" and not status.progress:
                self._said_s[status.job] = self._clock.monotonic_s()  # a pass begins
            elif status.state == "running" and self._is_time(status.job):
                self._tell(status, f"{status.job}: {_numbers_text(status.progress)} so far")

    def _is_time(self, job: str) -> bool:
        return self._clock.monotonic_s() - self._said_s.get(job, 0.0) >= _BETWEEN_S

    def _tell(self, status: JobStatus, text: str) -> None:
        self._said_s[status.job] = self._clock.monotonic_s()
        self._say(json_line(status).rstrip() if self._is_json else text)

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)


def _report_text(report: JobReport) -> str:
    took_s = (report.ended_ms - report.started_ms) / 1_000
    text = f"{_numbers_text({'batches': report.batches, 'rows': report.rows})} in {took_s:.1f} s"
    if report.lag:
        text += f", {report.lag:,} behind"
    if report.notes:
        text += f" ({', '.join(f'{name} {_number(value)}' for name, value in report.notes.items())})"
    return text


def _numbers_text(numbers: dict[str, int | str]) -> str:
    known = [_counted(numbers[name], *words) for name, *words in _WORDS if name in numbers]
    if numbers.get("lag"):
        known.append(f"{_number(numbers['lag'])} behind")
    more = [f"{name} {_number(value)}" for name, value in numbers.items() if name not in _COUNTED]
    return ", ".join(known + more)


def _counted(count: int | str, one: str, more: str) -> str:
    return f"{_number(count)} {one if count == 1 else more}"


def _number(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
