"""Owners of transactions: whom a credential stands for, and who stands for all of them.

======================  ==========================================  =======================================
credential              owner                                       may
======================  ==========================================  =======================================
administrators' bearer  any that the request names                  everything
API token               its ``owner``, else its name                what its scopes say; ``transactions:*``
                                                                    makes an operator, and so does ``admin``
                                                                    inside the networks of administrators;
                                                                    ``observe`` looks at those of all owners
JWT                     its claim ``owner``, else ``sub``           what its claim ``scope`` says; without one
                                                                    of ours, all that concerns its owner alone
none                    ``default``                                 likewise, where no credential is needed
======================  ==========================================  =======================================

Rules: pure. Two subjects never become the same owner (:func:`owner_name`). What a configuration calls an
owner is taken as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.gateway.auth.decisions import ANONYMOUS, Action, AuthRejected, Principal, Rejection

#: Of those who show no credential; also of programs that name none.
DEFAULT_OWNER: Final = "default"
#: What somebody may do to what is theirs; everything else needs a credential, on an open gateway, too.
OWN_ACTIONS: Final = frozenset({Action.START, Action.LOOK, Action.CONTROL})

#: What operators may do.
OPERATIONS: Final = OWN_ACTIONS | {Action.OPERATE, Action.READ_PIPELINES, Action.WRITE_PIPELINES}

_OURS: Final = OPERATIONS | {Action.OBSERVE}
_MAX_CHARS: Final = 128
_OWNER: Final = re.compile(r"[A-Za-z0-9_.@:/+-]{1,128}")
#: What stays as it is. Not the plus sign: it begins an escape.
_PLAIN: Final = re.compile(rb"[A-Za-z0-9_.@:/-]")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks about transactions."""

    principal: Principal
    owner: str
    #: sees the transactions of all owners, and may name one
    is_operator: bool = False
    #: likewise, and changes nothing
    is_observer: bool = False

    @property
    def sees_all(self) -> bool:
        return self.is_operator or self.is_observer


#: Whoever shows no credential where none is needed.
ANYBODY: Final = Caller(ANONYMOUS, DEFAULT_OWNER)


def is_owner(text: str) -> bool:
    return _OWNER.fullmatch(text) is not None


def owner_name(subject: str) -> str:
    """The owner of a subject. Bytes that owners cannot have, and the plus sign, become ``+`` and two digits.

    A long one becomes its hash, in a form that no other subject has.
    """
    text = subject.encode("utf-8", "surrogatepass")
    spelt = "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f"+{byte:02X}" for byte in text)
    if len(spelt) <= _MAX_CHARS:
        return spelt
    return f"+sha256.{hashlib.sha256(text).hexdigest()}"


def jwt_caller(principal: Principal, action: Action, is_look: bool = False) -> Caller:
    """Whom a JWT that passed its rules stands for, if that may do this."""
    scopes = scopes_in(principal.claims)
    is_operator = Action.OPERATE in scopes
    is_observer = is_look and not is_operator and Action.OBSERVE in scopes
    allowed: Iterable[Action] = scopes or OWN_ACTIONS
    if action not in allowed and not is_operator and not is_observer:
        raise AuthRejected(f"the token does not grant {action}", Rejection.FORBIDDEN)
    for claim in ("owner", "sub"):
        subject = principal.claims.get(claim)
        if isinstance(subject, str) and subject:
            return Caller(principal, owner_name(subject), is_operator, is_observer)
    if is_observer:
        return Caller(principal, DEFAULT_OWNER, is_observer=True)  # looking needs no owner
    raise AuthRejected("the token names no owner: it has neither owner nor sub", Rejection.FORBIDDEN)


def scopes_in(claims: Mapping[str, Any]) -> frozenset[Action]:
    """Scopes of ours that a JWT has: words of its claim ``scope``, or a list of them."""
    said = claims.get("scope")
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else ()
    return frozenset(action for action in _OURS if action in words)
