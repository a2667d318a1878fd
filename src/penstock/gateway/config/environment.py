"""What the environment lays over a file: ``PENSTOCK__…`` over its keys.

``PENSTOCK__HTTP__PORT`` sets ``http.port``: two underscores go one level down, case does not matter, items of
lists are numbers from 0 (one past the end appends). ``${NAME}`` inside texts is
:mod:`penstock.configuration.variables`'s.

What came from here is an :class:`EnvironmentText`: the kind of its key decides how it is read.
Overrides of the caller (``{"http.port": 9000}``) take the same way and come last.

Rules: changes plain values before they are read; judges names, never values. The tree it answers shares
nothing with the one it was given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, get_args, get_origin

from penstock.configuration.problems import BROKEN, EnvironmentText, Problems, child, suggest
from penstock.gateway.config.reading import choices, keys_of, unwrap

PREFIX: Final = "PENSTOCK__"


def overlay_environment(model: type, tree: Any, environment: Mapping[str, str], problems: Problems) -> Any:
    """``tree`` with every ``PENSTOCK__…`` variable put in its place."""
    names = [name for name in environment if name.upper().startswith(PREFIX)]
    for name in sorted(names, key=_in_order):
        words = name[len(PREFIX) :].split("__")
        if not all(words):
            problems.add("", f"must name a key, as {PREFIX}HTTP__PORT does", name)
            continue
        writer = _Writer(problems, origin=name)
        tree = writer.put(
            model, tree, [word.lower() for word in words], EnvironmentText(environment[name], name)
        )
    return tree


def overlay_overrides(model: type, tree: Any, overrides: Mapping[str, object], problems: Problems) -> Any:
    """``tree`` with the caller's values; ``None`` means that there is no override."""
    for name, value in overrides.items():
        if value is not None:
            words = name.replace("[", ".").replace("]", "").split(".")
            tree = _Writer(problems, origin="override").put(model, tree, words, value)
    return tree


def _in_order(name: str) -> list[tuple[int, str]]:
    """Items of lists by number, so that each finds the one before it."""
    words = name.upper().split("__")
    return [(int(word), "") if word.isdecimal() and len(word) < 10 else (-1, word) for word in words]


def _loosely(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")


@dataclasses.dataclass(frozen=True, slots=True)
class _Writer:
    """Puts one value into a tree, finding the way by the types of the model."""

    problems: Problems
    origin: str

    def put(self, kind: Any, node: Any, words: list[str], value: Any, path: str = "") -> Any:
        """``node`` with ``value`` at the end of the way; ``node`` as it was if there is no such way."""
        if not words:
            return value
        bare, _ = unwrap(kind)
        if get_origin(bare) is tuple:
            return self._put_item(get_args(bare)[0], node, words, value, path)
        if dataclasses.is_dataclass(bare) and isinstance(bare, type) and len(keys_of(bare)):
            key, inner = self._find_key(bare, node, words[0], path)
        elif isinstance(get_origin(bare), type) and issubclass(get_origin(bare), Mapping):
            names = [*(node if isinstance(node, dict) else ()), *choices(get_args(bare)[0])]
            key = next((str(name) for name in names if _loosely(str(name)) == _loosely(words[0])), words[0])
            inner = get_args(bare)[1]
        else:
            key, inner = words[0], Any
        if key is None:
            return node
        if node is not None and node is not BROKEN and not isinstance(node, dict):
            self.problems.add(path, f'holds no keys, so "{words[0]}" cannot be set in it', self.origin)
            return node
        branch = node if isinstance(node, dict) else {}
        branch[key] = self.put(inner, branch.get(key), words[1:], value, child(path, key))
        return branch

    def _put_item(self, kind: Any, node: Any, words: list[str], value: Any, path: str) -> Any:
        items = [] if node is None or node is BROKEN else node
        at = int(words[0]) if words[0].isdecimal() and len(words[0]) < 10 else -1
        if not isinstance(items, list) or not 0 <= at <= len(items):
            count = len(items) if isinstance(items, list) else 0
            self.problems.add(path, f'"{words[0]}" must be the number of an item, 0 to {count}', self.origin)
            return node
        if at == len(items):
            items.append(None)
        items[at] = self.put(kind, items[at], words[1:], value, child(path, at))
        return items

    def _find_key(self, model: type, node: Any, word: str, path: str) -> tuple[str | None, Any]:
        """The key as the file spells it, if it does, and its kind."""
        for key in keys_of(model):
            spellings = (key.key, *key.aliases)
            if _loosely(word) in map(_loosely, spellings):
                used = [name for name in spellings if isinstance(node, dict) and name in node]
                return (used or [key.key])[0], key.kind
        hint = suggest(word, [key.key for key in keys_of(model)])
        self.problems.add(child(path, word), f"is not a known key: {hint}", self.origin)
        return None, None
