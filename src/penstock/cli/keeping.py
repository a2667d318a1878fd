"""``penstock backup``, ``restore`` and ``check``: copies of stores and their health. ``migrate`` is in
``migrating``.

Rules: what was done goes to stdout (with ``--json`` as one object), a bar to stderr if that is a terminal.
Whoever names a server where only a directory makes sense is told what to do instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli import migrating
from penstock.cli.progress import Progress
from penstock.cli.showing import size
from penstock.cli.teaching import add_json, taught
from penstock.client.targets import parse_url
from penstock.errors import StoreCorruptError, UsageError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.server.keeping import Manifest, OnProgress


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_backup(groups)
    _add_restore(groups)
    _add_check(groups)
    migrating.add_migrate(groups)


def _add_backup(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "backup",
        **taught(
            "copy a store that is in use, and check the copy",
            "penstock backup ./shop.pen ./shop.backup",
            "penstock backup ./shop.pen --archive shop.tar.zst",
            description="Copy a store as it is at this moment, while others go on using it. The copy is read"
            " from its first to its last row before it gets its name.",
        ),
    )
    parser.add_argument("store", metavar="STORE", help="directory of the store")
    parser.add_argument("destination", metavar="DEST", nargs="?", help="directory to make")
    parser.add_argument(
        "--archive", metavar="FILE.tar.zst", type=Path, help="make one compressed file as well, or instead"
    )
    parser.add_argument("--force", action="store_true", help="replace a backup of that name")
    add_json(parser)
    parser.set_defaults(run=_backup)


def _add_restore(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "restore",
        **taught(
            "make a store of a backup",
            "penstock restore ./shop.backup ./shop.pen",
            "penstock restore shop.tar.zst ./shop.pen",
            description="Make a store of a backup, which is compared with its digest and read through"
            " before. The directory must not exist yet.",
        ),
    )
    parser.add_argument(
        "backup", metavar="BACKUP", help="what `penstock backup` made: a directory or a .tar.zst"
    )
    parser.add_argument("store", metavar="STORE", help="directory to make")
    add_json(parser)
    parser.set_defaults(run=_restore)


def _add_check(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "check",
        **taught(
            "look whether a store is whole",
            "penstock check ./shop.pen",
            description="Read everything that a store has and compare what must agree. It may be in use."
            " Ends with status 1 if there is a fault. A backup is compared with its manifest, too.",
        ),
    )
    parser.add_argument("store", metavar="STORE", help="directory of a store or of a backup")
    add_json(parser)
    parser.set_defaults(run=_check)


# ------------------------------------------------------------------------- actions


def _backup(arguments: argparse.Namespace) -> None:
    from penstock.server import keeping

    store = _directory(arguments.store, "backup")
    destination = None if arguments.destination is None else _directory(arguments.destination, "backup to")
    with _shown() as on_progress:
        made = keeping.backup(
            store, destination, arguments.archive, replaces=arguments.force, on_progress=on_progress
        )
    places = [str(place) for place in (made.directory, made.archive) if place is not None]
    if arguments.json:
        _print_json({"backup": places, **_facts(made.manifest)})
    else:
        print(f"backed up {store} to {' and '.join(places)}: {_summary(made.manifest)}, checked")


def _restore(arguments: argparse.Namespace) -> None:
    from penstock.server import keeping

    source, store = Path(arguments.backup), _directory(arguments.store, "restore to")
    with _shown() as on_progress:
        manifest = keeping.restore(source, store, on_progress)
    if arguments.json:
        _print_json({"store": str(store), **_facts(manifest)})
    else:
        print(f"restored {store} from {source} of {manifest.made_at}: {_summary(manifest)}, checked")


def _check(arguments: argparse.Namespace) -> None:
    from penstock.server import keeping

    store = _directory(arguments.store, "check")
    with _shown() as on_progress:
        findings = keeping.check(store, on_progress)
    if arguments.json:
        faults = [fault._asdict() for fault in findings.faults]
        _print_json({"store": str(store), "keys": findings.keys, "faults": faults})
    for fault in () if arguments.json else findings.faults:
        print(f"{fault.rule}: {fault.text}")
    if findings.faults:
        count = len(findings.faults)
        raise StoreCorruptError(
            f"{store} has {count} fault{'s' if count > 1 else ''}: restore it from a backup"
        )
    if not arguments.json:
        print(f"{store} is whole: {_counted(findings.keys)}")


# ----------------------------------------------------------------- what they share


def _directory(where: str, what: str) -> Path:
    """The directory that is meant; for a server, what to do instead."""
    target = parse_url(where)
    if target.kind == "embedded" and target.path is not None:
        return target.path
    raise UsageError(
        f"cannot {what} {target.redacted}, which is a server: `penstock migrate {target.redacted} DIRECTORY`"
        " copies it into a store that can be backed up; a Redis makes RDB files itself (BGSAVE), and of"
        " `penstock serve` name the directory"
    )


def _facts(manifest: Manifest) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(manifest)
    return facts


def _summary(manifest: Manifest) -> str:
    return f"{_counted(manifest.keys)}, {size(manifest.bytes)}"


def _counted(keys: dict[str, int]) -> str:
    count = sum(keys.values())
    return f"{count:,} key{'' if count == 1 else 's'}"


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value))


@contextmanager
def _shown() -> Iterator[OnProgress]:
    """Each thing that is done has a bar of its own."""
    bars: list[tuple[str, int, Progress]] = []

    def tell(what: str, done: int, total: int) -> None:
        if not bars or bars[-1][0] != what:
            bars.append((what, done, Progress(what, total or None)))
            bars[-1][2].advance(done, 0)  # that much was done in a time that nobody has measured
        _, before, bar = bars[-1]
        bars[-1] = what, done, bar
        bar.advance(max(done - before, 0), max(done - before, 0))

    try:
        yield tell
    finally:
        if bars:
            bars[-1][2].__exit__(None, None, None)
