"""Runs a target: seeds are changed and tried until time or tries are used up; what fails is kept.

    with RespRequests() as target:
        report = run(target, tries=500, seed=7)

A target says what must hold, whatever the input: ``check`` raises if it does not. An input that fails is
saved in ``corpus/<target>/`` under its digest, and from then on every test run replays it. Nothing here knows
what inputs mean.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.fuzz.mutating import mutated

CORPUS: Final = Path(__file__).parent / "corpus"
#: An input that takes longer than this on a busy machine has found a bomb.
SLOW_S: Final = 20.0
#: After so many failures a run ends: they are probably one.
MAX_FAILURES: Final = 5


class Target(ABC):
    """Something that reads what strangers write."""

    #: its name on the command line, and of its folder in the corpus
    name: ClassVar[str]
    #: how many inputs ``make test`` tries: a few seconds
    tries: ClassVar[int]

    @abstractmethod
    def seeds(self) -> Sequence[bytes]:
        """Inputs that are valid, or nearly."""

    def words(self) -> Sequence[bytes]:
        """What the format is made of."""
        return ()

    @abstractmethod
    def check(self, data: bytes) -> None:
        """Try one input; raises if something does not hold."""

    def make(self, dice: Random, seeds: Sequence[bytes]) -> bytes:
        """The next input."""
        return mutated(dice, dice.choice(seeds), seeds, self.words())

    def close(self) -> None:  # noqa: B027 - most hold something, some do not
        """Give back what the target holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class Failure:
    data: bytes
    error: BaseException
    path: Path | None = None

    def __str__(self) -> str:
        where = "" if self.path is None else f" (kept as {self.path.name})"
        return f"{type(self.error).__name__}: {self.error}; input {self.data[:200]!r}{where}"


@dataclass
class Report:
    name: str
    seed: int
    tries: int = 0
    took_s: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        rate = self.tries / self.took_s if self.took_s else 0.0
        told = f"{self.name}: {self.tries} inputs in {self.took_s:.1f} s ({rate:.0f}/s), seed {self.seed}, "
        return told + f"{len(self.failures)} failures"


def run(
    target: Target,
    *,
    seed: int,
    tries: int | None = None,
    seconds: float | None = None,
    keep: bool = True,
    on_input: Callable[[bytes], None] | None = None,
) -> Report:
    """Try the seeds, the corpus, then changed ones. ``on_input`` hears of each before it is tried."""
    dice = Random(seed)
    report = Report(target.name, seed)
    began_s = time.monotonic()
    seeds = [*target.seeds(), *corpus_of(target.name).values()]
    fresh = iter(seeds)
    while tries is None or report.tries < tries:
        if seconds is not None and time.monotonic() - began_s >= seconds:
            break
        data = next(fresh, None)
        if data is None:
            data = target.make(dice, seeds)
        if on_input is not None:
            on_input(data)
        report.tries += 1
        failure = attempt(target, data)
        if failure is not None:
            failure.path = save(target.name, data) if keep else None
            report.failures.append(failure)
            if len(report.failures) >= MAX_FAILURES:
                break
    report.took_s = time.monotonic() - began_s
    return report


def attempt(target: Target, data: bytes) -> Failure | None:
    """One input; what failed, if anything did."""
    began_s = time.monotonic()
    try:
        target.check(data)
    except Exception as error:  # noqa: BLE001 - whatever comes out of a target is what we look for
        return Failure(data, error)
    took_s = time.monotonic() - began_s
    return Failure(data, AssertionError(f"took {took_s:.1f} s")) if took_s > SLOW_S else None


def corpus_of(name: str) -> dict[str, bytes]:
    """The inputs that are kept for a target, by the names of their files."""
    folder = CORPUS / name
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def save(name: str, data: bytes) -> Path:
    """Keep an input."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path
