"""``penstock top [WHERE]``: what happens on a store or behind a gateway, on one screen, as it happens.

=============  ==========================================================================
key            what it does
=============  ==========================================================================
``1 2 3``      counts of 5 seconds, a minute, ten minutes
``q``, Ctrl-C  ends it
=============  ==========================================================================

Rules: nothing is changed. ``--once`` shows one frame, as does a stdout that is no terminal; ``--json`` tells
one document. A store that goes away is told on the screen, and looked for again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.cli.asking import STORE_VARIABLE, json_line
from penstock.cli.opening import opened
from penstock.cli.teaching import add_json, taught
from penstock.cli.top_figures import Frame, Level
from penstock.client.targets import parse_url
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

TOKEN_VARIABLE: Final = "PENSTOCK_TOKEN"
_REFRESH_S: Final = 1.0
_LEVELS: Final[tuple[Level, ...]] = ("5s", "60s", "600s")


class Source(Protocol):
    """Where frames come from."""

    async def look(self, level: Level) -> Frame: ...


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "top",
        **taught(
            "see what happens, as it happens",
            "penstock top ./shop.pen",
            "penstock top redis://localhost --level 60s",
            "penstock top http://localhost:8080 --token …     through a gateway",
            "penstock top ./shop.pen --json | jq .transactions.dead",
            description="See rates, queues, workers, streams and jobs of a store, on one screen.",
        ),
    )
    parser.add_argument("url", metavar="WHERE", nargs="?", default=os.environ.get(STORE_VARIABLE),
                        help="directory of a store, a URL, or http://… of a gateway"
                        f" (default: ${STORE_VARIABLE})")  # fmt: skip
    parser.add_argument("--level", choices=_LEVELS, default=_LEVELS[0],
                        help="counts of 5 minutes, of 2 hours, of a day (default: 5s)")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="one frame, and the end")
    parser.add_argument("--token", metavar="TOKEN", default=os.environ.get(TOKEN_VARIABLE),
                        help=f"for a gateway (default: ${TOKEN_VARIABLE})")  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=_top, refuse=parser.error)


def _top(arguments: argparse.Namespace) -> None:
    if not arguments.url:
        arguments.refuse(f"say which store: WHERE, or the variable {STORE_VARIABLE}")
    is_live = not (arguments.json or arguments.once) and sys.stdout.isatty() and sys.stdin.isatty()
    if not arguments.json:
        _need_rich()
    with _source(arguments) as (runner, source):
        if is_live:
            runner.run(_Screen(source, arguments.level).run())
            return
        frame = runner.run(source.look(arguments.level))
        if arguments.json:
            sys.stdout.write(json_line(frame))
        else:
            _print(frame)


def _need_rich() -> None:
    try:
        import penstock.cli.top_view  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this needs packages that are not installed ({error.name}): pip install 'penstock[cli]';"
            " --json works without them"
        ) from error


@contextmanager
def _source(arguments: argparse.Namespace) -> Iterator[tuple[asyncio.Runner, Source]]:
    if arguments.url.startswith(("http://", "https://")):
        from penstock.cli.top_gateway import GatewaySource

        with asyncio.Runner() as runner:
            yield runner, GatewaySource(arguments.url, arguments.token)
        return
    from penstock.cli.top_store import StoreSource

    target = parse_url(arguments.url)
    where = str(target.path) if target.kind == "embedded" else target.redacted
    with opened(arguments.url, may_create=False) as (runner, ps):
        yield runner, StoreSource(ps, where)


def _print(frame: Frame) -> None:
    from penstock.cli.top_view import Console, view

    console = Console()
    console.print(view(frame, width=console.width))


class _Screen:
    """The live view."""

    def __init__(self, source: Source, level: Level) -> None:
        self._source = source
        self._level = level
        self._is_over = False
        #: a key was pressed
        self._pressed = asyncio.Event()

    async def run(self) -> None:
        from penstock.cli.top_view import Console, Live, view

        # The first one tells what is wrong in the usual way, before the screen is taken.
        frame, trouble = await self._source.look(self._level), ""
        console = Console()
        with _keys(self._press), Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(view(frame, width=console.width, trouble=trouble, is_live=True), refresh=True)
                if await self._pause():
                    return
                try:
                    frame, trouble = await self._source.look(self._level), ""
                except PenstockError as error:
                    trouble = str(error)

    async def _pause(self) -> bool:
        """Until it is time, or a key is pressed; whether it is the end."""
        try:
            async with asyncio.timeout(_REFRESH_S):
                await self._pressed.wait()
        except TimeoutError:
            pass
        self._pressed.clear()
        return self._is_over

    def _press(self, key: str) -> None:
        if key in ("q", "Q", "\x03", "\x04"):
            self._is_over = True
        elif key in "123":
            self._level = _LEVELS[int(key) - 1]
        else:
            return
        self._pressed.set()


@contextmanager
def _keys(press: Any) -> Iterator[None]:
    """Tells keys as they are pressed; the terminal is as before afterwards."""
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)

    def read() -> None:
        keys = os.read(number, 64)
        for key in keys.decode("utf-8", "replace") or "q":  # nothing: the terminal is gone
            press(key)

    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
