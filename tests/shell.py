"""The command line in this process, for tests of ``penstock GROUP …``."""

from __future__ import annotations

import io
import sys

import pytest

from penstock.cli.main import main


class Shell:
    """One group of commands: ``run("write", where, …)`` answers stdout and wants no complaint."""

    def __init__(
        self, group: str, capture: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._group = group
        self._capture = capture
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str, stdin: bytes = b"") -> str:
        status, out, errors = self._run(words, stdin)
        assert (status, errors) == (0, "")
        return out

    def failure(self, *words: str, status: int = 1) -> str:
        found, out, errors = self._run(words, b"")
        assert (found, out) == (status, "")
        return errors

    def _run(self, words: tuple[str, ...], stdin: bytes) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            status = main([self._group, *words])
        except SystemExit as end:  # argparse
            status = int(end.code or 0)
        out, errors = self._capture.readouterr()
        return status, out.decode(), errors.decode()
