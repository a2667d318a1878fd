"""The lake of the tutorial, on the session that all tests share; ``tests/docs`` runs what comes before it."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.cli.main import main
from tests.documents import blocks, pattern_of, said_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text("utf-8")
BEFORE, _, LAKE = PAGE.partition("\n## A lake\n")


async def _do_what_comes_before() -> None:
    """The orders and the checkouts of the sections above, with an archive that takes them at once."""
    (shop,) = (block for _, block in blocks(BEFORE, "python") if block.startswith("# shop.py"))
    names: dict[str, Any] = {}
    exec(shop, names)
    async with penstock.open("./shop.pen") as ps:
        tags = {2: "us"}
        await ps.stream("orders").write_many((tags.get(n, "eu"), f"order {n}") for n in range(1, 9))
        await ps.transactions.store.configure(archive_delay_ms=0)
        async with ps.transactions.worker(names["app"]):
            for number in (42, 43):
                handle = await ps.transactions.start(
                    "checkout", {"cart": number}, external_id=f"order-{number}"
                )
                await handle.set_switch("packed", "yes")
                assert (await handle.wait(timeout_ms=60_000)).status == "success"


def _run(command: str, home: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = shlex.split(command)
    if words[0] == "penstock":
        assert main(words[1:]) == 0
        return capsys.readouterr().out
    # A program of its own: DuckDB does not like how the interpreter of the tests ends.
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=120, cwd=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_lake(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(_do_what_comes_before())
    commands = 0
    for kind, block in blocks(LAKE, "python", "console"):
        if kind == "python":
            name, _, _ = block.removeprefix("# ").partition("\n")
            (tmp_path / name).write_text(block)
            continue
        for command, expected in said_in(block):
            answer = _run(command, tmp_path, capsys)
            assert re.fullmatch(pattern_of(expected), answer), f"$ {command}\n{answer}\nnot\n{expected}"
            commands += 1
    assert commands == 3
