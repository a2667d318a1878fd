"""docs/http-api.md lists the routes that there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_v1_is_up_to_date() -> None:
    script = ROOT / "scripts" / "make_http_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
