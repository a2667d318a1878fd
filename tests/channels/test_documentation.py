"""The examples of ``docs/channels.md`` run, and answer what their comments say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import penstock

PAGE = Path(__file__).parents[2] / "docs" / "channels.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


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


async def _run(example: str, names: dict[str, Any]) -> int:
    checked = Checked(example)
    tree = checked.visit(ast.parse(textwrap.dedent(example)))
    code = compile(tree, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:  # code without await has no event loop
        await asyncio.to_thread(exec, code, dict(names))
    return checked.checks


async def test_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = 0
    async with penstock.open("./chat.pen") as ps:
        names: dict[str, Any] = {"check": check, "penstock": penstock}
        for number, example in enumerate(EXAMPLES):
            if number:  # the first one opens its own
                names["ps"] = ps
            checks += await _run(example, names)
        assert await ps.channel_names() == ["room-7", "ticker"]
    assert (len(EXAMPLES), checks) == (6, 17)
    assert capsys.readouterr().out.splitlines() == ["{'text': 'hi'}", "note-3 3", "note-4 4", "hi"]
