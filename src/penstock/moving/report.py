"""What a migration did, and what it could not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Problem(NamedTuple):
    """Something that is not in the destination as it is in the source."""

    key: bytes
    #: a sentence without its key
    reason: str

    def __str__(self) -> str:
        return f"{self.key.decode('utf-8', 'backslashreplace')}: {self.reason}"


@dataclass(slots=True)
class Report:
    """Counts and problems of one run."""

    #: keys by type, those that were copied (or would be)
    keys: dict[str, int] = field(default_factory=dict)
    #: elements of collections, strings and messages of streams
    elements: int = 0
    #: keys that an earlier run has copied
    done_before: int = 0
    #: keys of the destination that were, or would be, replaced (``merge``)
    replaced: int = 0
    #: what could not be carried over
    problems: list[Problem] = field(default_factory=list)
    #: sentences that say why the source was not quiet
    changes: list[str] = field(default_factory=list)
    #: keys that were compared afterwards
    compared: int = 0
    #: what is not equal in both places
    differences: list[Problem] = field(default_factory=list)
    #: databases of the source, besides the one that was copied, that have keys
    other_databases: list[int] = field(default_factory=list)

    @property
    def copied(self) -> int:
        return sum(self.keys.values())

    def count(self, kind: str, elements: int) -> None:
        """One more key."""
        self.keys[kind] = self.keys.get(kind, 0) + 1
        self.elements += elements

    def refuse(self, key: bytes, reason: str) -> None:
        problem = Problem(key, reason)
        if problem not in self.problems[-1:]:  # a large value is told of once, not with each of its pieces
            self.problems.append(problem)
