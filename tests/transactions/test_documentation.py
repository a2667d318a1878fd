"""Everything that ``docs/transactions.md`` shows runs, and answers what the page says."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.channels.test_documentation import Checked, check

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
BLOCKS = re.findall(r"^```(python|console)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
_END = "--- end of the answer"


class Terminal:
    """A shell in which commands of the page run one after the other. A worker runs beside it."""

    def __init__(self, home: Path) -> None:
        tools = str(Path(sys.executable).parent)
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        self._options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "cwd": home}
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            **self._options,
        )
        self._environment = environment
        self._worker: subprocess.Popen[str] | None = None
        self.commands = 0

    def run(self, command: str) -> list[str]:
        """The lines of the answer."""
        self.commands += 1
        if command.startswith("penstock worker"):
            where = {"PENSTOCK_STORE": "./shop.pen"}
            self._worker = subprocess.Popen(
                command.split(), env=self._environment | where, stderr=subprocess.DEVNULL, **self._options
            )
            assert self._worker.stdout is not None
            return [self._worker.stdout.readline().rstrip("\n")]
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{command}\necho '{_END}'\n")
        self._shell.stdin.flush()
        return [line.rstrip("\n") for line in iter(self._shell.stdout.readline, f"{_END}\n")]

    def close(self) -> int:
        """The status with which the worker has stopped."""
        assert self._worker is not None
        self._worker.send_signal(signal.SIGTERM)
        try:
            return self._worker.wait(30)
        finally:
            for process in (self._worker, self._shell):
                process.kill()
                process.communicate()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    assert terminal.close() == 0


def _converse(block: str, terminal: Terminal) -> None:
    """Each command is answered as the page says."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        answer = "".join(f"{line}\n" for line in terminal.run(command))
        assert re.fullmatch(_pattern(expected), answer), f"$ {command}\n{answer}\nnot\n{expected}"


def _pattern(expected: str) -> str:
    """… stands for anything on its line; where it is all of a line, for any lines."""
    lines = expected.splitlines(keepends=True)
    return "".join(r"(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*") for line in lines)


async def _run(example: str, names: dict[str, Any]) -> int:
    checked = Checked(example)
    tree = checked.visit(ast.parse(textwrap.dedent(example)))
    code = compile(tree, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        exec(code, names)
    return checked.checks


async def test_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = 0
    async with penstock.open("./shop.pen") as ps:
        names: dict[str, Any] = {"check": check, "penstock": penstock}
        for kind, block in BLOCKS:
            if kind == "console":
                await asyncio.to_thread(_converse, block, terminal)
            elif block.startswith("# shop.py"):
                (tmp_path / "shop.py").write_text(block)
            else:
                checks += await _run(block, names)
                names["ps"] = ps  # the first one opens its own
    assert (checks, terminal.commands) == (18, 14)
    assert capsys.readouterr().out.splitlines() == [
        "success {'total': 42, 'receipt': 'receipt-order-2'}", "success", "True",
    ]  # fmt: skip
