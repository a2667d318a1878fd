"""Pipelines as text: one canonical JSON for each meaning, and the version that follows from it.

==============  ===================================================================
``parse``       what somebody wrote, checked: types, then meaning (``validation``)
``dump``        canonical: keys sorted, no spaces, nothing that equals its default
``version_of``  20 hex digits of the hash of that
``decode``      what was checked once and is trusted: a rule that came later does not
                stop transactions of an older version
==============  ===================================================================

Everything goes through JSON, Python values too, so that a pipeline has the same version wherever it came
from. Knows nothing of stores.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from penstock.errors import DefinitionError
from penstock.transactions.pipelines.definition import Pipeline
from penstock.transactions.pipelines.steps import AnyStep
from penstock.transactions.pipelines.validation import problems_of

MAX_DEFINITION_BYTES: Final = 256 * 1024
#: Of text that people wrote, with its white space.
MAX_TEXT_BYTES: Final = 4 * MAX_DEFINITION_BYTES
_VERSION_DIGITS: Final = 20

_decoder: Final = msgspec.json.Decoder(Pipeline)
_encoder: Final = msgspec.json.Encoder(order="sorted")
#: How msgspec ends a message: where, as seen from the value that was decoded.
_WHERE: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?$", re.DOTALL)


def parse(data: bytes | str | Mapping[str, Any] | Pipeline) -> Pipeline:
    """A pipeline that may be saved; DefinitionError with all that is wrong."""
    text = data if isinstance(data, bytes | str) else _encoded(data)
    if len(text) > MAX_TEXT_BYTES:
        raise DefinitionError(f"definition: is {len(text)} bytes, put parts of it into child pipelines")
    pipeline = decode(text)
    problems = problems_of(pipeline)
    size_bytes = len(dump(pipeline))
    if size_bytes > MAX_DEFINITION_BYTES:
        problems.append(
            f"definition: is {size_bytes} bytes of {MAX_DEFINITION_BYTES}, put parts into child pipelines"
        )
    if problems:
        raise DefinitionError(*problems)
    return pipeline


def decode(text: bytes | str) -> Pipeline:
    """The pipeline of a text whose meaning is trusted; DefinitionError if its types are wrong."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise DefinitionError(*(_each_problem(text) or [_problem(error)])) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DefinitionError(f"definition: must be JSON, but {_lowered(str(error))}") from None
    except RecursionError:
        raise _too_deep() from None


def dump(pipeline: Pipeline) -> bytes:
    """Its canonical JSON; DefinitionError if values in it cannot be JSON."""
    # Decoded once more: 2 for a float, a tuple in arguments and their like become what JSON makes of them.
    normal = decode(_encoded(pipeline))
    try:
        return _encoded(_without_defaults(normal))
    except RecursionError:
        raise _too_deep() from None


def version_of(pipeline: Pipeline) -> str:
    return version_of_text(dump(pipeline))


def version_of_text(canonical: bytes) -> str:
    return hashlib.sha256(canonical).hexdigest()[:_VERSION_DIGITS]


def _without_defaults(value: Any) -> Any:
    """As dicts and lists. (The encoder leaves out a default only if it is the same object.)"""
    if isinstance(value, msgspec.Struct):
        made = {name: _without_defaults(given) for name, given in _said(value)}
        config = value.__struct_config__
        return made if config.tag is None else {str(config.tag_field): config.tag, **made}
    if isinstance(value, dict):
        return {key: _without_defaults(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_defaults(item) for item in value]
    return value


def _said(struct: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """The fields of a struct that differ from their defaults."""
    for name, default in _defaults_of(type(struct)).items():
        given = getattr(struct, name)
        if default is msgspec.NODEFAULT or given != default:
            yield name, given


@cache
def _defaults_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
    }


def _encoded(value: Pipeline | Mapping[str, Any]) -> bytes:
    if not isinstance(value, Pipeline | Mapping):
        raise DefinitionError(f"definition: give a Pipeline, a dict or JSON, not {type(value).__name__}")
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise DefinitionError(f"definition: has a value that JSON cannot hold, change it: {error}") from None


def _each_problem(text: bytes | str) -> list[str]:
    """The first wrong type of each step, and of the rest: a decoder stops at the very first."""
    found: Any = msgspec.json.decode(text)
    if not isinstance(found, dict) or not isinstance(found.get("steps"), list):
        return []
    problems = []
    for part, kind, path in (
        ({**found, "steps": ["any"]}, Pipeline, ""),
        *((step, str | AnyStep, f"steps[{index}]") for index, step in enumerate(found["steps"])),
    ):
        try:
            msgspec.convert(part, kind)
        except msgspec.ValidationError as error:
            problems.append(_problem(error, path))
        except DefinitionError as error:
            problems += [f"{path}.{problem}" for problem in error.problems]
    return problems


def _problem(error: msgspec.ValidationError, prefix: str = "") -> str:
    found = _WHERE.match(str(error))
    what, inner = (found["what"], found["path"] or "") if found else (str(error), "")
    path = ".".join(part for part in (prefix, inner) if part) or "definition"
    return f"{path}: {_lowered(what).replace('`', '')}, change it"


def _lowered(text: str) -> str:
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]


def _too_deep() -> DefinitionError:
    return DefinitionError("definition: is nested too deep, put parts of it into child pipelines")
