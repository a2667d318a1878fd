"""What operators and orchestrators call: probes, revocation of tokens, levels of the log.

=======  ========================  =========================================================
method   path                      answer
=======  ========================  =========================================================
GET      ``/probe/liveness``       200 while the process answers
GET      ``/probe/readiness``      200 while it can work: storages answer and it is not stopping
PUT      ``/admin/jwt/revoke``     200, ``exp`` with the largest leeway of any channel added
PUT      ``/admin/log/level``      204
=======  ========================  =========================================================
"""

from __future__ import annotations

from typing import Final

from penstock.errors import PenstockError
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.dsps.answers import answer, invalid, missing, refuse, refuse_admin
from penstock.gateway.failures import unavailable
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.observing.logs import LEVELS
from penstock.gateway.services import Services

_ADMIN: Final = Resource("admin")
_NO_CONTENT: Final = Response(204, b"", ())
_INT64: Final = 2**63


class Operating:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/probe/liveness", self.liveness, refuse),
            Route("GET", "/probe/readiness", self.readiness, refuse),
            Route("PUT", "/admin/jwt/revoke", self.revoke, refuse_admin),
            Route("PUT", "/admin/log/level", self.log_level, refuse_admin),
        ]

    async def liveness(self, request: Request) -> Response:
        names = dict.fromkeys(self._services.config.storages, "ok")
        return answer({"storage": {"children": names}})

    async def readiness(self, request: Request) -> Response:
        life = self._services.life
        if life.is_stopping or not life.is_ready:
            return answer({"storage": {}}, 503)
        try:
            return answer({"storage": {"children": await self._services.channels.probe()}})
        except PenstockError as error:
            return answer({"error": str(error), "storage": {}}, 500)

    async def revoke(self, request: Request) -> Response:
        await self._services.access.admit(request, Action.ADMIN, _ADMIN)
        jti = request.query.get("jti")
        if not jti:
            raise missing("jti")
        exp_s = min(_int64(request, "exp") + self._services.rules.max_leeway_s, _INT64 - 1)
        if self._services.revocations is None:
            raise Refusal(501, "no-jwt-storage", "No JWT compatible storage available.")
        outcome = await self._services.revocations.revoke(jti, exp_s)
        asked = outcome.stored + len(outcome.failures)  # storages may be switched off for this
        if outcome.stored < min(self._services.config.quorum_size, asked):
            raise unavailable("too few storages know of the revocation; repeat it")
        return answer({"exp": exp_s, "jti": jti})

    async def log_level(self, request: Request) -> Response:
        await self._services.access.admit(request, Action.ADMIN, _ADMIN)
        category = request.query.get("category")
        if not category:
            raise missing("category")
        level = request.query.get("level", "").upper()
        if level not in LEVELS:
            raise invalid("level")
        await self._services.set_log_level(category, level)
        return _NO_CONTENT


def _int64(request: Request, name: str) -> int:
    text = request.query.get(name, "")
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        raise invalid(name)
    number = int(text)
    if not -_INT64 <= number < _INT64:
        raise invalid(name)
    return number
