"""``penstock channel …``: publish to channels and read from them, from a shell.

Rules: what was asked for goes to stdout, everything else to stderr. With ``--json`` stdout is one JSON
object a line. A message is acknowledged after it was written to stdout. Ctrl-C and a reader that has
gone (``| head``) end a command quietly.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any, Final

from penstock.channels import Batch, Channel, Message, Subscription
from penstock.channels.model import EXPIRE_MS
from penstock.cli.opening import Intermixed, opened
from penstock.cli.progress import Progress
from penstock.cli.teaching import add_json, taught

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_POLL_MS: Final = 30_000
_BATCH: Final = 500

_EPILOG = """\
examples:
  penstock channel publish ./shop.pen room-7 '{"text": "hi"}'
  penstock channel publish ./shop.pen room-7 --id msg-1 '"once"'       the same id counts once
  penstock channel publish ./shop.pen room-7 < messages.jsonl          one message a line
  penstock channel subscribe ./shop.pen room-7 alice                   goes on where alice stopped
  penstock channel tail redis://localhost room-7 --json | jq .content  whatever comes from now on

WHERE is the directory of a store, or redis://, rediss://, redis-cluster://, redis-sentinel://, unix://.
"""


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "channel",
        help="publish to channels and read from them",
        description="Publish to durable channels and read from them: on a store, a server or a cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Intermixed
    )
    publish = _add_action(actions, "publish", "add messages; without CONTENT the lines of stdin", " hi")
    publish.add_argument("contents", metavar="CONTENT", nargs="*", help="JSON, one message each")
    publish.add_argument(
        "--id", metavar="ID", help="id of the message; a second one of the same id is dropped"
    )
    publish.set_defaults(run=_publish)
    subscribe = _add_action(
        actions, "subscribe", "read what a subscriber has not seen, and acknowledge it", " alice --once"
    )
    subscribe.add_argument("subscriber", metavar="SUBSCRIBER", help="made if it does not exist")
    subscribe.add_argument("--once", action="store_true", help="stop when there is nothing more, do not wait")
    subscribe.add_argument("--no-ack", action="store_true", help="look only: once, the same comes again")
    subscribe.set_defaults(run=_subscribe)
    tail = _add_action(actions, "tail", "show messages as they come, until Ctrl-C", " --json")
    tail.set_defaults(run=_tail)
    _add_action(actions, "info", "show the channel and its subscribers", "").set_defaults(run=_info)


def _add_action(
    actions: _SubParsersAction[Intermixed], name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name, **taught(summary, f"penstock channel {name} ./shop.pen room-7{example}")
    )
    parser.add_argument("where", metavar="WHERE", help="directory of a store, or a URL")
    parser.add_argument("channel", metavar="CHANNEL", help="name of the channel")
    add_json(parser)
    parser.add_argument("--expire-s", type=_positive, default=EXPIRE_MS // 1_000, metavar="S",
                        help="how long messages are kept (default: 1800)")  # fmt: skip
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text}")
    return int(text)


# ------------------------------------------------------------------------------ actions


def _publish(arguments: argparse.Namespace) -> None:
    with opened(arguments.where, may_create=True) as (runner, ps):
        channel = ps.channel(arguments.channel, expire_ms=arguments.expire_s * 1_000)
        if arguments.contents:
            ids = [arguments.id, *[None] * (len(arguments.contents) - 1)]
            pairs = [(given, _content(text)) for given, text in zip(ids, arguments.contents, strict=True)]
            new, count = sum(runner.run(channel.publish_many(pairs))), len(pairs)
        else:
            new = count = 0
            with Progress("publishing") as progress:
                for lines in _batches():
                    pairs = [(None, _content(line)) for line in lines]
                    new += sum(runner.run(channel.publish_many(pairs)))
                    count += len(pairs)
                    progress.advance(sum(map(len, lines)), len(lines))
    _show(arguments, {"published": new, "duplicates": count - new}, f"{new}")


def _batches() -> Any:
    """What is published at once. From a terminal line by line: nobody waits for the next 499."""
    most = 1 if sys.stdin.isatty() else _BATCH
    batch: list[str] = []
    for line in sys.stdin:
        batch.append(line)
        if len(batch) >= most:
            yield batch
            batch = []
    if batch:
        yield batch


def _content(text: str) -> Any:
    """JSON; what is none is taken as text, which is what people mean at a prompt."""
    try:
        return json.loads(text)
    except ValueError:
        return text.removesuffix("\n")


def _subscribe(arguments: argparse.Namespace) -> None:
    with opened(arguments.where, may_create=True) as (runner, ps):
        channel = _channel(ps, arguments)
        subscription: Subscription = runner.run(channel.subscribe(arguments.subscriber))
        timeout_ms = 0 if arguments.once or arguments.no_ack else _POLL_MS
        try:
            while True:
                batch: Batch = runner.run(subscription.fetch(timeout_ms=timeout_ms))
                _write(batch.messages, arguments)
                if arguments.no_ack:
                    return
                if batch.receipt is not None:
                    runner.run(subscription.ack(batch))
                elif arguments.once:
                    return
        except KeyboardInterrupt:
            return  # the usual end; what was not acknowledged comes again


def _tail(arguments: argparse.Namespace) -> None:
    with opened(arguments.where, may_create=True) as (runner, ps):
        channel = _channel(ps, arguments)
        subscription: Subscription = runner.run(channel.subscribe(f"tail-{uuid.uuid4()}"))
        try:
            while True:
                batch: Batch = runner.run(subscription.fetch(timeout_ms=_POLL_MS))
                _write(batch.messages, arguments)
                if batch.receipt is not None:
                    runner.run(subscription.ack(batch))
        except KeyboardInterrupt:
            return  # the usual end
        finally:
            runner.run(subscription.unsubscribe())


def _info(arguments: argparse.Namespace) -> None:
    with opened(arguments.where, may_create=False) as (runner, ps):
        info = runner.run(_channel(ps, arguments).info())
    if info is None:
        facts: dict[str, Any] = {"name": arguments.channel, "clock": None, "unread": {}}
        _show(arguments, facts, "nobody has used this channel lately")
        return
    lines = [f"clock    {info.clock}", f"ttl_ms   {info.ttl_ms}"]
    lines += [f"unread   {count}\t{subscriber}" for subscriber, count in info.unread.items()]
    facts = {"name": info.name, "clock": info.clock, "ttl_ms": info.ttl_ms, "unread": dict(info.unread)}
    _show(arguments, facts, "\n".join(lines))


def _channel(ps: Any, arguments: argparse.Namespace) -> Channel:
    channel: Channel = ps.channel(arguments.channel, expire_ms=arguments.expire_s * 1_000)
    return channel


# ------------------------------------------------------------------------------ showing


def _show(arguments: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts) if arguments.json else text)


def _write(messages: tuple[Message, ...], arguments: argparse.Namespace) -> None:
    for message in messages:
        if arguments.json:
            head = json.dumps({"id": message.id, "clock": message.clock})[:-1].encode()
            sys.stdout.buffer.write(head + b', "content": ' + message.raw + b"}\n")
        else:
            sys.stdout.buffer.write(message.id.encode() + b"\t" + message.raw + b"\n")
    sys.stdout.flush()
