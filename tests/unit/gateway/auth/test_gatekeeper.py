"""Who gets in where, over stores that are real and embedded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.clock import ManualClock
from penstock.errors import ConfigError
from penstock.gateway.auth import (
    ANONYMOUS,
    Action,
    AdminAccess,
    AuthRejected,
    Gatekeeper,
    Grant,
    JwtRule,
    Networks,
    Rejection,
    Resource,
    Revocations,
    StaticToken,
    StaticTokens,
    TokenStore,
    bearer_of,
)
from tests.unit.gateway.auth.signing import ISSUER, NOW_S, OTHER_SECRET, SECRET, sign

LOBBY = Resource("channel", "lobby")
ADMINISTRATION = Resource("admin")
RULE = JwtRule([ISSUER], [], {"HS256": [SECRET]}, {"room": "lobby"}, leeway_s=0)
INSIDE, OUTSIDE = "10.1.2.3", "8.8.8.8"
STATIC = "the-static-token-of-the-reader"
FAR_S = 4_000_000_000

Make = Callable[..., Gatekeeper]


@pytest.fixture
async def ps(tmp_path: Path) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(f"embedded:{tmp_path / 'store.pen'}?durability=relaxed") as client:
        yield client


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S * 1000)


@pytest.fixture
def make(ps: penstock.Penstock, clock: ManualClock) -> Make:
    def make(**changes: Any) -> Gatekeeper:
        reader = Grant("reader", frozenset({Action.SUBSCRIBE, Action.READ}), ("lobby",))
        settings = {
            "admin": AdminAccess(bearers=["the administrators' bearer", "another one"]),
            "revocations": Revocations(ps),
            "tokens": TokenStore(ps, clock),
            "static_tokens": StaticTokens([StaticToken(reader, secret=STATIC)]),
            "clock": clock,
        }
        return Gatekeeper(**(settings | changes))

    return make


def jwt_for(room: str = "lobby", secret: bytes = SECRET, **more: Any) -> str:
    return sign({"iss": ISSUER, "room": room, **more}, key=secret)


async def refusal(gate: Gatekeeper, *arguments: Any) -> AuthRejected:
    with pytest.raises(AuthRejected) as refused:
        await gate.admit(*arguments)
    return refused.value


# ------------------------------------------------------------------ channels with rules


@pytest.mark.parametrize("action", [Action.PUBLISH, Action.SUBSCRIBE, Action.READ])
async def test_a_jwt_opens_its_channel(make: Make, action: Action) -> None:
    token = jwt_for(sub="ada", jti="t1")
    who = await make().admit(token, OUTSIDE, action, LOBBY, [RULE])
    assert (who.kind, who.name, who.claims["jti"]) == ("jwt", "ada", "t1")


async def test_names_of_jwt_holders(make: Make) -> None:
    for said, name in (({"sub": "s", "jti": "j"}, "s"), ({"sub": 5, "jti": "j"}, "j"), ({"sub": ""}, ISSUER)):
        assert (await make().admit(jwt_for(**said), OUTSIDE, Action.READ, LOBBY, [RULE])).name == name


async def test_what_does_not_open_a_channel_with_rules(make: Make) -> None:
    gate = make()
    for bearer, kind in (
        (None, Rejection.MISSING),
        ("", Rejection.INVALID),
        ("opaque", Rejection.INVALID),
        (jwt_for("attic"), Rejection.INVALID),
        (jwt_for(secret=OTHER_SECRET), Rejection.INVALID),
        (jwt_for(exp=NOW_S), Rejection.INVALID),
        ("the administrators' bearer", Rejection.INVALID),
        ("pen_nonsense", Rejection.INVALID),
    ):
        refused = await refusal(gate, bearer, INSIDE, Action.SUBSCRIBE, LOBBY, [RULE])
        assert refused.kind is kind, bearer


async def test_the_clock_is_the_gatekeepers(make: Make, clock: ManualClock) -> None:
    gate, token = make(), jwt_for(exp=NOW_S + 1)
    await gate.admit(token, OUTSIDE, Action.READ, LOBBY, [RULE])
    clock.advance_ms(999)
    await gate.admit(token, OUTSIDE, Action.READ, LOBBY, [RULE])
    clock.advance_ms(1)
    assert "expired" in (await refusal(gate, token, OUTSIDE, Action.READ, LOBBY, [RULE])).reason


async def test_revoked_means_revoked_though_it_was_verified_before(make: Make, ps: penstock.Penstock) -> None:
    one, other = make(), make()
    token = jwt_for(jti="t1", exp=FAR_S)
    for gate in (one, other):
        await gate.admit(token, OUTSIDE, Action.READ, LOBBY, [RULE])
    await Revocations(ps).revoke("t1", FAR_S)
    for gate in (one, other):
        assert "revoked" in (await refusal(gate, token, OUTSIDE, Action.READ, LOBBY, [RULE])).reason
    await one.admit(jwt_for(jti="t2"), OUTSIDE, Action.READ, LOBBY, [RULE])


async def test_an_api_token_opens_a_channel_with_rules(make: Make, ps: penstock.Penstock) -> None:
    gate = make()
    new = await TokenStore(ps).create("worker", ["publish"], channels=["lob*"])
    who = await gate.admit(new.bearer, OUTSIDE, Action.PUBLISH, LOBBY, [RULE])
    assert (who.kind, who.name, who.claims["id"]) == ("token", "worker", new.token.id)
    for action, resource in (
        (Action.SUBSCRIBE, LOBBY),
        (Action.PUBLISH, Resource("channel", "attic")),
        (Action.PUBLISH, Resource("stream", "lobby")),
    ):
        refused = await refusal(gate, new.bearer, OUTSIDE, action, resource, [RULE])
        assert refused.kind is Rejection.FORBIDDEN
    await TokenStore(ps).revoke(new.token.id)
    refused = await refusal(gate, new.bearer, OUTSIDE, Action.PUBLISH, LOBBY, [RULE])
    assert refused.kind is Rejection.INVALID


async def test_a_static_token_opens_what_it_grants(make: Make) -> None:
    gate = make()
    who = await gate.admit(STATIC, OUTSIDE, Action.SUBSCRIBE, LOBBY, [RULE])
    assert (who.kind, who.name, who.claims["id"]) == ("token", "reader", None)
    refused = await refusal(gate, STATIC, OUTSIDE, Action.PUBLISH, LOBBY, [RULE])
    assert refused.kind is Rejection.FORBIDDEN


# --------------------------------------------------------------- channels without rules


@pytest.mark.parametrize("kind", ["channel", "stream", "pubsub"])
async def test_without_rules_everybody_may(make: Make, kind: Any) -> None:
    for bearer in (None, "opaque", jwt_for("attic"), jwt_for(secret=OTHER_SECRET, exp=1), "a.b.c"):
        assert await make().admit(bearer, OUTSIDE, Action.PUBLISH, Resource(kind, "x")) is ANONYMOUS


async def test_without_rules_revoked_tokens_are_refused_still(make: Make, ps: penstock.Penstock) -> None:
    gate, open_channel = make(), Resource("channel", "open")
    await Revocations(ps).revoke("t1", FAR_S)
    # Nobody verifies it here, but that it was revoked is known.
    refused = await refusal(gate, jwt_for(jti="t1"), OUTSIDE, Action.PUBLISH, open_channel)
    assert "revoked" in refused.reason
    new = await TokenStore(ps).create("worker", ["read"], streams=["*"])
    who = await gate.admit(new.bearer, OUTSIDE, Action.PUBLISH, open_channel)
    assert who.name == "worker"  # everybody may, so a token for something else may as well
    await TokenStore(ps).revoke(new.token.id)
    assert (await refusal(gate, new.bearer, OUTSIDE, Action.PUBLISH, open_channel)).kind is Rejection.INVALID


async def test_where_tokens_are_required(make: Make, ps: penstock.Penstock) -> None:
    gate, stream = make(require_tokens=True), Resource("stream", "orders")
    assert (await refusal(gate, None, OUTSIDE, Action.READ, stream)).kind is Rejection.MISSING
    for bearer in ("opaque", jwt_for()):  # without a rule no JWT can be verified
        assert (await refusal(gate, bearer, OUTSIDE, Action.READ, stream)).kind is Rejection.INVALID
    assert (await refusal(gate, STATIC, OUTSIDE, Action.READ, stream)).kind is Rejection.FORBIDDEN
    new = await TokenStore(ps).create("worker", ["read"], streams=["orders"])
    assert (await gate.admit(new.bearer, OUTSIDE, Action.READ, stream)).name == "worker"
    assert (await gate.admit(jwt_for(), OUTSIDE, Action.READ, LOBBY, [RULE])).kind == "jwt"


# ----------------------------------------------------------------------- administration


async def test_administrators_need_address_and_bearer(make: Make) -> None:
    gate = make()
    for bearer in ("the administrators' bearer", "another one"):
        assert (await gate.admit(bearer, INSIDE, Action.ADMIN, ADMINISTRATION)).kind == "admin"
        for address in (OUTSIDE, "unknown", ""):
            refused = await refusal(gate, bearer, address, Action.ADMIN, ADMINISTRATION)
            assert refused.kind is Rejection.FORBIDDEN
    assert (await refusal(gate, None, INSIDE, Action.ADMIN, ADMINISTRATION)).kind is Rejection.MISSING
    for bearer in ("", "the administrators' bearer ", "The administrators' bearer", jwt_for(), "pen_x"):
        refused = await refusal(gate, bearer, INSIDE, Action.ADMIN, ADMINISTRATION)
        assert refused.kind is Rejection.INVALID, bearer


async def test_administration_is_not_opened_by_rules_or_by_openness(make: Make) -> None:
    gate = make()
    for action, resource in (
        (Action.ADMIN, LOBBY),
        (Action.READ, ADMINISTRATION),
        (Action.PUBLISH, ADMINISTRATION),
    ):
        await refusal(gate, jwt_for(), INSIDE, action, resource, [RULE])
        await refusal(gate, None, INSIDE, action, resource)
        await refusal(gate, STATIC, INSIDE, action, resource)
        assert (await gate.admit("another one", INSIDE, action, resource)).kind == "admin"


async def test_api_tokens_of_administrators(make: Make, ps: penstock.Penstock) -> None:
    gate = make(admin=AdminAccess(Networks(["8.8.8.0/24"])))
    new = await TokenStore(ps).create("operator", ["admin"])
    for action in (Action.ADMIN, Action.READ):
        assert (await gate.admit(new.bearer, OUTSIDE, action, ADMINISTRATION)).name == "operator"
    assert (await refusal(gate, new.bearer, INSIDE, Action.ADMIN, ADMINISTRATION)).kind is Rejection.FORBIDDEN
    # Without bearers, no text is an administrator's.
    assert (await refusal(gate, "", OUTSIDE, Action.ADMIN, ADMINISTRATION)).kind is Rejection.INVALID
    other = await TokenStore(ps).create("worker", ["publish", "subscribe", "read"], channels=["*"])
    refused = await refusal(gate, other.bearer, OUTSIDE, Action.ADMIN, ADMINISTRATION)
    assert refused.kind is Rejection.FORBIDDEN
    refused = await refusal(gate, other.bearer, OUTSIDE, Action.READ, ADMINISTRATION)
    assert refused.kind is Rejection.FORBIDDEN


def test_empty_bearers_are_refused() -> None:
    for bearers in ([""], ["good one", ""], "text"):
        with pytest.raises(ConfigError, match="bearers"):
            AdminAccess(bearers=bearers)


# ------------------------------------------------------------------------------- faults


async def test_a_lookup_that_fails_rejects(make: Make, ps: penstock.Penstock) -> None:
    gate = make()
    new = await TokenStore(ps).create("worker", ["publish", "admin"], channels=["*"])
    await ps.close()
    for bearer, rules in (
        (jwt_for(jti="t"), [RULE]),
        (jwt_for(jti="t"), []),
        (new.bearer, [RULE]),
        (new.bearer, []),
    ):
        refused = await refusal(gate, bearer, OUTSIDE, Action.PUBLISH, LOBBY, rules)
        assert refused.kind is Rejection.UNAVAILABLE
    assert (await refusal(gate, new.bearer, INSIDE, Action.ADMIN, LOBBY)).kind is Rejection.UNAVAILABLE
    # What needs no lookup needs no store.
    await gate.admit(jwt_for(), OUTSIDE, Action.PUBLISH, LOBBY, [RULE])
    await gate.admit(STATIC, OUTSIDE, Action.READ, LOBBY, [RULE])
    await gate.admit("another one", INSIDE, Action.ADMIN, ADMINISTRATION)


async def test_without_stores(make: Make) -> None:
    gate = make(revocations=None, tokens=None)
    await gate.admit(jwt_for(jti="t"), OUTSIDE, Action.PUBLISH, LOBBY, [RULE])
    unknown = f"pen_{'0' * 28}_{'0' * 64}"
    assert (await refusal(gate, unknown, OUTSIDE, Action.PUBLISH, LOBBY)).kind is Rejection.INVALID


# ------------------------------------------------------------------------------- header


@pytest.mark.parametrize(
    ("header", "bearer"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("BEARER   abc  ", "abc"),
        ("Bearer a.b-c_d~e+f/g==", "a.b-c_d~e+f/g=="),
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("Bearer\tabc", None),
        ("Bearerabc", None),
        ("Basic abc", None),
        ("Bearer a b", None),
        ("Bearer a, Bearer b", None),
        (" Bearer abc", None),
        ("Bearer äbc", None),
        ("Bearer abc\n", None),
    ],
)
def test_header(header: str | None, bearer: str | None) -> None:
    assert bearer_of(header) == bearer
