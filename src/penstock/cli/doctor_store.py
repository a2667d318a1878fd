"""What ``penstock doctor`` looks at in a store, and in the directory of one or of a lake.

============  ==============================================================================================
kind          what is looked at
============  ==============================================================================================
directory     whether it opens, its durability, whether it can be written, has room, how long an fsync takes
server        version, speed, clock, and settings that lose data: eviction, persistence, durability
cluster       the same of every primary
============  ==============================================================================================

Rules: nothing of the user's is changed: what is written to find out is removed at once. None of the checks
raises. What a server does not let us read is a warning.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock import blocking
from penstock.cli.doctor_findings import Finding, dotted, numbers
from penstock.client.routes import ToAll
from penstock.client.targets import parse_url
from penstock.clock import SystemClock
from penstock.errors import CommandError, PenstockError

#: Commands that Penstock sends are of this version of Redis; Valkey counts on from there.
_REDIS: Final = (7, 0)
_DISK_BYTES: Final = 1 << 30
_SLOW_MS: Final = 50.0
#: A commit waits for an fsync. Disks do it within a few ms, and what does not is shared with others.
_SLOW_FSYNC_MS: Final = 20.0
_FSYNCS: Final = 8
#: Beyond this, times that people see do not fit together.
_CLOCK_MS: Final = 2_000


def store(url: str | None) -> Iterator[Finding]:
    """Whether the store opens and answers, how fast, and whether it keeps what it is told."""
    if not url:
        yield Finding("store", "ok", "none was named", "penstock doctor WHERE looks at one")
        return
    try:
        target = parse_url(url)
        if target.kind == "embedded" and not Path(target.path or "").is_dir():
            yield Finding(
                "store", "warn", f"there is none at {target.path}", "it is made when it is first opened"
            )
            yield from directory("store", Path(target.path or ".").absolute().parent)
            return
        with blocking.open(url, fail_fast=True) as client:
            yield from answers(client, target.kind)
            yield from _keeping(client, is_embedded=target.kind == "embedded")
    except (PenstockError, OSError, ValueError) as error:
        yield Finding("store", "fail", str(error), "check the URL, and that the server runs")
        return
    if target.kind == "embedded" and target.path is not None:
        yield from directory("store", Path(target.path))
        yield from _fsync(Path(target.path))


# ---------------------------------------------------------------------------------------- servers


def answers(client: blocking.Client, kind: str) -> Iterator[Finding]:
    """Who is there, and how soon it answers."""
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
    version = numbers(what.rpartition(" ")[2])
    if what.startswith("redis ") and version < _REDIS:
        yield Finding(
            "redis",
            "fail",
            f"{what} is too old",
            f"Penstock needs Redis {dotted(_REDIS)} or newer, or Valkey",
        )


def _server_of(client: blocking.Client) -> str:
    told: Any = client.execute("INFO", "server")
    text = (
        told if isinstance(told, bytes) else next(iter(told.values()), b"") if isinstance(told, dict) else b""
    )
    found = _lines_of(text)
    for name in ("penstock", "valkey", "redis"):
        if version := found.get(f"{name}_version"):
            return f"{name} {version}"
    return "an unknown server"


def _lines_of(report: bytes) -> dict[str, str]:
    lines = (line.split(":", 1) for line in report.decode(errors="replace").splitlines() if ":" in line)
    return {name: value.strip() for name, value in lines}


def _keeping(client: blocking.Client, *, is_embedded: bool) -> Iterator[Finding]:
    """Whether stores keep what they are told; on a cluster each server is asked."""
    reports: Any = client.execute("INFO", route=ToAll())
    settings = _settings(client)
    for node, report in reports.items():
        facts = _lines_of(report)
        name = f" of {node}" if len(reports) > 1 else ""
        if facts.get("role") == "slave":
            yield Finding("role", "fail", f"{node} is a replica, which takes no writes", "name the primary")
        yield from _durability(facts, settings.get(node), name)
        if not is_embedded:
            yield from _eviction(facts, name)
            yield from _clock(facts, name)


def _settings(client: blocking.Client) -> dict[str, Mapping[bytes, bytes]]:
    """What CONFIG tells, by server; none where it must not be read."""
    try:
        found: Any = client.execute("CONFIG", "GET", "append*", "save", route=ToAll())
    except CommandError:
        return {}
    return {node: reply if isinstance(reply, dict) else _paired(reply) for node, reply in found.items()}


def _paired(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _durability(
    facts: Mapping[str, str], settings: Mapping[bytes, bytes] | None, name: str
) -> Iterator[Finding]:
    check = f"durability{name}"
    if own := facts.get("durability"):  # of Penstock
        if own == "always":
            yield Finding(check, "ok", "always: a reply means it is on disk")
        else:
            yield Finding(
                check,
                "warn",
                f"{own}: a power cut loses the last writes",
                "open or serve it with durability always",
            )
        return
    if settings is None:
        yield Finding(
            check, "warn", "its settings must not be read", "look at appendonly and save on the server"
        )
        return
    fsync = settings.get(b"appendfsync", b"").decode()
    if settings.get(b"appendonly") == b"yes":
        if fsync == "no":
            yield Finding(check, "warn", "appendfsync no: a power cut loses writes",
                          "CONFIG SET appendfsync everysec")  # fmt: skip
        else:
            lost = "nothing" if fsync == "always" else "a second of writes at most"
            yield Finding(check, "ok", f"appendonly yes, appendfsync {fsync}: a crash loses {lost}")
    elif settings.get(b"save"):
        yield Finding(
            check, "warn", "snapshots alone: a crash loses what came after the last one",
            "CONFIG SET appendonly yes, and the same in its configuration",
        )  # fmt: skip
    else:
        yield Finding(
            check, "fail", "nothing is kept over a restart (appendonly no, no snapshots)",
            "CONFIG SET appendonly yes, and the same in its configuration",
        )  # fmt: skip


def _eviction(facts: Mapping[str, str], name: str) -> Iterator[Finding]:
    policy, limit = facts.get("maxmemory_policy", "noeviction"), int(facts.get("maxmemory") or 0)
    remedy = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration"
    if policy == "noeviction":
        yield Finding(f"eviction{name}", "ok", "noeviction: a full memory refuses writes and loses nothing")
    elif limit:
        yield Finding(f"eviction{name}", "fail", f"{policy}: a full memory deletes data", remedy)
    else:
        yield Finding(f"eviction{name}", "warn", f"{policy}, though maxmemory is not set", remedy)


def _clock(facts: Mapping[str, str], name: str) -> Iterator[Finding]:
    told_us = facts.get("server_time_usec")
    if told_us is None:
        return
    away_ms = abs(SystemClock().now_ms() - int(told_us) // 1_000)
    if away_ms > _CLOCK_MS:
        yield Finding(
            f"server clock{name}", "warn", f"is {away_ms / 1_000:.1f} s away from this machine's",
            "let both ask a time server (NTP)",
        )  # fmt: skip
    else:
        yield Finding(f"server clock{name}", "ok", f"{away_ms} ms away from this machine's")


# ------------------------------------------------------------------------------------ directories


def directory(check: str, path: Path) -> Iterator[Finding]:
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


def _fsync(path: Path) -> Iterator[Finding]:
    """How long a page takes to be on disk, which is what a commit waits for."""
    clock = SystemClock()
    times_ms = []
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".penstock-doctor-") as file:
            for _ in range(_FSYNCS):
                began_s = clock.monotonic_s()
                os.write(file.fileno(), bytes(4096))
                os.fsync(file.fileno())
                times_ms.append((clock.monotonic_s() - began_s) * 1_000)
    except OSError:
        return  # what is wrong with the directory was told before
    took_ms = statistics.median(times_ms)
    if took_ms > _SLOW_FSYNC_MS:
        yield Finding(
            "fsync", "warn", f"takes {took_ms:.0f} ms, and every commit waits for one",
            "use a local disk, or many writers at once: they share commits",
        )  # fmt: skip
    else:
        yield Finding("fsync", "ok", f"takes {took_ms:.2f} ms")
