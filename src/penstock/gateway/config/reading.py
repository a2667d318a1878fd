"""Plain values, as YAML gives them, to the model: by the types of its fields, with every problem listed.

The walk follows the model: dataclass by mapping, tuple by list, and so on down to scalars, each read by
the kind its field is annotated with. A value that cannot be read becomes :data:`BROKEN` and the walk goes
on, so that one run finds everything. Checks see every part of the model whose fields they need were read.

A template's names are judged against the named groups of the nearest ``regex`` above it.

Rules: no defaults, no keys; those are the model's. Scalars are in :mod:`penstock.gateway.config.scalars`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from penstock.configuration.problems import BROKEN, EnvironmentText, Problems, child, show, suggest
from penstock.configuration.yamltext import parse_yaml
from penstock.errors import ConfigError
from penstock.gateway.config.kinds import Duration, OneOrMany, Spelling
from penstock.gateway.config.scalars import SCALAR_CLASSES, Place, read_scalar

_Model = TypeVar("_Model")


class Check(NamedTuple):
    """Judges a value of the model whose ``fields`` are whole; others may be missing from it."""

    fields: frozenset[str]
    #: Called with the value, its path and where to complain.
    judge: Callable[[Any, str, Problems], None]


_REGEX_FIELD: Final = "regex"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping: a field of a model's class."""

    name: str
    key: str
    aliases: tuple[str, ...]
    kind: Any
    spelling: Spelling
    field: dataclasses.Field[Any]

    @property
    def is_required(self) -> bool:
        return self.field.default is dataclasses.MISSING and self.field.default_factory is dataclasses.MISSING

    def default(self) -> Any:
        if self.field.default_factory is not dataclasses.MISSING:
            return self.field.default_factory()
        return self.field.default


@functools.cache
def keys_of(model: type) -> tuple[Key, ...]:
    """The keys that a class of the model understands; ``regex`` first, since others depend on it."""
    hints = get_type_hints(model, include_extras=True)
    keys = []
    for each in dataclasses.fields(model):
        spelling = each.metadata.get("spelling", Spelling())
        if spelling.is_internal:
            continue
        kind = hints[each.name]
        name = each.name.removesuffix("_ms") if _is_duration(kind) else each.name
        head, *words = name.split("_")
        key = spelling.key or head + "".join(word.capitalize() for word in words)
        keys.append(Key(each.name, key, spelling.aliases, kind, spelling, each))
    return tuple(sorted(keys, key=lambda key: key.name != _REGEX_FIELD))


def unwrap(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A kind without ``Annotated`` and ``| None``, and what it was annotated with."""
    notes: tuple[Any, ...] = ()
    while True:
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            notes = (*notes, *more)
            continue
        parts = [part for part in get_args(kind) if part is not type(None)]
        if type(None) in get_args(kind) and len(parts) == 1:
            kind = parts[0]
            continue
        return kind, notes


def _is_duration(kind: Any) -> bool:
    return any(isinstance(note, Duration) for note in unwrap(kind)[1])


@dataclass(slots=True)
class Reader:
    problems: Problems
    checks: Mapping[type, Sequence[Check]]

    def read_model(self, model: type[_Model], tree: object) -> _Model | None:
        """The whole model, or ``None`` when there are problems."""
        made = self._read_class(model, tree, Place(""))
        return made if isinstance(made, model) else None

    # ------------------------------------------------------------ the walk

    def _read(self, kind: Any, value: Any, place: Place) -> Any:
        if value is BROKEN:
            return BROKEN
        bare, notes = unwrap(kind)
        if dataclasses.is_dataclass(bare) and isinstance(bare, type) and bare not in SCALAR_CLASSES:
            return self._read_class(bare, value, place)
        origin = get_origin(bare)
        if origin is tuple:
            return self._read_list(get_args(bare)[0], value, notes, place)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            key_kind, item_kind = get_args(bare)
            return self._read_mapping(key_kind, item_kind, value, place)
        return read_scalar(bare, notes, value, place, self.problems)

    def _typed(self, value: Any, place: Place) -> Any:
        """Text of the environment that stands for a list or a mapping is YAML."""
        if not isinstance(value, EnvironmentText):
            return value
        try:
            return parse_yaml(value, value.origin)
        except ConfigError as error:
            self.problems.add(place.path, str(error))
            return BROKEN

    def _read_class(self, model: type, value: Any, place: Place) -> Any:
        tree = self._typed(value, place)
        if tree is BROKEN:
            return BROKEN
        if tree is None:
            tree = {}
        if not isinstance(tree, dict):
            self._complain(place, f"must be a mapping, not {show(tree)}", value)
            return BROKEN
        keys = keys_of(model)
        self._refuse_unknown(tree, keys, place)
        known: dict[str, Any] = {}
        inner = place
        for key in keys:
            given = self._pick(tree, key, place)
            known[key.name] = self._read_key(key, given, inner)
            if key.name == _REGEX_FIELD:
                regex = known[key.name]
                names = None if regex is BROKEN else frozenset(regex.groupindex)
                inner = dataclasses.replace(place, names=names)
        whole = {name: part for name, part in known.items() if part is not BROKEN}
        made = model(**whole) if len(whole) == len(known) else _partial(model, whole)
        for check in (check for base in model.__mro__ for check in self.checks.get(base, ())):
            if check.fields <= whole.keys():
                check.judge(made, place.path, self.problems)
        return made if len(whole) == len(known) else BROKEN

    def _read_key(self, key: Key, given: tuple[str, Any], place: Place) -> Any:
        written, value = given
        if value is BROKEN:
            return BROKEN
        if value is None:
            if not key.is_required:
                return key.default()
            self.problems.add(child(place.path, key.key), "is missing")
            return BROKEN
        made = self._read(key.kind, value, place.inside(written))
        if made is not BROKEN and key.spelling.empty_is_default and not made:
            return key.default()
        if made is not BROKEN and key.spelling.is_merged:
            return _lay_over(key.default(), made)
        return made

    def _pick(self, tree: dict[Any, Any], key: Key, place: Place) -> tuple[str, Any]:
        """The spelling used and the value; two spellings of one key are refused."""
        used = [name for name in (key.key, *key.aliases) if name in tree]
        if len(used) > 1:
            self._complain(place.inside(used[1]), f'means the same as "{used[0]}": remove one of them')
            return key.key, BROKEN
        return (used[0], tree[used[0]]) if used else (key.key, None)

    def _refuse_unknown(self, tree: dict[Any, Any], keys: tuple[Key, ...], place: Place) -> None:
        allowed = {name: None for key in keys for name in (key.key, *key.aliases)}
        for name in tree:
            if name not in allowed:
                hint = suggest(str(name), [key.key for key in keys])
                self.problems.add(child(place.path, str(name)), f"is not a known key: {hint}")

    def _read_list(self, kind: Any, value: Any, notes: tuple[Any, ...], place: Place) -> Any:
        items = self._typed(value, place)
        if items is BROKEN:
            return BROKEN
        if not isinstance(items, list):
            is_single = any(isinstance(note, OneOrMany) for note in notes) or (
                isinstance(value, EnvironmentText) and not isinstance(items, dict | None)
            )
            if not is_single:
                self._complain(place, f"must be a list, not {show(items)}", value)
                return BROKEN
            items = [value]
            return self._whole([self._read(kind, value, place)])
        return self._whole([self._read(kind, item, place.inside(at)) for at, item in enumerate(items)])

    def _read_mapping(self, key_kind: Any, kind: Any, value: Any, place: Place) -> Any:
        tree = self._typed(value, place)
        if tree is BROKEN:
            return BROKEN
        if not isinstance(tree, dict):
            self._complain(place, f"must be a mapping, not {show(tree)}", value)
            return BROKEN
        made: dict[Any, Any] = {}
        for name, part in tree.items():
            # YAML reads `1:` as a number, and nobody means anything else than the text.
            text = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
            inner = dataclasses.replace(place.inside(str(text)), nearest_key=str(text))
            key = self._read(key_kind, text, inner)
            item = self._read(kind, part, inner)
            made[text] = BROKEN if key is BROKEN else item
        return BROKEN if any(part is BROKEN for part in made.values()) else made

    @staticmethod
    def _whole(items: list[Any]) -> Any:
        return BROKEN if any(item is BROKEN for item in items) else tuple(items)

    def _complain(self, place: Place, sentence: str, value: object = None) -> None:
        self.problems.add(place.path, sentence, getattr(value, "origin", ""))


def _partial(model: type, whole: Mapping[str, Any]) -> Any:
    """A value that lacks the fields that could not be read; it never leaves this module but for checks."""
    made: Any = object.__new__(model)
    for name, part in whole.items():
        object.__setattr__(made, name, part)
    return made


def _lay_over(default: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given one wins; names are compared without case, and the given spelling stays."""
    given_names = {name.lower() for name in given}
    return {name: part for name, part in default.items() if name.lower() not in given_names} | dict(given)


def choices(kind: Any) -> tuple[str, ...]:
    """What a ``Literal`` allows; nothing for other kinds."""
    bare, _ = unwrap(kind)
    return get_args(bare) if get_origin(bare) is Literal else ()
