"""Texts with places for what a channel's name says: ``https://example.com/room/{{.channel.id}}``.

The one form of a place is ``{{.channel.NAME}}`` (spaces inside the braces are allowed); NAME is a named
group of the channel's regular expression. Everything else is plain text. There is no logic, no
function and no escaping: a channel's name has no character that means something in a URL.

Rules: pure. Whether a name exists is judged by whoever knows the regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PLACE: Final = re.compile(r"\{\{\s*\.channel\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Template:
    """A template as it was written; equal when the text is."""

    text: str

    def __post_init__(self) -> None:
        """``ValueError`` if there is another form of place than ours."""
        rest = _PLACE.sub("", self.text)
        if "{{" in rest:
            raise ValueError("may hold {{.channel.NAME}} and plain text alone")

    @property
    def names(self) -> frozenset[str]:
        return frozenset(match["name"] for match in _PLACE.finditer(self.text))

    def render(self, groups: Mapping[str, str]) -> str:
        """Every name must be in ``groups``; it was checked when the configuration was loaded."""
        return _PLACE.sub(lambda match: groups[match["name"]], self.text)

    def has_name_before(self, end: str, *, after: str) -> bool:
        """Whether a place stands between ``after`` (or the start, if it is missing) and ``end``."""
        _, found, rest = self.text.partition(after)
        return _PLACE.search((rest if found else self.text).partition(end)[0]) is not None
