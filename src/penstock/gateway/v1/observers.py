"""Who may see what the console shows: figures of the whole store, its jobs and its lake.

One place, so that every route asks for the same. Nothing here knows what is shown.
"""

from __future__ import annotations

from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.http.requests import Request
from penstock.gateway.services import Services


async def admit_observer(services: Services, request: Request) -> None:
    """Let in whoever may look at everything; refuse all others."""
    await services.access.admit(request, Action.OBSERVE, Resource("admin"))
