"""API tokens for administrators: make, list, look at, revoke. Who observes may list and look at them.

=======  ==========================  ======================================================
method   path                        answer
=======  ==========================  ======================================================
POST     ``/v1/tokens``              201, with the text that its holder sends, this once
GET      the same                    200, oldest first, by pages
GET      ``/v1/tokens/{token}``      200, what is known of it
DELETE   the same                    204; worthless everywhere from now on
=======  ==========================  ======================================================
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.auth.grants import (
    MAX_NAME_CHARS,
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    Grant,
    Role,
    grant_of,
    scopes_of,
)
from penstock.gateway.auth.tokens import MAX_PAGE, ApiToken, TokenStore
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1.channel_requests import next_link
from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply, Scope
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import DEFAULT_PAGE, cursor, read_json, to_cursor, whole_number

TOKENS: Final = "/v1/tokens"
TOKEN: Final = TOKENS + "/{token}"
_ADMIN: Final = Resource("admin")

Patterns = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=MAX_PATTERN_CHARS)]], Meta(max_length=MAX_PATTERNS)
]

# ------------------------------------------------------------------------- bodies and answers


class TokenWish(msgspec.Struct):
    """Either a role or scopes. ``viewer``: looks at everything, changes nothing; ``operator``: everything.

    ``channels`` and ``streams`` are globs; ``expires_ms`` is in milliseconds since 1970, null: never.
    ``owner``: whose transactions the token is for; empty: its name.
    """

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    role: Role | None = None
    scopes: Annotated[list[Scope], Meta(min_length=1)] | None = None
    channels: Patterns = []
    streams: Patterns = []
    owner: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@:/+-]{0,128}$")] = ""
    expires_ms: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None


class TokenState(msgspec.Struct):
    id: str
    name: str
    scopes: list[str]
    channels: list[str]
    streams: list[str]
    owner: str
    created_ms: int
    expires_ms: int | None
    #: within a minute; null: never
    used_ms: int | None


class NewToken(msgspec.Struct):
    token: TokenState
    #: what its holder sends as ``Authorization: Bearer``; shown this once
    bearer: str


class TokenPage(msgspec.Struct):
    tokens: list[TokenState]
    cursor: str | None


_NONE: Final = {400: "A value is not what it should be.", 404: "There is no such token (any more)."}
_CREATE: Final = Doc(
    "tokens",
    "Make a token",
    {201: Reply("It is made. Its text is shown this once.", NewToken, headers={"Location": "The token."})},
    "No scope includes another. A token is good for names that one of its globs matches.",
    body=Body(TokenWish),
    refusals={400: "The body does not fit, or the token would permit nothing."},
    scope="admin",
)
_LIST: Final = Doc(
    "tokens",
    "List tokens",
    {200: Reply("Oldest first.", TokenPage, headers={"Link": "The next page, if there is one."})},
    parameters=(
        Parameter(
            "limit",
            "How many at most.",
            {"type": "integer", "default": DEFAULT_PAGE, "minimum": 1, "maximum": MAX_PAGE},
        ),
        Parameter("cursor", "Where to go on: the cursor of the page before."),
    ),
    refusals={400: "A value is not what it should be."},
    scope="admin",
)
_LOOK: Final = Doc(
    "tokens", "Look at a token", {200: Reply("The token.", TokenState)}, refusals=_NONE, scope="admin"
)
_REVOKE: Final = Doc(
    "tokens",
    "Revoke a token",
    {204: Reply("It is worthless from now on.")},
    refusals=_NONE,
    scope="admin",
)

# ------------------------------------------------------------------------- routes


class TokenRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        assert services.tokens is not None, "these routes need a store of tokens"
        self._services = services
        self._tokens: TokenStore = services.tokens

    def routes(self) -> list[Route]:
        table = (
            ("POST", TOKENS, self.create, _CREATE),
            ("GET", TOKENS, self.list, _LIST),
            ("GET", TOKEN, self.look, _LOOK),
            ("DELETE", TOKEN, self.revoke, _REVOKE),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    async def create(self, request: Request) -> Response:
        await self._admit(request)
        wish = await read_json(request, TokenWish)
        grant = _wished(wish)
        made = await self._tokens.create(
            grant.name,
            grant.scopes,
            channels=grant.channels,
            streams=grant.streams,
            owner=grant.owner,
            expires_ms=wish.expires_ms,
        )
        path: bytes = request.scope["raw_path"]
        location = (b"location", path.rstrip(b"/") + b"/" + made.token.id.encode())
        return answer(NewToken(_state(made.token), made.bearer), 201, [location])

    async def list(self, request: Request) -> Response:
        await self._admit(request)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        page = await self._tokens.list(cursor(request, str, "") or None, limit)
        following = None if page.cursor is None else to_cursor(page.cursor)
        headers = [next_link(request, following)] if following else ()
        return answer(TokenPage([_state(token) for token in page.tokens], following), headers=headers)

    async def look(self, request: Request) -> Response:
        await self._admit(request)
        token = await self._tokens.get(request.params["token"])
        if token is None:
            raise _not_found()
        return answer(_state(token))

    async def revoke(self, request: Request) -> Response:
        await self._admit(request)
        if not await self._tokens.revoke(request.params["token"]):
            raise _not_found()
        return Response(204, b"", ())

    async def _admit(self, request: Request) -> None:
        await self._services.access.admit(request, Action.ADMIN, _ADMIN)


def _wished(wish: TokenWish) -> Grant:
    if wish.role is None:
        if wish.scopes is None:
            raise _bad_wish("scopes", "give scopes, or a role: viewer or operator")
        scopes = scopes_of(wish.scopes)
        return Grant(wish.name, scopes, tuple(wish.channels), tuple(wish.streams), wish.owner)
    for name in ("scopes", "channels", "streams"):
        if getattr(wish, name):
            raise _bad_wish(name, f"must be left out: the role {wish.role} says it all")
    return grant_of(wish.role, wish.name, wish.owner)


def _bad_wish(name: str, detail: str) -> Refusal:
    errors = [{"name": name, "detail": detail}]
    return Refusal(400, "invalid-body", f"{name}: {detail}", errors=errors)


def _state(token: ApiToken) -> TokenState:
    return TokenState(
        id=token.id,
        name=token.grant.name,
        scopes=sorted(token.grant.scopes),
        channels=[*token.grant.channels],
        streams=[*token.grant.streams],
        owner=token.grant.owner,
        created_ms=token.created_ms,
        expires_ms=token.expires_ms,
        used_ms=token.used_ms,
    )


def _not_found() -> Refusal:
    return Refusal(404, "token-not-found", "there is no such token (any more)")
