"""Names of things, page by page, as far as the caller may read them. The same for channels and streams.

Whether a name may be shown is asked name by name, so that a token for some of them lists those.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.gateway.auth.decisions import Action, AuthRejected, Rejection, Resource, ResourceKind
from penstock.gateway.auth.jwt import JwtRule
from penstock.gateway.http.requests import Request
from penstock.gateway.services import Services
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE, bad, cursor, to_cursor, whole_number

_MAX_GLOB_CHARS: Final = 200


async def list_names(
    request: Request,
    find_names: Callable[[], Awaitable[Sequence[str]]],
    may_read: Callable[[str], Awaitable[bool]],
) -> tuple[list[str], str | None]:
    """A page of sorted names by ``limit``, ``cursor`` and ``match``, and the cursor of the next one."""
    limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
    after = cursor(request, str, "")
    glob = _glob(request)
    page: list[str] = []
    for name in await find_names():
        if name <= after or glob.match(name) is None or not await may_read(name):
            continue
        if len(page) == limit:
            return page, to_cursor(page[-1])
        page.append(name)
    return page, None


async def refuse_strangers(services: Services, request: Request, kind: ResourceKind) -> None:
    """Before the store is searched. Who may read some names may list those."""
    try:
        await services.access.admit(request, Action.READ, Resource(kind, "*"))
    except AuthRejected as error:
        if error.kind is not Rejection.FORBIDDEN:
            raise


async def may_read(
    services: Services, request: Request, resource: Resource, rules: Sequence[JwtRule] = ()
) -> bool:
    """Whether this one may be shown; raises if that could not be found out."""
    try:
        await services.access.admit(request, Action.READ, resource, rules)
    except AuthRejected as error:
        if error.kind is Rejection.UNAVAILABLE:
            raise
        return False
    return True


def _glob(request: Request) -> re.Pattern[str]:
    text = request.query.get("match", "*")
    if len(text) > _MAX_GLOB_CHARS:
        raise bad("match", f"at most {_MAX_GLOB_CHARS} characters", text)
    return re.compile(fnmatch.translate(text))
