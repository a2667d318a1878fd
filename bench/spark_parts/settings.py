"""What the parts of the Spark benchmark are told by ``bench/spark.py``, as one word of a command line."""

from __future__ import annotations

import sys

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where data lies, how much of it there is, and where figures go."""

    #: for everything; whoever runs the parts removes it
    directory: str
    #: the file that figures go to
    results: str
    rounds: int
    #: of the log
    messages: int
    #: of a log that grows, rising
    sizes: list[int]
    #: rows that are written to a stream
    sunk: int
    #: transactions that are archived
    archived: int
    #: transactions that the lake has when one is looked up
    looked_up_in: int
    #: transactions through a step on Spark
    stepped: int

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def told() -> Settings:
    """Those of this process."""
    return msgspec.json.decode(sys.argv[1], type=Settings)
