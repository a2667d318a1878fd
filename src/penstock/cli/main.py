"""Entry point of the ``penstock`` command: finds the group, shows errors as one sentence.

Exit status: 0 done (a server stopped by Ctrl-C is), 1 it did not work, 2 not understood, 130 other work
was stopped by Ctrl-C.

Rules: a group lives in one module, which is imported when its name is typed and not before, so that help and
completion cost nothing. ``GROUPS`` has what help says without them; ``whole_parser`` has everything, for
completion and the reference. What commands do is not known here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.cli.opening import GroupParser
from penstock.errors import PenstockError
from penstock.version import __version__

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_INTERRUPTED: Final = 130
#: Ctrl-C is their usual end.
_SERVING: Final = ("demo", "gateway", "serve", "top", "worker")


class Group(NamedTuple):
    """A command of the first level."""

    name: str
    module: str
    #: as in the module itself, which says more
    summary: str


#: By purpose, in the order of the help.
GROUPS: Final[dict[str, tuple[Group, ...]]] = {
    "begin": (
        Group("demo", "demo", "a sample shop on this machine, with a console to look at"),
        Group("doctor", "doctor", "look whether this machine has what is needed"),
    ),
    "serve": (
        Group("serve", "serve", "serve a store over the Redis protocol"),
        Group("gateway", "gateway", "serve channels, streams and pub/sub over HTTP"),
        Group("worker", "worker", "run the steps of transactions"),
    ),
    "look": (
        Group("shell", "shell", "type commands at a prompt, as in redis-cli"),
        Group("top", "top", "see what happens, as it happens"),
    ),
    "use": (
        Group("stream", "stream", "write, read and look after streams"),
        Group("channel", "channel", "publish to channels and read from them"),
        Group("tx", "tx", "start transactions, look at them, steer them"),
        Group("pipeline", "pipeline", "look after definitions of pipelines and their versions"),
        Group("spark", "spark", "keep a lake in step with a store, look at it, run steps on Spark"),
    ),
    "keep": (
        Group("backup", "keeping", "copy a store that is in use, and check the copy"),
        Group("restore", "keeping", "make a store of a backup"),
        Group("check", "keeping", "look whether a store is whole"),
        Group("migrate", "keeping", "copy everything from one store to another"),
    ),
    "set up": (Group("completion", "completion", "let the shell complete commands and options"),),
}

_EPILOG: Final = """\
examples:
  penstock serve ./shop.pen                     a store in ./shop.pen, on 127.0.0.1:6380
  penstock serve ./shop.pen --http-port 8080    the same, and HTTP beside it
  penstock gateway --store redis://localhost    HTTP in front of a Redis
  penstock shell ./shop.pen                     a prompt; redis-cli -p 6380 works as well
  penstock stream write ./shop.pen orders hi    a message to a stream
  penstock stream follow ./shop.pen orders      and its readers, as they come
  penstock channel publish ./shop.pen room hi   a message to a durable channel
  penstock channel tail ./shop.pen room         whatever comes from now on
  penstock worker shop --store ./shop.pen       runs the steps that shop.py has
  penstock tx start checkout '{"cart": 42}' --store ./shop.pen
  penstock top ./shop.pen                       rates, queues, workers, streams, live
  penstock spark run --store ./shop.pen --lake ./lake --streams orders
  penstock doctor ./shop.pen                    what is missing, and what to do about it

`penstock COMMAND --help` tells more about a command.
"""


class _TopParser(argparse.ArgumentParser):
    """Shows commands by purpose."""

    groups: _SubParsersAction[GroupParser]

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        listed = {action.dest: action for action in self.groups._choices_actions}
        for purpose, members in GROUPS.items():
            formatter.start_section(purpose)
            formatter.add_arguments([listed[group.name] for group in members if group.name in listed])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(self._optionals._group_actions)
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def whole_parser() -> argparse.ArgumentParser:
    """With everything that can be typed."""
    return _parser(group.name for group in _every_group())


def _parser(wanted: Iterable[str]) -> argparse.ArgumentParser:
    """Groups that are not wanted are there by name alone."""
    parser = _TopParser(
        prog="penstock",
        description="Durable streams, channels and transactions; embedded like SQLite, speaking Redis.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    parser.groups = parser.add_subparsers(
        dest="group", metavar="COMMAND", required=True, parser_class=GroupParser
    )
    named = set(wanted)
    modules = {group.module for group in _every_group() if group.name in named}
    for group in _every_group():
        if group.name in parser.groups.choices:
            continue  # its module has several
        if group.module in modules:
            import_module(f"penstock.cli.{group.module}").add_arguments(parser.groups)
        else:
            parser.groups.add_parser(group.name, help=group.summary)
    return parser


def _every_group() -> list[Group]:
    return [group for members in GROUPS.values() for group in members]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; answers the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser = _parser(words[:1])
    arguments: Any = parser.parse_args(words)
    try:
        arguments.run(arguments)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # A server that did not listen to signals yet is stopped as well; half of a task is not done.
        return 0 if arguments.group in _SERVING else _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
