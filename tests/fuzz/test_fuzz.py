"""Hostile input, a few seconds of it for each target, and every input that has ever failed.

``PENSTOCK_FUZZ_SEED`` repeats a run; ``PENSTOCK_TEST_EFFORT`` makes it longer; ``python -m tests.fuzz`` runs
for as long as one likes.
"""

from __future__ import annotations

import pytest

from tests.effort import scaled, seed_of
from tests.fuzz.running import CORPUS, attempt, corpus_of, run
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_hostile_does_harm(name: str) -> None:
    with TARGETS[name]() as target:
        report = run(target, seed=seed_of("PENSTOCK_FUZZ_SEED"), tries=scaled(target.tries))
    assert not report.failures, f"{report}\n" + "\n".join(map(str, report.failures))


@pytest.mark.parametrize("name", [name for name in TARGETS if corpus_of(name)])
def test_what_once_failed_is_mended(name: str) -> None:
    with TARGETS[name]() as target:
        failures = [attempt(target, data) for data in corpus_of(name).values()]
    assert not any(failures), "\n".join(str(failure) for failure in failures if failure is not None)


def test_the_corpus_belongs_to_targets() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= TARGETS.keys()


def test_a_target_that_fails_is_told() -> None:
    """The machinery itself: what a check raises ends in the report, and the seed repeats the inputs."""

    class Fragile(TARGETS["dumps"]):  # type: ignore[misc]
        name = "fragile"

        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def seeds(self) -> list[bytes]:
            return [b"*1\r\n$4\r\nPING\r\n"]

        def check(self, data: bytes) -> None:
            self.seen.append(data)
            if b"PING" not in data:
                raise ValueError("no ping")

        def close(self) -> None:
            pass

    first, second = Fragile(), Fragile()
    reports = [run(target, seed=7, tries=200, keep=False) for target in (first, second)]
    assert first.seen == second.seen
    assert 0 < len(reports[0].failures) <= 5
    assert "ValueError: no ping" in str(reports[0].failures[0])
