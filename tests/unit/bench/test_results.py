"""The model of what a run measured: medians, comparisons, aims, and the file it is kept in."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.results import OURS, Line, Results


def made() -> Results:
    results = Results(machine="a machine", began="2026-01-02T03:04:05+00:00")
    results.add("client.calls", "GET", "bare loop", "calls/s", [40, 50, 60], role="limit", aim=0.7)
    results.add("client.calls", "GET", OURS, "calls/s", [30, 36, 45], role="ours", aim=30)
    results.add("client.calls", "GET", "slow", "calls/s", [2, 3, 1], aim=20)
    results.add("client.calls", "GET", "slower", "calls/s", [1, 1, 1])
    return results


def only_line(results: Results) -> Line:
    (line,) = results.lines("client.calls")
    return line


def test_the_median_stands_for_the_rounds_and_the_spread_for_their_distance() -> None:
    ours = only_line(made()).ours
    assert ours is not None
    assert ours.median == 36
    assert ours.spread == pytest.approx(7.5 / 36)


def test_higher_is_better_unless_it_is_said_otherwise() -> None:
    limit, ours, slow, _ = only_line(made()).measurements
    assert only_line(made()).times(slow) == 18
    assert only_line(made()).times(limit) == 36 / 50
    assert only_line(made()).times(ours) is None

    results = Results()
    results.add("x", "delay", OURS, "ms", [2.0], role="ours", better="lower", aim=5)
    results.add("x", "delay", "peer", "ms", [8.0], better="lower", aim=5)
    (line,) = results.lines("x")
    assert line.times(line.measurements[1]) == 4
    assert [line.is_met(one) for one in line.measurements] == [True, False]


def test_an_aim_is_a_figure_of_ours_or_a_number_of_times_a_peer() -> None:
    line = only_line(made())
    assert [line.is_met(one) for one in line.measurements] == [True, True, False, None]


def test_nothing_is_met_where_ours_is_missing() -> None:
    results = Results()
    results.add("x", "y", "peer", "calls/s", [1.0], aim=2)
    (line,) = results.lines("x")
    assert line.is_met(line.measurements[0]) is None
    assert line.best_peer() is None


def test_the_best_peer_is_the_hardest_to_beat_and_never_a_limit() -> None:
    best = only_line(made()).best_peer()
    assert best is not None
    assert best.contender == "slow"


def test_a_contender_without_a_round_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="peer has no round of 'GET'"):
        Results().add("client.calls", "GET", "peer", "calls/s", [])


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    results = made()
    results.note("client.calls", "coredis is left out: no network")
    results.took_s["client.calls"] = 1.5
    results.save(tmp_path / "new" / "file.json")
    assert Results.load(tmp_path / "new" / "file.json") == results


@pytest.mark.parametrize("contents", [None, "{", '{"measurements": 5}'])
def test_what_is_no_file_of_results_is_named(tmp_path: Path, contents: str | None) -> None:
    file = tmp_path / "file.json"
    if contents is not None:
        file.write_text(contents)
    with pytest.raises(ValueError, match=r"file\.json is no file of results"):
        Results.load(file)


def test_of_two_runs_the_later_figure_stays() -> None:
    first, second = made(), Results(machine="a machine", began="2026-01-03T00:00:00+00:00")
    second.add("client.calls", "GET", "slow", "calls/s", [4.0], aim=20)
    second.add("streams.growth", "seek", OURS, "µs", [100.0], role="ours")
    first.note("client.calls", "old")
    first.note("server.keys", "kept")
    first.merge(second)
    slow = next(one for one in only_line(first).measurements if one.contender == "slow")
    assert slow.median == 4
    assert len(only_line(first).measurements) == 4
    assert [note.text for note in first.notes] == ["kept"]
    assert first.sections() == ["client.calls", "streams.growth", "server.keys"]
    assert first.began == second.began


def test_two_machines_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="two machines"):
        made().merge(Results(machine="another"))
