"""The border to delta-rs: the only module that imports it, and where its errors become ours.

    with translated("table messages: batch 7 is not committed"): …

Rules: whatever delta-rs and the operating system raise becomes a ``LakeError`` of one sentence: what was
not done, then why. Nothing here knows which tables there are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.errors import ConfigError, LakeError

try:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("arro3", "deltalake", "pyarrow"):
        raise
    raise ConfigError("a lake needs delta-rs and Arrow: pip install 'penstock[lake]'") from None

__all__ = [
    "AddAction",
    "CommitFailedError",
    "CommitProperties",
    "DeltaError",
    "DeltaTable",
    "PostCommitHookProperties",
    "RemoveAction",
    "Schema",
    "TableNotFoundError",
    "Transaction",
    "reason",
    "translated",
]

#: Colours and arrows of its error chains, and what a debugger would like.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_ARROW: Final = re.compile(r"\s*↳\s*")
_BACKTRACE: Final = re.compile(r"\n\s*\d+: .*", re.DOTALL)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """``what`` tells what was not done."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise LakeError(f"{what}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """One line of what delta-rs or the operating system has to say."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f" ({error.filename})" if error.filename else ""
        return f"{os.strerror(error.errno)}{where}"
    text = _BACKTRACE.sub("", _COLOUR.sub("", str(error)))
    return " ".join(_ARROW.sub(": ", text).split()) or type(error).__name__
