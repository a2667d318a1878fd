"""``penstock tx schedule …``: transactions that start by themselves. Workers start what is due."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.cli import showing
from penstock.cli.asking import Actions, Bench, add_action, duration_ms, json_word, moment_ms, positive, whole
from penstock.errors import UsageError
from penstock.transactions import Schedule
from penstock.transactions.model import DEFAULT_OWNER
from penstock.transactions.schedules import ScheduleInfo

if TYPE_CHECKING:
    from argparse import _SubParsersAction

EXAMPLES: Final = """\
  penstock tx schedule put nightly close-books --cron '0 2 * * *' --timezone Europe/Berlin
"""


def add_actions(actions: _SubParsersAction[Actions]) -> None:
    parser = actions.add_parser(
        "schedule",
        help="look after transactions that start by themselves",
        description="Look after transactions that start by themselves: at a time, at intervals, or by cron.",
        epilog="examples:\n" + EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inner: _SubParsersAction[Actions] = parser.add_subparsers(
        title="actions", dest="schedule_action", metavar="ACTION", required=True, parser_class=Actions
    )
    add_action(inner, "list", _list, "show all schedules", "tx schedule list")
    put = add_action(
        inner,
        "put",
        _put,
        "save a schedule, in place of one of the same name",
        "tx schedule put nightly close-books --cron '0 2 * * *' --timezone Europe/Berlin",
        "tx schedule put poll fetch-rates --every 5m",
    )
    _add_put(put)
    for name, action, summary in (
        ("show", _show, "show one schedule and when it fires"),
        ("pause", _pause, "let it fire no more"),
        ("resume", _resume, "let it go on with its next fire"),
        ("remove", _remove, "forget it; what it has started goes on"),
        ("run", _run_now, "start what it starts, now and besides; answers the id"),
    ):
        one = add_action(inner, name, action, summary, f"tx schedule {name} nightly")
        one.add_argument("name", metavar="NAME")
        if name == "show":
            one.add_argument("--times", type=positive, default=5, metavar="N", help="next fires (default: 5)")


def _add_put(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("pipeline", metavar="PIPELINE")
    parser.add_argument("input", metavar="INPUT", nargs="?",
                        help="JSON, @FILE, or - for stdin (default: null)")  # fmt: skip
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--cron", metavar="TEXT", help="five fields, or six with seconds first")
    when.add_argument("--every", type=duration_ms, metavar="DURATION")
    when.add_argument("--at", type=moment_ms, metavar="TIME", help="once: 2026-01-31T09:00:00Z")
    parser.add_argument("--timezone", metavar="ZONE", default="UTC", help="of --cron (default: UTC)")
    parser.add_argument("--catch-up", choices=("skip", "one", "all"), default="one",
                        help="what nobody was there for: none, the latest (default), each")  # fmt: skip
    parser.add_argument("--owner", metavar="NAME", default=DEFAULT_OWNER, help="for whom (default: default)")
    parser.add_argument("--priority", type=whole, metavar="N", help="0 to 9, the most urgent")
    parser.add_argument("--paused", action="store_true", help="it fires when it is resumed")


def _put(bench: Bench) -> None:
    arguments = bench.arguments
    schedule = Schedule(
        arguments.name,
        arguments.pipeline,
        json_word("INPUT", arguments.input),
        owner=arguments.owner,
        cron=arguments.cron,
        every_ms=arguments.every,
        at_ms=arguments.at,
        timezone=arguments.timezone,
        catch_up=arguments.catch_up,
        is_paused=arguments.paused,
        priority=arguments.priority,
    )
    _tell(bench, bench.run(bench.transactions.schedules.put(schedule)))


def _list(bench: Bench) -> None:
    found = bench.run(bench.transactions.schedules.list())
    if bench.arguments.json:
        for info in found:
            bench.show(_facts(info), "")
        return
    rows = (
        (
            info.schedule.name, info.schedule.pipeline, _timing(info.schedule), info.schedule.owner,
            "paused" if info.schedule.is_paused else showing.moment(info.next_ms), info.fires,
            info.error or info.transaction,
        )
        for info in found
    )  # fmt: skip
    columns = ("name", "pipeline", "fires at", "owner", "next", "fires", "last")
    print(showing.table(columns, rows))


def _show(bench: Bench) -> None:
    schedules, name = bench.transactions.schedules, bench.arguments.name
    info = bench.run(schedules.get(name))
    if info is None:
        raise UsageError(f"there is no schedule {name!r}")
    times = bench.run(schedules.next_times(name, bench.arguments.times))
    pairs = (
        ("name", name), ("pipeline", info.schedule.pipeline), ("owner", info.schedule.owner),
        ("fires at", _timing(info.schedule)), ("catch up", info.schedule.catch_up),
        ("paused", "yes" if info.schedule.is_paused else None),
        ("input", showing.compact(info.schedule.input)),
        ("fires", info.fires), ("last", showing.moment(info.fired_ms)), ("transaction", info.transaction),
        ("error", info.error),
    )  # fmt: skip
    fires = "\n".join(f"  {showing.moment(at_ms)}" for at_ms in times)
    text = showing.facts(pairs) + (f"\nnext fires\n{fires}" if fires else "")
    bench.show({**_facts(info), "next_times_ms": times}, text)


def _pause(bench: Bench) -> None:
    _tell(bench, bench.run(bench.transactions.schedules.pause(bench.arguments.name)))


def _resume(bench: Bench) -> None:
    _tell(bench, bench.run(bench.transactions.schedules.resume(bench.arguments.name)))


def _remove(bench: Bench) -> None:
    name = bench.arguments.name
    if not bench.run(bench.transactions.schedules.remove(name)):
        raise UsageError(f"there is no schedule {name!r}")
    bench.show({"name": name}, "removed")


def _run_now(bench: Bench) -> None:
    started = bench.run(bench.transactions.schedules.run_now(bench.arguments.name))
    bench.show(started._asdict(), started.id)


# -------------------------------------------------------------------------------------- showing


def _tell(bench: Bench, info: ScheduleInfo) -> None:
    text = f"next fire {showing.moment(info.next_ms)}" if info.next_ms else "no fire to come"
    bench.show(_facts(info), "paused" if info.schedule.is_paused else text)


def _facts(info: ScheduleInfo) -> dict[str, Any]:
    known = info._asdict()
    schedule: dict[str, Any] = msgspec.structs.asdict(known.pop("schedule"))
    del known["revision"]
    return schedule | known


def _timing(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.timezone}"
    if schedule.every_ms is not None:
        return f"every {schedule.every_ms / 1_000:g} s"
    return f"{showing.moment(schedule.at_ms)}"
