"""Prints the path of a Chromium for the tests of the console; installs one if there is none.

    PENSTOCK_CHROMIUM=$(python scripts/get_chromium.py)

In this order: one in PATH; the one that Playwright has installed; the one that it can install (no root
needed, but its download server); Debian's package (root needed). What is said about it goes to stderr.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def in_path() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def of_playwright() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def installed(command: list[str]) -> bool:
    print("$", *command, file=sys.stderr)
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0


def main() -> int:
    found = in_path() or of_playwright()
    if found is None and installed([sys.executable, "-m", "playwright", "install", "chromium"]):
        found = of_playwright()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        # The lists may be there already; a stale one is renewed.
        install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"]
        if installed(install) or (installed(["apt-get", "update", "--quiet"]) and installed(install)):
            found = in_path()
    if found is None:
        print(
            "no Chromium, and none could be installed: install one, or set PENSTOCK_CHROMIUM", file=sys.stderr
        )
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
