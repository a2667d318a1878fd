"""Builds the documentation site: gathers pages in build/docs, lets zensical make site/ of them, looks at it.

    python scripts/make_site.py        `make docs` does it

Pages are read on GitHub, too, where a link may lead to any file of the repository. On the site such a file
lies beside the pages: ARCHITECTURE.md is a page, others are there as they are (files/examples/shop_lake.py).

Rules: ends with status 1, and says why, if a link is broken, a page is missing in the navigation, zensical
warns, or the site would load anything from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from check_docs import BROUGHT, ROOT, links, problems

GATHERED: Final = ROOT / "build" / "docs"
SITE: Final = ROOT / "site"
#: Where files of the repository lie that pages link to.
_FILES: Final = "files"
#: Code in a row of a table: GitHub wants its bars escaped, Python-Markdown shows the escape.
_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
_IN_ROW: Final = re.compile(r"`[^`]+`")
_IN_STYLE: Final = re.compile(r"""(?:@import\s+|url\()\s*['"]?(https?:)?//""")


def main() -> int:
    found = problems() or [*_build()] or [*_site_problems()]
    print("".join(f"{line}\n" for line in found), end="", file=sys.stderr)
    if not found:
        print(f"The site is in {SITE.relative_to(ROOT)}/: open {SITE.relative_to(ROOT)}/index.html")
    return bool(found)


# ------------------------------------------------------------------------------------ gathering


def _build() -> Iterator[str]:
    """What zensical complains of."""
    _gather()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if made.returncode:
        yield (made.stdout + made.stderr).strip()


def _gather() -> None:
    shutil.rmtree(GATHERED, ignore_errors=True)
    shutil.copytree(ROOT / "docs", GATHERED)
    sources = {GATHERED / name: ROOT / source for name, source in BROUGHT.items()}
    sources |= {page: ROOT / "docs" / page.relative_to(GATHERED) for page in GATHERED.rglob("*.md")}
    for page, source in sources.items():
        page.write_text(_for_the_site(source, page), "utf-8")


def _for_the_site(source: Path, page: Path) -> str:
    """Its text, with links to where their targets are on the site, and tables as its renderer reads them."""
    text = source.read_text("utf-8")
    for link in set(links(text)):
        if urlsplit(link).scheme or link.startswith("#"):
            continue
        place, mark, anchor = link.partition("#")
        moved = os.path.relpath(_place_of((source.parent / place).resolve()), page.parent)
        text = text.replace(f"]({link})", f"]({moved}{mark}{anchor})")
    return _ROW.sub(lambda row: _IN_ROW.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), text)


def _place_of(target: Path) -> Path:
    """Where a file of the repository is among the gathered ones; it is brought there if it is not."""
    if target.is_relative_to(ROOT / "docs"):
        inside = GATHERED / target.relative_to(ROOT / "docs")
        return inside / sorted(each.name for each in target.iterdir())[0] if target.is_dir() else inside
    for name, source in BROUGHT.items():
        if target == ROOT / source:
            return GATHERED / name
    place = GATHERED / _FILES / target.relative_to(ROOT)
    if place.suffix == ".md":
        place = place.with_suffix(".md.txt")  # as it is, not as a page of the site
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(target, place)
    return place


# -------------------------------------------------------------------------------------- looking


class _Page(HTMLParser):
    """Addresses that a page links to, and those that a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.linked: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        if tag == "a":
            self.linked += [values[name] for name in ("href",) if name in values]
        elif not (tag == "link" and values.get("rel") in ("canonical", "next", "prev")):
            self.loaded += [values[name] for name in ("src", "href", "data") if name in values]


def _site_problems() -> Iterator[str]:
    for file in sorted(SITE.rglob("*.html")):
        page = _Page(file.read_text("utf-8"))
        name = file.relative_to(SITE)
        yield from (f"{name} loads {each} from another host" for each in page.loaded if _is_elsewhere(each))
        if name.name != "404.html":  # it is shown at any address
            broken = {each for each in [*page.linked, *page.loaded] if not _is_there(file, each)}
            yield from (f"{name}: {each} leads nowhere" for each in sorted(broken))
    for file in sorted(SITE.rglob("*.css")):
        if _IN_STYLE.search(file.read_text("utf-8")):
            yield f"{file.relative_to(SITE)} loads something from another host"


def _is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def _is_there(file: Path, address: str) -> bool:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not parts.path:
        return True
    target = file.parent / unquote(parts.path)
    return target.is_file() or (target / "index.html").is_file()


if __name__ == "__main__":
    sys.exit(main())
