"""Command line of the benchmarks: what is measured, how much of it, and where the figures go."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import channels, channels_profile, client, profile, server, spark, streams, transactions
from bench.environments import default_cache
from bench.load import COMMANDS
from bench.machine import describe, versions
from bench.plan import LARGE, PARTS, SECTIONS, SHORT, Section, budget_s, choose
from bench.report import page, write_docs
from bench.results import Results
from bench.running import Run, measure_all

RESULTS: Final = Path(__file__).resolve().parent / "results"
MODULES: Final = (server, client, streams, channels, transactions, spark)
MEASURES: Final = {
    f"{module.__name__.rpartition('.')[2]}.{name}": measure
    for module in MODULES
    for name, measure in module.SECTIONS.items()
}


def main() -> None:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.profile:
        print(f"Machine: {describe()}\n")
        _profile(arguments)
        return
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    if arguments.scale <= 0:
        parser.error("--scale must be above 0")
    try:
        sections = choose(arguments.what, large=arguments.large)
        results = _read(arguments.show)
    except ValueError as error:
        parser.error(str(error))
    failed: list[str] = []
    if not arguments.show:
        results, failed = _measure(arguments, sections)
    elif not arguments.write_docs:
        print(page(results))
    if arguments.write_docs:
        write_docs(results, arguments.cache)
    if failed:
        sys.exit(f"ended with an error: {', '.join(failed)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures Penstock beside its peers, and tells how many times as good it is.",
        epilog=_offered(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("what", nargs="*", metavar="PART[.SECTION]", help="what to measure (see below); all if not given")
    add("--large", action="store_true", help="what needs an hour, and some 20 GB on the disk of TMPDIR")
    add("--scale", type=float, default=1.0, metavar="X", help="multiply all sizes (0.02: a trial)")
    add(
        "--rounds", type=int, default=SHORT.rounds, metavar="N", help="of all contenders; default %(default)s"
    )
    add(
        "--contender", action="append", default=[], metavar="NAME",
        help="of client and transactions: those whose name has this in it; may be given again",
    )  # fmt: skip
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="where results go; default bench/results/short.json, large.json",
    )
    add(
        "--show", type=Path, action="append", default=[], metavar="FILE",
        help="do not measure; take results of earlier runs (with --write-docs), may be given again",
    )  # fmt: skip
    add("--write-docs", action="store_true", help="write docs/benchmarks.md and its chart")
    add("--cache", type=Path, default=default_cache(), metavar="DIR", help="where peers are installed")
    add(
        "--profile", choices=[*sorted(COMMANDS), *channels_profile.KINDS], metavar="WHAT",
        help="profile our server under a command (SET, GET, INCR, LPUSH, HSET, ZADD), "
        "or the gateway (publish, traffic), instead",
    )  # fmt: skip
    add("--pipeline", type=int, default=1, metavar="N", help="pipeline depth for --profile")
    return parser


def _offered() -> str:
    lines = []
    for part, about in PARTS.items():
        lines.append(f"{part}: {about}")
        lines.extend(f"  {s.key:<22}{_times(s):<22}{s.about}" for s in SECTIONS if s.part == part)
    short, large = (budget_s(choose([], large=is_large), large=is_large) / 60 for is_large in (False, True))
    head = f"sections (at most so long on two quiet cores; together {short:.0f} minutes, {large:.0f} large):"
    return "\n".join((head, *lines))


def _times(section: Section) -> str:
    short = f"{section.short_s} s" if section.short_s else ""
    large = f"{section.large_s} s large" if section.large_s else ""
    return ", ".join(filter(None, (short, large)))


def _profile(arguments: argparse.Namespace) -> None:
    if arguments.profile in channels_profile.KINDS:
        channels_profile.main(arguments.profile)
    else:
        profile.main(arguments.profile, arguments.pipeline)


def _read(files: list[Path]) -> Results:
    results = Results()
    for number, file in enumerate(files):
        found = Results.load(file)
        if number == 0:
            results = found
        else:
            results.merge(found)
    return results


def _measure(arguments: argparse.Namespace, sections: list[Section]) -> tuple[Results, list[str]]:
    sizes = (LARGE if arguments.large else SHORT).scaled(arguments.scale)
    run = Run(sizes.with_rounds(arguments.rounds), arguments.cache, arguments.large, arguments.contender)
    run.results = Results(
        machine=describe(),
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        scale=arguments.scale,
        versions=versions(),
    )
    print(f"Machine: {run.results.machine}\n", flush=True)
    file = arguments.json or RESULTS / f"{'large' if arguments.large else 'short'}.json"
    with closing(run):
        measure_all(run, sections, MEASURES, file)
    took = sum(run.results.took_s.values()) / 60
    print(f"{len(run.results.measurements)} figures in {took:.1f} minutes, kept in {file}", file=sys.stderr)
    return run.results, run.failed


if __name__ == "__main__":
    main()
