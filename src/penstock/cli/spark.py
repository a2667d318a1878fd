"""``penstock spark …``: the data pipeline. Here is ``run``; ``spark_looking`` shows what there is,
``spark_worker`` runs steps of transactions on Spark.

Rules of ``run``: SIGTERM and Ctrl-C let passes end at their next batch; a second one ends at once, which
loses nothing. With ``--available-now`` status 0 means that every job worked. One line a pass that did
something goes to stdout, everything else is logged to stderr.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import spark_looking, spark_worker
from penstock.cli.asking import Actions, json_line
from penstock.cli.spark_options import add_places, add_session, need_spark_extra, overrides, source
from penstock.cli.spark_telling import Teller
from penstock.cli.teaching import add_json, taught
from penstock.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.spark.config import PipelineConfig
    from penstock.spark.noticeboard import JobStatus
    from penstock.spark.running import Runner

_LOG: Final = logging.getLogger(__name__)

_EPILOG: Final = """\
examples:
  penstock spark run --store ./shop.pen --lake ./lake --streams orders,audit
  penstock spark run --config pipeline.yml                        for ever, as the file says
  penstock spark run --config pipeline.yml --available-now        every job once, for a scheduler
  penstock spark run --available-now export --store ./shop.pen --lake ./lake --streams orders
  penstock spark run --available-now reconcile                    with $PENSTOCK_SPARK_CONFIG
  penstock spark status --store ./shop.pen                        what the jobs do, on all machines
  penstock spark tables --lake ./lake                             rows, files and sizes
  penstock spark sql --lake ./lake "SELECT status, count(*) FROM transactions GROUP BY status"
  penstock spark worker shop:app --store ./shop.pen               steps of transactions on Spark
  penstock spark prepare                                          once: Spark starts faster

`penstock spark ACTION --help` tells more.
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "spark",
        help="keep a lake in step with a store, look at it, run steps on Spark",
        description="The data pipeline on Spark: keep a lake in step with a store, and look at it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions: _SubParsersAction[Actions] = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Actions
    )
    _add_run(actions)
    _add_prepare(actions)
    spark_looking.add_actions(actions)
    spark_worker.add_actions(actions)


def _add_run(actions: _SubParsersAction[Actions]) -> None:
    run = actions.add_parser(
        "run",
        **taught(
            "run jobs of the data pipeline, for ever or once",
            "penstock spark run --store ./shop.pen --lake ./lake --streams orders",
            "penstock spark run --config pipeline.yml --available-now export",
            description="Run jobs of the data pipeline, until SIGTERM or Ctrl-C; or each of them once.",
        ),
    )
    run.add_argument("jobs", metavar="JOB", nargs="*",
                     help="only these: names of the file, or kinds of jobs (default: all of the file;"
                     " without one archive, rollup, maintain, and export if streams are given)")  # fmt: skip
    run.add_argument("--available-now", action="store_true", help="run each job once and stop")
    add_places(run)
    run.add_argument("--streams", metavar="A,B", type=_names, help="streams that are exported")
    run.add_argument("--set", metavar="JOB.KEY=VALUE", type=_job_setting, action="append", default=[],
                     dest="settings", help="an option of a job, its value in YAML; repeatable")  # fmt: skip
    add_json(run, "tell")
    add_session(run)
    run.set_defaults(run=_run, refuse=run.error)


def _add_prepare(actions: _SubParsersAction[Actions]) -> None:
    prepare = actions.add_parser(
        "prepare",
        **taught(
            "let Spark start faster on this machine, from now on",
            "penstock spark prepare",
            "penstock spark prepare --remove",
            description="Keep the classes that Spark loads in a file, so that it starts with about half the"
            " work. Takes about a minute, once, and 190 MB in the user's cache.",
        ),
    )
    add_json(prepare)
    prepare.add_argument("--remove", action="store_true", help="remove that file")
    prepare.set_defaults(run=_prepare)


def _prepare(arguments: argparse.Namespace) -> None:
    from penstock.spark import class_sharing
    from penstock.spark.session import require_pyspark

    require_pyspark()
    if arguments.remove:
        is_removed = class_sharing.remove()
        text = "removed" if is_removed else "there was nothing to remove"
        print(json_line({"removed": is_removed}) if arguments.json else f"{text}\n", end="")
        return
    archive = class_sharing.prepare()
    size_bytes = archive.stat().st_size
    if arguments.json:
        print(json_line({"archive": str(archive), "bytes": size_bytes}), end="")
    else:
        print(f"{archive} ({size_bytes / 1e6:,.0f} MB) is used from now on")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"must be names with commas between them, not {text!r}")
    return names


def _job_setting(text: str) -> tuple[tuple[str, str, str], str]:
    path, equals, value = text.partition("=")
    job, dot, key = path.partition(".")
    if not (job and dot and key and equals):
        raise argparse.ArgumentTypeError(f"must be JOB.KEY=VALUE, as export.every=1m, not {text!r}")
    return ("jobs", job, key), value


# ---------------------------------------------------------------------------------------- running


def _run(arguments: argparse.Namespace) -> None:
    need_spark_extra()
    from penstock.spark.running import Runner
    from penstock.spark.session import require_pyspark

    require_pyspark()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    config = _config(arguments)
    teller = Teller(is_json=arguments.json, tells_all=arguments.available_now)
    with Runner(config, listener=teller) as runner, _listening_to_signals(runner):
        if arguments.available_now:
            _judge(runner.run_available())
        else:
            teller.announce(config)
            runner.run()


def _config(arguments: argparse.Namespace) -> PipelineConfig:
    from penstock.configuration.yamltext import parse_yaml
    from penstock.spark.config import load

    said: dict[tuple[str, ...], Any] = overrides(arguments)
    said["jobs", "export", "streams"] = arguments.streams
    for path, value in arguments.settings:
        said[path] = parse_yaml(value, f"--set {'.'.join(path[1:])}")
    config = load(source(arguments), environment=os.environ, overrides=said, wanted=arguments.jobs)
    return config.only(arguments.jobs) if arguments.jobs else config


@contextmanager
def _listening_to_signals(runner: Runner) -> Iterator[None]:
    """Begun after Spark was started, which listens to Ctrl-C itself."""

    def stop(number: int, frame: FrameType | None) -> None:
        if runner.is_stopping:
            raise KeyboardInterrupt
        _LOG.info("stopping: passes that run end at their next batch; once more ends at once")
        runner.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _judge(statuses: list[JobStatus]) -> None:
    failed = [status.job for status in statuses if status.failures]
    missed = [status.job for status in statuses if not status.passes and not status.failures]
    if failed:
        raise PenstockError(f"{len(failed)} of {len(statuses)} jobs failed: {', '.join(failed)}")
    if missed:
        raise UsageError(f"it was stopped before these had their turn: {', '.join(missed)}")
