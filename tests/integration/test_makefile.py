"""What ``make`` would do on a fresh machine, as it says itself: nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("target", "extras"),
    [
        ("run", "archive,gateway,cli,spark"),
        ("test", "archive,gateway,cli,spark,test,check,bench"),
        ("check", "archive,gateway,cli,spark,test,check,bench"),
    ],
)
def test_the_environment_has_what_the_target_needs(target: str, extras: str, tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", "-n", target], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f'-e ".[{extras}]"' in done.stdout
