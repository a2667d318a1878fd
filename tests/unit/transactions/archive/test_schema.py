"""Rows of the archive: everything comes back as it was, and columns say what a record says."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.transactions.archive import ArchivedRecord, ArchiveQuery, naming
from penstock.transactions.archive.schema import SCHEMA, digest_of, records_of, table_of
from penstock.transactions.archive.sink import Position, cursor_at
from tests.unit.transactions.archive.samples import NOON_MS, id_of, record

_KNOWN = [
    b"run",
    b"created_ms",
    b"step",
    b"priority",
    b"status",
    b"owner",
    b"d:0",
    b"data",
    b"has_output",
    b"\0x",
]
_NUMBERS = st.integers(-(2**80), 2**80).map(lambda number: b"%d" % number)
_ENTRIES = st.one_of(
    st.binary(max_size=40),
    st.just(b'{"kind":"step","at_ms":99999999999999999999999,"logs":[[1,"info","x"]]}'),
    st.just(b'{"kind":"\xff"}'),
    st.just(b'{"kind":"a","x":' + b"[" * 5_000),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.one_of(st.sampled_from(_KNOWN), st.binary(max_size=8)),
                st.one_of(_NUMBERS, st.binary(max_size=20)),
            ),
            st.lists(_ENTRIES, max_size=4),
        ),
        max_size=5,
    )
)
def test_whatever_a_record_holds_comes_back(contents: list[tuple[dict[bytes, bytes], list[bytes]]]) -> None:
    records = [ArchivedRecord(id_of(place), *content) for place, content in enumerate(contents)]
    table = table_of(records)
    table.validate(full=True)
    found = records_of(table.select(["id", "fields", "trail"]))
    assert found == records
    assert digest_of(found) == digest_of(records)


def test_columns_say_what_the_record_says() -> None:
    child = record(
        f"{id_of(1)}.2.0", parent=id_of(1), external_id="order-1", run=2, archive_batch=7, metadata='{"a":1}'
    )
    failed = record(id_of(2), status="failed", webhook_status="delivered", created_ms="soon")
    first, second = table_of([child, failed]).to_pylist()
    assert first["root"] == first["parent"] == id_of(1)
    assert (first["external_id"], first["run"], first["batch"], first["partition"]) == ("order-1", 2, 7, 0)
    assert (first["input"], first["output"], first["metadata"]) == ('{"cart":42}', '{"paid":true}', '{"a":1}')
    assert first["created"] == datetime.fromtimestamp(NOON_MS / 1_000, UTC)
    assert first["steps"] == 1
    assert (first["trail"][0]["kind"], first["trail"][0]["name"], first["trail"][1]["note"]) == (
        "step",
        "charge",
        "as it was",
    )
    assert (second["output"], second["created"], second["webhook_status"]) == (None, None, "delivered")
    assert SCHEMA.field("fields").type == pa.map_(pa.string(), pa.binary())


def test_a_record_full_of_nonsense_changes_nothing_for_those_beside_it() -> None:
    """Columns are made of all records at once, unless one of them does not fit."""
    good = [record(id_of(place), owner=f"o{place}", priority=place, run=place) for place in range(5)]
    names = {name for one in good for name in one.fields}
    for broken in (b"\xff", b"9" * 40, b"soon", b" 1_0 ", b"", b"0x1f"):
        nonsense = ArchivedRecord(id_of(9), dict.fromkeys(names, broken), [broken])
        assert table_of([*good, nonsense]).slice(0, 5).to_pylist() == table_of(good).to_pylist()
    assert table_of([]).schema == SCHEMA


def test_a_digest_tells_contents_apart() -> None:
    one = record(id_of(1))
    others = [
        record(id_of(2)),
        record(id_of(1), note="other"),
        ArchivedRecord(one.id, one.fields, one.trail[:1]),
        ArchivedRecord(one.id, one.fields, [b"".join(one.trail)]),
    ]
    digests = {digest_of([other]) for other in [one, *others]}
    assert len(digests) == 5
    shuffled = ArchivedRecord(one.id, dict(reversed(one.fields.items())), one.trail)
    assert digest_of([shuffled]) == digest_of([one])


def test_names_are_read_as_they_were_written() -> None:
    name = naming.FileName(3, 123, NOON_MS, NOON_MS + 9, 1, "0123456789abcdef")
    assert naming.parsed(str(name)) == name
    assert naming.parsed("part-00000.parquet") is None
    assert naming.day_name(NOON_MS) == "day=2026-11-15"
    assert naming.day_start_ms("day=2026-11-15") == NOON_MS // naming.DAY_MS * naming.DAY_MS
    assert naming.day_start_ms("day=2026-02-30") is None
    assert naming.day_start_ms("_penstock") is None


@pytest.mark.parametrize("cursor", ["", "x", "§", "YWJj", cursor_at(Position(5, "a"))[:-2] + "!!"])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(UsageError, match="cursor"):
        ArchiveQuery(cursor=cursor)


@pytest.mark.parametrize("limit", [0, 1_001])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="limit must be 1 to 1000"):
        ArchiveQuery(limit=limit)
