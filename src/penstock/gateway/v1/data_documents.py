"""Answers of ``/v1/jobs`` and ``/v1/lake`` as types, and what documentation says of its routes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.gateway.job_states import JobState
from penstock.gateway.v1.documents import Doc, Parameter, Reply

ROWS: Final = 20
MAX_ROWS: Final = 1_000


class JobList(msgspec.Struct):
    jobs: list[JobState]


class LakeColumn(msgspec.Struct):
    """``type`` is Arrow's name for it."""

    name: str
    type: str


class LakeTableState(msgspec.Struct, kw_only=True):
    """``version`` counts commits; ``modified_ms`` is null while the table is empty."""

    name: str
    rows: int
    files: int
    bytes: int
    version: int
    modified_ms: int | None
    columns: list[LakeColumn]


class LakeState(msgspec.Struct):
    path: str
    tables: list[LakeTableState]


class LakeRows(msgspec.Struct):
    """``is_cut``: more was there than one answer may hold."""

    columns: list[str]
    rows: list[list[Any]]
    is_cut: bool


_TAG: Final = "data pipeline"
_NO_LAKE: Final = "`no-lake`: the gateway knows no lake, or cannot read one; the sentence says what to do."

JOBS: Final = Doc(
    _TAG,
    "List the jobs of the data pipeline",
    {200: Reply("By name and node; none where no runner ever was.", JobList)},
    "As their runners (`penstock spark run`) said last. Whose runner is not there any more has `is_alive` "
    "false.",
    scope="observe",
)
LAKE: Final = Doc(
    _TAG,
    "List the tables of the lake",
    {200: Reply("Where it is, and what it has.", LakeState)},
    "Numbers come out of Delta's log; nothing is scanned. Which lake: `lake` of the configuration, else the "
    "archive of transactions if that is one, else the directory that a runner of this machine writes to.",
    refusals={404: _NO_LAKE},
    scope="observe",
)
TABLE_ROWS: Final = Doc(
    _TAG,
    "Look at some rows of a table",
    {200: Reply("From the files that were written last, newest first.", LakeRows)},
    "Moments are RFC 3339, bytes are text, or Base64 where they are none.",
    (
        Parameter(
            "limit",
            "How many at most.",
            {"type": "integer", "default": ROWS, "minimum": 1, "maximum": MAX_ROWS},
        ),
    ),
    refusals={404: f"{_NO_LAKE} `table-not-found`: the lake has no such table."},
    scope="observe",
)
