"""Records as lines, and the levels of categories."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.gateway.config.surroundings import LoggingConfig
from penstock.gateway.observing.logs import LEVELS, JsonFormatter, Logs, TextFormatter
from penstock.gateway.observing.outlet import Outlet


class Written:
    """Logging into a file while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.logs: Logs | None = None

    def open(self, config: LoggingConfig) -> Logs:
        self.logs = Logs(config, Outlet(self._descriptor))
        return self.logs

    def lines(self) -> list[str]:
        assert self.logs is not None
        self.logs.close(10)
        return self._path.read_text().splitlines()

    def close(self) -> None:
        if self.logs is not None:
            self.logs.close(10)
        os.close(self._descriptor)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "log")
    yield made
    made.close()


def test_categories_have_their_levels(written: Written):
    written.open(LoggingConfig(categories={"*": "WARN", "auth": "DEBUG"}))
    logging.getLogger("penstock.gateway.auth").debug("one")
    logging.getLogger("penstock.gateway.http").info("not this")
    logging.getLogger("somebody.else").warning("two")
    entries = [json.loads(line) for line in written.lines()]
    assert [(entry["category"], entry["level"], entry["message"]) for entry in entries] == [
        ("auth", "DEBUG", "one"),
        ("somebody.else", "WARN", "two"),
    ]


def test_levels_change_while_it_runs(written: Written):
    logs = written.open(LoggingConfig())
    logger = logging.getLogger("penstock.gateway.http")
    logger.debug("not yet")
    logs.set_level("http", "debug")
    logger.debug("now")
    assert logs.levels() == {"*": "INFO", "http": "DEBUG"}
    logs.set_level("*", "ERROR")
    logging.getLogger("penstock.gateway.auth").warning("no more")
    assert [json.loads(line)["message"] for line in written.lines()] == ["now"]


@pytest.mark.parametrize(
    ("category", "level"),
    [("http", "LOUD"), ("", "INFO"), ("a..b", "INFO"), ("a" * 65, "INFO"), ("a b", "INFO")],
)
def test_what_makes_no_sense_is_refused(written: Written, category: str, level: str):
    logs = written.open(LoggingConfig())
    with pytest.raises(UsageError):
        logs.set_level(category, level)
    assert logs.levels() == {"*": "INFO"}


def test_afterwards_logging_is_as_before(written: Written):
    root = logging.getLogger()
    before = list(root.handlers), root.level, logging.getLogger("penstock.gateway.auth").level
    written.open(LoggingConfig(categories={"*": "ERROR", "auth": "DEBUG"}))
    written.lines()
    assert (list(root.handlers), root.level, logging.getLogger("penstock.gateway.auth").level) == before


def test_a_record_is_one_line_with_all_it_has(written: Written):
    written.open(LoggingConfig(attributes={"region": "eu"}))
    try:
        raise LookupError("gone\naway")
    except LookupError:
        extra = {"channel": "a", "odd": {1, 2}, "half": "\ud800"}
        logging.getLogger("penstock.gateway.http").exception("it\nfailed: %s", 7, extra=extra)
    (line,) = written.lines()
    entry = json.loads(line)
    assert (entry["level"], entry["message"], entry["region"], entry["channel"]) == (
        "ERROR",
        "it\nfailed: 7",
        "eu",
        "a",
    )
    assert entry["error"].endswith("LookupError: gone\naway")
    assert entry["half"] == "\\ud800"
    assert "odd" in entry


def test_what_has_no_json_is_written_as_text():
    circle: list[object] = []
    circle.append(circle)
    record = logging.makeLogRecord({"msg": "m", "name": "penstock.gateway.x", "circle": circle})
    entry = json.loads(JsonFormatter().format(record))
    assert (entry["message"], entry["category"]) == ("m", "x")
    assert entry["circle"] == "[[...]]"


def test_text_lines():
    record = logging.makeLogRecord(
        {
            "msg": "a\nb",
            "name": "penstock.gateway.auth",
            "levelno": logging.WARNING,
            "created": 1_700_000_000.25,
        }
    )
    assert TextFormatter().format(record) == "2023-11-14T22:13:20.250Z WARN  auth a\\nb"


def test_the_names_of_levels():
    assert {"DEBUG", "INFO", "WARN", "ERROR", "FATAL"} <= set(LEVELS)
