"""``penstock spark worker MODULE[:APP]``: a worker whose Spark steps run on executors.

Rules: it is started, told to stop and stopped as ``penstock worker`` is, and takes the same options. Without
``--node-group`` it works for the groups in which Spark steps of the app run, not for the others. It takes
nothing before Spark has started and every Spark step was seen to be ready there. A session that is gone ends
it with status 1: whoever looks after it starts it again.
"""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.spark_options import add_session
from penstock.cli.worker import add_options, work
from penstock.transactions import App
from penstock.transactions.pipelines import Function, Pipeline, walk

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    import penstock
    from penstock.spark.steps import SparkWorker

_CONCURRENCY: Final = 10_000
_EPILOG: Final = """\
examples:
  penstock spark worker shop:app --store ./shop.pen --node-group gpu
  penstock spark worker shop:app --store redis://localhost --master spark://host:7077
  penstock spark worker shop:app --store ./shop.pen --conf spark.executor.memory=4g

A step runs on Spark if its function is marked with @spark_step. Executors on other machines need the module
and Penstock installed, or must see the same directories.
"""


def add_actions(actions: _SubParsersAction[Any]) -> None:
    parser = actions.add_parser(
        "worker",
        help="run steps of transactions on Spark",
        description="Run steps of transactions on Spark, until SIGTERM or Ctrl-C.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, concurrency=_CONCURRENCY, groups="those of its Spark steps")
    add_session(parser)
    parser.set_defaults(run=_work, refuse=parser.error)


def _work(arguments: argparse.Namespace) -> None:
    from penstock.spark.session import require_pyspark
    from penstock.spark.steps import SparkWorker

    require_pyspark()
    logging.getLogger("py4j").setLevel(logging.WARNING)

    def make(ps: penstock.Penstock, app: App, options: dict[str, Any]) -> SparkWorker:
        groups = arguments.node_group or spark_groups_of(app) or options["node_groups"]
        settings = {"master": arguments.master, "conf": dict(arguments.conf), "log": arguments.log}
        return SparkWorker(ps, app, **{**options, **settings, "node_groups": groups})

    work(arguments, make)


def spark_groups_of(app: App) -> list[str]:
    """The node groups in which pipelines of the app run a Spark step."""
    from penstock.spark.steps.declaring import spark_steps_of

    names = spark_steps_of(app).keys()
    return list(dict.fromkeys(group for pipeline in app.pipelines for group in _groups_of(pipeline, names)))


def _groups_of(pipeline: Pipeline, names: Any) -> list[str]:
    steps = [step for _, _, step in walk(pipeline.steps)]
    return [
        step.node_group or pipeline.node_group
        for step in steps
        if step.compensate in names or (isinstance(step, Function) and step.name in names)
    ]
