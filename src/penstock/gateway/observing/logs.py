"""The set-up of Python's logging for a worker: format, categories and their levels.

A category is a logger under ``penstock.gateway``: ``auth`` is ``penstock.gateway.auth``. The category ``*``
is for everything else, other packages included. Levels can be changed while it runs, in this process; who
tells the other workers is the caller.

Rules: a record is one line, whatever is in it. Nothing that a handler of ours does raises into the code that
logs, and nothing waits (see ``outlet``).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.errors import UsageError
from penstock.gateway.config.surroundings import LoggingConfig
from penstock.gateway.observing.outlet import Outlet
from penstock.gateway.observing.timestamps import Timestamps

#: The category of everything that has none of its own.
EVERYTHING: Final = "*"
_PARENT: Final = "penstock.gateway"
#: What a level may be called.
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {number: name for name, number in LEVELS.items() if name != "WARNING"}
_CATEGORY: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
#: What every record has; anything else was given by whoever logs (``extra=…``).
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Logs:
    """Logging of this process while it is open."""

    def __init__(self, config: LoggingConfig, outlet: Outlet | None = None) -> None:
        """Without an outlet lines go to standard error."""
        self._outlet = outlet or Outlet(sys.stderr.fileno())
        formatter: logging.Formatter
        if config.format == "json":
            formatter = JsonFormatter(config.attributes)
        else:
            formatter = TextFormatter()
        self._handler = OutletHandler(self._outlet)
        self._handler.setFormatter(formatter)
        self._before = _State.of_root()
        self._touched: dict[str, int] = {}
        root = logging.getLogger()
        root.handlers = [self._handler]
        for category, level in config.categories.items():
            self.set_level(category, level)

    def set_level(self, category: str, level: str) -> None:
        """From now on, in this process. UsageError if there is no such level."""
        number = LEVELS.get(level.upper())
        if number is None:
            raise UsageError(f"level must be one of DEBUG, INFO, WARN, ERROR, FATAL, not {level!r}")
        logger = _logger_of(category)
        self._touched.setdefault(logger.name, logger.level)
        logger.setLevel(number)

    def levels(self) -> dict[str, str]:
        """Every category whose level was set, and its level."""
        names = {EVERYTHING: logging.getLogger()}
        for name in self._touched:
            if name.startswith(_PARENT + "."):
                names[name[len(_PARENT) + 1 :]] = logging.getLogger(name)
        return {
            category: _NAMES.get(logger.level, str(logger.level))
            for category, logger in sorted(names.items())
        }

    @property
    def dropped(self) -> int:
        return self._outlet.dropped

    def close(self, timeout_s: float = 1.0) -> None:
        """Logging is as it was before; what was logged is written."""
        self._before.restore()
        for name, level in self._touched.items():
            if name != "root":
                logging.getLogger(name).setLevel(level)
        self._outlet.close(timeout_s)


class _State:
    """How the root logger was before somebody set it up."""

    def __init__(self, handlers: list[logging.Handler], level: int) -> None:
        self._handlers = handlers
        self._level = level

    @classmethod
    def of_root(cls) -> _State:
        root = logging.getLogger()
        return cls(list(root.handlers), root.level)

    def restore(self) -> None:
        root = logging.getLogger()
        root.handlers = self._handlers
        root.setLevel(self._level)


def _logger_of(category: str) -> logging.Logger:
    if category == EVERYTHING:
        return logging.getLogger()
    # Names come from administrators over HTTP: each makes a logger that stays.
    if len(category) > 64 or _CATEGORY.fullmatch(category) is None:
        raise UsageError(
            f"category must be * or up to 64 letters, digits, dashes and dots, not {category[:80]!r}"
        )
    return logging.getLogger(f"{_PARENT}.{category}")


# ------------------------------------------------------------------------- records


class OutletHandler(logging.Handler):
    """Hands records to an outlet."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self._outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._outlet.put(self.format(record).encode("utf-8", "backslashreplace") + b"\n")
        except Exception:  # noqa: BLE001 - a record that cannot be written must not end what it tells of
            self.handleError(record)


class JsonFormatter(logging.Formatter):
    """``{"time":…,"level":…,"category":…,"message":…}`` and what was given with ``extra``."""

    def __init__(self, attributes: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._attributes = dict(attributes or {})
        self._timestamps = Timestamps()
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": self._timestamps.text(int(record.created * 1000)),
            "level": _NAMES.get(record.levelno, record.levelname),
            "category": category_of(record.name),
            "message": _encodable(record.getMessage()),
            **self._attributes,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD_FIELDS and name not in fields:
                fields[name] = _encodable(value) if isinstance(value, str) else value
        if record.exc_info:
            fields["error"] = _encodable(self.formatException(record.exc_info))
        try:
            return self._encoder.encode(fields).decode()
        except (TypeError, ValueError, RecursionError):
            # Something in ``extra`` has no JSON: as text it has.
            return self._encoder.encode(
                {key: _encodable(str(value)) for key, value in fields.items()}
            ).decode()


class TextFormatter(logging.Formatter):
    """``time level category message``; an error's lines are joined to one."""

    def __init__(self) -> None:
        super().__init__()
        self._timestamps = Timestamps()

    def format(self, record: logging.LogRecord) -> str:
        time = self._timestamps.text(int(record.created * 1000))
        level = _NAMES.get(record.levelno, record.levelname)
        text = f"{time} {level:<5} {category_of(record.name)} {record.getMessage()}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return text.replace("\r", "\\r").replace("\n", "\\n")


def category_of(logger_name: str) -> str:
    """``auth`` for ``penstock.gateway.auth``; other loggers' own names."""
    return logger_name.removeprefix(_PARENT + ".")


def _encodable(text: str) -> str:
    """Half a surrogate pair has no UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
