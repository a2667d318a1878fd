"""How the DSPS API words what it says.

JSON is compact, keys in alphabetical order, one line feed at the end. An error is ``{"error":…}`` with a
``code`` where the API has one; faults of ours have no body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.gateway.http.responses import JSON, Refusal, Response

INVALID_CHANNEL: Final = "dsps.storage.invalid-channel"

#: Our codes in the words of this API; others have none.
_CODES: Final = {
    "invalid-channel": INVALID_CHANNEL,
    "receipt-malformed": "dsps.storage.ack-handle-malformed",
    "subscription-not-found": "dsps.storage.subscription-not-found",
}
_TEXTS: Final = {
    "content-malformed": "Request body is not JSON",
}


def answer(fields: Mapping[str, Any], status: int = 200) -> Response:
    return Response(status, to_json(fields))


def to_json(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode() + b"\n"


def refuse(refusal: Refusal) -> Response:
    """A refusal as this API words it."""
    headers = (JSON, *refusal.headers)
    if refusal.code.startswith("auth-") and refusal.status in (401, 403):
        return Response(403, to_json({"code": "dsps.auth.rejected", "error": "Unauthorized"}), headers)
    fields = {"error": _TEXTS.get(refusal.code, refusal.detail)}
    if refusal.code in _CODES:
        fields["code"] = _CODES[refusal.code]
    if refusal.status == 500:
        return Response(500, b"", headers)
    return Response(refusal.status, to_json(fields), headers)


def refuse_disclosing(refusal: Refusal) -> Response:
    """The same, telling why a credential was rejected."""
    if refusal.code.startswith("auth-") and refusal.status in (401, 403):
        fields = {"code": "dsps.auth.rejected", "error": "Unauthorized", "reason": refusal.detail}
        return Response(403, to_json(fields), (JSON, *refusal.headers))
    return refuse(refusal)


def refuse_admin(refusal: Refusal) -> Response:
    """Administrators are told nothing: they know, or should not."""
    if refusal.code.startswith("auth-") and refusal.status in (401, 403):
        return Response(403, to_json({"error": ""}))
    return refuse(refusal)


def invalid(name: str) -> Refusal:
    return Refusal(400, "invalid-parameter", f'Invalid "{name}" parameter')


def missing(name: str) -> Refusal:
    return Refusal(400, "missing-parameter", f'Missing "{name}" parameter')
