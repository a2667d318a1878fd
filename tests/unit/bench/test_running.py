"""A run goes on without what cannot be measured, says what that was, and keeps what it has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import running
from bench.__main__ import main
from bench.environments import NotMeasuredError
from bench.plan import SECTIONS, SHORT
from bench.results import OURS, Results
from bench.running import Run, measure_all
from penstock.testing.servers import Kind, ServerBinary, ServerUnavailableError

ROOT = Path(__file__).parents[3]


def a_run() -> Run:
    return Run(SHORT, Path("unused"))


def test_a_section_that_fails_does_not_take_the_others_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = a_run(), tmp_path / "results.json"
    missing, broken, fine = SECTIONS[:3]

    def cannot(run: Run) -> None:
        raise NotMeasuredError("there is no server here")

    def fails(run: Run) -> None:
        run.results.add(broken.key, "before", OURS, "calls/s", [1.0])
        raise ZeroDivisionError("a mistake of ours")

    def measures(run: Run) -> None:
        run.results.add(fine.key, "a line", OURS, "calls/s", [2.0])

    measure_all(
        run, [missing, broken, fine], {missing.key: cannot, broken.key: fails, fine.key: measures}, file
    )
    kept = Results.load(file)
    assert [one.section for one in kept.measurements] == [broken.key, fine.key]
    assert [note.text for note in kept.notes] == [
        f"{missing.key} is left out: there is no server here",
        f"{broken.key} is left out: a mistake of ours",
    ]
    assert run.failed == [broken.key]
    assert set(kept.took_s) == {missing.key, broken.key, fine.key}
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_redis_is_taken_before_valkey_and_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {
        "redis": ServerBinary("redis", "7.0.15", Path("r")),
        None: ServerBinary("valkey", "9.1", Path("v")),
    }

    def find(kind: Kind | None = None) -> ServerBinary:
        if kind in offered:
            return offered[kind]
        raise ServerUnavailableError("no server was found")

    monkeypatch.setattr(running, "find_server", find)
    run = a_run()
    assert run.real_server().kind == "redis"
    del offered["redis"]
    assert run.real_server().kind == "valkey"
    assert run.results.versions == {"Redis": "7.0.15", "Valkey": "9.1"}
    offered.clear()
    with pytest.raises(NotMeasuredError, match="no server was found"):
        run.real_server()


def test_versions_that_differ_are_told_of_whom() -> None:
    run = a_run()
    run.took_part("taskiq, Redis", {"redis": "7.1", "uvloop": "0.23"})
    run.took_part("arq, Redis", {"redis": "5.3", "uvloop": "0.23"})
    assert run.results.versions == {"redis-py": "7.1", "uvloop": "0.23", "redis-py of arq": "5.3"}


def test_data_of_a_run_ends_with_it() -> None:
    run = a_run()
    folder = run.directory
    assert folder.is_dir()
    assert run.directory == folder
    run.close()
    assert not folder.exists()


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


def test_a_section_is_measured_printed_and_kept_by_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    done = bench("streams.durable", "--scale", "0.01", "--rounds", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "| Penstock " in done.stdout
    kept = Results.load(file)
    (line,) = kept.lines("streams.durable")
    assert [one.role for one in line.measurements] == ["ours", "peer"]
    assert all(len(one.rounds) == 1 and one.median > 0 for one in line.measurements)
    assert set(kept.versions) >= {"Penstock", "Python", "lmdb"}


def test_what_was_kept_is_shown_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(machine="m", began="2026-01-02")
    results.add("streams.durable", "single durable appends", OURS, "messages/s", [5.0], role="ours")
    results.save(tmp_path / "results.json")
    monkeypatch.setattr(sys, "argv", ["bench", "--show", str(tmp_path / "results.json")])
    main()
    assert "single durable appends (messages/s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["spark.growth"], "add --large"),
        (["--show", "nowhere.json"], "nowhere.json is no file of results"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--scale", "0"], "--scale must be above 0"),
    ],
)
def test_a_bad_argument_is_named(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
