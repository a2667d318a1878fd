"""What a schedule must be, and that it survives the store."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.transactions.schedules.model import MAX_INPUT_BYTES, Schedule, schedule_from


def test_it_survives_the_store() -> None:
    schedule = Schedule(
        "nightly", "close", {"a": [1, None]}, "acme", cron="0 2 * * *", timezone="Europe/Berlin",
        catch_up="all", is_paused=True, priority=0, metadata={"k": "v"},
    )  # fmt: skip
    assert schedule_from(schedule.text()) == schedule


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "two words", "every_ms": 1000}, "name must be"),
        ({"pipeline": "", "every_ms": 1000}, "pipeline must be"),
        ({"owner": "a b", "every_ms": 1000}, "owner must be"),
        ({}, "exactly one of"),
        ({"every_ms": 1000, "cron": "* * * * *"}, "exactly one of"),
        ({"every_ms": 999}, "every_ms must be"),
        ({"at_ms": 0}, "at_ms must be"),
        ({"at_ms": 10**18}, "at_ms must be"),
        ({"every_ms": 1000, "catch_up": "both"}, "catch_up must be"),
        ({"every_ms": 1000, "priority": 10}, "priority must be"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Schedule(**{"name": "s", "pipeline": "p", **settings})


@pytest.mark.parametrize("what", ["input", "metadata"])
def test_input_and_metadata_are_small_json(what: str) -> None:
    with pytest.raises(UsageError, match=f"{what} must be JSON"):
        Schedule("s", "p", every_ms=1000, **{what: object()}).text()
    with pytest.raises(UsageError, match=f"{what} must have at most {MAX_INPUT_BYTES} bytes"):
        Schedule("s", "p", every_ms=1000, **{what: "x" * MAX_INPUT_BYTES}).text()


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"name": "s"}', b'{"name":"s","pipeline":"p","every_ms":"x"}']
)
def test_what_is_stored_and_no_schedule_is_told(text: bytes) -> None:
    with pytest.raises(UsageError, match="not a schedule"):
        schedule_from(text)


def test_what_is_stored_and_makes_no_sense_is_told() -> None:
    with pytest.raises(UsageError, match="exactly one of"):
        schedule_from(b'{"name":"s","pipeline":"p"}')
