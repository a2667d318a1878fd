"""``replay``: messages of the lake to a stream, in their order, each once.

    penstock spark run --available-now replay
    jobs:
      replay: {stream: orders, target: orders.again, tags: [eu], rate: 5000}

Spark first counts what is wanted by small ranges of offsets, and joins these to pieces that fit into memory.
Then it sorts piece after piece, and the driver writes each to the target (``replay_writing`` tells why each
message is written once). What was done is known by the target alone: a run that was killed goes on behind the
last message that is there, and one that runs again later brings what the lake has got since.

Rules: a stream is not replayed to itself. Offsets and times are the target's own. A run goes on where one
of the same ``name`` ended, if it begins at the same place (``first``, ``since``) and wants the same tags;
with others of these it begins anew.

Nothing here knows how messages are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from penstock import blocking
from penstock.client.targets import parse_url
from penstock.errors import ConfigError, LakeError
from penstock.spark.jobs.exported import TABLE
from penstock.spark.jobs.job import JobContext, JobReport
from penstock.spark.jobs.replay_writing import Message, ReplayWriter
from penstock.spark.lake_writing import read
from penstock.spark.positions import EARLIEST, parse_positions
from penstock.spark.rate import TokenBucket

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.lake.table import LakeTable

#: 2 to this offsets are counted together: the least that is brought to the driver at once.
_RANGE_BITS: Final = 8
#: What is brought to it at most, as long as there is more than one range.
_PIECE_BYTES: Final = 64 << 20
_PIECE_MESSAGES: Final = 200_000


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is replayed, and where to."""

    #: of the lake
    stream: str = ""
    #: the stream that gets it; of the same name if it lies in another store
    target: str = ""
    #: the other store; without it the one that the lake is of
    target_url: str = ""
    #: by which the target knows how far this one is
    name: str = "replay"
    #: first and last offset
    first: int | None = None
    last: int | None = None
    #: written at this time or later, and before that one: ``2026-03-01T12:00:00Z``, or @ and ms since 1970
    since: str = ""
    until: str = ""
    tags: tuple[str, ...] = ()
    #: most messages a second; 0: as fast as it goes
    rate: float = 0

    def __post_init__(self) -> None:
        if not self.stream:
            raise ConfigError("stream is missing: name the stream of the lake that is to be replayed")
        if not self.name:
            raise ConfigError("name is empty: leave it out, or write one")
        if not self.target_url and self.target in ("", self.stream):
            raise ConfigError("target is missing: name another stream, or another store by target_url")
        if self.rate < 0:
            raise ConfigError(f"rate must be at least 0, not {self.rate}")
        for option in ("since", "until"):
            if text := getattr(self, option):
                _time_ms(option, text)

    @property
    def producer(self) -> str:
        """By which the target knows the position of this wish, however far it is to go."""
        begin = msgspec.json.encode((self.first, self.since, sorted(self.tags)))
        return f"replay:{self.name}:{self.stream}:{hashlib.sha256(begin).hexdigest()[:8]}"


class ReplayJob:
    """Messages of the lake, to a stream."""

    def __init__(self, options: ReplayOptions) -> None:
        self.name = "replay"
        self.options = options

    def run_once(self, context: JobContext) -> JobReport:
        started_ms = context.clock.now_ms()
        with ExitStack() as opened:
            client = self._target_store(context, opened)
            writer = ReplayWriter(
                client.stream(self.options.target or self.options.stream),
                self.options.producer,
                TokenBucket(self.options.rate, context.clock, context.stopping.wait),
                context.stopping,
            )
            wanted = _Wanted(context, self.options, writer.position())
            for piece in wanted.pieces:
                if context.stopping.is_set():
                    break
                writer.write(wanted.messages(piece))
                context.report(batches=writer.calls, rows=writer.rows, lag=max(0, wanted.count - writer.rows))
        return JobReport(
            job=self.name,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            batches=writer.calls,
            rows=writer.rows,
            lag=max(0, wanted.count - writer.rows),
            notes={"last": writer.at} if writer.at else {},
        )

    def _target_store(self, context: JobContext, opened: ExitStack) -> blocking.Client:
        url = self.options.target_url
        if not url:
            return context.store
        if _place(url) == _place(context.url) and self.options.target in ("", self.options.stream):
            raise ConfigError("target_url is the store that the lake is of: name another stream as target")
        return opened.enter_context(blocking.open(url))

    def __repr__(self) -> str:
        return f"<ReplayJob {self.options.name} of {self.options.stream}>"


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets that are brought to the driver at once: ``first <= offset < end``."""

    first: int
    end: int
    count: int
    size_bytes: int


class _Wanted:
    """What is left to be replayed."""

    def __init__(self, context: JobContext, options: ReplayOptions, after: int) -> None:
        """``after``: the last offset that is in the target."""
        self._spark = context.spark
        self._options = options
        self._table: LakeTable = context.lake.table(TABLE)
        self._first = max(after + 1, options.first or 0)
        # The files of now: what joins later is for the next run.
        self._files = [
            (file.path, file.bounds("offset"))
            for file in self._table.files()
            if file.partition.get("stream") == options.stream
        ]
        self.pieces = joined(self._counted())
        self.count = sum(piece.count for piece in self.pieces)

    def messages(self, piece: Piece) -> Iterator[Message]:
        """In the order of offsets."""
        rows = self._chosen(piece.first, piece.end).select("offset", "tag", "message")
        # One task sorts it: a piece is small, and this needs no other stage.
        rows = rows.coalesce(1).sortWithinPartitions("offset")
        before = 0
        for batch in rows.toArrow().to_batches():
            for offset, tag, entry in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if offset == before:
                    raise LakeError(
                        f"table {TABLE} has offset {offset} of the stream {self._options.stream} twice:"
                        " the job reconcile tells more"
                    )
                before = offset
                yield Message(offset, tag, entry)

    def _counted(self) -> list[Piece]:
        size = F.sum(F.length("tag") + F.coalesce(F.length("message"), F.lit(0)))
        number = F.shiftright("offset", _RANGE_BITS)
        ranges = self._chosen(self._first, None).groupBy(number.alias("range")).agg(F.count("*"), size)
        return [
            Piece(row[0] << _RANGE_BITS, (row[0] + 1) << _RANGE_BITS, row[1], row[2])
            for row in sorted(ranges.collect())
        ]

    def _chosen(self, first: int, end: int | None) -> DataFrame:
        paths = [path for path, bounds in self._files if _overlaps(bounds, first, end)]
        rows = read(self._spark, self._table, paths).where(F.col("stream") == self._options.stream)
        for condition in self._conditions(max(first, self._first), end):
            rows = rows.where(condition)
        return rows

    def _conditions(self, first: int, end: int | None) -> Iterator[Column]:
        options, offset, time = self._options, F.col("offset"), F.col("time")
        yield offset >= first
        if end is not None:
            yield offset < end
        if options.last is not None:
            yield offset <= options.last
        if options.since:
            yield time >= F.timestamp_millis(F.lit(_time_ms("since", options.since)))
        if options.until:
            yield time < F.timestamp_millis(F.lit(_time_ms("until", options.until)))
        if options.tags:
            yield F.col("tag").isin([F.lit(tag.encode()) for tag in options.tags])


def joined(ranges: Sequence[Piece]) -> list[Piece]:
    """Neighbours together, as much as fits into memory."""
    pieces: list[Piece] = []
    for each in ranges:
        last = pieces[-1] if pieces else None
        if (
            last is not None
            and last.count + each.count <= _PIECE_MESSAGES
            and last.size_bytes + each.size_bytes <= _PIECE_BYTES
        ):
            pieces[-1] = Piece(
                last.first, each.end, last.count + each.count, last.size_bytes + each.size_bytes
            )
        else:
            pieces.append(each)
    return pieces


def _place(url: str) -> object:
    """The same for two ways to spell one store's address."""
    target = parse_url(url)
    return target.path.resolve() if target.kind == "embedded" and target.path else target


def _overlaps(bounds: tuple[Any, Any] | None, first: int, end: int | None) -> bool:
    return bounds is None or (bounds[1] >= first and (end is None or bounds[0] < end))


def _time_ms(option: str, text: str) -> int:
    position = parse_positions(option, text, (), EARLIEST).default
    if position.kind != "time":
        raise ConfigError(
            f"{option} must be a time as 2026-03-01T12:00:00Z, or @ and the ms since 1970, not {text!r:.60}"
        )
    return position.value
