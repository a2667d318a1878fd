"""The page that is made of results: everything that it promises to say is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report
from bench.environments import NotMeasuredError
from bench.report import Bar, bars, draw, page
from bench.results import OURS, Results


def made() -> Results:
    results = Results(
        machine="a machine with 2 cores",
        began="2026-01-02T03:04:05+00:00",
        versions={"Penstock": "0.1.0", "Redis": "7.0.15"},
        took_s={"server.commands": 60.0, "client.calls": 120.0},
    )
    results.add("server.commands", "SET, pipeline 16", "Redis", "requests/s", [1_000_000, 1_200_000], aim=0.3)
    results.add("server.commands", "SET, pipeline 16", OURS, "requests/s", [220_000, 220_000], role="ours")
    results.add("channels.traffic", "delay p50", OURS, "ms", [8.25], role="ours", better="lower", aim=10)
    results.note("client.calls", "coredis is left out: no network")
    return results


def test_the_page_says_machine_date_versions_and_how_long() -> None:
    words = page(made())
    assert (
        "*a machine with 2 cores. Measured on 2026-01-02, in 3 minutes. Penstock 0.1.0, Redis 7.0.15.*"
        in words
    )
    assert "Shortened" not in words
    assert "images/benchmarks.png" in words


def test_the_page_judges_every_aim() -> None:
    words = page(made())
    assert (
        "Aims met: 1 of 2. Missed:\n\n- server.commands, SET, pipeline 16: 0.20× Redis, the aim is ≥ 0.3×"
        in words
    )
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in words.splitlines() if line[:1] == "|"
    ]
    assert ["SET, pipeline 16 (requests/s)", "Redis", "1,100,000", "9%", "0.20×", "≥ 0.3×", "missed"] in rows
    assert ["", "Penstock", "220,000", "0%", "", "", ""] in rows
    assert ["delay p50 (ms)", "Penstock", "8.25", "≤ 10", "met"] in rows  # no column is empty


def test_of_several_of_ours_the_one_that_misses_is_named() -> None:
    results = Results(machine="m", began="2026-01-02")
    for size, micros in (("1,000 keys", 2.0), ("9,000 keys", 4.0)):
        results.add("server.keys", "GET", f"among {size}", "µs", [micros], role="ours", better="lower", aim=3)
    assert "Aims met: 1 of 2. Missed:\n\n- server.keys, GET, among 9,000 keys: 4 µs, the aim is ≤ 3" in page(
        results
    )


def test_what_is_missing_is_said_where_it_would_stand() -> None:
    words = page(made())
    heading = words.index("### GET and INCR on one connection")
    assert words.index("coredis is left out: no network") > heading


def test_a_trial_is_called_one() -> None:
    results = made()
    results.scale = 0.02
    assert "**Shortened to 0.02 of its size" in page(results)


def test_a_page_without_a_chart_shows_none() -> None:
    assert "images/" not in page(made(), has_chart=False)


def test_bars_are_lines_with_a_peer() -> None:
    assert bars(made()) == [Bar("server", "SET, pipeline 16", "Redis", 0.2, 0.3)]


def test_a_chart_without_bars_or_a_drawing_library_is_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotMeasuredError, match="no line has a peer"):
        draw(Results(), tmp_path / "chart.png", tmp_path)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho No module named matplotlib >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(report, "python_with", lambda *_: python)
    with pytest.raises(NotMeasuredError, match="No module named matplotlib"):
        draw(made(), tmp_path / "chart.png", tmp_path)
    assert not (tmp_path / "chart.png").exists()


def test_the_page_is_written_even_if_the_chart_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(report, "CHART", tmp_path / "images" / "benchmarks.png")
    report.write_docs(Results(machine="m", began="2026-01-02"), tmp_path)
    assert "images/" not in (tmp_path / "benchmarks.md").read_text()
