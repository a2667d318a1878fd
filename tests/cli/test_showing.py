"""Tables: plain for programs, with a bold head on a terminal whose user has nothing against it."""

from __future__ import annotations

import sys

import pytest

from penstock.cli import showing


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_table_is_plain_text_elsewhere() -> None:
    assert showing.table(("name", "n"), [("orders", 1), ("x" * 30, None)]) == (
        "name                            n\n"
        "orders                          1\n"
        f"{'x' * 30}  -"
    )  # fmt: skip


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_the_head_is_bold_and_lines_are_cut() -> None:
    assert showing.table(("name", "n"), [("x" * 30, 1)]) == (
        f"\x1b[1mname               …\x1b[0m\n{'x' * 19}…"
    )


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert showing.table(("name",), [("a",)]) == "name\na"


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (5 << 50, "5120.0 TiB")]
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert showing.size(size_bytes) == text
