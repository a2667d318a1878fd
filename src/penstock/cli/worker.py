"""``penstock worker MODULE[:APP]``: runs the steps of transactions until it is told to stop.

Rules: the module is found from the current directory, as ``python -m`` would find it. SIGTERM and Ctrl-C take
nothing more, let steps end for ``--grace-ms`` and hand the rest back; a second one hands everything back at
once. One line says that it is ready, one that it has stopped; everything else is logged to stderr. Status 0
means that nothing is left to wait for a lease.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import penstock
from penstock.cli.asking import STORE_VARIABLE, WHERE_HELP, json_line, positive, whole
from penstock.cli.teaching import add_json
from penstock.cli.tx_archive import archiver_of
from penstock.errors import ConfigError
from penstock.lake import archives
from penstock.loops import loop_factory, settle_memory
from penstock.transactions import App, Worker
from penstock.transactions.notifying import run_webhooks
from penstock.transactions.pipelines import walk
from penstock.transactions.worker.http_calls import HttpCaller
from penstock.transactions.worker.worker import GRACE_MS, LEASE_MS
from penstock.webhooks.addresses import AddressPolicy, policy

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.spark.steps import SparkWorker

    AnyWorker = Worker | SparkWorker
    Make = Callable[[penstock.Penstock, App, dict[str, Any]], AnyWorker]

_LOG = logging.getLogger(__name__)

#: How long threads without work have to end.
_THREAD_END_S: Final = 0.5

_EPILOG: Final = """\
examples:
  penstock worker shop --store ./shop.pen                  steps and pipelines that shop.py marks
  penstock worker shop.orders:app --store redis://localhost --node-group shop --concurrency 200
  penstock worker shop --store ./shop.pen --archive ./archive

Pipelines of the module are deployed when it starts. Any number of workers may share a store.
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "worker",
        help="run the steps of transactions",
        description="Run the steps of transactions, until SIGTERM or Ctrl-C.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, concurrency=64, groups="all its pipelines name")
    parser.set_defaults(run=lambda arguments: work(arguments, _ordinary), refuse=parser.error)


def add_options(parser: argparse.ArgumentParser, *, concurrency: int, groups: str) -> None:
    """What every kind of worker can be told; ``groups`` says whom it works for if nobody does."""
    parser.add_argument("module", metavar="MODULE[:APP]",
                        help="has the steps; APP if it has several apps")  # fmt: skip
    parser.add_argument("--store", metavar="WHERE", default=os.environ.get(STORE_VARIABLE), help=WHERE_HELP)
    parser.add_argument("--node-group", metavar="NAME", action="append", default=[],
                        help=f"whom it works for; repeatable (default: {groups})")  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="of this worker (default: host, process and chance)")
    how = parser.add_argument_group("how much")
    how.add_argument("--concurrency", type=positive, default=concurrency, metavar="N",
                     help=f"transactions at a time (default: {concurrency})")  # fmt: skip
    how.add_argument("--threads", type=positive, metavar="N", help="for steps that are not async")
    how.add_argument("--processes", type=positive, metavar="N", help="for steps that run in processes")
    how.add_argument("--lease-ms", type=positive, default=LEASE_MS, metavar="MS",
                     help="after so long a silence it counts as dead (default: 30000)")  # fmt: skip
    how.add_argument("--grace-ms", type=whole, default=GRACE_MS, metavar="MS",
                     help="for steps to end when it is stopped (default: 20000)")  # fmt: skip
    beside = parser.add_argument_group("beside its work")
    beside.add_argument("--archive", metavar="DIR", help="move what has ended there")
    beside.add_argument("--webhooks", action=argparse.BooleanOptionalAction,
                        help="deliver webhooks (default: if what that needs is installed)")  # fmt: skip
    beside.add_argument("--allow-network", metavar="CIDR", action="append", default=[],
                        help="private network that may be called, too; repeatable")  # fmt: skip
    add_json(parser, "tell its start and its end")


def _ordinary(ps: penstock.Penstock, app: App, options: dict[str, Any]) -> Worker:
    return ps.transactions.worker(app, **options)


def work(arguments: argparse.Namespace, make: Make) -> None:
    """Run the worker that ``make`` makes, until it is told to stop."""
    if not arguments.store:
        arguments.refuse(f"say which store: --store WHERE, or the variable {STORE_VARIABLE}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("httpcore", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    app = load_app(arguments.module)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(arguments, app, make))
    _leave_behind()


# ------------------------------------------------------------------------------------- loading


def load_app(spec: str) -> App:
    """The app of ``module`` or ``module:name``; ``ConfigError`` says what is missing."""
    name, colon, attribute = spec.partition(":")
    if not name or (colon and not attribute):
        raise ConfigError(f"MODULE[:APP] must name a module, as shop or shop.orders:app, not {spec!r}")
    if name.endswith(".py"):
        raise ConfigError(f"{name} is a file: name the module, {name.removesuffix('.py').replace('/', '.')}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _imported(name)
    return _named_app(module, attribute) if attribute else _only_app(module)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {name!r}: start the worker where it lies, or set PYTHONPATH"
            ) from None
        _cannot_import(name, error)
    except Exception as error:  # noqa: BLE001 - whatever somebody's module does when it is imported
        _cannot_import(name, error)


def _cannot_import(name: str, error: Exception) -> NoReturn:
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}, line {error.lineno})"
        text = error.msg
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place, text = f" ({last.filename}, line {last.lineno})", str(error)
    raise ConfigError(f"module {name!r} cannot be imported: {type(error).__name__}: {text}{place}") from None


def _named_app(module: ModuleType, name: str) -> App:
    found = getattr(module, name, None)
    if isinstance(found, App):
        return found
    known = ", ".join(_apps_of(module)) or "no App at all"
    what = "has no" if found is None else f"has a {type(found).__name__}, not an App, named"
    raise ConfigError(f"module {module.__name__!r} {what} {name!r}: it has {known}")


def _only_app(module: ModuleType) -> App:
    apps = _apps_of(module)
    if len({id(app) for app in apps.values()}) > 1:
        raise ConfigError(
            f"module {module.__name__!r} has several apps: say {module.__name__}:{next(iter(apps))},"
            f" or another of {', '.join(apps)}"
        )
    if apps:
        return next(iter(apps.values()))
    app = App.of(module)
    if not app.step_names and not list(app.pipelines):
        raise ConfigError(
            f"module {module.__name__!r} has neither steps nor pipelines:"
            " mark functions with @step, or make an App"
        )
    return app


def _apps_of(module: ModuleType) -> dict[str, App]:
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def groups_of(app: App) -> list[str]:
    """Every node group that pipelines of the app name; ``default`` without any."""
    groups: dict[str, None] = {}
    for pipeline in app.pipelines:
        groups[pipeline.node_group] = None
        groups.update((step.node_group, None) for _, _, step in walk(pipeline.steps) if step.node_group)
    return list(groups) or ["default"]


# ------------------------------------------------------------------------------------- running


async def _run(arguments: argparse.Namespace, app: App, make: Make) -> None:
    # A server that is not there is told at once; one that goes away later is waited for.
    async with penstock.open(arguments.store, fail_fast=True):
        pass
    addresses = policy(arguments.allow_network)
    async with penstock.open(arguments.store) as ps, AsyncExitStack() as beside:
        if arguments.archive:
            ps.with_archive(archives.open(arguments.archive))
        options = {
            "node_groups": arguments.node_group or groups_of(app),
            "concurrency": arguments.concurrency,
            "threads": arguments.threads,
            "processes": arguments.processes,
            "lease_ms": arguments.lease_ms,
            "grace_ms": arguments.grace_ms,
            "name": arguments.name,
            "http": HttpCaller(addresses),
        }
        worker = make(ps, app, options)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _stop, worker, arguments.grace_ms)
        # What runs beside is stopped after the worker: it tells of what the worker has ended.
        if arguments.archive:
            await beside.enter_async_context(_archiving(ps))
        if arguments.webhooks is not False:
            await beside.enter_async_context(_notifying(ps, addresses, is_asked_for=bool(arguments.webhooks)))
        async with worker:
            settle_memory()
            _announce(worker, arguments, app)
            await worker.run()
        done = worker.statistics()
        _tell(
            arguments,
            {"worker": worker.id, "state": "stopped", "taken": done.taken, "ended": done.ended},
            f"Worker {worker.id} has stopped: {done.taken} taken, {done.ended} of them ended.",
        )


def _stop(worker: AnyWorker, grace_ms: int) -> None:
    if worker.is_stopping:
        _LOG.warning("told twice: what runs is handed back at once")
    else:
        running = worker.statistics().running
        _LOG.info("stopping: %d transactions have %d ms to end their steps", running, grace_ms)
    worker.stop()


def _announce(worker: AnyWorker, arguments: argparse.Namespace, app: App) -> None:
    steps, pipelines = len(app.step_names), len(list(app.pipelines))
    where = _without_password(arguments.store)
    facts = {
        "worker": worker.id,
        "state": "working",
        "store": where,
        "node_groups": list(worker.node_groups),
        "steps": steps,
        "pipelines": pipelines,
        "concurrency": worker.concurrency,
    }
    text = (
        f"Worker {worker.id} works for {', '.join(worker.node_groups)} on {where}:"
        f" {steps} steps, {pipelines} pipelines, {worker.concurrency} at a time. Ctrl-C stops it."
    )
    _tell(arguments, facts, text)


def _tell(arguments: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json_line(facts) if arguments.json else f"{text}\n", end="", flush=True)


def _without_password(where: str) -> str:
    scheme, found, rest = where.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else where


@asynccontextmanager
async def _archiving(ps: penstock.Penstock) -> AsyncGenerator[None, None]:
    archive = ps.transactions.archive
    assert archive is not None
    archiver = archiver_of(ps.transactions.store, archive)
    running = asyncio.create_task(archiver.run(), name="penstock archiver")
    try:
        yield
    finally:
        await archiver.stop()
        await running


@asynccontextmanager
async def _notifying(
    ps: penstock.Penstock, addresses: AddressPolicy, *, is_asked_for: bool
) -> AsyncGenerator[None, None]:
    async with AsyncExitStack() as stack:
        notifying: Any = run_webhooks(ps, ps.transactions.store, policy=addresses)
        try:
            await stack.enter_async_context(notifying)
        except ConfigError as error:
            if is_asked_for:
                raise
            _LOG.warning("this worker delivers no webhooks: %s", error)
        yield


def _leave_behind() -> None:
    """A step in a thread or a process cannot be interrupted. It was handed back, so nobody needs its result:
    the interpreter must not wait for it."""
    for process in multiprocessing.active_children():
        process.kill()
    steps = [thread for thread in threading.enumerate() if thread.name.startswith("penstock-step")]
    for thread in steps:
        thread.join(_THREAD_END_S / len(steps))  # who has nothing to do ends by itself
    if any(thread.is_alive() for thread in steps):
        _LOG.warning("steps in threads have not come back: they end with this process")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
