"""Bodies and answers of ``/v1/pipelines`` as types, and what documentation says of its routes."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply
from penstock.gateway.v1.transaction_documents import BAD, CURSOR, LIMIT, NEXT_PAGE
from penstock.transactions.pipelines import Pipeline
from penstock.transactions.pipelines.validation import MAX_NOTE_LENGTH

# ------------------------------------------------------------------------- bodies and answers


class CommitWish(msgspec.Struct):
    """``activate``: start this version from now on."""

    comment: Annotated[str, Meta(max_length=MAX_NOTE_LENGTH)] = ""
    activate: bool = False


class PipelineVersion(msgspec.Struct):
    name: str
    #: of a draft: the one that it would become
    version: str


class VersionState(msgspec.Struct):
    version: str
    comment: str
    by: str
    committed_ms: int
    is_active: bool


class PipelineState(msgspec.Struct):
    """Versions are in the order in which they were committed."""

    name: str
    active: str | None
    has_draft: bool
    versions: list[VersionState]


class PipelineSummary(msgspec.Struct):
    name: str
    active: str | None
    has_draft: bool
    #: how many
    versions: int


class PipelinePage(msgspec.Struct):
    pipelines: list[PipelineSummary]
    cursor: str | None


# ------------------------------------------------------------------------- routes

_TAG: Final = "pipelines"
_NONE: Final = {404: "There is no such pipeline, or no such version of it."}
_NO_DRAFT: Final = {404: "There is no such pipeline, or it has no draft."}
_WRONG: Final = {400: "The definition is wrong; `errors` lists every problem with the path to it."}
_STATED: Final = {200: Reply("As it is then.", PipelineState)}
_MADE: Final = {"Location": "The version."}

LIST: Final = Doc(
    _TAG,
    "List pipelines",
    {200: Reply("By name.", PipelinePage, headers=NEXT_PAGE)},
    parameters=(LIMIT, CURSOR),
    refusals=BAD,
    scope="pipelines:read",
)
IMPORT: Final = Doc(
    _TAG,
    "Take an exported version",
    {201: Reply("It is a version here, and not active.", PipelineVersion, headers=_MADE)},
    body=Body(dict[str, Any], description="What an export gave, unchanged."),
    refusals=_WRONG,
    scope="pipelines:write",
)
LOOK: Final = Doc(
    _TAG,
    "Look at a pipeline",
    {200: Reply("Its versions.", PipelineState)},
    refusals={**BAD, **_NONE},
    scope="pipelines:read",
)
DRAFT: Final = Doc(
    _TAG,
    "Read the draft of a pipeline",
    {200: Reply("The definition.", Pipeline)},
    refusals={**BAD, **_NO_DRAFT},
    scope="pipelines:read",
)
SAVE_DRAFT: Final = Doc(
    _TAG,
    "Save the draft of a pipeline",
    {200: Reply("It is saved, in place of the one before.", PipelineVersion)},
    "A definition need not say its name.",
    body=Body(Pipeline),
    refusals=_WRONG,
    scope="pipelines:write",
)
DISCARD_DRAFT: Final = Doc(
    _TAG,
    "Drop the draft of a pipeline",
    {204: Reply("There is none any more.")},
    refusals={**BAD, **_NO_DRAFT},
    scope="pipelines:write",
)
COMMIT: Final = Doc(
    _TAG,
    "Make a version of the draft",
    {201: Reply("The version. The same content is the same version.", PipelineVersion, headers=_MADE)},
    body=Body(CommitWish, description="May be empty."),
    refusals={**_WRONG, **_NO_DRAFT},
    scope="pipelines:write",
)
DEACTIVATE: Final = Doc(
    _TAG,
    "Let a pipeline be started no more",
    _STATED,
    "What runs goes on.",
    refusals={**BAD, **_NONE},
    scope="pipelines:write",
)
DIFF: Final = Doc(
    _TAG,
    "Compare two versions",
    {200: Reply("What changed, line by line.", str, "text/plain")},
    parameters=tuple(
        Parameter(name, f"{what}: a version, or `draft`.", is_required=True)
        for name, what in (("from", "The one before"), ("to", "The one after"))
    ),
    refusals={**BAD, **_NONE},
    scope="pipelines:read",
)
VERSION: Final = Doc(
    _TAG,
    "Read a version of a pipeline",
    {200: Reply("The definition.", Pipeline)},
    refusals={**BAD, **_NONE},
    scope="pipelines:read",
)
DELETE_VERSION: Final = Doc(
    _TAG,
    "Delete a version of a pipeline",
    {204: Reply("It is gone.")},
    refusals={**BAD, **_NONE, 409: "It is active, or transactions run it."},
    scope="pipelines:write",
)
EXPORT: Final = Doc(
    _TAG,
    "Export a version for another store",
    {200: Reply("A file.", dict[str, Any])},
    refusals={**BAD, **_NONE},
    scope="pipelines:read",
)
ACTIVATE: Final = Doc(
    _TAG,
    "Start this version from now on",
    _STATED,
    "What runs goes on with its own.",
    refusals={**BAD, **_NONE},
    scope="pipelines:write",
)
CLONE: Final = Doc(
    _TAG,
    "Make a draft of a version",
    _STATED,
    refusals={**BAD, **_NONE},
    scope="pipelines:write",
)
