"""The examples of ``docs/channels.md`` run, and answer what their comments say."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.documents import blocks, check, compiled

PAGE = Path(__file__).parents[2] / "docs" / "channels.md"
EXAMPLES = [block for _, block in blocks(PAGE.read_text(), "python")]


async def _run(example: str, names: dict[str, Any]) -> int:
    code, checks = compiled(example, str(PAGE), awaits=True)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:  # code without await has no event loop
        await asyncio.to_thread(exec, code, dict(names))
    return checks


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
