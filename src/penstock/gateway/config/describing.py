"""Every key of the file with its type and default, taken from the model; the reference is checked against it.

A path names items of lists as ``[]`` and free names of mappings as ``ID``: ``channels[].webhooks[].url``,
``storages.ID.redis.db``.

Rules: describes; has no opinion of its own about any key.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from penstock.configuration.durations import format_duration
from penstock.gateway.config.keyfiles import KeyFile
from penstock.gateway.config.kinds import Duration, Network, OneOrMany, Secret
from penstock.gateway.config.model import GatewayConfig
from penstock.gateway.config.reading import Key, keys_of, unwrap
from penstock.gateway.config.templates import Template

_NOUNS: Final[Mapping[Any, str]] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    Path: "path",
    Template: "template",
    KeyFile: "key file",
    Network: "network",
    re.Pattern[str]: "regex",
    Any: "anything",
}


class Row(NamedTuple):
    path: str
    type: str
    #: Empty: a word of the reference says it (``required``, ``unset`` and computed ones).
    default: str


def rows(model: type = GatewayConfig, prefix: str = "") -> Iterator[Row]:
    """A row for every key that holds a value, in the order of the model."""
    for key in keys_of(model):
        path = f"{prefix}{key.key}"
        inner, suffix = _inside(key.kind)
        if inner is None:
            yield Row(path, _type_words(key.kind), _default_words(key))
        else:
            yield from rows(inner, f"{path}{suffix}.")


def _inside(kind: Any) -> tuple[type | None, str]:
    """The class of the model within lists and mappings, and how its place is written."""
    bare, _ = unwrap(kind)
    if get_origin(bare) is tuple:
        inner, suffix = _inside(get_args(bare)[0])
        return inner, f"[]{suffix}"
    if isinstance(get_origin(bare), type) and issubclass(get_origin(bare), Mapping):
        inner, suffix = _inside(get_args(bare)[1])
        return inner, f".ID{suffix}"
    is_model = isinstance(bare, type) and dataclasses.is_dataclass(bare) and bare not in _NOUNS
    return (bare, "") if is_model else (None, "")


def _type_words(kind: Any) -> str:
    bare, notes = unwrap(kind)
    if any(isinstance(note, Duration) for note in notes):
        return "duration"
    if any(isinstance(note, Secret) for note in notes):
        return "secret"
    origin = get_origin(bare)
    if origin is tuple:
        item = _type_words(get_args(bare)[0])
        return f"{item} or list" if any(isinstance(note, OneOrMany) for note in notes) else f"list of {item}"
    if bare in _NOUNS:
        return _NOUNS[bare]
    if origin is Literal:
        return " / ".join(f"`{choice}`" for choice in get_args(bare))
    if origin in (Union, types.UnionType):
        return " / ".join(_type_words(part) for part in get_args(bare))
    return f"map of {_type_words(get_args(bare)[1])}"


def _default_words(key: Key) -> str:
    if key.is_required:
        return "required"
    default = key.default()
    if default is None or default == "":
        return "unset"
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    if isinstance(default, tuple | dict):
        return "empty" if not default else ""
    if any(isinstance(note, Duration) for note in unwrap(key.kind)[1]):
        return f"`{format_duration(default)}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
