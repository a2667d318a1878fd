"""Messages with offsets of one stream are written to another: each once, whoever was killed on the way.

    writer = ReplayWriter(stream, "replay:march:orders", bucket, stopping)
    writer.position()                        # the source's offset of the last message that is there
    writer.write(messages)                   # those behind it

A producer of the target keeps the position: its sequence is the source's offset of its last message. How a
call is written:

==================  ===================================================================================
offsets follow one  each message's sequence is its offset, so that the server knows every one of them.
another
there are holes     the last message's sequence is its offset, the others count down from it; they cannot
                    come down to what was written before, since there are no more messages than
                    offsets. Where the target ends is told with it (IF), so that the call is void if
                    anything was written since the position was read: a call of another run that was on
                    its way, above all.
==================  ===================================================================================

If the server refuses a call for one of these reasons, the position is read again, and what lies before it is
left out. Where others write to the target all the time, holes are not waited for: after some refusals the
messages up to the first hole are written, which needs no condition. So it always comes to an end.

Nothing here knows where messages come from.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import CommandError
from penstock.spark.positions import NOTHING, find_bounds
from penstock.streams.writing import MAX_MESSAGES, fits

if TYPE_CHECKING:
    from penstock.blocking import Stream
    from penstock.spark.rate import TokenBucket

#: Refusals because of others, in a row, before holes are avoided.
_PATIENCE: Final = 3
_REFUSALS: Final = frozenset({"SEQUENCE", "MISMATCH"})


class Message(NamedTuple):
    #: in the stream that it comes from
    offset: int
    tag: bytes
    entry: bytes | None


class ReplayWriter:
    """Writes to one stream, as one producer."""

    def __init__(self, stream: Stream, producer: str, bucket: TokenBucket, stopping: threading.Event) -> None:
        self._stream = stream
        self._producer = producer
        self._bucket = bucket
        self._stopping = stopping
        #: the source's offset of the last message that is there
        self.at = 0
        #: messages and commands of this run
        self.rows = 0
        self.calls = 0
        self._refusals = 0

    def position(self) -> int:
        """As the target knows it."""
        info = self._stream.producer_info(self._producer)
        self.at = 0 if info is None else info.sequence
        return self.at

    def write(self, messages: Iterable[Message]) -> None:
        """Those behind the position, in the order of offsets; fewer, if it has to stop."""
        for chunk in chunks(messages, self._bucket.most_at_once(MAX_MESSAGES)):
            left: Sequence[Message] = chunk
            while left and not self._stopping.is_set():
                self._bucket.take(len(left))
                if not self._stopping.is_set():
                    self._try(left)
                left = [message for message in left if message.offset > self.at]

    def _try(self, messages: Sequence[Message]) -> None:
        is_dense = len(messages) == messages[-1].offset - messages[0].offset + 1
        if not is_dense and self._refusals >= _PATIENCE:
            messages, is_dense = _before_hole(messages), True
        # Where the target ends is asked before the position: whatever is written between changes the end.
        end = None if is_dense else (find_bounds(self._stream) or NOTHING).end - 1
        if end is not None and self.position() >= messages[0].offset:
            return
        try:
            self._stream.write_many(
                [(message.tag, message.entry) for message in messages],
                producer=(self._producer, messages[-1].offset - len(messages) + 1),
                keep_producer=True,
                expected_last=end,
            )
        except CommandError as error:
            if error.code not in _REFUSALS:
                raise
            self._refusals += 1
            self.position()
            return
        self._refusals = 0
        self.at = messages[-1].offset
        self.rows += len(messages)
        self.calls += 1


def chunks(messages: Iterable[Message], most: int) -> Iterator[list[Message]]:
    """As much as goes into one command; tombstones and others apart."""
    chunk: list[Message] = []
    size_bytes = 0
    for message in messages:
        more = len(message.tag) + len(message.entry or b"")
        if chunk and (
            len(chunk) >= most
            or not fits(len(chunk) + 1, size_bytes + more)
            or (chunk[0].entry is None) != (message.entry is None)
        ):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(message)
        size_bytes += more
    if chunk:
        yield chunk


def _before_hole(messages: Sequence[Message]) -> Sequence[Message]:
    first = messages[0].offset
    dense = (place for place, message in enumerate(messages) if message.offset != first + place)
    return messages[: next(dense, len(messages))]
