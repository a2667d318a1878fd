"""What tests of the command line share: ``shell("…")`` runs a command in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from penstock.cli.main import main


class Done(NamedTuple):
    status: int
    out: str
    errors: str


Penstock = Callable[..., Done]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """``run("shell", url, "--", "GET", "k", stdin="…")``."""
    for name in ("PENSTOCK_STORE", "PENSTOCK_LAKE", "PENSTOCK_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            status = main(list(words))
        except SystemExit as end:  # argparse
            status = int(end.code or 0)
        out, errors = capfdbinary.readouterr()
        return Done(status, out.decode("utf-8", "surrogateescape"), errors.decode())

    return run
