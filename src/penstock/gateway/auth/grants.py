"""What an API token permits, and tokens that a configuration lists.

A grant is a set of scopes and of name patterns. An action needs its scope, and a pattern that matches the
name: channel patterns for channels and pub/sub, stream patterns for streams; the administration has no name
to match. No scope includes another: an administrator's token cannot publish unless it says so. Transactions
belong to owners, so their scopes have no patterns: a token stands for one owner, ``transactions:*`` for all.
``observe`` is for looking at everything, and has no patterns either; see ``gatekeeper``.

A role is a name for a grant that people want: ``viewer`` looks at everything and changes nothing,
``operator`` may do everything.

Patterns are globs over whole names: ``*``, ``?``, ``[abc]``, ``[!abc]``; ``*`` stops at nothing.

Rules: pure. Secrets are compared by their SHA-256, in constant time. It must not know stores or time.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from penstock.errors import ConfigError
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.auth.owners import is_owner

MAX_NAME_CHARS: Final = 200
MAX_PATTERN_CHARS: Final = 200
MAX_PATTERNS: Final = 64
MIN_STATIC_SECRET_CHARS: Final = 16

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: Scopes that hold only where a pattern matches.
_BY_NAME: Final = frozenset({Action.PUBLISH, Action.SUBSCRIBE, Action.READ})
#: What can stand in a header after ``Bearer``.
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Grant:
    """Who holds the token, and what it permits."""

    name: str
    scopes: frozenset[Action]
    channels: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    #: whose transactions; empty: the name of the token is the owner's, see ``owners``
    owner: str = ""

    def allows(self, action: Action, resource: Resource) -> bool:
        """Whether the action on this resource is among what is permitted."""
        if resource.kind == "transaction":
            return action in self.scopes or Action.OPERATE in self.scopes
        if action not in self.scopes:
            return False
        if resource.kind == "admin":
            return Action.ADMIN in self.scopes
        patterns = self.streams if resource.kind == "stream" else self.channels
        return any(_compiled(pattern).match(resource.name) is not None for pattern in patterns)


Role: TypeAlias = Literal["viewer", "operator"]

_ROLES: Final[Mapping[Role, Grant]] = {
    "viewer": Grant("viewer", frozenset({Action.OBSERVE})),
    "operator": Grant("operator", frozenset(Action), ("*",), ("*",)),
}


def grant_of(role: Role, name: str, owner: str = "") -> Grant:
    """What a role permits, for a holder of this name."""
    return replace(_ROLES[role], name=name, owner=owner)


def problem_of(grant: Grant) -> str | None:
    """Why a grant makes no sense, as one sentence; None if it does."""
    if not 0 < len(grant.name) <= MAX_NAME_CHARS or not grant.name.isprintable():
        return f"name must be 1 to {MAX_NAME_CHARS} printable characters"
    if not grant.scopes:
        return f"scopes is empty; give one or more of {', '.join(Action)}"
    for argument, patterns in (("channels", grant.channels), ("streams", grant.streams)):
        if len(patterns) > MAX_PATTERNS:
            return f"{argument} has {len(patterns)} patterns; give {MAX_PATTERNS} at most"
        for pattern in patterns:
            if not 0 < len(pattern) <= MAX_PATTERN_CHARS or not pattern.isprintable():
                return f"{argument}: a pattern must be 1 to {MAX_PATTERN_CHARS} printable characters"
    if grant.owner and not is_owner(grant.owner):
        return "owner must be 1 to 128 letters, digits or any of _ . @ : / + -"
    if grant.scopes & _BY_NAME and not (grant.channels or grant.streams):
        return "channels and streams are both empty, so nothing would match; give a pattern, or '*' for all"
    return None


def scopes_of(words: Iterable[str]) -> frozenset[Action]:
    """Scopes from their names; ``ValueError`` names the one that is none."""
    return frozenset(Action(word) for word in words)


class StaticToken:
    """A token that a configuration lists: its text, or the SHA-256 of it in hex."""

    __slots__ = ("digest", "grant")

    def __init__(self, grant: Grant, *, secret: str | None = None, sha256: str | None = None) -> None:
        problem = problem_of(grant)
        if problem is not None:
            raise ConfigError(f"tokens: {problem}")
        if (secret is None) == (sha256 is None):
            raise ConfigError(f"tokens: {grant.name!r} needs either secret or sha256")
        self.grant = grant
        if secret is not None:
            if len(secret) < MIN_STATIC_SECRET_CHARS or _VISIBLE.fullmatch(secret) is None:
                raise ConfigError(
                    f"tokens: the secret of {grant.name!r} must be {MIN_STATIC_SECRET_CHARS} or more visible "
                    "ASCII characters without spaces"
                )
            self.digest = digest_of(secret)
        else:
            if _SHA256.fullmatch((sha256 or "").lower()) is None:
                raise ConfigError(f"tokens: the sha256 of {grant.name!r} must be 64 hexadecimal digits")
            self.digest = (sha256 or "").lower()

    def __repr__(self) -> str:
        return f"<StaticToken {self.grant.name!r}>"


class StaticTokens:
    """The tokens of a configuration by their digests."""

    __slots__ = ("_grants",)

    def __init__(self, tokens: Iterable[StaticToken] = ()) -> None:
        self._grants: dict[str, Grant] = {}
        for token in tokens:
            if token.digest in self._grants:
                raise ConfigError(f"tokens: {token.grant.name!r} has the secret of another token")
            self._grants[token.digest] = token.grant

    def find(self, bearer: str) -> Grant | None:
        """The grant of this token, None if it is not listed."""
        # Looking up a digest tells nothing about secrets: nobody can steer SHA-256 towards a neighbour.
        return self._grants.get(digest_of(bearer)) if self._grants else None

    def __len__(self) -> int:
        return len(self._grants)


def digest_of(secret: str) -> str:
    """What is kept of a secret. Secrets are long and random, so a plain hash cannot be reversed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def is_secret_of(secret: str, digest: str) -> bool:
    """Whether this is the secret; takes the same time whichever it is."""
    return hmac.compare_digest(digest_of(secret).encode(), digest.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
