"""The tutorial runs from its top to the lake, as its reader would run it; ``tests/spark`` runs the lake."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documents import Terminal, blocks, check, compiled, converse

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
STAYING = ("python billing.py", "penstock serve", "penstock worker")
#: A script knows nothing of SIGTERM; commands end well.
STATUSES = [-15, -15, 0, 0]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    resp, http = _free_port(), _free_port()
    terminal = Terminal(tmp_path, beside=STAYING, instead={"6380": str(resp), "8080": str(http)})
    yield terminal
    statuses = terminal.close()
    assert statuses == STATUSES[: len(statuses)]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Of the blocks, which share one Python shell."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__", "check": check}
    yield names
    names["ps"].close()


@pytest.mark.timeout(300)  # some twenty processes
def test_from_nothing_to_the_lake(tmp_path: Path, terminal: Terminal, names: dict[str, Any]) -> None:
    checks = 0
    text, _, _ = PAGE.read_text("utf-8").partition("\n## A lake\n")
    for kind, block in blocks(text, "python", "console"):
        first, _, _ = block.partition("\n")
        if kind == "console":
            converse(block, terminal)
        elif first.startswith("# ") and first.endswith(".py"):
            (tmp_path / first.removeprefix("# ")).write_text(block)
        else:
            code, count = compiled(block, str(PAGE))
            exec(code, names)
            checks += count
    assert (checks, terminal.commands) == (10, 16)
