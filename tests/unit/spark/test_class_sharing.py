"""When Java is told of classes that were kept for it. Making them takes a minute: that is a soak test."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from penstock.spark import class_sharing
from penstock.spark.java import Java, chosen

options_of = sys.modules["penstock.spark.session"]._java_options


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "penstock"


def test_an_archive_is_for_one_java_and_one_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(Path("/java/17"), Path("/java/17/bin/java"), 17, "JAVA_HOME")
    here = class_sharing.archive_of(java)
    others = [
        class_sharing.archive_of(dataclasses.replace(java, version=21)),
        class_sharing.archive_of(dataclasses.replace(java, program=Path("/elsewhere/java"))),
    ]
    monkeypatch.setattr(pyspark, "__version__", "4.3.1")
    others.append(class_sharing.archive_of(java))
    assert len({here, *others}) == 4


def test_java_is_told_if_it_was_prepared_and_the_caller_has_no_options() -> None:
    java = chosen()
    archive = class_sharing.archive_of(java)
    assert "SharedArchiveFile" not in options_of(java, {})
    archive.write_bytes(b"")
    assert options_of(java, {}).startswith("-Dlog4j2.configurationFile=file://")
    assert f" -XX:SharedArchiveFile={archive} " in options_of(java, {})
    theirs = options_of(java, {"spark.driver.extraJavaOptions": "-Dmine=1"})
    assert theirs.endswith(" -Dmine=1")
    assert "SharedArchiveFile" not in theirs
    assert class_sharing.remove()
    assert not class_sharing.remove()
    assert not archive.exists()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_was_prepared_is_used(cache: Path, tmp_path: Path) -> None:
    archive = class_sharing.prepare()
    assert archive.parent == cache
    assert archive.stat().st_size > 50_000_000
    assert [path.name for path in cache.iterdir() if path.name.startswith("prepare-")] == []
    code = (
        "import penstock.spark\n"
        "spark = penstock.spark.session(master='local[1]')\n"
        "from pyspark import SparkContext\n"
        "pid = SparkContext._gateway.proc.pid\n"
        "assert spark.range(10).count() == 10\n"
        "print(open(f'/proc/{pid}/maps').read().count('classes-'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) > 0
