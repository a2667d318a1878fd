"""``penstock spark status|tables|sql``: what jobs do, what the lake has, and questions to it.

Rules: ``status`` and ``tables`` need no Spark. What was asked for goes to stdout; with ``--json`` that is one
JSON value a line, in which bytes are text, or Base64 where they are none.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from penstock import blocking
from penstock.cli import showing
from penstock.cli.asking import Actions, json_line, positive
from penstock.cli.spark_options import add_places, add_session, need_spark_extra, places_of
from penstock.cli.teaching import add_json, taught
from penstock.client.targets import parse_url
from penstock.errors import PenstockError, StoreError, UsageError
from penstock.lake.plain import plain

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.lake.lake import Lake
    from penstock.spark.config import Places
    from penstock.spark.noticeboard import Notice

T = TypeVar("T")

#: Rows that people are shown.
_ROWS: Final = 100


def add_actions(actions: _SubParsersAction[Actions]) -> None:
    status = actions.add_parser(
        "status",
        **taught("show what the jobs of all runners do", "penstock spark status --store ./shop.pen"),
    )
    add_places(status, has_lake=False)
    status.set_defaults(run=_status, refuse=status.error)
    tables = actions.add_parser(
        "tables",
        **taught("show rows, files and sizes of the lake's tables", "penstock spark tables --lake ./lake"),
    )
    add_places(tables, has_store=False)
    tables.set_defaults(run=_tables, refuse=tables.error)
    sql = actions.add_parser(
        "sql",
        **taught(
            "run one statement of SQL over the lake and over streams",
            'penstock spark sql --lake ./lake "SELECT status, count(*) FROM transactions GROUP BY status"',
            'penstock spark sql --store ./shop.pen --stream orders "SELECT count(*) FROM orders"',
            description="Run one statement of SQL: tables of the lake and the streams that are named are its"
            " tables.",
        ),
    )
    sql.add_argument("statement", metavar="SQL", help="or - for standard input")
    add_places(sql)
    sql.add_argument("--stream", metavar="NAME", action="append", default=[],
                     help="a stream of the store, as a table; repeatable")  # fmt: skip
    sql.add_argument("--rows", type=positive, default=_ROWS, metavar="N",
                     help=f"show so many at most; JSON has all (default: {_ROWS})")  # fmt: skip
    add_session(sql)
    sql.set_defaults(run=_sql, refuse=sql.error)
    for parser in (status, tables, sql):
        add_json(parser)


def _told(arguments: argparse.Namespace, found: T | None, what: str) -> T:
    """What a command cannot do without."""
    if found is None:
        variable = f"PENSTOCK_{what.partition(':')[0].upper()}"
        arguments.refuse(f"say which {what}, a configuration, or the variable {variable}")
        raise AssertionError("refusing ends it")
    return found


# ----------------------------------------------------------------------------------------- status


def _status(arguments: argparse.Namespace) -> None:
    from penstock.spark.noticeboard import read

    store = _told(arguments, places_of(arguments).store, "store: --store WHERE")
    target = parse_url(store)
    if target.kind == "embedded" and not Path(target.path or "").is_dir():
        # Opening it would make a new store, in which there is nothing to find.
        raise StoreError(f"there is no store at {target.path}")
    with blocking.open(store, fail_fast=True) as client:
        notices = read(client)
    if arguments.json:
        for each in notices:
            facts = msgspec.to_builtins(each.status)
            sys.stdout.write(json_line({**facts, "is_alive": each.is_alive}))
        return
    columns = ("job", "node", "state", "passes", "failed", "rows", "behind", "last", "next", "error")
    print(showing.table(columns, map(_status_row, notices)))


def _status_row(notice: Notice) -> tuple[Any, ...]:
    status, report = notice.status, notice.status.report
    numbers: Mapping[str, Any] = status.progress if status.state == "running" else {}
    return (
        status.job,
        status.node,
        status.state if notice.is_alive or status.state == "stopped" else "gone",
        status.passes,
        status.failed_passes,
        numbers.get("rows", report.rows if report else None),
        numbers.get("lag", report.lag if report else None),
        showing.moment(report.ended_ms if report else None),
        showing.moment(status.next_ms),
        status.error if status.failures else None,
    )


# ----------------------------------------------------------------------------------------- tables


def _tables(arguments: argparse.Namespace) -> None:
    lake = _told(arguments, _lake(places_of(arguments)), "lake: --lake DIR")
    known = list(_tables_of(lake))
    if arguments.json:
        sys.stdout.writelines(map(json_line, known))
        return
    columns = ("table", "rows", "files", "size", "version", "changed")
    rows = (
        (
            each["table"], f"{each['rows']:,}", f"{each['files']:,}", showing.size(each["bytes"]),
            each["version"], showing.moment(each["changed_ms"]),
        )
        for each in known
    )  # fmt: skip
    print(showing.table(columns, rows))


def _lake(places: Places) -> Lake | None:
    from penstock.lake.lake import Lake

    return None if places.lake is None else Lake.open(places.lake, create=False)


def _tables_of(lake: Lake) -> Iterator[dict[str, Any]]:
    for name in lake.names():
        snapshot = lake.table(name).snapshot()
        yield {
            "table": name,
            "rows": sum(file.rows for file in snapshot.files),
            "files": len(snapshot.files),
            "bytes": sum(file.size_bytes for file in snapshot.files),
            "version": snapshot.version,
            "changed_ms": max((file.modified_ms for file in snapshot.files), default=None),
        }


# -------------------------------------------------------------------------------------------- SQL


def _sql(arguments: argparse.Namespace) -> None:
    need_spark_extra()
    from penstock.spark.reasons import reason
    from penstock.spark.session import is_started, require_pyspark, session
    from penstock.spark.views import register

    places = places_of(arguments)
    if arguments.stream:
        _told(arguments, places.store, "store: --store WHERE")
    lake = _lake(places)
    statement = sys.stdin.read() if arguments.statement == "-" else arguments.statement
    how = places.session
    require_pyspark()
    is_own = not is_started()
    spark = session("penstock-sql", master=how.master, conf=how.conf, log=how.log)
    try:
        register(spark, lake, url=places.store, streams=arguments.stream)
        answer = spark.sql(statement.strip().removesuffix(";"))
        if arguments.json:
            rows: Iterable[Any] = answer.toLocalIterator() if answer.columns else ()
            sys.stdout.writelines(json_line(plain(row)) for row in rows)
        else:
            _show(answer, arguments.rows)
        sys.stdout.flush()
    except PenstockError:
        raise
    except BrokenPipeError:
        # Whoever reads has seen enough; what is still buffered must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:  # whatever is wrong with somebody's statement
        raise UsageError(f"the statement did not work: {reason(error)}") from error
    finally:
        if is_own:
            spark.stop()


def _show(answer: Any, limit: int) -> None:
    """A table; one row more than is shown tells whether there are more."""
    if not answer.columns:
        return
    rows = answer.take(limit + 1)
    print(showing.table(answer.columns, ([_cell(value) for value in row] for row in rows[:limit])))
    if len(rows) > limit:
        print(
            f"only the first {limit:,} rows are shown: ask for more with --rows, or for --json",
            file=sys.stderr,
        )


def _cell(value: Any) -> Any:
    known = plain(value)
    return showing.compact(known) if isinstance(known, dict | list | bool) else known
