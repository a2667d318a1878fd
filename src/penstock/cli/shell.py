"""``penstock shell [WHERE] [-- COMMAND …]``: a prompt over any store, in the manner of redis-cli.

=====================  =============================================================================
how it is started      what it does
=====================  =============================================================================
on a terminal          asks, with history, completion and hints (needs the extra ``cli``)
with a command         runs it; status 1 if it is refused
with stdin elsewhere   runs a command a line; status 1 if one of them is refused
=====================  =============================================================================

Rules: answers go to stdout: for people on a terminal, raw elsewhere, as redis-cli does it; ``--json`` and
``--raw`` say otherwise. Errors do not end it. Ctrl-C ends what waits, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import penstock
from penstock.cli import shell_hints
from penstock.cli.asking import STORE_VARIABLE, WHERE_HELP
from penstock.cli.opening import GroupParser, opened
from penstock.cli.shell_replies import Style
from penstock.cli.shell_session import Session
from penstock.cli.shell_words import split_line
from penstock.cli.teaching import add_json, taught
from penstock.client.facts import is_readonly
from penstock.client.targets import Target, parse_url
from penstock.errors import ConfigError, PenstockError, UsageError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

#: Asks for the next line, after this text.
Ask: TypeAlias = Callable[[str], Coroutine[Any, Any, str]]

#: People decide how long they wait: Ctrl-C.
_PATIENCE: Final = {"command_timeout_ms": 0, "unresponsive_timeout_ms": 0}


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "shell",
        **taught(
            "type commands at a prompt, as in redis-cli",
            "penstock shell ./shop.pen",
            "penstock shell redis://localhost",
            "penstock shell ./shop.pen -- GET greeting        one command",
            "penstock shell ./shop.pen --json -- TINFO STREAM orders",
            "penstock shell ./shop.pen < commands.txt         a command a line",
            description="Type commands at a prompt, as in redis-cli: on a store, a server or a cluster.",
        ),
    )
    parser.add_argument("url", metavar="WHERE", nargs="?", default=os.environ.get(STORE_VARIABLE),
                        help=WHERE_HELP)  # fmt: skip
    parser.add_argument("command", metavar="COMMAND", nargs="*",
                        help="one command with its arguments; write -- before it")  # fmt: skip
    how = parser.add_mutually_exclusive_group()
    add_json(how)
    how.add_argument("--raw", action=argparse.BooleanOptionalAction,
                     help="answers as they are (default: if stdout is no terminal)")  # fmt: skip
    parser.set_defaults(run=_shell, refuse=parser.error)
    assert isinstance(parser, GroupParser)
    parser.words_behind = "command"


def _shell(arguments: argparse.Namespace) -> None:
    if not arguments.url:
        arguments.refuse(f"say which store: WHERE, or the variable {STORE_VARIABLE}")
    words = [word.encode("utf-8", "surrogateescape") for word in arguments.command]
    is_prompt = not words and sys.stdin.isatty() and sys.stdout.isatty()
    ask = _need_prompt() if is_prompt else None
    # A typing mistake in a name must not leave a new store behind, if nothing is to be put there.
    may_create = not (words and is_readonly(*words[:2]))
    with opened(arguments.url, may_create=may_create, **_PATIENCE) as (runner, ps):
        shell = _Shell(arguments, runner, ps)
        try:
            if words:
                shell.run_one(words)
            elif ask is None:
                shell.run_lines()
            else:
                shell.run_prompt(ask)
        finally:
            runner.run(shell.session.close())


def _need_prompt() -> Ask:
    try:
        from penstock.cli.shell_prompt import make_prompt
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a prompt needs packages that are not installed ({error.name}): pip install 'penstock[cli]';"
            " commands behind -- and on stdin work without them"
        ) from error
    return make_prompt()


class _Shell:
    """One run of the command, in one of three ways."""

    def __init__(self, arguments: argparse.Namespace, runner: asyncio.Runner, ps: penstock.Penstock) -> None:
        self._runner = runner
        #: what Ctrl-C ends, at a prompt
        self._current: asyncio.Task[Any] | None = None
        self._place = _place_of(parse_url(arguments.url))
        is_raw = not sys.stdout.isatty() if arguments.raw is None else arguments.raw
        self._plain_style: Style = "raw" if is_raw else "people"
        self.session = Session(ps, _write, "json" if arguments.json else self._plain_style)

    def run_one(self, words: list[bytes]) -> None:
        """A command of the command line."""
        try:
            error = self._runner.run(self.session.run(words, tells_errors=self.session.style == "json"))
            if error is not None:
                raise PenstockError(str(error))
        except KeyboardInterrupt:
            if not _is_endless(words):
                raise

    def run_lines(self) -> None:
        """Commands of a file or a pipe."""
        failed = count = 0
        for line in sys.stdin:
            words = split_line(line)
            if words == [] or line.lstrip().startswith("#"):
                continue
            count += 1
            if words is not None and _is_end(words):
                break
            try:
                failed += not self._run_words(words)
            except KeyboardInterrupt:
                if words is None or not _is_endless(words):
                    raise
        if failed:
            raise PenstockError(f"{failed} of {count} commands were refused")

    def run_prompt(self, ask: Ask) -> None:
        """Lines that somebody types. Ctrl-C throws a line away, or ends what waits, however often."""
        self.session.is_watched = True
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            while self._run_line(ask):
                pass
        finally:
            signal.signal(signal.SIGINT, before)

    def _run_line(self, ask: Ask) -> bool:
        """Ask for a line and do what it says; False at the end."""
        try:
            words = split_line(self._runner.run(ask(self.prompt)))
            if words is not None and words and _is_end(words):
                return False
            if words != []:
                self._run_words(words)
        except (KeyboardInterrupt, asyncio.CancelledError):
            _write("\n")
        except EOFError:
            return False
        return True

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        task, self._current = self._current, None
        if task is not None:
            self._runner.get_loop().call_soon_threadsafe(task.cancel)

    @property
    def prompt(self) -> str:
        database = f"[{self.session.database}]" if self.session.database else ""
        return f"{self._place}{database}{'(TX)' if self.session.is_queueing else ''}> "

    def _run_words(self, words: list[bytes] | None) -> bool:
        """A line: the shell's own words, or a command, as often as a number before it says."""
        if words is None:
            self.session.refuse(UsageError("quotes do not pair, or something follows one at once"))
            return False
        own = words[0].lower()
        if own == b"help":
            _write(shell_hints.help_on(words[1:]))
        elif own == b"clear":
            _write("\x1b[H\x1b[2J")
        elif own == b".json":
            self.session.style = "json" if self.session.style != "json" else self._plain_style
        else:
            is_repeated = own.isdigit() and len(words) > 1
            times, command = (int(own), words[1:]) if is_repeated else (1, words)
            return not any(self._runner.run(self._command(command)) for _ in range(times))
        return True

    async def _command(self, words: list[bytes]) -> Exception | None:
        self._current = asyncio.current_task()
        try:
            return await self.session.run(words)
        finally:
            self._current = None


def _is_end(words: list[bytes]) -> bool:
    return words[0].lower() in (b"exit", b"quit") and len(words) == 1


def _is_endless(words: list[bytes]) -> bool:
    """Whether Ctrl-C is the usual end of it."""
    return words[0].upper() in (b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR")


def _place_of(target: Target) -> str:
    """Where it is, short enough to stand before every line."""
    if target.kind == "cluster":
        return f"cluster {target.addresses[0]}"
    if target.kind == "sentinel":
        return target.service
    return str(target.addresses[0]) if target.addresses else (target.path or Path()).name


def _write(text: str) -> None:
    """Bytes that are no text pass as they are."""
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()
