"""``penstock doctor [URL]``: looks whether this machine has what Penstock needs, and says what to do if not.

Rules: one line a finding on stdout, JSON with ``--json``. Status 1 means that something fails; warnings do
not count. Nothing of the user's is changed. The checks are in ``doctor_checks``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.cli import doctor_checks as checks
from penstock.cli.asking import STORE_VARIABLE, json_line
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

LAKE_VARIABLE: Final = "PENSTOCK_LAKE"

_EPILOG: Final = """\
examples:
  penstock doctor                                   this machine
  penstock doctor redis://localhost                 and a store
  penstock doctor ./shop.pen --lake ./lake --spark  and a lake, and whether Spark really starts
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "doctor",
        help="look whether this machine has what is needed",
        description="Look whether this machine, a store and a lake have what is needed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", nargs="?", default=os.environ.get(STORE_VARIABLE),
                        help=f"directory or URL of a store (default: ${STORE_VARIABLE})")  # fmt: skip
    parser.add_argument("--lake", metavar="DIR", default=os.environ.get(LAKE_VARIABLE),
                        help=f"directory of a lake (default: ${LAKE_VARIABLE})")  # fmt: skip
    parser.add_argument("--spark", action="store_true", help="start a session, and let it count to 1,000")
    parser.add_argument("--master", metavar="URL", help="where, with --spark (default: this machine)")
    parser.add_argument("--json", action="store_true", help="answer in JSON, one value a line")
    parser.set_defaults(run=_examine)


def _examine(arguments: argparse.Namespace) -> None:
    failed = 0
    for finding in _findings(arguments):
        failed += finding.state == "fail"
        line = json_line(finding) if arguments.json else _line(finding)
        sys.stdout.write(line)
        sys.stdout.flush()  # the next one may take seconds
    if failed:
        raise PenstockError(
            f"{failed} of these must be mended first" if failed > 1 else "this must be mended first"
        )


def _findings(arguments: argparse.Namespace) -> Iterator[checks.Finding]:
    yield from checks.machine()
    yield from checks.store(arguments.url)
    yield from checks.packages()
    yield from checks.java()
    yield from checks.lake(arguments.lake)
    if arguments.spark:
        yield from checks.spark(arguments.master)


def _line(finding: checks.Finding) -> str:
    remedy = f": {finding.remedy}" if finding.remedy else ""
    return f"{finding.state.ljust(4)}  {finding.check.ljust(15)}  {finding.text}{remedy}\n"
