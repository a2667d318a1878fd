"""Options of a job from plain values, as YAML gives them: by the fields of its ``msgspec.Struct``.

=====================  ==============================================================================
field                  key in the file
=====================  ==============================================================================
``streams``            ``streams``
``older_than_ms``      ``older_than``, a duration (``7d``, ``90s``, seconds); or ``older_than_ms``
``tables_ms`` (dict)   ``tables``, a mapping of durations; or ``tables_ms``
=====================  ==============================================================================

Rules: field by field, so that one look finds everything that is wrong; each problem has its path. Nothing in
the file (``key:``) means the default, unless the field may be None. Knows no job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from penstock.configuration.durations import duration_ms_of
from penstock.configuration.problems import BROKEN, EnvironmentText, Problems, child, suggest
from penstock.configuration.yamltext import parse_yaml
from penstock.errors import ConfigError, PenstockError

_Options = TypeVar("_Options", bound=msgspec.Struct)

_UNIT: Final = "_ms"
_TAIL: Final = re.compile(r" - at `\$(?P<path>.*)`\Z")
_EXPECTED: Final = re.compile(r"Expected `(?P<kind>[^`]+)`(?P<bounds>[^,`]*)(?:, got `(?P<found>[^`]+)`)?")
_WORDS: Final[Mapping[str, str]] = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "a mapping",
    "str": "text",
}


def read_options(
    path: str, options: type[_Options], tree: Mapping[str, Any], problems: Problems
) -> _Options | None:
    """The options, or None when there are problems."""
    fields = {each.encode_name: each for each in msgspec.structs.fields(options)}
    short = {name.removesuffix(_UNIT): name for name in fields if name.endswith(_UNIT)}
    values: dict[str, Any] = {}
    is_whole = True
    for key, value in tree.items():
        name = key if key in fields else short.get(key)
        where = child(path, key)
        if name is None:
            allowed = [name.removesuffix(_UNIT) for name in fields]
            problems.add(where, f"is not a known key: {suggest(key, ['job', 'every', *allowed])}")
            is_whole = False
        elif fields[name].name in values:
            problems.add(where, "stands there twice, with and without _ms")
            is_whole = False
        else:
            read = _read(where, fields[name], value, key != name, problems)
            values[fields[name].name] = read
            is_whole = is_whole and read is not BROKEN
    for name, each in fields.items():
        if each.required and each.name not in values:
            problems.add(child(path, name.removesuffix(_UNIT)), "is missing")
            is_whole = False
    return _made(path, options, values, problems) if is_whole else None


def _made(
    path: str, options: type[_Options], values: Mapping[str, Any], problems: Problems
) -> _Options | None:
    given = {name: value for name, value in values.items() if value is not msgspec.NODEFAULT}
    try:
        return options(**given)
    except (PenstockError, TypeError, ValueError) as error:  # what the class checks by itself
        problems.add(path, str(error))
        return None


def _read(path: str, field: Any, value: Any, is_duration: bool, problems: Problems) -> Any:
    """The value of the field, :data:`BROKEN`, or ``NODEFAULT`` where the file says nothing."""
    if value is BROKEN:
        return BROKEN
    if value is None and not _takes_none(field.type):
        return msgspec.NODEFAULT
    try:
        plain = _durations(value) if is_duration and value is not None else _plain(value)
        return _converted(plain, value, field.type)
    except ValueError as error:  # also msgspec.ValidationError
        inner, sentence = _sentence(str(error))
        problems.add(path + inner, sentence, getattr(value, "origin", ""))
        return BROKEN


def _takes_none(kind: Any) -> bool:
    try:
        msgspec.convert(None, kind)
    except msgspec.ValidationError:
        return False
    return True


def _converted(plain: Any, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError:
        if not isinstance(value, EnvironmentText):
            raise
    try:
        typed = parse_yaml(value, value.origin)  # what the environment holds has no type yet
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return msgspec.convert(typed, kind)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, str) else value


def _durations(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _durations(part) for key, part in value.items()}
    return duration_ms_of(str(value) if isinstance(value, str) else value, has_days=True)


def _sentence(told: str) -> tuple[str, str]:
    """Where inside the value, and what is wrong there, in our words."""
    tail = _TAIL.search(told)
    inner, text = (tail["path"], told[: tail.start()]) if tail else ("", told)
    expected = _EXPECTED.fullmatch(text)
    if expected is None:
        return inner, text[:1].lower() + text[1:]
    kinds = " or ".join(_WORDS.get(kind.strip(), kind.strip()) for kind in expected["kind"].split("|"))
    found = f", not {_WORDS.get(expected['found'], expected['found'])}" if expected["found"] else ""
    return inner, f"must be {kinds}{expected['bounds']}{found}"
