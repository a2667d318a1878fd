"""The OpenAPI document of all routes, and the page for people that is made of it.

    document(routes, config)        an OpenAPI 3.1 description, as a dictionary

A route is described by its ``Doc``; those of the DSPS API by ``dsps.documents``. Routes without either are
left out. The page is one file without anything from elsewhere; its policy (CSP) lets it load nothing but
the document and call nothing but this gateway.

Rules: what is said of a route is what its handler does; ``tests/gateway/test_schemathesis.py`` holds both
together. Made once, when the worker starts.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec

from penstock.gateway.access import is_look
from penstock.gateway.config.model import GatewayConfig
from penstock.gateway.datp.documents import TAG as DATP
from penstock.gateway.datp.documents import DatpError
from penstock.gateway.dsps.documents import DOCS as DSPS_DOCS
from penstock.gateway.dsps.documents import DspsError
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import JSON, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.v1.documents import Doc, Parameter, Reply
from penstock.gateway.v1.problems import Problem, refuse
from penstock.version import __version__

_REF: Final = "#/components/schemas/{name}"
_ID: Final = {"type": "string", "pattern": "^[0-9a-z][0-9a-z_-]{0,62}$"}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 256}
_TEXT: Final = {"type": "string", "minLength": 1}
_WORD: Final = {"type": "string", "pattern": "^[A-Za-z0-9_.@:/+-]{1,128}$"}

#: What values of paths are, wherever they stand.
_PATH_VALUES: Final[dict[str, tuple[str, Mapping[str, Any]]]] = {
    "channel": ("The name of the channel.", _ID),
    "channelID": ("The name of the channel.", _ID),
    "message": ("The id of the message.", _ID),
    "messageID": ("The id of the message.", _ID),
    "subscriber": ("The name of the subscriber.", _ID),
    "subscriberID": ("The name of the subscriber.", _ID),
    "stream": ("The name of the stream, percent-encoded.", _NAME),
    "group": ("The name of the group, percent-encoded.", _NAME),
    "topic": ("The topic, percent-encoded.", _NAME),
    "webhook": ("The id of the webhook.", _TEXT),
    "delivery": ("The id of the delivery.", _TEXT),
    "token": ("The id of the token.", _TEXT),
    "transaction": ("The id of the transaction.", _TEXT),
    "txId": ("The id of the transaction.", _TEXT),
    "external_id": ("The external id of the transaction, percent-encoded.", _NAME),
    "externalId": ("The external id of the transaction, percent-encoded.", _NAME),
    "switch": ("The name of the switch, percent-encoded.", _WORD),
    "pipeline": ("The name of the pipeline, percent-encoded.", _WORD),
    "transactionType": ("The name of the pipeline, percent-encoded.", _WORD),
    "version": ("The version of the pipeline.", _TEXT),
    "schedule": ("The name of the schedule, percent-encoded.", _WORD),
    "node_group": ("The name of the node group, percent-encoded.", _WORD),
    "kind": ("What is limited.", {"type": "string", "enum": ["pipelines", "owners", "node-groups"]}),
    "name": ("The name of the pipeline, owner or node group, percent-encoded.", _WORD),
    "table": ("The name of the table.", _TEXT),
}

_TAGS: Final = {
    "channels": "Durable pub/sub: every subscriber gets every message until it says that it has it.",
    "subscriptions": "Readers of channels.",
    "streams": "Logs that are read from anywhere, by anybody, as often as they like.",
    "stream groups": "Readers that share a stream: each message goes to one of them.",
    "pubsub": "Messages for whoever listens at the moment; nothing is kept.",
    "webhooks": "Addresses that messages of channels are sent to.",
    "tokens": "Credentials of programs.",
    "transactions": "Pipelines of steps that run for milliseconds or weeks, whatever dies.",
    "pipelines": "What transactions run: drafts and versions.",
    "schedules": "Transactions that are started by time.",
    "transaction operations": "Limits, node groups, workers and numbers, for operators.",
    "overview": "Everything at one look.",
    "server": "The process that answers, and the store behind it.",
    "data pipeline": "Jobs that bring what happened into a lake, and the tables of the lake.",
    "health": "How the gateway is.",
    "about": "This document.",
    "DSPS": "The DSPS API, for its clients.",
    DATP: "The DATP API, for its clients: aliases of transactions.",
}

#: Refusals that every route of /v1 may give.
_COMMON: Final = {
    400: "The address is not percent-encoded UTF-8, or a value is not what it should be.",
    401: "A credential is needed.",
    403: "The credential is not good, or not for this.",
    429: "Too many requests; `Retry-After` tells when to come again.",
    500: "A fault here; it was logged.",
    503: "The store does not answer, or too many wait; `Retry-After` tells when to come again.",
}
#: What refusals look like where they are no problem details.
_ERRORS: Final[dict[str, tuple[str, type]]] = {
    "DSPS": ("application/json", DspsError),
    DATP: ("application/json", DatpError),
}
_TOO_LARGE: Final = {413: "The body is too large."}

#: Scopes of what is never open to everybody.
_ALWAYS: Final = frozenset({"admin", "observe", "transactions:*", "pipelines:read", "pipelines:write"})

#: Further forms of a body, and of an answer, besides the one that a ``Doc`` names.
_ALSO_TAKEN: Final = {
    ("POST", "/v1/streams/{stream}"): ("application/x-ndjson", "application/octet-stream"),
}
_ALSO_GIVEN: Final = {("GET", "/v1/streams/{stream}"): (200, "text/event-stream")}

# ------------------------------------------------------------------------- the document


def document(routes: Iterable[Route], config: GatewayConfig) -> dict[str, Any]:
    """The description of these routes."""
    described = [(route, doc) for route in routes if (doc := doc_of(route)) is not None]
    schemas = _Schemas(doc for _, doc in described)
    paths: dict[str, dict[str, Any]] = {}
    for route, doc in described:
        template = route.template.replace("...}", "}")
        paths.setdefault(template, {})[route.method.lower()] = _operation(route, doc, schemas)
    used = {doc.tag for _, doc in described}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock gateway",
            "version": __version__,
            "description": "Durable channels, streams, transactions and pub/sub over HTTP.",
        },
        "servers": [{"url": config.http.base_path or "/"}],
        "tags": [
            {"name": name, "description": _TAGS.get(name, "")}
            for name in (*_TAGS, *sorted(used - _TAGS.keys()))
            if name in used
        ],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API token (`pen_…`), a JSON Web Token, or an administrator's.",
                }
            },
        },
    }


def doc_of(route: Route) -> Doc | None:
    found = DSPS_DOCS.get((route.method, route.template)) if route.doc is None else route.doc
    assert found is None or isinstance(found, Doc)
    return found


class _Schemas:
    """JSON Schema of every type that documents name."""

    def __init__(self, docs: Iterable[Doc]) -> None:
        kinds: dict[Any, None] = {Problem: None, DspsError: None, DatpError: None}
        for doc in docs:
            for part in (doc.body, *doc.replies.values()):
                if part is not None and part.kind is not None:
                    kinds[part.kind] = None
        found, self.components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._found = dict(zip(kinds, found, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._found[kind]
        return found


def _operation(route: Route, doc: Doc, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [doc.tag],
        "operationId": _operation_id(route),
        "summary": doc.summary,
        "responses": _responses(route, doc, schemas),
    }
    description = "\n\n".join(text for text in (doc.description, _needs(route, doc)) if text)
    if description:
        operation["description"] = description
    parameters = [*_path_parameters(route.template), *map(_parameter, doc.parameters)]
    if parameters:
        operation["parameters"] = parameters
    if doc.body is not None:
        operation["requestBody"] = _request_body(route, doc, schemas)
    if doc.scope is not None:
        # A gateway without rules asks nobody; administrators and operators always need a credential.
        operation["security"] = [{"bearer": []}] if doc.scope in _ALWAYS else [{}, {"bearer": []}]
    return operation


def _needs(route: Route, doc: Doc) -> str:
    """What a credential must say, in words."""
    if doc.scope is None:
        return ""
    observers = is_look(route.method, route.template) and doc.scope != "observe"
    if doc.scope == "admin":
        return f"Only for administrators{' and the scope `observe`' if observers else ''}."
    scopes = f"the scope `{doc.scope}`{' or `observe`' if observers else ''}"
    return f"Needs {scopes}{'' if doc.scope in _ALWAYS else ' where credentials are asked for'}."


def _operation_id(route: Route) -> str:
    words = re.findall(r"[A-Za-z0-9]+", route.template)
    return "_".join([route.method.lower(), *words])


def _path_parameters(template: str) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)(?:\.\.\.)?\}", template)
    parameters = []
    for name in names:
        description, schema = _PATH_VALUES.get(name, (f"The {name}.", _TEXT))
        parameters.append(
            {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
        )
    return parameters


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.is_required,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _request_body(route: Route, doc: Doc, schemas: _Schemas) -> dict[str, Any]:
    body = doc.body
    assert body is not None
    schema = {} if body.kind is None else schemas.of(body.kind)
    found: dict[str, Any] = {"content": {body.media: {"schema": schema}}}
    for media in _ALSO_TAKEN.get((route.method, route.template), ()):
        found["content"][media] = {"schema": {"type": "string"}}
    if body.description:
        found["description"] = body.description
    if not body.description.startswith("May be empty"):
        found["required"] = True
    return found


# ------------------------------------------------------------------------- answers


def _responses(route: Route, doc: Doc, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): _response(reply, schemas) for status, reply in doc.replies.items()
    }
    if also := _ALSO_GIVEN.get((route.method, route.template)):
        status, media = also
        responses[str(status)]["content"][media] = {}
    is_dsps = doc.tag == "DSPS"
    media, kind = _ERRORS.get(doc.tag, ("application/problem+json", Problem))
    refusals = {**_COMMON, **(_TOO_LARGE if doc.body is not None else {}), **doc.refusals}
    for status, meaning in sorted(refusals.items()):
        content = {media: {"schema": schemas.of(kind)}}
        known = responses.get(str(status))
        if known is None:
            responses[str(status)] = {"description": meaning, "content": content}
        elif media not in known.get("content", {}):
            known.setdefault("content", {}).update(content)
    if is_dsps and 500 not in doc.replies:
        responses["500"] = {"description": _COMMON[500]}  # this API says nothing about its own faults
    return dict(sorted(responses.items()))


def _response(reply: Reply, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {"description": reply.description}
    if reply.headers:
        found["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in reply.headers.items()
        }
    if reply.kind is not None:
        found["content"] = {reply.media: {"schema": schemas.of(reply.kind)}}
    elif reply.media != "application/json":
        found["content"] = {reply.media: {}}
    return found


# ------------------------------------------------------------------------- routes

_DOCUMENT: Final = Doc(
    "about",
    "Read this document",
    {
        200: Reply("OpenAPI 3.1.", dict[str, Any], headers={"ETag": "Changes when the document does."}),
        304: Reply("It is what the client has."),
    },
    parameters=(Parameter("If-None-Match", "The ETag of what the client has.", place="header"),),
)
_PAGE: Final = Doc("about", "Read the page for people", {200: Reply("One page of HTML.", str, "text/html")})


class OpenApiRoutes:
    """The document of these routes and of its own, and the page."""

    def __init__(self, routes: Iterable[Route], config: GatewayConfig) -> None:
        described = document([*routes, *self.routes()], config)
        self._text = msgspec.json.encode(described)
        digest = hashlib.sha256(self._text).hexdigest()[:32]
        self._tag = f'"{digest}"'
        self._page, policy = read_page()
        self._page_headers = (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", policy.encode()),
            (b"referrer-policy", b"no-referrer"),
        )

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/openapi.json", self.document, refuse, _DOCUMENT),
            Route("GET", "/v1/docs", self.page, refuse, _PAGE),
        ]

    async def document(self, request: Request) -> Response:
        tag = (b"etag", self._tag.encode())
        if is_known(request.header(b"if-none-match"), self._tag):
            return Response(304, b"", (tag,))
        return Response(200, self._text, (JSON, tag))

    async def page(self, request: Request) -> Response:
        return Response(200, self._page, self._page_headers)


def is_known(header: str | None, tag: str) -> bool:
    """Whether ``If-None-Match`` names this tag; one that was weakened by compression counts."""
    if header is None:
        return False
    return header.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in header.split(",")]


def read_page() -> tuple[bytes, str]:
    """The page, and the policy under which its own script and style, and nothing else, may run."""
    page = files("penstock.gateway").joinpath("pages", "docs.html").read_bytes()
    scripts, styles = _hashes(page, "script"), _hashes(page, "style")
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _hashes(page: bytes, element: str) -> str:
    found = re.findall(rf"<{element}>(.*?)</{element}>".encode(), page, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(each).digest()).decode() for each in found)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
