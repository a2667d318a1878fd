"""What a worker counts. ``scraping`` turns it into text, together with what the other workers counted.

    metrics = Metrics(enabled=True, directory=shared, worker=2)
    metrics.request("PUT", "/channel/{channel}/message/{message}", 200, 0.0012)
    metrics.render()                    # all workers of the directory together

Rules: counting one request takes well under a microsecond and never fails; a label has a bounded number of
values, whatever callers pass; switched off, everything here is a comparison. Only the thread of the event
loop counts. Nothing here knows routes or stores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client.metrics_core import Metric

from penstock.gateway.observing import families as f
from penstock.gateway.observing.cells import Cells
from penstock.gateway.observing.scraping import OPEN_METRICS, PLAIN, READY_KEY, expose

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
#: Values that one label may take before all others are called ``other``.
_MOST_VALUES: Final = 64
#: Method, route and status together; beyond them requests are counted as ``other``.
_MOST_REQUEST_SERIES: Final = 2048
_OTHER: Final = "other"
_BOUNDS_S: Final = f.BOUNDS_S
_SUM_AT: Final = f.HISTOGRAM_WIDTH - 1


class Metrics:
    """The counters of one worker."""

    def __init__(self, enabled: bool = True, *, directory: Path | None = None, worker: int = 0) -> None:
        """``directory``: shared by all workers behind one port; each has another ``worker`` number."""
        self.enabled = enabled
        self._cells = Cells(directory if enabled else None, worker)
        self._requests: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._slots: dict[tuple[str, tuple[str, ...]], int] = {}
        self._values_seen: dict[str, set[tuple[str, ...]]] = {}
        for family in f.FAMILIES:
            # Families without labels are shown from the start, with zeros. A gauge of the process that had
            # this worker's number before means nothing any more.
            if not family.labels:
                self._slot(family)
                if family.kind == "gauge":
                    self._set(family, 0.0)
        self.ready(False)

    # ------------------------------------------------------------------------- requests

    def request(self, method: str, template: str, status: int, duration_s: float) -> None:
        """One request was answered."""
        if not self.enabled:
            return
        slots = self._requests.get((method, template, status))
        if slots is None:
            slots = self._add_request(method, template, status)
        counter, histogram = slots
        values = self._cells.values
        values[counter] += 1.0
        values[histogram + bisect_left(_BOUNDS_S, duration_s)] += 1.0
        values[histogram + _SUM_AT] += duration_s

    def _add_request(self, method: str, template: str, status: int) -> tuple[int, int]:
        is_known = len(self._requests) < _MOST_REQUEST_SERIES
        verb = method if method in _METHODS else "OTHER"
        route = template if is_known else _OTHER
        code = str(status) if is_known else _OTHER
        labels = (verb, route, code, f"{status // 100}xx")
        slots = (
            self._cells.slot(f.REQUESTS.name, labels),
            self._cells.slot(f.DURATIONS.name, (verb, route), f.HISTOGRAM_WIDTH),
        )
        if is_known:
            self._requests[method, template, status] = slots
        return slots

    # ------------------------------------------------------------------------- messages

    def published(self, count: int = 1) -> None:
        self._add(f.PUBLISHED, count)

    def duplicate(self, count: int = 1) -> None:
        self._add(f.DUPLICATES, count)

    def delivered(self, count: int = 1) -> None:
        self._add(f.DELIVERED, count)

    def acked(self, count: int = 1) -> None:
        self._add(f.ACKED, count)

    # ------------------------------------------------------------------------- who is there

    def waiting_polls(self, change: int) -> None:
        """``+1`` when one begins to wait, ``-1`` when it ends; likewise the next two."""
        self._add(f.WAITING_POLLS, change)

    def open_sse(self, change: int) -> None:
        self._add(f.OPEN_SSE, change)

    def open_websockets(self, change: int) -> None:
        self._add(f.OPEN_WEBSOCKETS, change)

    def ready(self, is_ready: bool) -> None:
        if self.enabled:
            self._cells.values[self._cells.slot(*READY_KEY)] = float(is_ready)

    # ------------------------------------------------------------------------- what went wrong

    def webhook(self, outcome: str, duration_s: float) -> None:
        """A webhook was called; ``outcome`` is one of a few words: ``delivered``, ``retry``, ``dead``…"""
        if not self.enabled:
            return
        self._add(f.WEBHOOKS, 1, outcome)
        at = self._slot(f.WEBHOOK_DURATIONS)
        self._cells.values[at + bisect_left(_BOUNDS_S, duration_s)] += 1.0
        self._cells.values[at + _SUM_AT] += duration_s

    def auth_rejected(self, reason: str) -> None:
        self._add(f.AUTH_REJECTIONS, 1, reason)

    def rate_limited(self, limit: str) -> None:
        self._add(f.RATE_LIMITED, 1, limit)

    def store_error(self, storage: str, kind: str) -> None:
        """``kind``: the name of the error's class."""
        self._add(f.STORE_ERRORS, 1, storage, kind)

    def guarded(self, reason: str) -> None:
        """A guard of the HTTP server ended a connection."""
        self._add(f.GUARDED, 1, reason)

    def log_lines_dropped(self, count: int) -> None:
        self._add(f.LOG_LINES_DROPPED, count)

    # ------------------------------------------------------------------------- reading

    def render(self, open_metrics: bool = False, more: Iterable[Metric] = ()) -> bytes:
        """All workers together, and ``more``, as text: Prometheus's own format, or OpenMetrics."""
        return expose(self._cells, open_metrics, more) if self.enabled else b""

    def answer(self, accept: str | None, more: Iterable[Metric] = ()) -> tuple[bytes, bytes]:
        """Text and content type for a scraper that sent this ``Accept`` header."""
        is_open = accept is not None and "application/openmetrics-text" in accept
        return self.render(is_open, more), OPEN_METRICS if is_open else PLAIN

    def close(self) -> None:
        """This worker is no longer there; what it counted remains."""
        if self.enabled:
            self.ready(False)
            for family in f.FAMILIES:
                if family.kind == "gauge":
                    self._set(family, 0.0)
        self.enabled = False
        self._cells.close()

    # ------------------------------------------------------------------------- cells

    def _add(self, family: f.Family, amount: float, *labels: str) -> None:
        if self.enabled:
            at = self._slots.get((family.name, labels))
            self._cells.values[self._slot(family, labels) if at is None else at] += amount

    def _set(self, family: f.Family, value: float) -> None:
        self._cells.values[self._slot(family)] = value

    def _slot(self, family: f.Family, labels: tuple[str, ...] = ()) -> int:
        at = self._slots.get((family.name, labels))
        if at is not None:
            return at
        seen = self._values_seen.setdefault(family.name, set())
        if len(seen) >= _MOST_VALUES:
            labels = (_OTHER,) * len(labels)
        seen.add(labels)
        width = f.HISTOGRAM_WIDTH if family.kind == "histogram" else 1
        at = self._slots[family.name, labels] = self._cells.slot(family.name, labels, width)
        return at
