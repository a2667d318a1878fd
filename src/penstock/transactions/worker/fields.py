"""Steps that work on data alone: MapFields rearranges it, CheckFields says what is wrong with it.

What a checked field may be:

===========  =====================================================================================
``integer``  a number without a fraction; 5.0 is none
``number``   any number
``amount``   ``{"currency": "EUR", "unscaledAmount": 1999, "scale": 2}`` is 19.99 euros: three
             letters, an integer, and how many of its digits stand behind the point
``date``     ``2024-02-29``: a day that the calendar has
===========  =====================================================================================

Rules: nothing is changed, new data is made. null counts as not given, unless ``values`` names it. A demand
that has no meaning for a value (``min`` of a string) is not met. All problems are told at once, each as one
sentence that begins with its field; values are not repeated in them, they may be secret. Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from typing import Any, Final

import msgspec

from penstock.errors import StepFailedError, UsageError
from penstock.transactions.pipelines.patterns import compile_pattern
from penstock.transactions.pipelines.steps import CheckFields, FieldCheck, MapFields
from penstock.transactions.worker.paths import (
    MISSING,
    drop_path,
    get_path,
    kind_of,
    put_into,
    set_path,
    split_path,
)

#: Unknown fields that are told by name; data can have any number of them.
MAX_UNKNOWN: Final = 50
#: Digits behind the point of an amount: enough for every currency, and few enough to reckon with.
MAX_SCALE: Final = 100
_MAX_SHOWN: Final = 150
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CURRENCY: Final = re.compile(r"[A-Za-z]{3}")


class FieldReport(msgspec.Struct, frozen=True):
    """What a check has found."""

    #: it fails if there are any
    problems: list[str]
    #: for the log
    notes: list[str]


# ----------------------------------------------------------------------------------------------- mapping


def map_fields(step: MapFields, data: Any) -> Any:
    """The data rearranged. Copies read the data as it came, so two fields can change places; a source that is
    not there is passed over. StepFailedError if a value stands where an object would have to be."""
    made = data if step.keep_rest else {}
    try:
        for target, source in step.copy.items():
            value = get_path(data, source)
            if value is not MISSING:
                made = set_path(made, target, value)
        for target, value in step.set.items():
            made = set_path(made, target, value)
        for target in step.drop:
            made = drop_path(made, target)
    except UsageError as error:
        raise StepFailedError(str(error), names=("FieldError",)) from None
    return made


def placed(data: Any, into: str | None, value: Any) -> Any:
    """The value, or the data with it at ``into``; the step fails if the data has no room for it there."""
    try:
        return put_into(data, into, value)
    except UsageError as error:
        raise StepFailedError(str(error), names=("FieldError",)) from None


# ---------------------------------------------------------------------------------------------- checking


def check_fields(step: CheckFields, data: Any) -> FieldReport:
    """Everything that is wrong with the data, and what is worth a note."""
    if data is not None and not isinstance(data, dict | list):
        return FieldReport([f"data: must be an object, not {kind_of(data)}"], [])
    problems = [
        f"{path}: {problem}"
        for path, check in step.fields.items()
        for problem in _problems_of(check, get_path(data, path))
    ]
    notes: list[str] = []
    if step.unknown != "ignore":
        found = notes if step.unknown == "note" else problems
        found += _told(list(_unknown(data, _tree_of(step), "")))
    return FieldReport(problems, notes)


def _problems_of(check: FieldCheck, value: Any) -> Iterator[str]:
    if value is MISSING or value is None:
        if check.is_required and not (value is None and None in check.values):
            yield "must be given" if value is MISSING else "must be given, not null"
        return
    problem = _TYPES[check.type](value)
    if problem is not None:
        yield problem  # the rest would only say the same in other words
        return
    if check.values and not any(_is_same(value, one) for one in check.values):
        yield f"must be one of {_listed(check.values)}"
    if check.min is not None or check.max is not None:
        yield from _problems_of_size(check, value)
    if check.max_length is not None:
        if not isinstance(value, str | list):
            yield f"must be a string or an array, not {kind_of(value)}"
        elif len(value) > check.max_length:
            unit = "characters" if isinstance(value, str) else "items"
            yield f"must have at most {check.max_length} {unit}, not {len(value)}"
    if check.pattern is not None and not (
        isinstance(value, str) and compile_pattern(check.pattern).matches(value)
    ):
        yield f"must be a string that matches {check.pattern}"


def _problems_of_size(check: FieldCheck, value: Any) -> Iterator[str]:
    size: int | float | Decimal
    if _is_number(value):
        size = value
    elif isinstance(value, dict) and _amount(value) is None:
        # Exact: amounts of money are not to be rounded, not even to be compared.
        size = Decimal(f"{value['unscaledAmount']}e-{value['scale']}")
    else:
        yield f"must be a number or an amount, not {kind_of(value)}"
        return
    if check.min is not None and not size >= check.min:
        yield f"must be at least {check.min}"
    if check.max is not None and not size <= check.max:
        yield f"must be at most {check.max}"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _must_be(what: str, is_right: Callable[[Any], bool]) -> Callable[[Any], str | None]:
    return lambda value: None if is_right(value) else f"must be {what}, not {kind_of(value)}"


def _date(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a date such as 2024-02-29, not {kind_of(value)}"
    if not _DATE.fullmatch(value):
        return "must be a date such as 2024-02-29"
    try:
        date.fromisoformat(value)
    except ValueError:
        return "must be a date that the calendar has"
    return None


def _amount(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"must be an amount (an object with currency, unscaledAmount and scale), not {kind_of(value)}"
    currency, scale = value.get("currency"), value.get("scale")
    wrong = []
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        wrong.append("its currency three letters")
    if not _is_integer(value.get("unscaledAmount")):
        wrong.append("its unscaledAmount an integer")
    if not isinstance(scale, int) or not _is_integer(scale) or not 0 <= scale <= MAX_SCALE:
        wrong.append(f"its scale an integer of 0 to {MAX_SCALE}")
    return f"must be an amount, {' and '.join(wrong)}" if wrong else None


_TYPES: Final[dict[str, Callable[[Any], str | None]]] = {
    "any": lambda _: None,
    "string": _must_be("a string", lambda value: isinstance(value, str)),
    "integer": _must_be("an integer", _is_integer),
    "number": _must_be("a number", _is_number),
    "boolean": _must_be("a boolean", lambda value: isinstance(value, bool)),
    "object": _must_be("an object", lambda value: isinstance(value, dict)),
    "array": _must_be("an array", lambda value: isinstance(value, list)),
    "amount": _amount,
    "date": _date,
}


def _is_same(one: Any, other: Any) -> bool:
    """Equal in JSON, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    return bool(one == other)


def _listed(values: list[Any]) -> str:
    text = ", ".join(msgspec.json.encode(value).decode() for value in values)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


# ----------------------------------------------------------------------------------------------- unknown

#: The names that are known at one level, with those below; one without any may hold what it likes.
_Tree = dict[str, "_Tree"]


def _tree_of(step: CheckFields) -> _Tree:
    tree: _Tree = {}
    for path in step.fields:
        level = tree
        for part in split_path(path):
            level = level.setdefault(part, {})
    return tree


def _unknown(data: Any, known: _Tree, way: str) -> Iterator[str]:
    """Paths of fields that nobody has named. Items of arrays are no fields: they are not looked at."""
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        if name not in known:
            yield f"{way}{name}"
        elif known[name]:
            yield from _unknown(value, known[name], f"{way}{name}.")


def _told(unknown: list[str]) -> list[str]:
    told = [f"{path:.{_MAX_SHOWN}}: is not known here, leave it out" for path in unknown[:MAX_UNKNOWN]]
    if len(unknown) > MAX_UNKNOWN:
        told.append(f"data: has {len(unknown) - MAX_UNKNOWN} more fields that are not known here")
    return told
