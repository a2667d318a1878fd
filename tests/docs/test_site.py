"""How the site is made, but for zensical: pages are gathered with all that they link to, and looked at."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def make_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which writes below the test's directory."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    for name in ("make_site", "check_docs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = import_module("make_site")
    monkeypatch.setattr(module, "GATHERED", tmp_path / "docs")
    monkeypatch.setattr(module, "SITE", tmp_path / "site")
    return module


def test_gathered_pages_need_nothing_from_outside(make_site: ModuleType, tmp_path: Path) -> None:
    make_site._gather()
    gathered = tmp_path / "docs"
    pages = list(gathered.rglob("*.md"))
    assert {page.name for page in pages} >= {"index.md", "architecture.md", "tutorial.md"}
    for page in pages:
        for link in make_site.links(page.read_text("utf-8")):
            place = link.partition("#")[0]
            if place and ":" not in place:
                target = (page.parent / place).resolve()
                assert target.is_file(), f"{page.name}: {link}"
                assert target.is_relative_to(gathered), f"{page.name}: {link}"


def test_escapes_of_tables_are_gone(make_site: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| `a\\|b` | c\\|d |\n\n`e\\|f`\n")
    assert make_site._for_the_site(page, page) == "| `a|b` | c\\|d |\n\n`e\\|f`\n"


def test_a_site_that_loads_from_elsewhere_is_refused(make_site: ModuleType, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "in").mkdir(parents=True)
    (site / "index.html").write_text(
        '<link rel="canonical" href="https://example.com/"><script src="https://cdn.example.com/x.js"></script>'
        '<a href="https://example.com">out</a><a href="in/page.html#top">in</a><a href="gone.html">gone</a>'
    )
    (site / "in" / "page.html").write_text('<a href="../index.html"></a><img src="//host/pixel.png">')
    (site / "bad.css").write_text("@import url(https://fonts.example.com/inter.css);")
    (site / "good.css").write_text("a { background: url(data:image/png;base64,AA==) }")
    assert list(make_site._site_problems()) == [
        "in/page.html loads //host/pixel.png from another host",
        "index.html loads https://cdn.example.com/x.js from another host",
        "index.html: gone.html leads nowhere",
        "bad.css loads something from another host",
    ]
