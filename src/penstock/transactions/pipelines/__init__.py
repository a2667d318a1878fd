"""Pipelines: what transactions run, and the versions of it that a store keeps.

==============  ======================================================================
``retry``       when a step that failed is tried again
``patterns``    regular expressions that cannot be slow
``steps``       the kinds of steps
``definition``  a pipeline of them
``validation``  whether it makes sense
``codec``       its text and its version
``registry``    drafts, versions, which one is active: in the store
==============  ======================================================================

Each knows those above it. Nothing here knows transactions or who runs them.
"""

from penstock.transactions.pipelines.codec import decode, dump, parse, version_of
from penstock.transactions.pipelines.definition import Pipeline, steps_at, walk
from penstock.transactions.pipelines.patterns import Pattern, PatternError, compile_pattern
from penstock.transactions.pipelines.registry import PipelineInfo, PipelineRegistry, VersionInfo
from penstock.transactions.pipelines.retry import NO_RETRY, Retry
from penstock.transactions.pipelines.steps import (
    AnyStep,
    CheckFields,
    Child,
    Delay,
    FieldCheck,
    Function,
    Http,
    Map,
    MapFields,
    Parallel,
    Progress,
    Reply,
    Router,
    Step,
    Steps,
    Wait,
)
from penstock.transactions.pipelines.validation import problems_of

__all__ = [
    "NO_RETRY",
    "AnyStep",
    "CheckFields",
    "Child",
    "Delay",
    "FieldCheck",
    "Function",
    "Http",
    "Map",
    "MapFields",
    "Parallel",
    "Pattern",
    "PatternError",
    "Pipeline",
    "PipelineInfo",
    "PipelineRegistry",
    "Progress",
    "Reply",
    "Retry",
    "Router",
    "Step",
    "Steps",
    "VersionInfo",
    "Wait",
    "compile_pattern",
    "decode",
    "dump",
    "parse",
    "problems_of",
    "steps_at",
    "version_of",
    "walk",
]
