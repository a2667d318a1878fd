"""Messages that are gone before a query has read them: an error, or a line in the log, by ``failOnDataLoss``.

==========  =============================================================================================
evicted     the stream begins behind what is to be read
made anew   the stream ends before what is to be read, or was read: somebody has deleted it
==========  =============================================================================================

Holes are not lost: what was compacted away or dropped lies between the first and the last offset. A stream
that was made anew and has grown beyond the old one cannot be told from it.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.errors import DataLossError
from penstock.spark.positions import Bounds

_LOGGER: Final = logging.getLogger("penstock.spark")


def check_range(stream: str, first: int, end: int, bounds: Bounds, *, fails: bool) -> None:
    """Judge what is about to be read, or was read together with these bounds."""
    if first >= end:
        return
    if bounds.end < end:
        _lose(
            f"offsets {max(first, bounds.end)} to {end - 1} of the stream {stream} are gone,"
            f" its last one is {bounds.end - 1}: it was deleted",
            fails=fails,
        )
    gone = min(bounds.first, end)
    if first < gone:
        _lose(
            f"offsets {first} to {gone - 1} of the stream {stream} are gone, it begins at {bounds.first}:"
            " they were evicted",
            fails=fails,
        )


def check_end(stream: str, end: int, bounds: Bounds, *, fails: bool) -> bool:
    """Whether a stream that was read up to ``end`` still is the same one."""
    if end <= bounds.end:
        return True
    _lose(
        f"the stream {stream} was read up to offset {end - 1} and now ends at {bounds.end - 1}:"
        " it was deleted, and begins anew",
        fails=fails,
    )
    return False


def _lose(what: str, *, fails: bool) -> None:
    if fails:
        raise DataLossError(f"{what}; set the option failOnDataLoss to false to go on without them")
    _LOGGER.warning("%s; failOnDataLoss is false, so the query goes on without them", what)
