"""Environments of peers, and the scripts that run in them."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from bench import environments
from bench.client_peers.measuring import TASKS
from bench.environments import NotMeasuredError, figures_of, python_with
from penstock.testing.servers import RealServer


def test_without_requirements_it_is_our_own_interpreter(tmp_path: Path) -> None:
    assert python_with("", (), tmp_path) == Path(sys.executable)


def test_an_environment_is_used_again_while_its_stamp_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []

    def make(*command: str) -> None:
        commands.append(command)
        (tmp_path / "peer" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "peer" / "bin" / "python").touch()

    monkeypatch.setattr(environments, "_run", make)
    python = python_with("peer", ("peer==1",), tmp_path)
    assert [command[-1] for command in commands] == [str(tmp_path / "peer"), "peer==1"]
    assert python_with("peer", ("peer==1",), tmp_path) == python
    assert len(commands) == 2
    python_with("peer", ("peer==2",), tmp_path)
    assert commands[-1][-1] == "peer==2"
    (tmp_path / "peer" / "penstock-bench.txt").write_text(f"Python {platform.python_version()}\npeer==")
    python_with("peer", ("peer==2",), tmp_path)
    assert len(commands) == 6


def test_an_environment_that_cannot_be_made_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def fail(*command: str) -> None:
        tries.append(command[-1])
        raise NotMeasuredError("there is no network")

    monkeypatch.setattr(environments, "_run", fail)
    for _ in range(2):
        with pytest.raises(NotMeasuredError, match="there is no network"):
            python_with("peer", ("peer==1",), tmp_path)
    assert len(tries) == 1


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotMeasuredError, match="name another with --cache"):
        python_with("peer", ("peer==1",), tmp_path / "file")


def test_the_last_words_of_a_script_say_why_there_are_no_figures() -> None:
    with pytest.raises(NotMeasuredError, match=r"its script failed: .*invalid int value: 'x'"):
        figures_of(Path(sys.executable), "bench.client_peers.bare_loop", "x", "1")


@pytest.mark.parametrize("script", ["bare_loop", "penstock_client"])
def test_a_client_measures_itself_on_a_real_server(script: str) -> None:
    with RealServer() as server:
        figures = figures_of(Path(sys.executable), f"bench.client_peers.{script}", str(server.port), "0.01")
    assert set(figures["rates"]) == {"GET", "INCR"}
    assert [int(tasks) for tasks in figures["rates"]["GET"]] == list(TASKS)
    assert all(rate > 0 for rates in figures["rates"].values() for rate in rates.values())
    assert figures["bytes_a_call"] > 100
    assert "uvloop" in figures["versions"]
