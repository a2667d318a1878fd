"""``penstock doctor [WHERE]``: looks whether this machine has what Penstock needs, and what to do if not.

Rules: one line a finding on stdout, JSON with ``--json``. Status 1 means that something fails; warnings do
not count. Nothing of the user's is changed. The checks are in ``doctor_checks`` and ``doctor_store``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.cli import doctor_checks as checks
from penstock.cli import showing
from penstock.cli.asking import STORE_VARIABLE, WHERE_HELP, json_line
from penstock.cli.doctor_findings import Finding
from penstock.cli.doctor_store import store
from penstock.cli.teaching import add_json
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

LAKE_VARIABLE: Final = "PENSTOCK_LAKE"
_COLOURS: Final = {"ok": showing.GREEN, "warn": showing.YELLOW, "fail": showing.RED}

_EPILOG: Final = """\
examples:
  penstock doctor                                   this machine
  penstock doctor redis://localhost                 and a store: does it keep what it is told?
  penstock doctor --port 6380 --port 8080           and whether these can be listened on
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
    parser.add_argument("url", metavar="WHERE", nargs="?", default=os.environ.get(STORE_VARIABLE),
                        help=WHERE_HELP)  # fmt: skip
    parser.add_argument("--port", type=_port, action="append", default=[], metavar="PORT",
                        help="one that must be free; repeatable (default: the usual ones)")  # fmt: skip
    parser.add_argument("--lake", metavar="DIR", default=os.environ.get(LAKE_VARIABLE),
                        help=f"directory of a lake (default: ${LAKE_VARIABLE})")  # fmt: skip
    parser.add_argument("--spark", action="store_true", help="start a session, and let it count to 1,000")
    parser.add_argument("--master", metavar="URL", help="where, with --spark (default: this machine)")
    add_json(parser)
    parser.set_defaults(run=_examine)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"must be a port from 1 to 65535, not {text}")
    return int(text)


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


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    yield from checks.machine(arguments.port)
    yield from store(arguments.url)
    yield from checks.extras()
    yield from checks.packages()
    yield from checks.java()
    yield from checks.lake(arguments.lake)
    if arguments.spark:
        yield from checks.spark(arguments.master)


def _line(finding: Finding) -> str:
    remedy = f": {finding.remedy}" if finding.remedy else ""
    state = showing.styled(finding.state.ljust(4), _COLOURS[finding.state])
    return f"{state}  {finding.check.ljust(15)}  {finding.text}{remedy}\n"
