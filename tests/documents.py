"""Pages of the documentation as tests: their Python runs and answers what it says, and so do their commands.

    for kind, block in blocks(page.read_text(), "python", "console"): …

==================  =======================================================================================
``blocks``          blocks of code with their kinds, in their order
``compiled``        Python in which ``expression  # value`` is compared with its value
``Terminal``        a shell in which commands run one after the other; programs that stay run beside it
``converse``        each ``$ command`` is answered by the lines below it; ``…`` stands for anything
==================  =======================================================================================

Rules: names of the blocks are those of the page, and ``check``. What a page is about is not known here.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

_END = "--- end of the answer"


def blocks(text: str, *kinds: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```([\w-]+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(kind, block) for kind, block in found if kind in kinds]


# ---------------------------------------------------------------------------------------------- Python


class Checked(ast.NodeTransformer):
    """Compares every expression that has a value as its comment with that value."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self.checks = 0

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        _, mark, comment = self._lines[node.lineno - 1].partition("  # ")
        try:
            expected = ast.literal_eval(comment) if mark else None
        except (SyntaxError, ValueError):  # words
            return node
        if not mark or _is_print(node):
            return node
        self.checks += 1
        call = ast.Call(ast.Name("check", ast.Load()), [node.value, ast.Constant(repr(expected))], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def _is_print(node: ast.Expr) -> bool:
    call = node.value
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


def check(found: Any, expected: str) -> None:
    assert repr(found) == expected


def compiled(example: str, page: str, *, awaits: bool = False) -> tuple[CodeType, int]:
    """The code of a block, and how many values it compares; with ``awaits`` it may await at its top."""
    source = textwrap.dedent(example)
    checked = Checked(source)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if awaits else 0
    return compile(checked.visit(ast.parse(source)), page, "exec", flags=flags), checked.checks


# -------------------------------------------------------------------------------------------- commands


class Terminal:
    """A shell for commands of a page.

    Commands that begin with one of ``beside`` stay: they run beside the shell until it is closed. Words of
    ``instead`` stand for others, in commands and in answers: ports that are free.
    """

    def __init__(
        self,
        home: Path,
        *,
        beside: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        instead: Mapping[str, str] | None = None,
    ) -> None:
        tools = str(Path(sys.executable).parent)
        self._environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", **(environment or {})}
        self._home = home
        self._beside = tuple(beside)
        self._instead = dict(instead or {})
        self._shell = self._start(["bash", "--noprofile", "--norc"])
        self._programs: list[subprocess.Popen[str]] = []
        self.commands = 0
        self._say('curl() { command curl -sS --max-time 60 "$@"; }\n')

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._home,
            env=self._environment,
        )

    def run(self, command: str, expected: str = "") -> str:
        """The answer; of a program that stays, as soon as it has said what is expected."""
        self.commands += 1
        for word, other in self._instead.items():
            command = command.replace(word, other)
        answer = self._stay(command, expected) if command.startswith(self._beside) else self._ask(command)
        for word, other in self._instead.items():
            answer = answer.replace(other, word)
        return answer

    def _ask(self, command: str) -> str:
        assert self._shell.stdout is not None
        self._say(f"{command}\necho '{_END}'\n")
        return "".join(iter(self._shell.stdout.readline, f"{_END}\n"))

    def _say(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def _stay(self, command: str, expected: str) -> str:
        program = self._start(command.split())
        self._programs.append(program)
        assert program.stdout is not None
        said = ""
        wanted = re.compile(pattern_of(self._meant(expected)))
        while not wanted.fullmatch(said):
            line = program.stdout.readline()
            if not line:
                break
            said += line
        return said

    def _meant(self, expected: str) -> str:
        for word, other in self._instead.items():
            expected = expected.replace(word, other)
        return expected

    def close(self) -> list[int]:
        """The statuses with which programs have stopped, in the order of their starts."""
        for program in self._programs:
            program.send_signal(signal.SIGTERM)
        try:
            return [program.wait(30) for program in self._programs]
        finally:
            for process in (*self._programs, self._shell):
                process.kill()
                process.communicate()


def converse(block: str, terminal: Terminal) -> None:
    """Each command is answered as the page says."""
    for command, expected in said_in(block):
        answer = terminal.run(command, expected)
        assert re.fullmatch(pattern_of(expected), answer), f"$ {command}\n{answer}\nnot\n{expected}"


def said_in(block: str) -> list[tuple[str, str]]:
    """Commands and what they print."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, expected) for command, _, expected in (part.partition("\n") for part in parts)]


def pattern_of(expected: str) -> str:
    """… stands for anything on its line; where it is all of a line, for any lines."""
    lines = expected.splitlines(keepends=True)
    return "".join(r"(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*") for line in lines)
