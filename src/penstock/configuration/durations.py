"""Durations as Go spells them: ``1h30m``, ``.5s``, ``100ms``, ``-1.5h``, ``0``.

====== ==========================
unit   meaning
====== ==========================
``ns`` nanosecond
``us`` microsecond, also ``µs``
``ms`` millisecond
``s``  second
``m``  minute
``h``  hour
====== ==========================

Units are case-sensitive, a number without a unit is refused (only ``0`` needs none), and there are no
spaces. What is finer than a millisecond is rounded away from zero: a wait of ``1ns`` is a wait, and
must not turn into "none". Arithmetic is exact; nothing here is a float.

A configuration may write a number of seconds instead (:func:`duration_ms_of`), and where days are a usual
length, ``d``.

Rules: text in, whole milliseconds out. Knows no keys.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from penstock.configuration.problems import show

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_NS_PER_MS: Final = 1_000_000
DAY_MS: Final = 24 * 3600 * 1000
#: A bound against slips of units; no timer of ours is meant to run longer.
MAX_MS: Final = 3660 * DAY_MS
#: Go keeps nanoseconds in 63 bits; longer durations do not exist.
_MAX_NS: Final = (1 << 63) - 1
#: Digits beyond cannot matter, and a limit keeps conversions of hostile text cheap.
_MAX_TEXT_LEN: Final = 128

_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>ns|us|µs|μs|ms|s|m|h)")
_FORM: Final = "a duration such as 1h30m, .5s or 100ms"


def parse_duration_ms(text: str) -> int:
    """Milliseconds; raises ``ValueError`` with what is expected instead."""
    sign, rest = 1, text
    if rest[:1] in ("-", "+"):
        sign, rest = (-1 if rest[0] == "-" else 1), rest[1:]
    if rest == "0":
        return 0
    if not rest or len(text) > _MAX_TEXT_LEN:
        raise ValueError(f"must be {_FORM}")
    total_ns, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part["whole"] or part["fraction"]):
            if re.fullmatch(r"[0-9]+(\.[0-9]*)?", rest):
                raise ValueError(f"has no unit: must be {_FORM}")
            raise ValueError(f"must be {_FORM}")
        total_ns += _part_ns(part["whole"], part["fraction"] or "", _UNITS_NS[part["unit"]])
        at = part.end()
    if total_ns > _MAX_NS:
        raise ValueError("is longer than 292 years")
    return sign * -(-total_ns // _NS_PER_MS)


def _part_ns(whole: str, fraction: str, unit_ns: int) -> int:
    """Exact, then cut to nanoseconds as Go does."""
    scale: int = 10 ** len(fraction)
    return int(whole + fraction or "0") * unit_ns // scale


def duration_ms_of(value: object, *, min_ms: int = 0, max_ms: int = MAX_MS, has_days: bool = False) -> int:
    """Of what a configuration holds, a text or a number of seconds;
    ``ValueError`` with the rest of the sentence that starts with the key."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be a duration such as 1h30m or a number of seconds, not {show(value)}")
    if isinstance(value, str):
        try:
            duration_ms = _days_ms(value) if has_days and value.endswith("d") else parse_duration_ms(value)
        except ValueError as error:
            raise ValueError(f"{show(value)} {error}") from None
    elif is_finite(value):
        duration_ms = math.ceil(Decimal(repr(value)) * 1000)
    else:
        raise ValueError(f"must be a duration such as 1h30m or a number of seconds, not {show(value)}")
    if duration_ms < min_ms:
        least = "longer than 0" if min_ms else "0 or longer"
        raise ValueError(f"must be {least}, not {show(value)}")
    if duration_ms > max_ms:
        raise ValueError(f"must be at most {format_duration(max_ms)}, not {show(value)}")
    return duration_ms


def is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def _days_ms(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,6}d", text) is None:
        raise ValueError("must be a whole number of days such as 7d")
    return int(text[:-1]) * DAY_MS


def format_duration(duration_ms: int) -> str:
    """The text that :func:`parse_duration_ms` reads as the same number: ``1h30m``, ``1s500ms``."""
    if duration_ms == 0:
        return "0s"
    sign, rest_ms = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    words = []
    for unit, unit_ms in (("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            words.append(f"{count}{unit}")
    return sign + "".join(words)
