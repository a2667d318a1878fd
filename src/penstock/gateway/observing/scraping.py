"""The text that a scrape gets: the cells of all workers, added up, and what the system says of them.

Rules: counters are added up over all workers that ever were; gauges, readiness and processes count only for
workers that live. Formats and their escaping are prometheus_client's.
"""

from __future__ import annotations

import os
import platform
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

from penstock.gateway.observing import families as f
from penstock.gateway.observing.cells import Cells, SeriesKey, Snapshot
from penstock.version import __version__

PLAIN: Final = CONTENT_TYPE_PLAIN_0_0_4.encode()
OPEN_METRICS: Final = CONTENT_TYPE_LATEST.encode()
#: Readiness in the cells; its label is the number of the worker whose cells they are.
READY_KEY: Final[SeriesKey] = (f.READY.name, ())

_BOUND_TEXTS: Final = (*(str(bound) for bound in f.BOUNDS_S), "+Inf")
_SUM_AT: Final = f.HISTOGRAM_WIDTH - 1


def expose(cells: Cells, open_metrics: bool, more: Iterable[Metric] = ()) -> bytes:
    """``more``: what is not counted by workers."""
    workers = _Workers(list(cells.snapshots()), more)
    if not open_metrics:
        return generate_latest(workers)
    text: bytes = generate_open_metrics(workers)  # type: ignore[no-untyped-call]
    return text


class _Workers(Collector):
    def __init__(self, snapshots: list[Snapshot], more: Iterable[Metric]) -> None:
        self._snapshots = snapshots
        self._more = more
        self._living = [snapshot for snapshot in snapshots if _is_alive(snapshot.process_id)]

    def collect(self) -> Iterator[Metric]:
        version = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("penstock_build", "What runs here.", value=version)
        workers = GaugeMetricFamily("penstock_workers", "Processes that serve.", value=len(self._living))
        yield workers
        ready = GaugeMetricFamily(f.READY.name, f.READY.help, labels=f.READY.labels)
        for snapshot in self._living:
            ready.add_metric([str(snapshot.worker)], snapshot.series.get(READY_KEY, (0.0,))[0])
        yield ready
        for family in f.FAMILIES:
            yield _family(family, self._living if family.kind == "gauge" else self._snapshots)
        yield from self._more
        yield from _processes(self._living)


def _family(family: f.Family, snapshots: Iterable[Snapshot]) -> Metric:
    sums: dict[tuple[str, ...], array[float]] = {}
    for snapshot in snapshots:
        for (name, labels), numbers in snapshot.series.items():
            if name == family.name:
                so_far = sums.get(labels)
                sums[labels] = numbers if so_far is None else array("d", map(float.__add__, so_far, numbers))
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, numbers in sums.items():
            histogram.add_metric(labels, _buckets(numbers), numbers[_SUM_AT])
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, numbers in sums.items():
        metric.add_metric(labels, numbers[0])
    return metric


def _buckets(numbers: array[float]) -> list[tuple[str, float]]:
    """Each with all that are smaller, as the formats want it."""
    total = 0.0
    buckets = []
    for text, count in zip(_BOUND_TEXTS, numbers, strict=False):
        total += count
        buckets.append((text, total))
    return buckets


def _processes(snapshots: Iterable[Snapshot]) -> Iterable[Metric]:
    """Memory, time and files of each process; nothing where the system has no ``/proc``."""
    found: dict[str, Metric] = {}
    for snapshot in snapshots:
        label = {"worker": str(snapshot.worker)}
        collector = ProcessCollector(pid=lambda at=snapshot: at.process_id, registry=None)  # type: ignore[misc]
        for metric in collector.collect():
            together = found.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                together.add_sample(sample.name, {**sample.labels, **label}, sample.value)
    return found.values()


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return process_id > 0
