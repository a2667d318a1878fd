"""What all requests about channels have in common: names, permission, messages as JSON, pages.

Rules: a name is checked before a rule is looked up, a rule before a credential, a credential before
anything else of the request. Contents are spliced as their publisher spelt them, never parsed. Nothing here
touches a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlencode, urlsplit

from penstock.channels.keys import is_id
from penstock.channels.model import Message
from penstock.gateway.auth.decisions import ANONYMOUS, Action, Resource
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal
from penstock.gateway.policies import Policy
from penstock.gateway.services import Services
from penstock.gateway.v1.reading import bad, whole_number

#: Messages that a follower may have unacknowledged, unless it asks for less or more.
WINDOW: Final = 1_000
MAX_WINDOW: Final = 10_000
ID_FORM: Final = "1 to 63 of the characters 0-9 a-z _ -, a digit or letter first"

#: What browsers call a request that no other site has caused.
_OWN_SITES: Final = frozenset({"same-origin", "none"})


# ------------------------------------------------------------------------- names and permission


def policy_of(services: Services, request: Request) -> Policy:
    """What holds for the channel of the path; nobody was asked for a credential yet."""
    channel = checked_id("channel", request.params["channel"])
    policy = services.rules.match(channel)
    if policy is None:
        raise Refusal(404, "channel-not-configured", f"no rule of this gateway matches channel {channel!r}")
    return policy


async def admit(
    services: Services, request: Request, action: Action, authorization: str | None = None
) -> Policy:
    """The policy of the channel, if whoever asks may do this there."""
    policy = policy_of(services, request)
    await services.access.admit(
        request, action, Resource("channel", policy.channel), policy.jwt_rules, authorization
    )
    return policy


def subscriber_of(request: Request) -> str:
    return checked_id("subscriber", request.params["subscriber"])


def checked_id(name: str, value: str) -> str:
    if not is_id(value):
        raise bad(name, ID_FORM, value)
    return value


def flag(request: Request, name: str) -> bool:
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        raise bad(name, "true or false", text)
    return text == "true"


def window_of(request: Request) -> int:
    return whole_number(request, "window", WINDOW, 1, MAX_WINDOW)


def refuse_other_sites(services: Services, request: Request) -> None:
    """Stop a page of another site from using an open gateway through its visitor's browser.

    Browsers send plain POSTs and open WebSockets without asking first, so CORS alone does not keep them out.
    Who showed a credential is no such page: browsers attach none of ours by themselves.
    """
    origin = request.header(b"origin")
    if origin is None or request.principal is not ANONYMOUS:
        return
    if request.header(b"sec-fetch-site") in _OWN_SITES:
        return
    allowed = services.config.http.cors.origins
    if "*" in allowed or origin in allowed or _host_of(origin) == request.header(b"host"):
        return
    raise Refusal(403, "origin-not-allowed", f"pages of {origin} may not do this; see http.cors.origins")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


# ------------------------------------------------------------------------- answers


def message_json(message: Message) -> bytes:
    return b'{"id":"%b","content":%b,"clock":%d}' % (message.id.encode(), message.raw, message.clock)


def messages_json(messages: Iterable[Message]) -> bytes:
    return b",".join([message_json(message) for message in messages])


def page_of(names: Sequence[str], after: str, limit: int) -> tuple[list[str], str | None]:
    """Some of sorted names, and behind which one the next page begins; None at the end."""
    behind = [name for name in names if name > after]
    page = behind[:limit]
    return page, page[-1] if len(behind) > limit else None


def next_link(request: Request, cursor: str) -> tuple[bytes, bytes]:
    """The header that leads to the next page."""
    query = urlencode({**request.query, "cursor": cursor})
    return b"link", b'<%b?%b>; rel="next"' % (request.scope["raw_path"], query.encode())


def location(request: Request, *segments: str) -> tuple[bytes, bytes]:
    """The header that names what was made: the channel of this request, and what lies below it."""
    path: bytes = request.scope["raw_path"]
    # The channel is an id, which is spelt in one way, unless somebody escaped what needs no escape.
    at = path.find(b"/v1/channels/")
    base = path[: at + len(b"/v1/channels/")] + request.params["channel"].encode()
    return b"location", b"/".join([base, *(segment.encode() for segment in segments)])
