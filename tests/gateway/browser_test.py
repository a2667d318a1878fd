"""A page of another site in a real browser, and the same script in Node: receive, reconnect, acknowledge.

The page tells what it saw by publishing it, so that nobody has to drive the browser. Either program is used
where PATH has it; the test is skipped where not.
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.harness import V1Worker, on_one_place, v1_worker
from tests.places import until

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
IDS = [f"m{number}" for number in range(1, 9)]


class _Pages(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """Another origin than the gateway's, with our page."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Pages, directory=HERE))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def _command(kind: str, site: str, gateway: str, folder: Path) -> list[str]:
    if kind == "node":
        found = shutil.which("node")
        if found is None:
            pytest.skip("there is no node in PATH")
        flags = ["--experimental-eventsource", "--experimental-websocket", "--no-warnings"]
        return [found, *flags, str(HERE / "browser_client.js"), gateway]
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is in PATH")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}"]
    return [found, *flags, f"{site}/browser_page.html?gateway={gateway}"]


@on_one_place
@pytest.mark.parametrize("kind", ["browser", "node"])
async def test_a_page_receives_reconnects_and_acknowledges(
    tmp_path: Path, storage: dict[str, Any], site: str, kind: str
) -> None:
    async with v1_worker(tmp_path, storage, http={"cors": {"origins": [site]}}) as worker:
        command = _command(kind, site, f"http://127.0.0.1:{worker.port}", tmp_path / "profile")
        for name in ("ann", "bob"):
            await worker.subscribe(name)
        await worker.publish_many(8)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await until(lambda: _result(worker), limit_s=60)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        seen = await _result(worker)
        assert isinstance(seen, dict), seen
        assert seen["made"] == 201
        # Three windows of three, each behind the one before: nothing twice, nothing lost.
        assert seen["events"]["ids"] == IDS
        assert seen["events"]["opened"] == 3
        assert await worker.unread("ann") == 2
        assert seen["first"]["protocol"] == "penstock.v1"
        assert seen["first"]["ids"] == IDS
        # What was not acknowledged came again, and was.
        assert seen["second"]["ids"] == IDS[4:]
        assert await worker.unread("bob") == 0


async def _result(worker: V1Worker) -> Any:
    for name in ("done", "failed"):
        answer = await worker.http.get(f"/v1/channels/results/messages/{name}")
        if answer.status_code == 200:
            return answer.json()["content"]
    return None
