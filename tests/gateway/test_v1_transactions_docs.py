"""What docs/http-api.md says about transactions is true: its sessions are run against a shop that is open.

In a block ``shell-session`` lines with ``$`` are commands, the others what they print; ``…`` is anything.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from penstock.transactions import Wait
from tests.gateway.harness import on_one_place
from tests.gateway.shop import open_shop
from tests.gateway.test_dsps_docs import HOST, pattern_of, run

DOCUMENT = Path(__file__).parents[2] / "docs" / "http-api.md"
_MARK = "@@@ next @@@"


def sessions() -> list[tuple[str, str]]:
    """Commands and what they print."""
    text = DOCUMENT.read_text("utf-8")
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```shell-session\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


@on_one_place
async def test_sessions(tmp_path: Path, storage: dict[str, Any]) -> None:
    pairs = sessions()
    assert len(pairs) >= 10
    async with open_shop(tmp_path, storage) as shop:
        await shop.deploy("checkout", "add")
        await shop.deploy("payment", Wait("paid"))
        quiet = 'curl() { command curl -sS --max-time 30 "$@"; }\n'
        script = quiet + "".join(f"echo '{_MARK}'\n{command}\n" for command, _ in pairs)
        async with shop.working():
            said = await run("bash", text=script.replace(HOST, f"127.0.0.1:{shop.gateway.port}"))
    outputs = said.replace("\r\n", "\n").split(_MARK + "\n")[1:]
    for (command, printed), output in zip(pairs, outputs, strict=True):
        assert pattern_of(printed.strip()).fullmatch(output.strip()), f"{command}\n{output}"
