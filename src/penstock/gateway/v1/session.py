"""Who asks, and what they may do: for pages that leave out what would be refused.

=======  ==================  =====================================================================
method   path                answer
=======  ==================  =====================================================================
GET      ``/v1/session``     200 for everybody; 403 for who shows a credential that is bad
=======  ==================  =====================================================================

``may`` has a yes or no for every scope, and for ``operate``: everything that operators do. Of channels and
streams a yes means that there are some; the gateway asks again for each.

Rules: what is said here is what the gatekeeper decides; nothing is decided here. A JWT is judged by the rules
of transactions, since those of channels need a channel.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.gateway.auth.decisions import Action, PrincipalKind
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1.documents import Doc, Reply
from penstock.gateway.v1.problems import answer, refuse


class Session(msgspec.Struct):
    name: str
    kind: PrincipalKind
    #: by the names of scopes; ``operate``: admin, transactions:* and pipelines:write together
    may: dict[str, bool]


_SESSION: Final = Doc(
    "tokens",
    "Ask who you are and what you may do",
    {200: Reply("Somebody, or `anonymous`.", Session)},
    "`may` has every scope, and `operate` for those who may do all that operators do. A JSON Web Token is "
    "judged by `transactions.jwt`.",
)


class SessionRoutes:
    """The handler of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/session", self.look, refuse, _SESSION)]

    async def look(self, request: Request) -> Response:
        standing = await self._services.access.standing(request)
        may = {str(action): action in standing.may for action in Action}
        found = Session(
            name=standing.principal.name,
            kind=standing.principal.kind,
            may={"operate": standing.may_operate, **may},
        )
        return answer(found)
