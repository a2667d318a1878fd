"""What an export has to do: which streams, from which offset on, and which of them it must leave alone.

    plan = make_plan(context, options, store_id(context.store))

=====================================  ==============================================================
a stream …                             is
=====================================  ==============================================================
that the lake has up to an offset      taken from there
that is new to the lake                taken from its first message, or (``latest``) from now on; the
                                       latter is committed, so that the next pass knows it
that is not there                      left out, until it is
whose messages are evicted             refused, or taken from what is left (``fail_on_data_loss``)
that was deleted and made anew         refused: its offsets are in the lake already
that the lake has of another store     refused: rows do not tell their store
=====================================  ==============================================================

Rules: a refused stream does not keep the others back. Nothing here reads messages or writes files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import DataLossError, LakeError, PenstockError
from penstock.spark.jobs.exported import TABLE, begin_app, progress_app, streams_in, streams_like
from penstock.spark.positions import Bounds, find_bounds

if TYPE_CHECKING:
    from penstock.spark.jobs.export import ExportOptions
    from penstock.spark.jobs.job import JobContext


@dataclass(frozen=True, slots=True)
class Span:
    """What a stream has that the lake has not."""

    stream: str
    #: the first offset that is wanted
    begin: int
    #: the one that the next message will get
    end: int
    #: the lake never had anything of it
    is_new: bool
    #: how many offsets were evicted before they were taken
    lost: int = 0


@dataclass(slots=True)
class Plan:
    """What one query does."""

    #: everything that matches, whatever became of it
    names: list[str]
    spans: list[Span] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    refusals: list[PenstockError] = field(default_factory=list)

    @property
    def has_work(self) -> bool:
        return any(span.begin < span.end for span in self.spans)

    @property
    def lost(self) -> int:
        return sum(span.lost for span in self.spans)

    def raise_refusal(self) -> None:
        """The first of them, which tells how many there are."""
        if self.refusals:
            if len(self.refusals) > 1:
                self.refusals[0].add_note(f"and {len(self.refusals) - 1} streams more are refused")
            raise self.refusals[0]


def make_plan(context: JobContext, options: ExportOptions, store: str) -> Plan:
    """Of what there is now. ``store``: the id of the store."""
    plan = Plan(streams_like(context.store, options.streams))
    known = set(streams_in(context.lake.table(TABLE)))
    for name in plan.names:
        bounds = find_bounds(context.store.stream(name))
        if bounds is None:
            plan.absent.append(name)
            continue
        try:
            plan.spans.append(_span(context, options, store, name, bounds, is_known=name in known))
        except (DataLossError, LakeError) as refusal:
            plan.refusals.append(refusal)
    return plan


def _span(
    context: JobContext, options: ExportOptions, store: str, name: str, bounds: Bounds, *, is_known: bool
) -> Span:
    table = context.lake.table(TABLE)
    begin = table.progress(progress_app(store, name))
    if begin is None:
        if is_known:
            raise LakeError(
                f"table {TABLE} has a stream {name} of another store: rename one of them, or use another lake"
            )
        if options.starting == "earliest":
            return Span(name, bounds.first, bounds.end, is_new=True)
        apps = progress_app(store, name), begin_app(store, name)
        table.commit([], progress=dict.fromkeys(apps, bounds.end), expected=dict.fromkeys(apps))
        return Span(name, bounds.end, bounds.end, is_new=False)
    if bounds.end < begin:
        raise DataLossError(
            f"the lake has the stream {name} up to offset {begin - 1} and it ends at {bounds.end - 1}: it was"
            " deleted, or the store is older than the lake; export it under another name or to another lake"
        )
    lost = max(0, bounds.first - begin)
    if lost and options.fail_on_data_loss:
        raise DataLossError(
            f"offsets {begin} to {bounds.first - 1} of the stream {name} were evicted before they were"
            " exported: set fail_on_data_loss to false to go on without them"
        )
    return Span(name, begin, bounds.end, is_new=False, lost=lost)
