"""What is counted, and how the numbers of several workers become one text."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from penstock.errors import ConfigError
from penstock.gateway.observing.cells import CAPACITY, Cells
from penstock.gateway.observing.metrics import Metrics


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    made = Metrics()
    yield made
    made.close()


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_plain(text.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics.render())[name, tuple(sorted(labels.items()))]


def test_requests_are_counted_by_route_and_status(metrics: Metrics):
    for status in (200, 200, 404):
        metrics.request("GET", "/channel/{channel}", status, 0.003)
    labels = {"method": "GET", "route": "/channel/{channel}"}
    counted = "penstock_http_requests_total"
    assert value(metrics, counted, **labels, code="200", **{"class": "2xx"}) == 2
    assert value(metrics, counted, **labels, code="404", **{"class": "4xx"}) == 1
    duration = "penstock_http_request_duration_seconds"
    assert value(metrics, f"{duration}_count", **labels) == 3
    assert value(metrics, f"{duration}_sum", **labels) == pytest.approx(0.009)
    assert value(metrics, f"{duration}_bucket", **labels, le="0.0025") == 0
    assert value(metrics, f"{duration}_bucket", **labels, le="0.005") == 3
    assert value(metrics, f"{duration}_bucket", **labels, le="+Inf") == 3


def test_a_duration_on_a_bound_is_within_it_and_a_long_one_beyond_all(metrics: Metrics):
    metrics.request("GET", "/", 200, 0.001)
    metrics.request("GET", "/", 200, 1000.0)
    bucket = "penstock_http_request_duration_seconds_bucket"
    assert value(metrics, bucket, method="GET", route="/", le="0.001") == 1
    assert value(metrics, bucket, method="GET", route="/", le="60.0") == 1
    assert value(metrics, bucket, method="GET", route="/", le="+Inf") == 2


def test_everything_else(metrics: Metrics):
    metrics.published(3)
    metrics.duplicate()
    metrics.delivered(5)
    metrics.acked(2)
    metrics.waiting_polls(+1)
    metrics.waiting_polls(+1)
    metrics.waiting_polls(-1)
    metrics.open_sse(+1)
    metrics.open_websockets(+1)
    metrics.webhook("delivered", 0.2)
    metrics.auth_rejected("expired")
    metrics.rate_limited("publish")
    metrics.store_error("main", "StoreFullError")
    metrics.guarded("header_timeout")
    metrics.log_lines_dropped(7)
    metrics.ready(True)
    found = {name: number for (name, _), number in samples(metrics.render()).items()}
    expected = {
        "penstock_messages_published_total": 3,
        "penstock_messages_duplicate_total": 1,
        "penstock_messages_delivered_total": 5,
        "penstock_messages_acked_total": 2,
        "penstock_polls_waiting": 1,
        "penstock_event_streams_open": 1,
        "penstock_websockets_open": 1,
        "penstock_webhook_attempts_total": 1,
        "penstock_webhook_duration_seconds_count": 1,
        "penstock_auth_rejections_total": 1,
        "penstock_rate_limited_total": 1,
        "penstock_store_errors_total": 1,
        "penstock_http_connections_refused_total": 1,
        "penstock_log_lines_dropped_total": 7,
        "penstock_ready": 1,
        "penstock_workers": 1,
        "penstock_build_info": 1,
    }
    assert {name: found[name] for name in expected} == expected


def test_labels_stay_few_whatever_callers_pass(metrics: Metrics):
    for number in range(200):
        metrics.auth_rejected(f"reason {number}")
        metrics.request(f"METHOD{number}", "/", 200, 0.1)
    text = samples(metrics.render())
    reasons = [number for (name, _), number in text.items() if name == "penstock_auth_rejections_total"]
    assert len(reasons) <= 65
    assert sum(reasons) == 200
    assert value(metrics, "penstock_auth_rejections_total", reason="other") == 136
    labels = {"route": "/", "code": "200", "class": "2xx"}
    assert value(metrics, "penstock_http_requests_total", method="OTHER", **labels) == 200


def test_routes_stay_few(metrics: Metrics):
    for number in range(5000):
        metrics.request("GET", f"/{number}", 200, 0.1)
    text = samples(metrics.render())
    requests = [number for (name, _), number in text.items() if name == "penstock_http_requests_total"]
    assert len(requests) <= 2049


def test_both_formats_can_be_read(metrics: Metrics):
    metrics.store_error('quote " and \\ and\nline', "x")
    plain, plain_type = metrics.answer("text/plain")
    opened, open_type = metrics.answer("application/openmetrics-text; version=1.0.0")
    assert plain_type.startswith(b"text/plain; version=0.0.4")
    assert open_type.startswith(b"application/openmetrics-text")
    assert opened.endswith(b"# EOF\n")
    labels = [
        sample.labels["storage"]
        for family in (*parse_plain(plain.decode()), *parse_open(opened.decode()))
        for sample in family.samples
        if sample.name == "penstock_store_errors_total"
    ]
    assert labels == ['quote " and \\ and\nline'] * 2
    assert metrics.answer(None)[1] == plain_type


def test_switched_off_it_does_nothing(tmp_path: Path):
    off = Metrics(False, directory=tmp_path)
    off.request("GET", "/", 200, 0.1)
    off.published()
    off.webhook("dead", 1.0)
    off.ready(True)
    assert off.render() == b""
    assert list(tmp_path.iterdir()) == []
    off.close()


# ------------------------------------------------------------------------------ several workers


def _count_and_wait(directory: Path, worker: int, pipe: object) -> None:
    metrics = Metrics(directory=directory, worker=worker)
    metrics.ready(True)
    for _ in range(10):
        metrics.request("GET", "/", 200, 0.002)
    metrics.open_sse(+1)
    pipe.send(os.getpid())  # type: ignore[attr-defined]
    signal.pause()


def test_workers_are_added_up_and_a_killed_one_is_not_forgotten(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    worker = context.Process(target=_count_and_wait, args=(tmp_path, 1, sending))
    worker.start()
    mine = Metrics(directory=tmp_path, worker=0)
    try:
        assert receiving.poll(60)
        receiving.recv()
        mine.request("GET", "/", 200, 0.002)
        labels = {"method": "GET", "route": "/", "code": "200", "class": "2xx"}
        assert value(mine, "penstock_http_requests_total", **labels) == 11
        assert value(mine, "penstock_event_streams_open") == 1
        assert value(mine, "penstock_workers") == 2
        assert value(mine, "penstock_ready", worker="1") == 1
        assert value(mine, "process_resident_memory_bytes", worker="1") > 0
        worker.kill()
        worker.join()
        assert value(mine, "penstock_http_requests_total", **labels) == 11
        assert value(mine, "penstock_event_streams_open") == 0
        assert value(mine, "penstock_workers") == 1
        # Its successor goes on where it was.
        successor = Metrics(directory=tmp_path, worker=1)
        successor.request("GET", "/", 200, 0.002)
        assert value(mine, "penstock_http_requests_total", **labels) == 12
        assert value(mine, "penstock_event_streams_open") == 0
        successor.close()
        assert value(mine, "penstock_http_requests_total", **labels) == 12
    finally:
        worker.kill()
        worker.join()
        mine.close()


def test_what_a_crash_left_of_a_line_is_ignored(tmp_path: Path):
    first = Cells(tmp_path)
    first.values[first.slot("a")] = 1.0
    first.close()
    with (tmp_path / "0.series").open("ab") as lines:
        lines.write(b'["b",[')
    second = Cells(tmp_path)
    second.values[second.slot("a")] += 1.0
    second.values[second.slot("c")] = 5.0
    (snapshot,) = second.snapshots()
    assert {key: list(numbers) for key, numbers in snapshot.series.items()} == {
        ("a", ()): [2.0],
        ("c", ()): [5.0],
    }
    second.close()


def test_when_no_cell_is_left_nothing_breaks():
    cells = Cells()
    slots = {cells.slot(f"series {number}", (), 60) for number in range(CAPACITY // 60 + 10)}
    assert cells.is_full
    assert max(slots) + 60 <= CAPACITY
    cells.values[max(slots) + 59] += 1.0
    assert cells.slot("series 0", (), 60) == 1


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="nowhere"):
        Metrics(directory=tmp_path / "nowhere")
