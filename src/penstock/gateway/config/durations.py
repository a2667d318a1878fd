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

Rules: text in, whole milliseconds out. Knows neither keys nor configuration.
"""

from __future__ import annotations

import re
from typing import Final

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
