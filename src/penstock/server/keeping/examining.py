"""Asks another process (``child``) to check a store, or to copy one and check the copy, and tells what it
found.

A process that is ended by a signal while it reads has met a page that is not there: that is a fault like
any other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from penstock import errors
from penstock.engine.storage.copying import DATA_FILE, has_store, used_bytes
from penstock.errors import PenstockError, StoreCorruptError, StoreError
from penstock.server.keeping.manifest import digest_of, find_manifest

#: Called with what is done, how many bytes of it, and of how many (0: nobody knows).
OnProgress: TypeAlias = Callable[[str, int, int], None]

_POLL_S: Final = 0.1
#: Signals of a process that has read what cannot be read.
_CRASHES: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


class Fault(NamedTuple):
    #: as in ``engine/check.py``; R1: it cannot be read, R2: it is not what the manifest says
    rule: str
    #: names the row and its key
    text: str


class Findings(NamedTuple):
    faults: list[Fault]
    #: how many keys each database has
    keys: dict[str, int]


def be_quiet(_what: str, _done: int, _total: int) -> None:
    """Nobody looks."""


def check(path: Path, on_progress: OnProgress = be_quiet) -> Findings:
    """Read everything that a store has; it may be in use. A backup is compared with its manifest, too."""
    if not has_store(path):
        raise StoreError(no_store(path))
    try:
        findings = run_child(["check", str(path)], on_progress)
    except StoreCorruptError as error:
        findings = Findings([Fault("R1", str(error))], {})
    manifest = find_manifest(path)
    if manifest is not None and digest_of(path / DATA_FILE, on_progress) != manifest.sha256:
        text = f"{DATA_FILE} is not what manifest.json says: it was damaged or changed since it was backed up"
        findings.faults.insert(0, Fault("R2", text))
    return findings


def no_store(path: Path) -> str:
    what = "is no directory" if path.exists() and not path.is_dir() else "has no store"
    return f"{path} {what if path.exists() else 'does not exist'}: name the directory of a store"


def run_child(
    words: list[str], on_progress: OnProgress, growing: Path | None = None, lock: int | None = None
) -> Findings:
    """``growing``: the file that tells how far a copy is; ``lock``: what it holds while it lives."""
    source = Path(words[1])
    command = [sys.executable, "-m", "penstock.server.keeping.child", *words]
    ours, theirs = os.pipe()  # its stdin: nothing is sent, and its end would end the child
    try:
        child = subprocess.Popen(
            command,
            stdin=ours,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=() if lock is None else (lock,),
        )
    finally:
        os.close(ours)
    try:
        with child:
            while True:
                try:
                    out, complaints = child.communicate(timeout=_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    _tell(on_progress, source, growing)
                except BaseException:
                    child.kill()
                    raise
    finally:
        os.close(theirs)
    return _understood(child.returncode, out, complaints.decode(errors="replace"), source)


def _tell(on_progress: OnProgress, source: Path, growing: Path | None) -> None:
    if growing is None:
        on_progress("checking", 0, 0)
    else:
        done = growing.stat().st_size if growing.exists() else 0
        on_progress("copying", done, used_bytes(source))


def _understood(status: int, out: bytes, complaints: str, source: Path) -> Findings:
    if -status in _CRASHES:
        name = signal.Signals(-status).name
        raise StoreCorruptError(
            f"{source} is damaged: reading it ended with {name}; restore it from a backup"
        )
    if status != 0 or not out.strip():
        last = (complaints.strip().splitlines() or ["no reason was given"])[-1]
        raise StoreError(f"{source} could not be read: {last}")
    answer = json.loads(out.splitlines()[-1])
    if "error" in answer:
        kind: type[PenstockError] = getattr(errors, answer["error"], StoreError)
        raise kind(answer["text"])
    return Findings([Fault(*fault) for fault in answer["faults"]], answer["keys"])
