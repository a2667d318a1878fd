"""Links lead somewhere, every page can be found, references are current, and what guides show is true.

The larger pages have tests beside what they are about: ``tests/*/test_documentation.py``, ``tests/gateway``.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.gateway.config import load
from penstock.spark.config import load as load_spark
from tests.documents import blocks, check, compiled

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = [DOCS / "index.md", *sorted(DOCS.glob("how-to/*.md")), *sorted(DOCS.glob("explanation/*.md"))]
REFERENCES = ("make_command_reference.py", "make_python_reference.py")


@pytest.fixture(scope="module")
def check_docs() -> ModuleType:
    spec = util.spec_from_file_location("check_docs", ROOT / "scripts" / "check_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------------- links


def test_links_and_navigation_are_whole(check_docs: ModuleType) -> None:
    assert check_docs.problems() == []


def test_broken_links_are_seen(
    check_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "deploy").mkdir()
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/README.md", "docs/b.md"):
        (tmp_path / name).write_text("# One\n\n## Two `words`, and more\n\n## One\n")
    good = "[a](b.md#two-words-and-more) [b](../README.md#one) [c](https://elsewhere/x) `[d](e)` [f](#here)\n"
    bad = "[a](c.md) ![b](b.md#three) [c](b.md#One) [d](#there)\n"
    (tmp_path / "docs" / "a.md").write_text(f"# Here\n\n{good}{bad}\n```\n[e](nowhere)\n```\n")
    (tmp_path / "zensical.toml").write_text(
        '[project]\nnav = [{ "A" = "a.md" }, { "X" = [{ "A" = "a.md" }, { "Z" = "z.md" }] }]\n'
    )
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    monkeypatch.setattr(check_docs, "BROUGHT", {})
    assert check_docs.problems() == [
        "docs/a.md: c.md: there is no such file",
        "docs/a.md: b.md#three: b.md has no such heading",
        "docs/a.md: b.md#One: b.md has no such heading",
        "docs/a.md: #there: a.md has no such heading",
        "zensical.toml: b.md is not in the navigation",
        "zensical.toml: z.md: there is no such page",
        "zensical.toml: a.md is there twice",
    ]


# ----------------------------------------------------------------------------------- references


@pytest.mark.parametrize("script", REFERENCES)
def test_references_are_up_to_date(script: str) -> None:
    command = [sys.executable, ROOT / "scripts" / script, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --------------------------------------------------------------------------------------- guides


async def test_python_of_guides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = 0
    for guide in GUIDES:
        home = tmp_path / guide.stem
        home.mkdir()
        monkeypatch.chdir(home)
        names: dict[str, Any] = {"check": check}
        for _, block in blocks(guide.read_text("utf-8"), "python"):
            code, count = compiled(block, str(guide), awaits=True)
            if code.co_flags & inspect.CO_COROUTINE:
                await eval(code, names)
            else:
                exec(code, names)
            checks += count
    assert checks == 12


def test_files_of_guides(tmp_path: Path) -> None:
    """Each is of the gateway or of the data pipeline; files that they name have to be there."""
    environment = {"PENSTOCK_ADMIN_TOKEN": "0123456789abcdef", "PENSTOCK_PASSWORD": "sesame"}
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    loaded = 0
    for guide in GUIDES:
        for _, block in blocks(guide.read_text("utf-8"), "yaml"):
            file = tmp_path / f"{loaded}.yml"
            file.write_text(re.sub(r"/etc/penstock/", f"{tmp_path}/", block))
            if block.startswith("# pipeline.yml"):
                assert load_spark(file, environment=environment).jobs
            else:
                assert load(file, environment=environment, overrides={})
            loaded += 1
    assert loaded == 3


def test_commands_of_guides_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, words: Any = None) -> argparse.Namespace:
        arguments = parse(parser, words)
        arguments.run = lambda arguments: None
        return arguments

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    text = "\n".join(guide.read_text("utf-8") for guide in GUIDES)
    shown = [line for _, block in blocks(text, "sh") for line in block.splitlines()]
    commands = [line for line in shown if line.startswith("penstock ")]
    assert len(commands) == 8
    for command in commands:
        assert main(shlex.split(command, comments=True)[1:]) == 0, command
