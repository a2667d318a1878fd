"""``reconcile``: the lake is compared with the store, and what differs is told.

    jobs:
      reconcile: {every: 1h, streams: ["*"]}

Streams are compared message by message as far as both must have them (``reconcile_messages``), transactions
by what the lake says of itself and of what the store has left (``reconcile_transactions``). A difference is
a ``DifferenceError``, with the first hundred of them in words, which are logged, too.

Rules: it only reads. What others do meanwhile is no difference.
"""

from __future__ import annotations

import logging

import msgspec

from penstock.errors import ConfigError, DifferenceError
from penstock.spark.jobs.exported import check_patterns
from penstock.spark.jobs.findings import Findings
from penstock.spark.jobs.job import JobContext, JobReport
from penstock.spark.jobs.reconcile_messages import compare_messages
from penstock.spark.jobs.reconcile_transactions import compare_transactions

logger = logging.getLogger(__name__)


class ReconcileOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is compared."""

    #: names and patterns of streams; none if empty
    streams: tuple[str, ...] = ("*",)
    transactions: bool = True

    def __post_init__(self) -> None:
        check_patterns("streams", self.streams)
        if not self.streams and not self.transactions:
            raise ConfigError("nothing is compared: name streams, or set transactions to true")


class ReconcileJob:
    """The lake, against the store."""

    def __init__(self, options: ReconcileOptions | None = None) -> None:
        self.name = "reconcile"
        self.options = options or ReconcileOptions()

    def run_once(self, context: JobContext) -> JobReport:
        started_ms = context.clock.now_ms()
        findings = Findings()
        compare_messages(context, self.options.streams, findings)
        if self.options.transactions and not context.stopping.is_set():
            compare_transactions(context, findings)
        context.report(differences=findings.differences, **findings.notes())
        self._judge(findings)
        return JobReport(
            job=self.name,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            batches=findings.counts["ranges"],
            rows=findings.counts["messages"] + findings.counts["transactions"],
            notes={**findings.notes(), "differences": 0},
        )

    def _judge(self, findings: Findings) -> None:
        if not findings.differences:
            return
        for sentence in findings.told:
            logger.warning("%s", sentence)
        raise DifferenceError(
            f"the lake and the store differ in {findings.differences} places, the first: {findings.told[0]}",
            tuple(findings.told),
        )

    def __repr__(self) -> str:
        return f"<ReconcileJob of {', '.join(self.options.streams) or 'transactions'}>"
