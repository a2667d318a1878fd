"""Everything that ``docs/transactions.md`` shows runs, and answers what the page says."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.documents import Terminal, blocks, check, compiled, converse

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
BLOCKS = blocks(PAGE.read_text(), "python", "console")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A worker runs beside it."""
    store = {"PENSTOCK_STORE": "./shop.pen"}
    terminal = Terminal(tmp_path, beside=("penstock worker",), environment=store)
    yield terminal
    assert terminal.close() == [0]


async def _run(example: str, names: dict[str, Any]) -> int:
    code, checks = compiled(example, str(PAGE), awaits=True)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        exec(code, names)
    return checks


async def test_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = 0
    async with penstock.open("./shop.pen") as ps:
        names: dict[str, Any] = {"check": check, "penstock": penstock}
        for kind, block in BLOCKS:
            if kind == "console":
                await asyncio.to_thread(converse, block, terminal)
            elif block.startswith("# shop.py"):
                (tmp_path / "shop.py").write_text(block)
            else:
                checks += await _run(block, names)
                names["ps"] = ps  # the first one opens its own
    assert (checks, terminal.commands) == (18, 14)
    assert capsys.readouterr().out.splitlines() == [
        "success {'total': 42, 'receipt': 'receipt-order-2'}", "success", "True",
    ]  # fmt: skip
