"""What a run found, as Markdown: machine and versions, faults by kind, what was checked, broken promises.

Only shows: what counts as broken is decided in ``running``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench import machine
from tests.chaos.model import SceneKind, Verdict
from tests.chaos.plan import KINDS, Kind

#: Kinds as a reader wants them, beside their number.
_WORDS: Final[Mapping[Kind, str]] = {
    "kill": "members killed",
    "stop": "members stopped",
    "clock": "jumps of the clock",
    "store-kill": "kills of the store's processes",
    "store-stop": "stops of the store's processes",
    "disk-full": "times the disk was full",
    "failover": "failovers",
    "cut": "cuts of connections",
    "delay": "delays of connections",
    "silence": "silences of connections",
}
#: What the data pipeline runs on.
_SPARK: Final = ("pyspark", "deltalake")
#: Broken promises of one crew that are told; the rest is counted.
_MOST_TOLD: Final = 30


@dataclass(slots=True)
class SceneReport:
    """One scene, filled in as it goes on."""

    kind: SceneKind
    seconds: float
    about: str = ""
    happened: Mapping[Kind, int] = field(default_factory=dict)
    left_out: Mapping[Kind, int] = field(default_factory=dict)
    #: How many processes of members there have been.
    lives: int = 0
    notes: Sequence[str] = ()
    #: crew → seconds from the last fault until everything had arrived
    settled_s: Mapping[str, float] = field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()
    #: What is wrong beside the verdicts: members that failed, a store that does not hold together.
    wrong: list[str] = field(default_factory=list)

    @property
    def broken(self) -> int:
        return len(self.wrong) + sum(len(verdict.wrong) for verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class RunReport:
    seed: int
    minutes: float
    scenes: Sequence[SceneReport]

    @property
    def broken(self) -> int:
        return sum(scene.broken for scene in self.scenes)


def render(run: RunReport) -> str:
    """The whole page."""
    faults = sum(sum(scene.happened.values()) for scene in run.scenes)
    checked = sum(verdict.checked for scene in run.scenes for verdict in scene.verdicts)
    lines = [
        "# Chaos",
        "",
        f"Seed {run.seed}, {run.minutes:.2g} minutes of storm. {machine.describe()}; {_versions(run)}.",
        "",
        f"**{faults:,} faults survived, {checked:,} operations checked, {run.broken:,} broken promises.**",
    ]
    for scene in run.scenes:
        lines += ["", *_scene(scene)]
    return "\n".join(lines) + "\n"


def _scene(scene: SceneReport) -> list[str]:
    faults = [f"{_WORDS[kind]} {scene.happened[kind]:,}" for kind in KINDS if scene.happened.get(kind)]
    left_out = [f"{_WORDS[kind]} {count:,}" for kind, count in scene.left_out.items() if count]
    notes = [f"{note[0].upper()}{note[1:]}." for note in scene.notes]
    if left_out:
        notes.append(f"Planned, and left out because an earlier fault was not over: {', '.join(left_out)}.")
    return [
        f"## {scene.kind}",
        "",
        f"{scene.about}; {scene.seconds:.0f} s. {scene.lives:,} processes of members.",
        f"Faults: {', '.join(faults) or 'none'}.",
        *notes,
        "",
        "| crew | checked | broken | settled after |",
        "| --- | --- | ---: | ---: |",
        *(_row(verdict, scene.settled_s) for verdict in scene.verdicts),
        *_broken(scene),
    ]


def _row(verdict: Verdict, settled_s: Mapping[str, float]) -> str:
    counts = ", ".join(f"{count:,} {what}" for what, count in verdict.counts.items())
    seconds = settled_s.get(verdict.crew)
    settled = "never" if seconds is None else f"{seconds:.1f} s"
    return f"| {verdict.crew} | {counts} | {len(verdict.wrong):,} | {settled} |"


def _broken(scene: SceneReport) -> list[str]:
    wrong = [("", each) for each in scene.wrong]
    for verdict in scene.verdicts:
        wrong += [(f"{verdict.crew}: ", each) for each in verdict.wrong[:_MOST_TOLD]]
        if len(verdict.wrong) > _MOST_TOLD:
            wrong.append((f"{verdict.crew}: ", f"… and {len(verdict.wrong) - _MOST_TOLD:,} more"))
    if not wrong:
        return []
    # A traceback is part of its point.
    points = [f"- {prefix}{each}".replace("\n", "\n      ") for prefix, each in wrong]
    return ["", "Broken:", "", *points]


def _versions(run: RunReport) -> str:
    crews = {verdict.crew for scene in run.scenes for verdict in scene.verdicts}
    versions = machine.versions() | (machine.versions_of(*_SPARK) if "spark" in crews else {})
    return ", ".join(f"{name} {version}" for name, version in versions.items())
