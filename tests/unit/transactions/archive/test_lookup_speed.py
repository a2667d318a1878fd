"""A lookup among very many rows opens one file. How long it takes is printed, not judged."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import quantiles

import pytest

from penstock.transactions.archive import files
from penstock.transactions.archive.parquet import ParquetArchive
from tests.effort import scaled
from tests.unit.transactions.archive.samples import DAY_MS, NOON_MS, batch, id_of, record

ROWS = scaled(10_000)
PER_BATCH = 500


@pytest.mark.slow
def test_a_lookup_among_very_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = ParquetArchive(tmp_path)
    # Two days; every batch has one that took hours, so that the times of files overlap.
    starts = [NOON_MS + number * (2 * DAY_MS // ROWS) for number in range(ROWS)]
    ids = [id_of(number, start_ms) for number, start_ms in enumerate(starts)]
    order = sorted(range(ROWS), key=lambda number: number + (ROWS // 7 if number % PER_BATCH == 0 else 0))
    began_s = time.perf_counter()
    for place in range(0, ROWS, PER_BATCH):
        records = [record(ids[number]) for number in order[place : place + PER_BATCH]]
        archive.write(batch(place // PER_BATCH + 1, records))
    written_s = time.perf_counter() - began_s

    reader = ParquetArchive(tmp_path)
    wanted = ids[:: ROWS // 200]
    for tx in wanted:
        assert reader.find(tx) is not None
    opened: list[Path] = []
    opening = files.opened
    monkeypatch.setattr(files, "opened", lambda path: opened.append(path) or opening(path))
    times_ms = []
    for tx in wanted:
        began_s = time.perf_counter()
        found = reader.find(tx)
        times_ms.append((time.perf_counter() - began_s) * 1_000)
        assert found is not None
        assert found.id == tx
    # One for each: hashes at the ends of files, which are known by now, have ruled out the others.
    assert len(opened) == len(wanted)
    cuts = quantiles(times_ms, n=100)
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{ROWS} rows written at {ROWS / written_s:,.0f}/s;"
            f" lookup p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"
        )
