"""Scripts against the process and the store around them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.errors import CommandError

#: Many strings, which leave a large table of strings behind, then memory full to the last byte.
BRINK = """
from tests.unit.scripting.harness import Scripts
scripts = Scripts(memory_limit_bytes=16 << 20)
for number in range(2):
    for body in ("t[i] = i .. 'x'", "t = {t}"):
        answer = scripts.outcome(f"local t = {{}} for i = 1, 1e9 do {body} end", instruction_limit=5_000_000)
        assert "not enough memory" in str(answer), answer
    assert scripts.run("return 1") == 1
"""


def test_a_script_that_fills_its_memory_does_not_end_the_process() -> None:
    """The collector itself needed memory then, and the interpreter gave up. In a process that may end."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", BRINK], cwd=root, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


FAILING = {
    "error": "error('x')",
    "missing function": "nothing.there()",
    "refused command": "redis.call('LPUSH', 'string', 'x')",
    "unknown command": "redis.call('NOSUCH')",
    "memory": "local s = 'x' while true do s = s .. s end",
    "recursion": "local function f() return 1 + f() end f()",
    "library": "cjson.decode('[')",
    "offset beyond numbers": "struct.unpack('c0', 'abc', 10^400)",
    "offset that is none": "struct.unpack('c0', 'abc', 0/0)",
}


@pytest.mark.parametrize("failure", FAILING.values(), ids=FAILING.keys())
def test_a_script_that_fails_has_changed_nothing(tmp_path: Path, failure: str) -> None:
    writes = (
        "redis.call('SET', 'new', 1) redis.call('APPEND', 'string', 'x') redis.call('RPUSH', 'list', 'z') "
    )
    with Engine.open(tmp_path / "s.pen", durability="relaxed") as engine, LocalSession(engine) as session:
        session.execute("SET", "string", "v")
        session.execute("RPUSH", "list", "a")
        before = {key: session.execute("DUMP", key) for key in session.execute("KEYS", "*")}
        with pytest.raises(CommandError) as refused:
            session.execute("EVAL", writes + failure, 0)
        assert "internal error" not in str(refused.value)
        assert {key: session.execute("DUMP", key) for key in session.execute("KEYS", "*")} == before
        assert check_store(engine) == []
