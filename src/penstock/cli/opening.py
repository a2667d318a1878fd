"""What commands that work on a store have in common: they open it, and end quietly.

Everything happens in the main thread: the loop of ``asyncio.Runner`` runs while something is asked of
the store, and stands still while lines are read from stdin. So Ctrl-C finds either a task, which
it cancels, or a read, which it interrupts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.client.targets import parse_url
from penstock.errors import StoreError, UsageError


class Intermixed(argparse.ArgumentParser):
    """A parser whose options may stand anywhere: ``write WHERE STREAM --tag eu ENTRY``."""

    _is_inside = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._is_inside:
            return super().parse_known_args(args, namespace)
        self._is_inside = True  # the intermixed way takes this one, twice
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_inside = False


class GroupParser(Intermixed):
    """A parser of the first level, which may take all behind ``--`` as it stands: ``shell -- GET k``."""

    #: the list that takes it
    words_behind: str | None = None

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self.words_behind is None:
            return argparse.ArgumentParser.parse_known_args(self, args, namespace)
        if self._is_inside:
            return super().parse_known_args(args, namespace)
        words = list(args or ())
        at = words.index("--") if "--" in words else len(words)
        found, rest = super().parse_known_args(words[:at], namespace)
        getattr(found, self.words_behind).extend(words[at + 1 :])
        return found, rest


@contextmanager
def opened(
    where: str, *, may_create: bool, **settings: Any
) -> Iterator[tuple[asyncio.Runner, penstock.Penstock]]:
    """A runner and an open client. Wrong values become ``UsageError``, a reader that has gone ends it."""
    target = parse_url(where)
    if not may_create and target.kind == "embedded" and not Path(target.path or "").is_dir():
        # Opening it would make a new store, in which there is nothing to find.
        raise StoreError(f"there is no store at {target.path}")
    try:
        with asyncio.Runner() as runner:
            # A server that is not there is told at once; following tries again by itself.
            ps = penstock.open(where, fail_fast=True, **settings)
            runner.run(ps.connect())
            try:
                yield runner, ps
            finally:
                runner.run(ps.close())
        sys.stdout.flush()
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    except BrokenPipeError:
        # Whoever reads has seen enough; what is still buffered must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
