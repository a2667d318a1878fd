"""What a run measured: one small model, kept as JSON, of which the page and the chart are made.

    results.add("server.commands", "SET", "Redis", "requests/s", rounds, aim=0.8)
    results.add("server.commands", "SET", "Penstock", "requests/s", rounds, role="ours")

A *line* is one thing that all of its contenders did. One of them is ``ours``, and the others are compared
with it; where nobody else is on the line, several may be. A ``peer`` is somebody else's program; a
``limit`` is what cannot be passed (a loop that does nothing else) and never the best peer; ``beside`` is
shown and not compared. The ``aim`` of ours is a figure in the unit of the line, the aim of a peer or a
limit how many times as good ours shall be.

Rules: a figure is kept with all of its rounds; medians and spreads are made when they are asked for. Nothing
here prints or measures. Only the standard library and msgspec are used: parts that run in processes of their
own hand a file of this kind back.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

Role = Literal["ours", "peer", "limit", "beside"]
Better = Literal["higher", "lower"]

OURS: Final = "Penstock"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One contender on one line."""

    #: as it is chosen on the command line: ``client.calls``
    section: str
    line: str
    contender: str
    unit: str
    rounds: tuple[float, ...]
    role: Role = "peer"
    better: Better = "higher"
    aim: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half the distance between the least and the most, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / 2 / self.median if self.median else 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.section, self.line, self.contender


class Note(msgspec.Struct, frozen=True):
    """Why something is not in the tables, or how what is there was measured."""

    section: str
    text: str


class Line:
    """The contenders of one line, in the order in which they were added."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self.measurements = measurements
        self.name = measurements[0].line
        self.unit = measurements[0].unit
        self.ours = next((one for one in measurements if one.role == "ours"), None)

    def times(self, other: Measurement) -> float | None:
        """How many times as good as the other ours is; None where there is nothing to compare."""
        if self.ours is None or other.role not in ("peer", "limit"):
            return None
        ours, theirs = self.ours.median, other.median
        above, below = (ours, theirs) if other.better == "higher" else (theirs, ours)
        return above / below if below else None

    def is_met(self, one: Measurement) -> bool | None:
        """Whether the aim is reached; None where there is none, or nothing to compare with."""
        if one.aim is None:
            return None
        if one.role == "ours":
            return one.median >= one.aim if one.better == "higher" else one.median <= one.aim
        times = self.times(one)
        return None if times is None else times >= one.aim

    def best_peer(self) -> Measurement | None:
        """The one that is hardest to beat."""
        peers = [
            (times, one) for one in self.measurements if (times := self.times(one)) and one.role == "peer"
        ]
        return min(peers, key=lambda pair: pair[0])[1] if peers else None


class Results(msgspec.Struct, kw_only=True):
    """All of one run, or of several on the same machine."""

    machine: str = ""
    #: when the run began, UTC
    began: str = ""
    scale: float = 1.0
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    #: by section
    took_s: dict[str, float] = msgspec.field(default_factory=dict)
    measurements: list[Measurement] = msgspec.field(default_factory=list)
    notes: list[Note] = msgspec.field(default_factory=list)

    def add(
        self,
        section: str,
        line: str,
        contender: str,
        unit: str,
        rounds: Iterable[float],
        *,
        role: Role = "peer",
        better: Better = "higher",
        aim: float | None = None,
    ) -> None:
        taken = tuple(rounds)
        if not taken:
            raise ValueError(f"{contender} has no round of {line!r}; measure at least one")
        self.measurements.append(
            Measurement(
                section=section,
                line=line,
                contender=contender,
                unit=unit,
                rounds=taken,
                role=role,
                better=better,
                aim=aim,
            )
        )

    def note(self, section: str, text: str) -> None:
        self.notes.append(Note(section, text))

    def lines(self, section: str) -> Iterator[Line]:
        found: dict[str, list[Measurement]] = {}
        for one in self.measurements:
            if one.section == section:
                found.setdefault(one.line, []).append(one)
        return map(Line, found.values())

    def sections(self) -> list[str]:
        """Those with figures or notes, in the order in which they came."""
        names = [
            *self.took_s,
            *(one.section for one in self.measurements),
            *(one.section for one in self.notes),
        ]
        return list(dict.fromkeys(names))

    def merge(self, other: Results) -> None:
        """Take in what another run found; where both measured the same, the other's figure stays."""
        if self.machine and other.machine and self.machine != other.machine:
            raise ValueError(
                f"results of two machines cannot stand in one table: {self.machine!r} and {other.machine!r}; "
                "measure both on one"
            )
        self.machine = self.machine or other.machine
        self.began = max(self.began, other.began)
        self.scale = min(self.scale, other.scale)
        self.versions = {**self.versions, **other.versions}
        self.took_s = {**self.took_s, **other.took_s}
        new = {one.key for one in other.measurements}
        self.measurements = [one for one in self.measurements if one.key not in new] + other.measurements
        again = {one.section for one in other.measurements} | {one.section for one in other.notes}
        self.notes = [one for one in self.notes if one.section not in again] + other.notes

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> Results:
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError) as error:
            raise ValueError(f"{path} is no file of results: {error}") from error
