"""Completion scripts, asked by the shells themselves; those that are not installed are left out."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock

#: Words that were typed (the last one is being typed), and what must be offered.
CASES: list[tuple[list[str], set[str]]] = [
    (["penstock", "sh"], {"shell"}),
    (["penstock", "tx", "st"], {"start", "status", "stats"}),
    (["penstock", "tx", "schedule", "r"], {"resume", "remove", "run"}),
    (["penstock", "tx", "start", "checkout", "--ext"], {"--external-id"}),
    (["penstock", "serve", "--durability", ""], {"always", "relaxed"}),
    (["penstock", "top", "--level", "6"], {"60s", "600s"}),
    (["penstock", "completion", ""], {"bash", "zsh", "fish"}),
    (["penstock", "stream", "read", "./sho"], {"./shop.pen"}),
    (["penstock", "tx", "list", "--owner", ""], set()),
]


@pytest.fixture
def script(run: Penstock, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "shop.pen").mkdir()
    path = tmp_path / f"penstock.{shell}"
    done = run("completion", shell)
    assert (done.status, done.errors) == (0, "")
    path.write_text(done.out)
    return path


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash(script: Path) -> None:
    lines = ["set -u", f"source {script}"]
    for words, _ in CASES:
        typed = " ".join(f"'{word}'" for word in words)
        lines.append(f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _penstock")
        lines.append('echo "= ${COMPREPLY[*]-}"')
    lines.append("complete -p penstock")
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        cwd=script.parent,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *answers, registered = done.stdout.splitlines()
    found = [set(answer.removeprefix("= ").split()) for answer in answers]
    assert found == [wanted for _, wanted in CASES]
    assert registered.endswith("-F _penstock penstock")


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish(script: Path) -> None:
    for words, wanted in CASES:
        line = " ".join(words)
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
            capture_output=True, text=True, cwd=script.parent, timeout=60,
        )  # fmt: skip
        found = {answer.partition("\t")[0].rstrip("/") for answer in done.stdout.splitlines()}
        assert found == wanted, line


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_understands_its_script(script: Path) -> None:
    text = f"autoload -U compinit; compinit -D; source {script}; whence -w _penstock; echo $_comps[penstock]"
    done = subprocess.run(["zsh", "-f", "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["_penstock:", "function", "_penstock"], done


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_in_the_script(run: Penstock, shell: str) -> None:
    text = run("completion", shell).out
    for words in ("penstock tx schedule put", "penstock spark sql", "penstock backup", "penstock demo"):
        assert words in text
    assert not re.search(r"\blocal (-a )?(path|commands|options)\b", text) or shell == "bash"
