"""Checks links of the documentation: every file and every heading that a page points to is there.

    python scripts/check_docs.py           what is broken, a line each; the status is 1 then
    from check_docs import problems        the same for tests

Looks at README.md, ARCHITECTURE.md, CONTRIBUTING.md, deploy/README.md and docs/, and at the navigation in
zensical.toml, which must have every page of docs/ once. Rules: addresses of other hosts are not visited; a
heading must be found under the name that GitHub gives it and under the one that the site does, so that a link
works in both. Takes well below a second.
"""

from __future__ import annotations

import re
import sys
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: Pages of the site that are not in docs/.
BROUGHT: Final = {"architecture.md": "ARCHITECTURE.md"}

_FENCE: Final = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?:.|\n)*?\1")
_LINK: Final = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ELSEWHERE: Final = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def pages() -> list[Path]:
    around = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/README.md")]
    return [*around, *sorted((ROOT / "docs").rglob("*.md"))]


def problems() -> list[str]:
    """A sentence for each."""
    return [*(each for page in pages() for each in _broken_links(page)), *_navigation_problems()]


# ------------------------------------------------------------------------------------- links


def links(text: str) -> Iterator[str]:
    """Targets in their order; code shows no links."""
    yield from _LINK.findall(_CODE.sub("", _FENCE.sub("", text)))


def _broken_links(page: Path) -> Iterator[str]:
    for link in links(page.read_text("utf-8")):
        if _ELSEWHERE.match(link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        name = page.relative_to(ROOT)
        if not target.exists():
            yield f"{name}: {link}: there is no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{name}: {link}: {target.name} has no such heading"


@cache
def anchors(page: Path) -> frozenset[str]:
    """Names of headings that hold on GitHub and on the site alike."""
    if page.suffix != ".md":
        return frozenset()
    headings = _HEADING.findall(_FENCE.sub("", page.read_text("utf-8")))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    return _numbered(map(_on_github, plain), "-") & _numbered(map(_on_site, plain), "_")


def _on_github(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _on_site(heading: str) -> str:
    """As Python-Markdown does."""
    ascii_only = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def _numbered(names: Iterator[str], mark: str) -> frozenset[str]:
    """The second of a name gets a number."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        count = seen.get(name, 0)
        found.append(f"{name}{mark}{count}" if count else name)
        seen[name] = count + 1
    return frozenset(found)


# -------------------------------------------------------------------------------- navigation


def navigation() -> list[str]:
    """Pages of the site, in their order."""
    return list(_leaves(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]))


def _leaves(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for below in entry.values():
            if isinstance(below, str):
                yield below
            else:
                yield from _leaves(below)


def _navigation_problems() -> Iterator[str]:
    named = navigation()
    docs = ROOT / "docs"
    there = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} | BROUGHT.keys()
    yield from (f"zensical.toml: {page} is not in the navigation" for page in sorted(there - set(named)))
    yield from (f"zensical.toml: {page}: there is no such page" for page in named if page not in there)
    yield from (
        f"zensical.toml: {page} is there twice" for page in sorted({p for p in named if named.count(p) > 1})
    )


if __name__ == "__main__":
    found = problems()
    print("".join(f"{line}\n" for line in found), end="")
    sys.exit(bool(found))
