"""The line that shows how far long work is."""

from __future__ import annotations

import io

from penstock.cli.progress import Progress
from penstock.clock import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar() -> None:
    out, clock = Terminal(), ManualClock()
    with Progress("writing", 1_000, out=out, clock=clock) as progress:
        clock.advance_ms(500)
        progress.advance(250, 1_234)
        assert out.getvalue() == "\r\x1b[Kwriting [######..................]  25% 1,234 (2,468/s)"
        progress.advance(250, 1)
        assert out.getvalue().count("writing") == 1, "ten times a second are enough"
        clock.advance_ms(500)
        progress.advance(900)
        assert "[########################] 100% 1,236" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_nobody_knows_how_much_there_is() -> None:
    out, clock = Terminal(), ManualClock()
    with Progress("writing", out=out, clock=clock) as progress:
        clock.advance_ms(1_000)
        progress.advance(10, 5)
    assert "writing 5 (5/s)" in out.getvalue()


def test_nothing_is_drawn_into_files() -> None:
    out = io.StringIO()
    with Progress("writing", 10, out=out) as progress:
        progress.advance(10)
    assert out.getvalue() == ""
    assert progress.count == 1
