"""The table of jobs: what it names is there, and keeps the rules that others rely on."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spark.jobs import KINDS, USUAL

#: Options that a job cannot do without.
_NEEDED: dict[str, dict[str, Any]] = {
    "compact": {"streams": ["orders"]},
    "replay": {"stream": "orders", "target": "copy"},
    "retention": {"tables_ms": {"messages": 1_000}},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_job_and_its_options_keep_the_rules(name: str) -> None:
    options, make = KINDS[name].load()
    assert options.__struct_config__.frozen
    assert options.__struct_config__.forbid_unknown_fields
    assert callable(getattr(make, "run_once"))  # noqa: B009 - what makes a job is its class
    job = make(options(**_NEEDED.get(name, {})))
    assert job.name == name
    job.name = "mine"
    assert job.name == "mine"


def test_what_runs_without_a_configuration_is_known_and_has_its_times() -> None:
    assert set(USUAL) <= set(KINDS)
    assert all(KINDS[name].every_ms for name in (*USUAL, "export"))
    assert KINDS["replay"].every_ms is None
