"""``penstock tx …``: start transactions, look at them and steer them, from a shell.

Rules: what was asked for goes to stdout, everything else to stderr. With ``--json`` stdout is one JSON value
a line. Ctrl-C and a reader that has gone (``| head``) end a command quietly. Whoever may use the store is an
operator: without ``--owner`` transactions of all owners are seen.

Here are starting and looking; ``tx_control`` has what is done to transactions, ``tx_numbers`` what is
counted, ``tx_schedule`` starts by time, ``tx_archive`` what leaves the store.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import showing, tx_archive, tx_control, tx_numbers, tx_schedule
from penstock.cli.asking import (
    Actions,
    Bench,
    add_action,
    duration_ms,
    json_line,
    json_word,
    moment_ms,
    positive,
    whole,
)
from penstock.errors import TransactionError
from penstock.transactions import Query, TrailEntry, Transaction
from penstock.transactions.archive import ArchiveQuery
from penstock.transactions.listing import MAX_PAGE, STATES, STATUSES
from penstock.transactions.model import DEFAULT_OWNER

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EPILOG: Final = f"""\
examples:
  export PENSTOCK_STORE=./shop.pen                       or --store with every command
  penstock tx start checkout '{{"cart": 42}}' --owner acme --external-id order-42
  penstock tx start checkout @order.json --wait 30       its end, or 30 seconds
  penstock tx status --external-id order-42 --owner acme --trail
  penstock tx list --status failed --json | jq -r .id
  penstock tx retry tx-0-…                               from the step that failed
  penstock tx switch tx-0-… approved=yes
  penstock tx pause --pipeline checkout
{tx_schedule.EXAMPLES}
Durations are seconds, or numbers with ms, s, m, h or d. `penstock tx ACTION --help` tells more.
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "tx",
        help="start transactions, look at them, steer them",
        description="Start transactions, look at them and steer them: on a store, a server or a cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions: _SubParsersAction[Actions] = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Actions
    )
    _add_start(
        add_action(
            actions,
            "start",
            _start,
            "start a transaction; answers its id",
            """tx start checkout '{"cart": 42}' --owner acme --external-id order-42""",
            "tx start checkout @order.json --wait 30       its end, or 30 seconds",
        )
    )
    status = add_action(
        actions, "status", _status, "show one transaction", "tx status tx-0-1 --trail", has_archive=True
    )
    status.add_argument("id", metavar="ID", nargs="?", help="which; or give --external-id")
    status.add_argument("--external-id", metavar="X", help="the one that has this id of its owner's")
    status.add_argument("--owner", metavar="NAME", help=f"whose (with --external-id: {DEFAULT_OWNER})")
    status.add_argument("--trail", action="store_true", help="with all that happened to it")
    _add_list(
        add_action(
            actions,
            "list",
            _list,
            "show transactions, the newest first",
            "tx list --state sleeping",
            "tx list --status failed --json | jq -r .id",
            has_archive=True,
        )
    )
    watch = add_action(
        actions, "watch", _watch, "show what happens to one, until it has ended or Ctrl-C", "tx watch tx-0-1"
    )
    watch.add_argument("id", metavar="ID")
    tx_control.add_actions(actions)
    tx_numbers.add_actions(actions)
    tx_archive.add_actions(actions)
    tx_schedule.add_actions(actions)


def _add_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE")
    parser.add_argument("input", metavar="INPUT", nargs="?",
                        help="JSON, @FILE, or - for stdin (default: null)")  # fmt: skip
    parser.add_argument("--owner", metavar="NAME", default=DEFAULT_OWNER, help="for whom (default: default)")
    parser.add_argument("--external-id", metavar="X", help="unique among the owner's: the same is begun once")
    parser.add_argument("--webhook", metavar="URL", help="is told of the end")
    parser.add_argument("--metadata", metavar="JSON", help="for its steps: JSON, @FILE, or - for stdin")
    parser.add_argument("--version", metavar="V", help="of the pipeline (default: the active one)")
    parser.add_argument("--priority", type=whole, metavar="N", help="0 to 9, the most urgent")
    later = parser.add_mutually_exclusive_group()
    later.add_argument("--delay", type=duration_ms, default=0, metavar="DURATION", help="begin it later")
    later.add_argument("--at", type=moment_ms, metavar="TIME", help="begin it then: 2026-01-31T09:00:00Z")
    parser.add_argument("--deadline", type=duration_ms, metavar="DURATION", help="end it if it takes longer")
    parser.add_argument("--wait", type=duration_ms, metavar="DURATION",
                        help="show its end; status 1 if it has not succeeded by then")  # fmt: skip


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="NAME", help="whose")
    parser.add_argument("--state", choices=STATES, metavar="STATE", help=", ".join(STATES))
    parser.add_argument("--status", choices=STATUSES, metavar="STATUS", help=", ".join(STATUSES))
    parser.add_argument("--pipeline", metavar="NAME", help="of which pipeline")
    parser.add_argument("--node-group", metavar="NAME", help="of which group")
    parser.add_argument("--external-id", metavar="X", help="that has, or had, this id")
    parser.add_argument("--since", type=moment_ms, metavar="TIME", help="created then or later")
    parser.add_argument("--until", type=moment_ms, metavar="TIME", help="created before")
    parser.add_argument("--roots", action="store_true", help="without those that others started for steps")
    parser.add_argument("--limit", type=positive, default=50, metavar="N", help="at most (default: 50)")
    parser.add_argument("--archived", action="store_true", help="those in --archive, not those in the store")


# ---------------------------------------------------------------------------------------- start


def _start(bench: Bench) -> None:
    arguments = bench.arguments
    work = bench.transactions.start(
        arguments.pipeline,
        json_word("INPUT", arguments.input),
        owner=arguments.owner,
        external_id=arguments.external_id,
        webhook=arguments.webhook,
        metadata=json_word("--metadata", arguments.metadata),
        version=arguments.version,
        priority=arguments.priority,
        delay_ms=arguments.delay,
        at_ms=arguments.at,
        deadline_ms=arguments.deadline,
    )
    handle = bench.run(work)
    if arguments.wait is None:
        bench.show({"id": handle.id, "is_new": handle.is_new}, handle.id)
        return
    found = bench.run(handle.wait(arguments.wait))
    bench.show(showing.as_facts(found), showing.transaction_text(found))
    sys.stdout.flush()
    if not found.has_ended:
        raise TransactionError(f"{found.id} has not ended within {arguments.wait} ms: it goes on")
    if not found.is_success:
        why = f": {found.note}" if found.note else ""
        raise TransactionError(f"{found.id} has ended as {found.status}{why}")


# -------------------------------------------------------------------------------------- looking


def _status(bench: Bench) -> None:
    arguments, transactions = bench.arguments, bench.transactions
    if (arguments.id is None) == (arguments.external_id is None):
        arguments.refuse("give either ID or --external-id")
    if arguments.id is not None:
        work = transactions.get(arguments.id, owner=arguments.owner, trail=arguments.trail)
    else:
        owner = arguments.owner or DEFAULT_OWNER
        work = transactions.find(arguments.external_id, owner=owner, trail=arguments.trail)
    found = bench.run(work)
    if not arguments.trail:
        found.trail = []  # archives give it unasked
    bench.show(showing.as_facts(found), showing.transaction_text(found))


def _list(bench: Bench) -> None:
    arguments = bench.arguments
    if arguments.archived and (not arguments.archive or arguments.state or arguments.node_group):
        arguments.refuse("--archived needs --archive DIR, and knows neither --state nor --node-group")
    pages = _archived_pages(bench) if arguments.archived else _pages(bench)
    left = arguments.limit
    rows: list[Transaction] = []
    for page in pages:
        rows += page[:left]
        left = arguments.limit - len(rows)
        if not left:
            break
    if arguments.json:
        for row in rows:
            sys.stdout.write(json_line(showing.as_facts(row, is_row=True)))
    else:
        print(showing.transactions_table(rows))


def _pages(bench: Bench) -> Iterator[list[Transaction]]:
    arguments = bench.arguments
    query = Query(
        owner=arguments.owner,
        state=arguments.state,
        status=arguments.status,
        pipeline=arguments.pipeline,
        node_group=arguments.node_group,
        external_id=arguments.external_id,
        since_ms=arguments.since,
        until_ms=arguments.until,
        roots_only=arguments.roots,
    )
    limit, cursor = min(arguments.limit, MAX_PAGE), None
    while True:
        page = bench.run(bench.transactions.list(query, limit=limit, cursor=cursor))
        yield page.items
        cursor = page.cursor
        if cursor is None:
            return


def _archived_pages(bench: Bench) -> Iterator[list[Transaction]]:
    arguments = bench.arguments
    cursor = None
    while True:
        query = ArchiveQuery(
            owner=arguments.owner,
            status=arguments.status,
            pipeline=arguments.pipeline,
            external_id=arguments.external_id,
            since_ms=arguments.since,
            until_ms=arguments.until,
            limit=min(arguments.limit, MAX_PAGE),
            cursor=cursor,
        )
        page = bench.run(bench.transactions.search_archive(query))
        yield [item for item in page.items if not (arguments.roots and item.parent)]
        cursor = page.cursor
        if cursor is None:
            return


# ------------------------------------------------------------------------------------- watching


def _watch(bench: Bench) -> None:
    try:
        bench.run(_follow(bench))
    except KeyboardInterrupt:
        return  # the usual end


async def _follow(bench: Bench) -> None:
    news = _News()
    async for found in bench.transactions.changes(bench.arguments.id, trail=True):
        if bench.arguments.json:
            sys.stdout.write(json_line(showing.as_facts(found)))
        else:
            for line in news.lines(found):
                print(line)
        sys.stdout.flush()


class _News:
    """What is new since it was last shown."""

    def __init__(self) -> None:
        self._last: TrailEntry | None = None
        self._state: tuple[Any, ...] = ()

    def lines(self, found: Transaction) -> Iterator[str]:
        for entry in self._new_entries(found.trail):
            at, what, step, status, *_, note = showing.entry_row(entry)
            yield "  ".join(str(word) for word in (at, what, step, status, note) if word)
        state = (showing.standing(found), found.step, found.progress)
        if state != self._state:
            self._state = state
            words = [showing.standing(found), f"at step {found.step}", showing.compact(found.progress)]
            if found.has_ended:
                words = [found.status, found.note, showing.compact(found.output)]
            yield "  ".join(word for word in words if word)

    def _new_entries(self, trail: list[TrailEntry]) -> list[TrailEntry]:
        """Those behind the last that was shown; a long trail loses its oldest entries."""
        places = [at for at, entry in enumerate(trail) if entry == self._last]
        if trail:
            self._last = trail[-1]
        return trail[places[-1] + 1 :] if places else trail
