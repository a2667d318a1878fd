"""The configuration of the data pipeline: what a file says, what the command line says, what is wrong."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.spark import jobs
from penstock.spark.config import PipelineConfig, load
from tests.unit.spark.fake_jobs import FakeJob, FakeKind


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of job is a fake."""
    for name, kind in jobs.KINDS.items():
        monkeypatch.setitem(jobs.KINDS, name, FakeKind(name, kind.summary, kind.every_ms))  # type: ignore[index]


def loaded(
    tmp_path: Path, text: str, environment: Mapping[str, str] | None = None, **more: Any
) -> PipelineConfig:
    file = tmp_path / "pipeline.yml"
    file.write_text(text)
    return load(file, environment=environment or {}, **more)


def problems(
    tmp_path: Path, text: str, environment: Mapping[str, str] | None = None, **more: Any
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, environment, **more)
    return str(caught.value).splitlines()


def options(config: PipelineConfig, name: str) -> Any:
    (found,) = (each.job for each in config.jobs if each.name == name)
    assert isinstance(found, FakeJob)
    assert found.name == name
    return found.options


def test_a_whole_file(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        """
        store: redis://:${PASSWORD}@localhost
        lake: ./lake
        node: etl-1
        spark:
          master: local[4]
          conf: {spark.driver.memory: 4g, spark.sql.shuffle.partitions: 8, spark.ui.enabled: true}
          log: ./spark.log
        jobs:
          maintain: {streams: [], older_than: 7d, limit: , tables: {messages: 30d, steps: 90m}}
          nightly: {job: export, every: 24h, streams: [clicks], older_than_ms: 5, is_dry: true}
          export: {every: 1.5, streams: [orders, audit], batch: "${BATCH}"}
          reconcile: {every: never, streams: []}
        """,
        {"PASSWORD": "sesame", "BATCH": "20"},
    )
    assert (config.store, config.lake, config.node) == ("redis://:sesame@localhost", Path("lake"), "etl-1")
    assert (config.session.master, config.session.log) == ("local[4]", "./spark.log")
    assert config.session.conf == {
        "spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "true",
    }  # fmt: skip
    # In the order of one pass, whatever the order of the file.
    assert [(each.name, each.kind, each.every_ms) for each in config.jobs] == [
        ("nightly", "export", 86_400_000),
        ("export", "export", 1_500),
        ("maintain", "maintain", 600_000),
        ("reconcile", "reconcile", None),
    ]
    assert options(config, "export").streams == ["orders", "audit"]
    assert options(config, "export").batch == 20
    assert options(config, "nightly").older_than_ms == 5
    assert options(config, "nightly").is_dry
    assert options(config, "maintain").older_than_ms == 7 * 86_400_000
    assert options(config, "maintain").limit_ms is None
    assert options(config, "maintain").tables_ms == {"messages": 30 * 86_400_000, "steps": 5_400_000}


def test_without_a_file_the_usual_jobs_run_and_the_command_line_says_the_rest() -> None:
    streams = {("jobs", name, "streams"): ["orders"] for name in ("archive", "export", "rollup", "maintain")}
    config = load(None, environment={}, overrides={("store",): "./shop.pen", ("lake",): "./lake", **streams})
    assert [each.name for each in config.jobs] == ["archive", "export", "rollup", "maintain"]
    assert config.node == socket.gethostname()
    assert config.session.master is None


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "{store: ./a.pen, lake: ./lake, spark: {conf: {a: 1, b: 2}},"
        " jobs: {export: {streams: [a], batch: 5}}}",
        overrides={
            ("store",): "./b.pen",
            ("lake",): None,
            ("spark", "conf"): {"b": "3"},
            ("jobs", "export", "streams"): ["b"],
        },
    )
    assert (config.store, str(config.lake), config.session.conf) == (
        str(Path("b.pen").absolute()),
        "lake",
        {"a": "1", "b": "3"},
    )
    assert (options(config, "export").streams, options(config, "export").batch) == (["b"], 5)


def test_wanted_jobs_come_with_their_defaults_and_others_are_left_out(tmp_path: Path) -> None:
    text = (
        "{store: ./a.pen, lake: ./lake, jobs: {mine: {job: export, streams: [a]}, compact: {streams: [b]}}}"
    )
    overrides = {("jobs", "retention", "streams"): ["c"]}
    wanted = ("mine", "retention")
    config = loaded(tmp_path, text, overrides=overrides, wanted=wanted)
    assert [each.name for each in config.jobs] == ["mine", "compact", "retention"]
    assert [each.name for each in config.only(wanted).jobs] == ["mine", "retention"]
    assert problems(tmp_path, text, wanted=["retencion"]) == [
        'there is no job "retencion": did you mean "retention"?'
    ]


def test_every_problem_is_told_at_once_with_its_path(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        sotre: ./a.pen
        store: redis://host:port
        lake: [./lake]
        node: two words
        spark: {master: 4, config: {}, conf: {a: [1]}}
        jobs:
          export: {every: soon, streams: [orders, 5], batch: many, older_than: 7x, colour: red}
          archive: {every: 0s, streams: orders, older_than: 1s, older_than_ms: 1, limit: -1s}
          orders export: {streams: []}
          mine: {job: exprot, streams: []}
          rollup: 5
          compact: {batch: 0, streams: []}
          retention: {streams: [nowhere]}
          maintain: {streams: [], batch: "${COUNT}", tables: {messages: [1]}}
          replay: {streams: "${UNSET}"}
        """,
        {"COUNT": "some"},
    )
    assert found == [
        "jobs.replay.streams: the environment variable UNSET is not set: set it or write ${UNSET:-default}",
        'sotre: is not a known key: did you mean "store"?',
        *[line for line in found if line.startswith("store: ")],
        "lake: must be text that is not empty, not a list",
        "node: must be 1 to 63 letters, digits, '_', '.' or '-', not \"two words\"",
        'spark.config: is not a known key: did you mean "conf"?',
        "spark.conf.a: must be text or a number, not a list",
        "spark.master: must be text that is not empty, not 4",
        'jobs.export.every: "soon" must be a duration such as 1h30m, .5s or 100ms (never is allowed, too)',
        "jobs.export.streams[1]: must be text, not a whole number",
        "jobs.export.batch: must be a whole number, not text",
        'jobs.export.older_than: "7x" must be a duration such as 1h30m, .5s or 100ms',
        "jobs.export.colour: is not a known key: allowed are job, every, streams, batch, older_than, limit,"
        " tables, is_dry",
        'jobs.archive.every: must be longer than 0, not "0s" (never is allowed, too)',
        "jobs.archive.streams: must be a list, not text",
        "jobs.archive.older_than_ms: stands there twice, with and without _ms",
        'jobs.archive.limit: must be 0 or longer, not "-1s"',
        "jobs[\"orders export\"]: must be 1 to 63 letters, digits, '_', '.' or '-', not \"orders export\"",
        'jobs["orders export"]: there is no job "orders export": allowed are archive, export, rollup,'
        " compact, retention, maintain, reconcile, replay"
        " (a job with a name of your own says which it is: job: export)",
        'jobs.mine.job: there is no job "exprot": did you mean "export"?',
        "jobs.rollup: must be a mapping, not 5",
        "jobs.rollup.streams: is missing",
        "jobs.compact: batch must be at least 1, not 0",
        "jobs.retention: there is no stream nowhere",
        "jobs.maintain.batch (from ${COUNT}): must be a whole number, not text",
        "jobs.maintain.tables: must be a duration such as 1h30m or a number of seconds, not a list",
    ]
    assert any(line.startswith("store: ") for line in found)


def test_what_is_missing_or_no_yaml(tmp_path: Path) -> None:
    assert problems(tmp_path, "jobs: {export: {streams: []}}") == ["store: is missing", "lake: is missing"]
    assert problems(tmp_path, "- a list") == [
        "must be a mapping, not a list", "store: is missing", "lake: is missing",
        *[f"jobs.{name}.streams: is missing" for name in ("archive", "rollup", "maintain")],
    ]  # fmt: skip
    assert "line 1" in problems(tmp_path, "jobs: {")[0] or "line 2" in problems(tmp_path, "jobs: {")[0]
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load(tmp_path / "gone.yml", environment={})
