"""A session starts on a machine without Java, quietly, and what cannot start is told in one sentence."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.spark
from penstock.errors import ConfigError
from tests.spark import session_alone


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_java_it_starts_quietly_and_again_after_its_jvm_was_killed(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "env", "dirname", "readlink", "head", "ps", "uname", "chmod", "sh"):
        if program := shutil.which(name):
            (tools / name).symlink_to(program)
    here, result = tmp_path / "here", tmp_path / "seen.json"
    here.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    environment = {**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, session_alone.__file__, result],
        env=environment, cwd=here, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert list(here.iterdir()) == []
    seen = json.loads(result.read_text())
    refusal, log = seen.pop("refusal"), Path(seen.pop("log"))
    assert refusal.startswith("Spark did not start on local[1]: ")
    assert "lots" in refusal
    assert "\n" not in refusal
    assert log.is_relative_to(tmp_path / "cache")
    assert log.name.startswith("my-app-")
    assert seen == {
        "count": 1_000,
        "statement": True,
        "is the same": True,
        "partitions": "7",
        "is alive when killed": False,
        "is alive again": True,
        "count again": 500,
        "is alive when stopped": False,
    }


@pytest.mark.parametrize("master", ["localhost", "local[many]", "spark:/host", "local[2", "http://host"])
def test_a_wrong_master_is_one_sentence(master: str) -> None:
    with pytest.raises(ConfigError, match=r"master must be local\[\*\], local\[N\], spark://"):
        penstock.spark.session(master=master)


@pytest.mark.skipif(importlib.util.find_spec("grpc") is not None, reason="what Connect needs is installed")
def test_connect_says_what_it_needs() -> None:
    with pytest.raises(
        ConfigError, match=r"Spark Connect needs packages .* pip install 'pyspark\[connect\]==4"
    ):
        penstock.spark.session(master="sc://localhost:1")
