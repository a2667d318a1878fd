"""Asks OSV, the open database of vulnerabilities, about every version in constraints.txt.

    python scripts/scan_dependencies.py [--osv-url URL]      what is known, a line each; the status is 1 then

pip-audit does the asking. Rules: a database that cannot be reached fails nothing, since a build must work
without a network; it is said in one line. A vulnerability that does not concern us is named in ``ACCEPTED``
with the reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PINS: Final = ROOT / "constraints.txt"
OSV: Final = "https://api.osv.dev/v1/query"
#: A database that takes longer for one package is not there.
_PATIENCE_S: Final = 10

#: Id -> why it does not concern us.
ACCEPTED: Final[dict[str, str]] = {}


def ask(pins: Path, url: str) -> list[dict[str, Any]] | None:
    """What is known of each package; None if nobody could be asked."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "answer.json"
        subprocess.run(
            [
                sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps", "--disable-pip",
                "--vulnerability-service", "osv", "--osv-url", url, "--timeout", str(_PATIENCE_S),
                "--progress-spinner", "off", "--format", "json", "--output", str(answer),
                *(word for one in ACCEPTED for word in ("--ignore-vuln", one)),
            ],
            capture_output=True, check=False,
        )  # fmt: skip
        if not answer.exists():
            return None
        packages: list[dict[str, Any]] = json.loads(answer.read_text())["dependencies"]
        return packages


def sentences(packages: list[dict[str, Any]]) -> Iterator[str]:
    for package in packages:
        for known in package.get("vulns", ()):
            fixed = ", ".join(known["fix_versions"]) or "no version yet"
            yield f"{package['name']} {package['version']}: {known['id']}, mended in {fixed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--osv-url", default=OSV, help="where to ask")
    parser.add_argument("--pins", type=Path, default=PINS, help="what to ask about")
    arguments = parser.parse_args()
    packages = ask(arguments.pins, arguments.osv_url)
    if packages is None:
        sys.stdout.write(f"Dependencies: {arguments.osv_url} cannot be asked; not checked.\n")
        return 0
    found = list(sentences(packages))
    report = f"Dependencies: nothing known against {len(packages)} packages.\n"
    sys.stdout.write("".join(f"{line}\n" for line in found) or report)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
