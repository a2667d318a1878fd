"""Single values of a configuration file: text, numbers, durations, choices, networks, templates, keys.

Every reader takes what YAML gave and answers the value of the model, or raises :class:`Refused` with the
rest of the sentence "KEY: …". Text of the environment has no YAML type; a kind other than text reads it as
a YAML scalar first.

Rules: one value at a time. Must not know which key it stands under, but for what :class:`Place` tells.
"""

from __future__ import annotations

import ipaddress
import math
import re
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from penstock.configuration.durations import duration_ms_of, is_finite
from penstock.configuration.problems import BROKEN, EnvironmentText, Problems, child, show, suggest
from penstock.configuration.yamltext import parse_yaml
from penstock.errors import ConfigError
from penstock.gateway.config.keyfiles import Algorithm, Encoding, KeyFile, read_bytes, read_key
from penstock.gateway.config.kinds import (
    MASK,
    AnyCase,
    Between,
    Duration,
    Matching,
    Network,
    ReadableFile,
    Secret,
)
from penstock.gateway.config.templates import Template

#: Dataclasses that a file spells as one value.
SCALAR_CLASSES: Final = frozenset({Template, KeyFile})

Notes = tuple[Any, ...]


class Refused(Exception):  # noqa: N818 - a verdict, caught within this module
    """The rest of the sentence that starts with the key."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the walk is."""

    path: str
    #: Named groups of the nearest regex; ``None`` while that could not be read.
    names: frozenset[str] | None = frozenset()
    #: The name under which the nearest mapping of free names holds this.
    nearest_key: str = ""

    def inside(self, key: str | int) -> Place:
        return replace(self, path=child(self.path, key))


def read_scalar(bare: Any, notes: Notes, value: Any, place: Place, problems: Problems) -> Any:
    is_secret = _note(notes, Secret) is not None
    try:
        read = _READERS.get(bare) or _reader_of_form(bare)
        typed = value if bare in _TEXT_KINDS else _typed(value)
        return read(typed, bare, notes, place)
    except Refused as refusal:
        sentence = str(refusal) if not is_secret else str(refusal).replace(show(value), "what was found")
        problems.add(place.path, sentence, getattr(value, "origin", ""))
        return BROKEN


def _reader_of_form(bare: Any) -> Callable[[Any, Any, Notes, Place], Any]:
    if get_origin(bare) is Literal:
        return _read_choice
    if get_origin(bare) in (Union, types.UnionType):
        return _read_network if bare == Network else _read_choice_or_number
    if get_origin(bare) is re.Pattern:
        return _read_regex
    raise AssertionError(f"no reader for {bare}")


def _typed(value: Any) -> Any:
    if not isinstance(value, EnvironmentText):
        return value
    try:
        made = parse_yaml(value, value.origin)
    except ConfigError:
        return value
    return EnvironmentText(made, value.origin) if isinstance(made, str) else made


def _note(notes: Notes, kind: type) -> Any:
    return next((note for note in notes if isinstance(note, kind)), None)


# ---------------------------------------------------------------- text and choices


def _text(value: Any) -> str:
    if isinstance(value, bool | int | float):
        raise Refused(f"must be text, not {show(value)}: put it in quotes")
    if not isinstance(value, str):
        raise Refused(f"must be text, not {show(value)}")
    return str(value)


def _read_text(value: Any, _: Any, notes: Notes, __: Place) -> str:
    text = _text(value)
    if _note(notes, Secret) and (text == MASK or f":{MASK}@" in text):
        # A dump without secrets is no file to run with, least of all with a password that everybody knows.
        raise Refused("is a secret that a dump has masked: write the real one")
    for form in (note for note in notes if isinstance(note, Matching)):
        if re.fullmatch(form.pattern, text) is None:
            raise Refused(f"must be {form.expected}, not {show(text)}")
    return text


def _read_choice(value: Any, bare: Any, notes: Notes, _: Place) -> str:
    allowed: tuple[str, ...] = get_args(bare)
    if value in allowed:
        return str(value)
    found = str(value).upper() if _note(notes, AnyCase) else None
    if found in allowed:
        return found
    hint = suggest(value, allowed) if isinstance(value, str) else f"allowed are {', '.join(allowed)}"
    raise Refused(f"must be one of {', '.join(allowed)}, not {show(value)}" + _only_if_near(hint))


def _only_if_near(hint: str) -> str:
    return f": {hint}" if hint.startswith("did") else ""


def _read_choice_or_number(value: Any, bare: Any, _: Notes, __: Place) -> str | int:
    choice = next(part for part in get_args(bare) if get_origin(part) is Literal)
    if value in get_args(choice):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    allowed = ", ".join(get_args(choice))
    raise Refused(f"must be one of {allowed} or a whole number from 1 on, not {show(value)}")


# ---------------------------------------------------------------- numbers


def _read_bool(value: Any, _: Any, __: Notes, ___: Place) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"must be true or false, not {show(value)}")
    return value


def _read_int(value: Any, _: Any, notes: Notes, __: Place) -> int:
    duration = _note(notes, Duration)
    if duration is not None:
        return _read_duration(value, duration)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"must be a whole number{_bounds(notes)}, not {show(value)}")
    _judge_bounds(value, "a whole number", notes)
    return value


def _read_float(value: Any, _: Any, notes: Notes, __: Place) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
        raise Refused(f"must be a number{_bounds(notes)}, not {show(value)}")
    _judge_bounds(value, "a number", notes)
    return float(value)


def _judge_bounds(value: float, noun: str, notes: Notes) -> None:
    bounds: Between | None = _note(notes, Between)
    if bounds is None:
        return
    lowest = -math.inf if bounds.lowest is None else bounds.lowest
    highest = math.inf if bounds.highest is None else bounds.highest
    if not lowest <= value <= highest:
        raise Refused(f"must be {noun}{_bounds(notes)}, not {show(value)}")


def _bounds(notes: Notes) -> str:
    bounds: Between | None = _note(notes, Between)
    if bounds is None or bounds.lowest is None:
        return ""
    return (
        f" from {bounds.lowest:g} on"
        if bounds.highest is None
        else f" from {bounds.lowest:g} to {bounds.highest:.10g}"
    )


def _read_duration(value: Any, bounds: Duration) -> int:
    try:
        return duration_ms_of(value, min_ms=bounds.min_ms, max_ms=bounds.max_ms)
    except ValueError as error:
        raise Refused(str(error)) from None


# ---------------------------------------------------------------- networks, expressions, files


def _read_network(value: Any, _: Any, __: Notes, ___: Place) -> Network:
    # A number would be taken for an address by the library.
    if isinstance(value, str):
        try:
            return ipaddress.ip_network(str(value), strict=False)
        except ValueError:
            pass
    raise Refused(f"must be a network such as 10.0.0.0/8 or fc00::/7, not {show(value)}")


def _read_regex(value: Any, _: Any, __: Notes, ___: Place) -> re.Pattern[str]:
    text = _text(value)
    try:
        with warnings.catch_warnings():
            # [[:alpha:]] and the like: Python only warns, and then means something else.
            warnings.simplefilter("error")
            return re.compile(text)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise Refused(f"{show(text)} is not a regular expression of Python: {error}") from None


def _read_template(value: Any, _: Any, __: Notes, place: Place) -> Template:
    text = _text(value)
    try:
        template = Template(text)
    except ValueError as error:
        raise Refused(f"{show(text)} {error}") from None
    missing = sorted(template.names - place.names) if place.names is not None else []
    if missing:
        known = ", ".join(sorted(place.names or ()))
        hint = f"it has {known}" if known else "it has none"
        raise Refused(
            f'the regex has no group named "{missing[0]}" for {{{{.channel.{missing[0]}}}}}: {hint}'
        )
    return template


def _read_path(value: Any, _: Any, notes: Notes, __: Place) -> Path:
    path = Path(_text(value))
    if _note(notes, ReadableFile):
        try:
            read_bytes(path)
        except ValueError as error:
            raise Refused(str(error)) from None
    return path


def _read_key_file(value: Any, _: Any, __: Notes, place: Place) -> KeyFile:
    algorithm: Any = place.nearest_key
    if algorithm not in get_args(Algorithm):
        # Told at the algorithm's name already; this one adds nothing.
        return KeyFile(Path(), "raw", b"")
    if algorithm == "none":
        raise Refused("the algorithm none has no keys: write none: []")
    spec: Mapping[Any, Any] = value if isinstance(value, dict) else {"file": value}
    for name in spec:
        if name not in ("file", "encoding"):
            raise Refused(f"{show(name)} is not a known key: {suggest(str(name), ('file', 'encoding'))}")
    encoding = next((name for name in get_args(Encoding) if name == spec.get("encoding")), None)
    if encoding is None and spec.get("encoding") is not None:
        raise Refused(
            f"encoding must be one of {', '.join(get_args(Encoding))}, not {show(spec['encoding'])}"
        )
    if not isinstance(spec.get("file"), str):
        raise Refused(f"must be the path of a key file, not {show(spec.get('file'))}")
    try:
        return read_key(algorithm, Path(str(spec["file"])), encoding)
    except ValueError as error:
        raise Refused(str(error)) from None


def _read_anything(value: Any, _: Any, __: Notes, ___: Place) -> Any:
    return _without_origins(value)


def _without_origins(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _without_origins(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_origins(part) for part in value]
    return str(value) if isinstance(value, str) else value


_READERS: Final[Mapping[Any, Callable[[Any, Any, Notes, Place], Any]]] = {
    str: _read_text,
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    Path: _read_path,
    Template: _read_template,
    KeyFile: _read_key_file,
    Any: _read_anything,
}

#: What takes text of the environment as it is.
_TEXT_KINDS: Final = frozenset({str, Path, Template, re.Pattern[str]})
