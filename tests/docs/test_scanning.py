"""Secrets and vulnerable dependencies are found by ``make check``, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: Put together here, so that this file is none of them.
KEY = "-----BEGIN " + "PRIVATE KEY-----"
TOKEN = "gh" + "p_" + "aB1c" * 9


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    texts = {
        "src/key.pem": KEY,
        "tests/token.py": f"say = {TOKEN!r}",
        "src/settings.py": 'password = "' + "hunter-2-and-a-half" + '"',
        "tests/settings.py": 'password = "' + "hunter-2-and-a-half" + '"',
        "README.md": "redis://user:" + "password@host",
        "src/plain.py": "answer = 42",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_secrets_are_found_and_examples_are_not(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    findings = import_module("scan_secrets").findings
    names = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
    found = findings(names, tree)
    assert {line.partition(":")[0] for line in found} == {"src/key.pem", "src/settings.py", "tests/token.py"}
    assert not any(TOKEN in line or "hunter" in line for line in found)


@pytest.fixture
def osv() -> Iterator[str]:
    """A database that knows of one thing."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"vulns": [KNOWN]} if asked["package"]["name"] == "sad" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()
    thread.join()
    server.server_close()


KNOWN = {
    "id": "PYSEC-2026-1",
    "modified": "2026-01-01T00:00:00Z",
    "details": "it leaks",
    "affected": [
        {
            "package": {"name": "sad", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.2"}]}],
            "versions": ["1.1"],
        }
    ],
}


def scan(pins: Path, url: str) -> tuple[int, str]:
    script = ROOT / "scripts/scan_dependencies.py"
    done = subprocess.run(
        [sys.executable, script, "--osv-url", url, "--pins", pins],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("pins", "status", "said"),
    [
        ("happy==1.0\nsad==1.1\n", 1, "sad 1.1: PYSEC-2026-1, mended in 1.2\n"),
        ("happy==1.0\n", 0, "Dependencies: nothing known against 1 packages.\n"),
    ],
)
def test_versions_that_are_known_to_be_vulnerable(
    osv: str, tmp_path: Path, pins: str, status: int, said: str
) -> None:
    (tmp_path / "pins.txt").write_text(pins)
    assert scan(tmp_path / "pins.txt", osv) == (status, said)


def test_a_database_that_is_away_is_said(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text("happy==1.0\n")
    status, said = scan(tmp_path / "pins.txt", "http://127.0.0.1:9/v1/query")
    assert (status, "cannot be asked; not checked" in said) == (0, True)
