"""``penstock pipeline …``: drafts, versions, what is active, and files between stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.shell import Shell
from tests.transactions.cli_places import on_store

FIRST = {"name": "checkout", "node_group": "shop", "steps": ["validate", "charge-card"]}
SECOND = {**FIRST, "steps": ["validate", {"type": "delay", "ms": 500}, "charge-card"]}


@pytest.fixture(params=["embedded", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "embedded":
        where = str(tmp_path / "store.pen")
    else:
        where = str(request.getfixturevalue("real_servers").get("valkey").url)
    monkeypatch.setenv("PENSTOCK_STORE", where)
    return where


@pytest.fixture
def pipeline(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell("pipeline", capsysbinary, monkeypatch)


def save(pipeline: Shell, definition: Any) -> None:
    saved = pipeline("save", "-", stdin=json.dumps(definition).encode())
    assert saved == f"draft of {definition['name']} saved\n"


def commit(pipeline: Shell, definition: Any, *words: str) -> str:
    save(pipeline, definition)
    return pipeline("commit", definition["name"], *words).strip()


def facts(pipeline: Shell, *words: str) -> Any:
    return json.loads(pipeline(*words, "--json"))


def test_the_way_of_a_definition(pipeline: Shell, where: str, tmp_path: Path) -> None:
    file = tmp_path / "checkout.json"
    file.write_text(json.dumps(FIRST))
    assert facts(pipeline, "save", str(file)) == {"name": "checkout", "draft": True}
    version = pipeline("commit", "checkout", "-m", "the first").strip()
    assert len(version) == 20
    info = facts(pipeline, "show", "checkout")
    assert (info["active"], info["versions"][0]["comment"], info["versions"][0]["is_active"]) == (
        None, "the first", False,
    )  # fmt: skip
    assert pipeline("activate", "checkout", version[:6]) == f"{version} is active\n"
    assert pipeline("list").splitlines()[1].split()[:3] == ["checkout", version, "1"]
    assert facts(pipeline, "show", "checkout")["definition"]["steps"][1]["name"] == "charge-card"
    assert pipeline("deactivate", "checkout") == "none is active\n"
    assert facts(pipeline, "list")["active"] is None


def test_show_is_readable(pipeline: Shell, where: str) -> None:
    first = commit(pipeline, FIRST, "--activate", "-m", "slow")
    text = pipeline("show", "checkout")
    assert f"active  {first}\n" in text
    assert "slow" in text
    shown = json.loads(text[text.index("{") :])
    assert shown["node_group"] == "shop"
    save(pipeline, SECOND)
    assert '"ms": 500' in pipeline("show", "checkout", "--version", "draft")
    assert '"ms": 500' not in pipeline("show", "checkout")


def test_diff_is_of_the_active_one_and_the_draft(pipeline: Shell, where: str) -> None:
    first = commit(pipeline, FIRST, "--activate")
    save(pipeline, SECOND)
    lines = pipeline("diff", "checkout").splitlines()
    assert lines[:2] == [f"--- checkout@{first}", "+++ checkout@draft"]
    assert any('"ms": 500' in line for line in lines if line.startswith("+"))
    second = commit(pipeline, SECOND)
    assert pipeline("diff", "checkout", first[:8], first) == ""
    assert facts(pipeline, "diff", "checkout", first, second)["new"] == second


def test_a_version_travels_to_another_store(pipeline: Shell, where: str, tmp_path: Path) -> None:
    version = commit(pipeline, FIRST, "--activate", "-m", "the first")
    other = str(tmp_path / "other.pen")
    exported = pipeline("export", "checkout").encode()
    assert pipeline("import", "-", "--store", other, stdin=exported) == f"{version}\n"
    file = tmp_path / "exported.json"
    assert pipeline("export", "checkout", version[:4], "-o", str(file)) == ""
    assert file.read_bytes() == exported
    shown = facts(pipeline, "show", "checkout", "--version", version, "--store", other)
    assert (shown["active"], shown["versions"][0]["comment"]) == (None, "the first")
    assert json.loads(pipeline("export", "checkout", "--json")) == json.loads(exported)
    file.write_bytes(exported.replace(b"charge-card", b"charge-less"))
    assert "is not that of the definition" in pipeline.failure("import", str(file))


def test_what_is_used_is_not_deleted(pipeline: Shell, where: str) -> None:
    first = commit(pipeline, FIRST, "--activate")
    assert "is active, activate another one first" in pipeline.failure("delete", "checkout", first)
    handle = on_store(where, lambda ps: ps.transactions.start("checkout", {}))
    second = commit(pipeline, SECOND, "--activate")
    assert "is in use" in pipeline.failure("delete", "checkout", first)
    on_store(where, lambda ps: ps.transactions.cancel(handle.id))
    assert pipeline("delete", "checkout", first) == f"{first} is deleted\n"
    assert [each["version"] for each in facts(pipeline, "show", "checkout")["versions"]] == [second]
    save(pipeline, FIRST)
    assert pipeline("delete", "checkout", "draft") == "draft is deleted\n"
    assert not facts(pipeline, "show", "checkout")["has_draft"]


def test_every_problem_of_a_definition_is_told(pipeline: Shell, where: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps({"name": "a b", "steps": [{"type": "delay", "ms": -1}, {"type": "fly"}]}))
    lines = pipeline.failure("save", str(file)).splitlines()
    assert len(lines) >= 1
    assert all(line.startswith("penstock: ") for line in lines)
    assert any("steps[1]" in line for line in lines)
    file.write_text(json.dumps({"name": "ab", "steps": [{"type": "delay", "ms": -1}, {"type": "delay"}]}))
    lines = pipeline.failure("save", str(file)).splitlines()
    assert ["steps[0]" in lines[0], "steps[1]" in lines[1]] == [True, True]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("show", "nope"), 1, "there is no pipeline 'nope'"),
        (("show", "a b"), 1, "name must be 1 to 128"),
        (("save", "/not/there.json"), 1, "cannot read /not/there.json"),
        (("commit", "checkout"), 1, "has no draft to commit"),
        (("activate", "checkout", "ffff"), 1, "has no version 'ffff'"),
        (("activate", "checkout", "draft"), 1, "has no draft"),
        (("activate", "checkout", "a"), 1, "has no version 'a'"),
        (("diff", "checkout"), 1, "has no active version"),
        (("export", "checkout"), 1, "has no active version"),
        (("activate", "checkout"), 2, "the following arguments are required: VERSION"),
    ],
)
def test_failures_are_one_sentence(
    pipeline: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    sentence: str,
) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", str(tmp_path / "store.pen"))
    commit(pipeline, FIRST)
    errors = pipeline.failure(*words, status=status)
    assert sentence in errors
    assert errors.count("\n") == 1 or status == 2
