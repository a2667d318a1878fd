"""``penstock stream …``: write, read, follow and look after streams from a shell.

Rules: what was asked for goes to stdout, everything else to stderr. With ``--json`` stdout is one
JSON object a line. Bytes that are no text are shown escaped, and are ``…_base64`` in JSON. Ctrl-C
and a reader that has gone (``| head``) end a command quietly.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import dataclasses
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, TypeVar

from penstock.cli import showing
from penstock.cli.opening import Intermixed, opened
from penstock.cli.progress import Progress
from penstock.cli.teaching import add_json, taught
from penstock.errors import UsageError
from penstock.streams import Message, Stream

if TYPE_CHECKING:
    from argparse import _SubParsersAction

T = TypeVar("T")

#: Does what an action asks for.
Action: TypeAlias = Callable[["_Bench"], None]
AddOptions: TypeAlias = Callable[[argparse.ArgumentParser], None]

#: Lines that are written with one command, …
_BATCH_LINES: Final = 1_000
#: … and about how many bytes.
_BATCH_BYTES: Final = 1 << 20

_EPILOG = """\
examples:
  penstock stream write ./shop.pen orders --tag eu '{"id": 1}'
  penstock stream write ./shop.pen orders --tag eu < orders.jsonl      one message a line
  penstock stream read ./shop.pen orders --from 100 --json | jq .entry
  penstock stream read redis://localhost orders --tail 10
  penstock stream follow ./shop.pen orders
  penstock stream groups ./shop.pen orders
  penstock stream evict ./shop.pen orders --older-than-ms 86400000 --acked
  penstock stream drop ./shop.pen orders 17 100-120

WHERE is the directory of a store, or redis://, rediss://, redis-cluster://, redis-sentinel://, unix://.
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "stream",
        help="write, read and look after streams",
        description="Write, read and look after streams: on a store, a server or a cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Intermixed
    )
    for name, action, summary, example, add_options in _ACTIONS:
        parser = _add_action(actions, name, action, summary, f"./shop.pen orders{example}")
        if add_options is not None:
            add_options(parser)


def _add_action(
    actions: _SubParsersAction[Intermixed],
    name: str,
    action: Action,
    summary: str,
    example: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, **taught(summary, f"penstock stream {name} {example}"))
    parser.add_argument("where", metavar="WHERE", help="directory of a store, or a URL")
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    add_json(parser)
    parser.set_defaults(run=lambda arguments: _run(action, arguments))
    return parser


def _add_write(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entries", metavar="ENTRY", nargs="*", help="what to write, one message each")
    tags = parser.add_mutually_exclusive_group()
    tags.add_argument("--tag", default="", metavar="TAG", help="tag of the messages (default: none)")
    tags.add_argument("--tagged", action="store_true",
                      help="lines of stdin are a tag, a tab, and the entry")  # fmt: skip
    parser.add_argument("--tombstone", action="store_true", help="say that TAG is over; without entries")
    parser.add_argument("--backlog", type=_whole, metavar="N",
                        help="keep about so many of the newest messages")  # fmt: skip


def _add_read(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--from", dest="start", type=_whole, default=1, metavar="OFFSET",
                       help="first offset (default: 1)")  # fmt: skip
    which.add_argument("--tail", type=_whole, metavar="N", help="the newest N messages")
    parser.add_argument(
        "--to", dest="end", type=_whole, metavar="OFFSET", help="last offset (default: the last)"
    )
    _add_raw(parser)


def _add_follow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="start", type=_whole, metavar="OFFSET",
                        help="begin with messages from this offset (default: new ones only)")  # fmt: skip
    _add_raw(parser)


def _add_raw(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raw", action="store_true", help="show entries only, byte by byte as they are")


def _add_evict(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--upto", type=_whole, metavar="OFFSET", help="remove messages up to this offset")
    what.add_argument("--keep", type=_whole, metavar="N", help="remove all but the newest N")
    what.add_argument("--older-than-ms", type=_whole, metavar="MS", help="remove what is older than this")
    parser.add_argument("--acked", action="store_true", help="spare what some group still needs")


def _add_drop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", metavar="ITEM", nargs="+", type=_item, help="an offset, or FIRST-LAST")


def _item(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    return _whole(first), _whole(last if dash else first)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text}")
    return int(text)


# ------------------------------------------------------------------------------ running


@dataclass(frozen=True)
class _Bench:
    """What an action works with."""

    stream: Stream
    arguments: argparse.Namespace
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)


def _run(action: Action, arguments: argparse.Namespace) -> None:
    with opened(arguments.where, may_create=action is _write) as (runner, ps):
        action(_Bench(ps.stream(arguments.stream), arguments, runner))


def _write(bench: _Bench) -> None:
    stream, arguments = bench.stream, bench.arguments
    if arguments.tombstone:
        if arguments.entries or not arguments.tag:
            raise UsageError("--tombstone needs --tag and no entries")
        last, count = bench.run(stream.write(arguments.tag, None, backlog=arguments.backlog)), 1
    elif arguments.entries:
        messages = [(arguments.tag, entry) for entry in arguments.entries]
        last, count = bench.run(stream.write_many(messages, backlog=arguments.backlog)), len(messages)
    else:
        last, count = _write_lines(bench, sys.stdin.buffer)
    _show(arguments, {"last": last, "written": count}, f"{last}")


def _write_lines(bench: _Bench, lines: BinaryIO) -> tuple[int, int]:
    """Batch by batch; the last offset and how many."""
    arguments = bench.arguments
    tag = arguments.tag.encode()
    last = 0
    with Progress("writing", _size_of(lines)) as progress:
        for batch in _batches(lines):
            entries = [line.removesuffix(b"\n") for line in batch]
            messages = [_taken_apart(line) if arguments.tagged else (tag, line) for line in entries]
            last = bench.run(bench.stream.write_many(messages, backlog=arguments.backlog))
            progress.advance(sum(map(len, batch)), len(batch))
    return last, progress.count


def _batches(lines: BinaryIO) -> Iterator[list[bytes]]:
    """What is written at once. From a terminal line by line: nobody waits for the next 999."""
    most = 1 if lines.isatty() else _BATCH_LINES
    batch: list[bytes] = []
    size_bytes = 0
    for line in lines:
        batch.append(line)
        size_bytes += len(line)
        if len(batch) >= most or size_bytes >= _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _taken_apart(line: bytes) -> tuple[bytes, bytes]:
    tag, tab, entry = line.partition(b"\t")
    return (tag, entry) if tab else (b"", line)


def _size_of(file: BinaryIO) -> int | None:
    """In bytes, where it is known: a file, not a pipe."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size or None


def _read(bench: _Bench) -> None:
    stream, arguments = bench.stream, bench.arguments
    if arguments.tail is None:
        bench.run(_show_messages(stream.read(arguments.start, arguments.end), arguments))
        return
    for message in bench.run(stream.tail(arguments.tail)):
        sys.stdout.buffer.write(_line_of(message, arguments))


def _follow(bench: _Bench) -> None:
    try:
        bench.run(_show_messages(bench.stream.follow(bench.arguments.start), bench.arguments, is_live=True))
    except KeyboardInterrupt:
        return  # the usual end


def _groups(bench: _Bench) -> None:
    groups = bench.run(bench.stream.groups())
    if bench.arguments.json:
        for group in groups:
            print(json.dumps(dataclasses.asdict(group)))
        return
    columns = ("name", "cursor", "ack_offset", "pending", "lag", "lost", "dead", "idle_ms")
    print(showing.table(columns, ([getattr(group, column) for column in columns] for group in groups)))


def _info(bench: _Bench) -> None:
    facts = dataclasses.asdict(bench.run(bench.stream.info()))
    _show(bench.arguments, facts, showing.facts((name, str(value)) for name, value in facts.items()))


def _evict(bench: _Bench) -> None:
    arguments = bench.arguments
    work = bench.stream.evict(
        upto=arguments.upto,
        keep=arguments.keep,
        older_than_ms=arguments.older_than_ms,
        acked=arguments.acked,
    )
    count = bench.run(work)
    _show(arguments, {"removed": count}, f"{count}")


def _drop(bench: _Bench) -> None:
    count = bench.run(bench.stream.drop(*bench.arguments.items))
    _show(bench.arguments, {"removed": count}, f"{count}")


def _compact(bench: _Bench) -> None:
    count = bench.run(bench.stream.compact())
    _show(bench.arguments, {"removed": count}, f"{count}")


_ACTIONS: Final[tuple[tuple[str, Action, str, str, AddOptions | None], ...]] = (
    (
        "write",
        _write,
        "add messages; without ENTRY the lines of stdin",
        " --tag eu '{\"id\": 1}'",
        _add_write,
    ),
    ("read", _read, "show messages that are there", " --tail 10", _add_read),
    ("follow", _follow, "show messages as they are written, until Ctrl-C", " --from 1", _add_follow),
    ("groups", _groups, "show the groups and how far they are", "", None),
    ("info", _info, "show offsets, sizes and times", " --json", None),
    ("evict", _evict, "remove old messages", " --keep 1000000 --acked", _add_evict),
    ("drop", _drop, "remove messages by their offsets", " 17 100-120", _add_drop),
    ("compact", _compact, "keep only the newest message of each tag", "", None),
)


# ------------------------------------------------------------------------------ showing


def _show(arguments: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts) if arguments.json else text)


async def _show_messages(
    messages: AsyncGenerator[Message, None], arguments: argparse.Namespace, *, is_live: bool = False
) -> None:
    out = sys.stdout.buffer
    async with aclosing(messages):
        async for message in messages:
            out.write(_line_of(message, arguments))
            if is_live:
                out.flush()


def _line_of(message: Message, arguments: argparse.Namespace) -> bytes:
    if arguments.raw:
        return (message.entry or b"") + b"\n"
    if arguments.json:
        facts = {"offset": message.offset, "time_ms": message.time_ms}
        facts |= _json_of("tag", message.tag) | _json_of("entry", message.entry)
        return json.dumps(facts).encode() + b"\n"
    entry = "(tombstone)" if message.entry is None else _text_of(message.entry)
    return f"{message.offset}\t{_text_of(message.tag)}\t{entry}\n".encode()


def _json_of(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _text_of(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace").replace("\n", "\\n")
