"""What a task does: the messages of a range as Arrow record batches.

The store is asked page by page, and pages become batches of up to about 32,768 messages or 16 MiB. Every
page tells what the stream has at that moment, so that messages which went meanwhile are noticed and never
silently left out.

Runs in executors: a store is opened here, never carried over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.client.targets import parse_url
from penstock.errors import PenstockError
from penstock.spark.columns import BatchMaker
from penstock.spark.data_loss import check_range
from penstock.spark.options import Options
from penstock.spark.positions import Bounds
from penstock.spark.ranges import OffsetRange
from penstock.spark.stores import store
from penstock.streams.scanning import Columns

_BATCH_MESSAGES: Final = 32_768
_BATCH_BYTES: Final = 16 << 20


def read_range(range_: OffsetRange, maker: BatchMaker, options: Options) -> Iterator[Any]:
    """Record batches in the order of offsets; none for an empty range."""
    if not len(range_):
        return
    try:
        for blocks in _gathered(_blocks(range_, options)):
            batch = maker.make(blocks)
            if batch is not None:
                yield batch
    except PenstockError as error:
        what = f"offsets {range_.first} to {range_.end - 1} of {range_.stream}"
        error.add_note(f"while {what} were read from {parse_url(options.url).redacted}")
        raise


def _blocks(range_: OffsetRange, options: Options) -> Iterator[list[Columns]]:
    stream = store(options.url, create=False).stream(range_.stream)
    first = range_.first
    for page in stream.scan(range_.first, range_.end - 1):
        bounds = Bounds(page.first, page.last + 1)
        check_range(range_.stream, first, range_.end, bounds, fails=options.fails_on_data_loss)
        yield page.blocks
        first = page.next
    assert first >= range_.end or not options.fails_on_data_loss, (
        "a scan ends early only if messages are gone"
    )


def _gathered(pages: Iterator[list[Columns]]) -> Iterator[list[Columns]]:
    """Several small pages as one."""
    blocks: list[Columns] = []
    messages = size = 0
    for page in pages:
        blocks += page
        messages += sum(block.count for block in page)
        size += sum(len(block.tags) + len(block.entries) for block in page)
        if messages >= _BATCH_MESSAGES or size >= _BATCH_BYTES:
            yield blocks
            blocks, messages, size = [], 0, 0
    yield blocks
