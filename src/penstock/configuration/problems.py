"""Everything that is wrong with a configuration, one sentence each, and where it is wrong.

A sentence is ``path: must be …, not …``; the path is written as in a program (``channels[2].jwt.keys``),
and a value that did not come from the file names its origin. Secrets are never shown.

Rules: collects and words; judges nothing. Must not know the model.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import ConfigError

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MAX_SHOWN_LEN: Final = 60


class _Broken:
    def __repr__(self) -> str:
        return "BROKEN"


#: Stands where a value could not be read; its problem has been told, and nobody tells another about it.
BROKEN: Final = _Broken()


class EnvironmentText(str):
    """Text that came from the environment: it has no YAML type yet, its key decides what it means."""

    __slots__ = ("origin",)

    origin: str

    def __new__(cls, text: str, origin: str) -> EnvironmentText:
        made = super().__new__(cls, text)
        made.origin = origin
        return made


@dataclass(slots=True)
class Problems:
    found: list[str] = field(default_factory=list)

    def add(self, path: str, sentence: str, origin: str = "") -> None:
        where = f"{path} (from {origin})" if path and origin else path or origin
        self.found.append(f"{where}: {sentence}" if where else sentence)

    def raise_if_any(self) -> None:
        if self.found:
            # The same problem can be met twice, e.g. through a YAML alias.
            raise ConfigError("\n".join(dict.fromkeys(self.found)))


def child(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    if _PLAIN_KEY.fullmatch(key) is None:
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def show(value: object) -> str:
    """A value as a message shows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return shorten(str(value))
    if isinstance(value, str):
        return json.dumps(shorten(value), ensure_ascii=False)
    return {"dict": "a mapping", "list": "a list"}.get(type(value).__name__, type(value).__name__)


def shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_LEN else f"{text[:_MAX_SHOWN_LEN]}…"


def suggest(wrong: str, allowed: Iterable[str]) -> str:
    """``did you mean …?`` if something is near, else all that is allowed."""
    names = list(allowed)
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wrong.lower().replace("_", ""), by_lower, n=1, cutoff=0.7)
    if near:
        return f'did you mean "{by_lower[near[0]]}"?'
    return f"allowed are {', '.join(names)}" if names else "no keys are allowed here"
