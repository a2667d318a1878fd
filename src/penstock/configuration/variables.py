"""Variables of the environment inside the texts of a configuration.

======================  ======================================================================
``${NAME}``             the variable; it is an error if it is not set
``${NAME:-default}``    the variable, or the default if it is not set or empty
``$${``                 a plain ``${``
======================  ======================================================================

What came from here is an :class:`EnvironmentText`: the kind of its key decides how it is read.

Rules: changes plain values before they are read; judges names, never values. The tree it answers shares
nothing with the one it was given.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.configuration.problems import BROKEN, EnvironmentText, Problems, child

_PLACE: Final = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<odd>\$\{[^}]*\}?)"
)
#: Far deeper than any key; a YAML alias that contains itself never ends.
_MAX_DEPTH: Final = 32
#: Aliases can also repeat each other without end.
_MAX_NODES: Final = 200_000


def expand(tree: Any, environment: Mapping[str, str], problems: Problems) -> Any:
    """A copy of ``tree`` with the variables in its texts filled in."""
    return _Expansion(environment, problems).expand(tree, "", 0)


@dataclasses.dataclass(slots=True)
class _Expansion:
    environment: Mapping[str, str]
    problems: Problems
    node_count: int = 0

    def expand(self, tree: Any, path: str, depth: int) -> Any:
        self.node_count += 1
        if depth > _MAX_DEPTH or self.node_count > _MAX_NODES:
            self.problems.add(path, "is nested too deeply or repeats too much")
            # Raised here, since there may be no end of such places.
            self.problems.raise_if_any()
        if isinstance(tree, dict):
            return {key: self.expand(part, child(path, str(key)), depth + 1) for key, part in tree.items()}
        if isinstance(tree, list):
            return [self.expand(part, child(path, at), depth + 1) for at, part in enumerate(tree)]
        return self._fill(tree, path) if isinstance(tree, str) else tree

    def _fill(self, text: str, path: str) -> Any:
        """The text, or ``BROKEN`` if a variable is missing."""
        problem_count = len(self.problems.found)
        origins: list[str] = []

        def fill(match: re.Match[str]) -> str:
            if match["odd"]:
                allowed = "${NAME} or ${NAME:-default}, or $${ for a plain ${"
                self.problems.add(path, f'"{match["odd"]}" must be {allowed}')
                return ""
            if match["name"] is None:
                return "${"
            origins.append(f"${{{match['name']}}}")
            return self._value(match["name"], match["default"], path)

        filled = _PLACE.sub(fill, text)
        if len(self.problems.found) > problem_count:
            return BROKEN
        return EnvironmentText(filled, ", ".join(origins)) if origins else filled

    def _value(self, name: str, default: str | None, path: str) -> str:
        if default is not None:
            return self.environment.get(name) or default
        if name not in self.environment:
            hint = f"set it or write ${{{name}:-default}}"
            self.problems.add(path, f"the environment variable {name} is not set: {hint}")
        return self.environment.get(name, "")


def escape(text: str) -> str:
    """Text that :func:`expand` turns into ``text``."""
    return text.replace("${", "$${")
