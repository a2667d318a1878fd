"""Revocations and API tokens where they are kept: embedded, on a server, on a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.clock import ManualClock, SystemClock
from penstock.errors import ConfigError, PenstockError, UsageError
from penstock.gateway.auth import Action, AuthRejected, Rejection, Revocations, TokenStore
from penstock.testing.servers import RealServer, find_server
from tests import places

PLACES = ("embedded", "valkey", "redis", "cached-valkey", "cluster")
HOUR_S = 3600


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "cached-valkey":
        return f"{places.url_of('valkey', request)}?client_cache_entries=100"
    return places.url_of(request.param, request)


@pytest.fixture
async def two(url: str) -> AsyncIterator[tuple[penstock.Penstock, penstock.Penstock]]:
    """Two workers on one store."""
    async with penstock.open(url) as one, penstock.open(url) as other:
        yield one, other


@pytest.fixture
def ps(two: tuple[penstock.Penstock, penstock.Penstock]) -> penstock.Penstock:
    return two[0]


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[penstock.Penstock]]:
    """Three stores of their own."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(penstock.open(f"embedded:{tmp_path / name}?durability=relaxed"))
            for name in ("a.pen", "b.pen", "c.pen")
        ]


def now_s() -> int:
    return SystemClock().now_ms() // 1000


# -------------------------------------------------------------------------- revocations


async def test_revoking(two: tuple[penstock.Penstock, penstock.Penstock]) -> None:
    one, other = (Revocations(client) for client in two)
    exp_s = now_s() + HOUR_S
    for revocations in (one, other):
        assert not await revocations.is_revoked("t1")
    outcome = await one.revoke("t1", exp_s)
    assert (outcome.stored, outcome.failures) == (1, ())
    for revocations in (one, other):  # at once, on every worker
        assert await revocations.is_revoked("t1")
        assert not await revocations.is_revoked("t2")
    assert await two[0].get("jwt.{t1}.revoke") == str(exp_s).encode()
    assert await two[0].expiretime("jwt.{t1}.revoke") == exp_s


async def test_lookups_pass_a_cache_by(valkey_server: RealServer) -> None:
    async with penstock.open(f"{valkey_server.url}?client_cache_entries=100") as ps:
        revocations = Revocations(ps)
        await ps.get("jwt.{t1}.revoke")
        before = ps.statistics()["cache"]
        for _ in range(3):
            assert not await revocations.is_revoked("t1")
        assert ps.statistics()["cache"] == before
        await ps.get("jwt.{t1}.revoke")
        assert ps.statistics()["cache"] != before  # it does count, if it is asked


async def test_what_has_expired_is_not_revoked(ps: penstock.Penstock) -> None:
    revocations = Revocations(ps)
    for exp_s in (now_s() - 600, now_s(), 0, -1, -(2**63)):
        assert (await revocations.revoke("t1", exp_s)).stored == 1
        assert not await revocations.is_revoked("t1")


async def test_revoking_again_never_shortens(ps: penstock.Penstock) -> None:
    revocations = Revocations(ps)
    first_s = now_s() + HOUR_S
    for exp_s, kept_s in (
        (first_s, first_s),
        (first_s - 60, first_s),
        (1, first_s),
        (first_s + 60, first_s + 60),
    ):
        await revocations.revoke("t1", exp_s)
        assert await ps.get("jwt.{t1}.revoke") == str(kept_s).encode()
        assert await ps.expiretime("jwt.{t1}.revoke") == kept_s
    await ps.persist("jwt.{t1}.revoke")
    await revocations.revoke("t1", first_s)
    assert await ps.ttl("jwt.{t1}.revoke") == -1


@pytest.mark.parametrize("url", ["embedded", "valkey"], indirect=True)
async def test_revocations_end_by_themselves(ps: penstock.Penstock) -> None:
    revocations = Revocations(ps)
    await revocations.revoke("t1", now_s() + 3)
    assert await revocations.is_revoked("t1")
    async with asyncio.timeout(15):
        while await revocations.is_revoked("t1"):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("jti", ["}", "{", "a b\n", "ü🦫", "\x00", "x" * 16_000, "{}{}", "*"])
async def test_any_name(ps: penstock.Penstock, jti: str) -> None:
    revocations = Revocations(ps)
    await revocations.revoke(jti, 2**63 - 1)
    assert await revocations.is_revoked(jti)
    assert await ps.get(f"jwt.{{{jti}}}.revoke") == str(2**63 - 1).encode()
    assert not await revocations.is_revoked(jti + "x")


async def test_what_cannot_be_revoked(stores: list[penstock.Penstock]) -> None:
    revocations = Revocations(stores[0])
    for jti in ("", "\ud800", "x" * 16_385):
        with pytest.raises(UsageError, match="jti"):
            await revocations.revoke(jti, now_s() + HOUR_S)
    with pytest.raises(UsageError, match="exp_s"):
        await revocations.revoke("t1", 2**63)
    with pytest.raises(ConfigError, match="clients"):
        Revocations()
    for needed in (0, 2):
        with pytest.raises(ConfigError, match="needed_answers"):
            Revocations(stores[0], needed_answers=needed)


async def test_several_stores(stores: list[penstock.Penstock]) -> None:
    together = Revocations(*stores)
    assert not await together.is_revoked("t1")
    assert (await together.revoke("t1", now_s() + HOUR_S)).stored == 3
    assert await together.is_revoked("t1")
    for store in stores:
        assert await Revocations(store).is_revoked("t1")
    for store in stores:  # any of them is enough
        jti = f"only-{id(store)}"
        await Revocations(store).revoke(jti, now_s() + HOUR_S)
        assert await together.is_revoked(jti)


async def test_some_stores_do_not_answer(stores: list[penstock.Penstock]) -> None:
    strict, majority = Revocations(*stores), Revocations(*stores, needed_answers=2)
    await stores[0].close()
    outcome = await strict.revoke("t1", now_s() + HOUR_S)
    assert outcome.stored == 2
    assert [type(failure).__name__ for failure in outcome.failures] == ["ClosedError"]
    for revocations in (strict, majority):
        assert await revocations.is_revoked("t1")
    assert not await majority.is_revoked("t2")
    with pytest.raises(AuthRejected) as refused:  # the one that is silent might know better
        await strict.is_revoked("t2")
    assert refused.value.kind is Rejection.UNAVAILABLE
    await stores[1].close()
    with pytest.raises(AuthRejected):
        await majority.is_revoked("t2")
    assert (await strict.revoke("t2", now_s() + HOUR_S)).stored == 1
    await stores[2].close()
    with pytest.raises(PenstockError):
        await strict.revoke("t3", now_s() + HOUR_S)


async def test_a_server_that_is_gone() -> None:
    with RealServer(find_server("valkey")) as server:
        async with penstock.open(f"{server.url}?command_timeout_ms=500") as ps:
            revocations, tokens = Revocations(ps), TokenStore(ps)
            new = await tokens.create("worker", ["read"], channels=["*"])
            server.stop()
            with pytest.raises(AuthRejected) as refused:
                await revocations.is_revoked("t1")
            assert refused.value.kind is Rejection.UNAVAILABLE
            with pytest.raises(AuthRejected) as refused:
                await tokens.verify(new.bearer)
            assert refused.value.kind is Rejection.UNAVAILABLE
            with pytest.raises(PenstockError):
                await revocations.revoke("t1", now_s() + HOUR_S)


# ------------------------------------------------------------------------------- tokens


async def test_a_token_from_birth_to_death(two: tuple[penstock.Penstock, penstock.Penstock]) -> None:
    one, other = (TokenStore(client) for client in two)
    new = await one.create("worker", ["publish", "read"], channels=["a*"], streams=["s"])
    assert new.bearer.startswith(f"pen_{new.token.id}_")
    for store in (one, other):
        found = await store.verify(new.bearer)
        assert (found.id, found.grant, found.expires_ms) == (new.token.id, new.token.grant, None)
        assert found.grant.scopes == {Action.PUBLISH, Action.READ}
        assert (found.grant.channels, found.grant.streams) == (("a*",), ("s",))
    assert await other.revoke(new.token.id)
    for store in (one, other):  # at once, on every worker
        with pytest.raises(AuthRejected, match="unknown, expired or revoked"):
            await store.verify(new.bearer)
        assert await store.get(new.token.id) is None
    assert not await one.revoke(new.token.id)
    assert (await one.list()).tokens == ()


async def test_the_secret_is_not_kept(ps: penstock.Penstock) -> None:
    new = await TokenStore(ps).create("worker", ["admin"])
    secret = new.bearer.rpartition("_")[2]
    assert len(secret) == 64
    kept = await ps.get(f"penstock.token.{new.token.id}")
    assert kept is not None
    assert secret.encode() not in kept
    assert secret not in repr(new)
    assert json.loads(kept)["name"] == "worker"


async def test_what_is_no_token(ps: penstock.Penstock) -> None:
    store = TokenStore(ps)
    new = await store.create("worker", ["read"], channels=["*"])
    other = await store.create("other", ["read"], channels=["*"])
    _, token_id, secret = new.bearer.split("_")
    flipped = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    for bearer in (
        "",
        "pen_",
        "pen__",
        f"pen_{token_id}",
        f"pen_{token_id}_",
        f"pen_{token_id}_{secret[:-1]}",
        f"pen_{token_id}_{flipped}",
        f"pen_{token_id}_{secret.upper()}" if secret.upper() != secret else "x",
        f"pen_{other.token.id}_{secret}",
        f"pen_{'0' * 28}_{secret}",
        f"PEN_{token_id}_{secret}",
        new.bearer + "\n",
        " " + new.bearer,
        new.bearer + "_x",
        f"pen_{token_id}_{'٣' * 64}",
        "\ud800",
    ):
        with pytest.raises(AuthRejected) as refused:
            await store.verify(bearer)
        assert refused.value.kind is Rejection.INVALID
    await store.verify(new.bearer)


async def test_records_that_do_not_decode_permit_nothing(ps: penstock.Penstock) -> None:
    store = TokenStore(ps)
    new = await store.create("worker", ["read"], channels=["*"])
    key = f"penstock.token.{new.token.id}"
    kept = json.loads(await ps.get(key) or b"")
    for content in (b"", b"{}", b"[]", b"\xff", json.dumps(kept | {"sha256": None}).encode()):
        await ps.set(key, content)
        with pytest.raises(AuthRejected):
            await store.verify(new.bearer)
    # What a later version may add does no harm.
    await ps.set(key, json.dumps(kept | {"scopes": ["fly", "read"], "colour": "red"}))
    assert (await store.verify(new.bearer)).grant.scopes == {Action.READ}


async def test_tokens_expire(ps: penstock.Penstock) -> None:
    clock = ManualClock(SystemClock().now_ms())
    store = TokenStore(ps, clock)
    expires_ms = clock.now_ms() + HOUR_S * 1000
    new = await store.create("worker", ["read"], channels=["*"], expires_ms=expires_ms)
    key = f"penstock.token.{new.token.id}"
    assert await ps.pexpiretime(key) == expires_ms
    clock.advance_ms(HOUR_S * 1000 - 1)
    assert (await store.verify(new.bearer)).expires_ms == expires_ms
    assert await ps.pexpiretime(key) == expires_ms  # its use was written down, its end was kept
    clock.advance_ms(1)
    with pytest.raises(AuthRejected):  # though the store's own clock is not there yet
        await store.verify(new.bearer)
    assert (await store.list()).tokens == ()
    with pytest.raises(UsageError, match="expires_ms"):
        await store.create("late", ["read"], channels=["*"], expires_ms=clock.now_ms())


async def test_last_use_is_written_once_a_minute(ps: penstock.Penstock) -> None:
    clock = ManualClock(SystemClock().now_ms())
    store = TokenStore(ps, clock)
    new = await store.create("worker", ["read"], channels=["*"])

    async def used_ms() -> int | None:
        token = await store.get(new.token.id)
        assert token is not None
        return token.used_ms

    assert await used_ms() is None
    first_ms = clock.now_ms()
    await asyncio.gather(*(store.verify(new.bearer) for _ in range(10)))
    assert await used_ms() == first_ms
    clock.advance_ms(59_999)
    await store.verify(new.bearer)
    assert await used_ms() == first_ms
    clock.advance_ms(1)
    await store.verify(new.bearer)
    assert await used_ms() == first_ms + 60_000


async def test_writing_the_last_use_does_not_revive(ps: penstock.Penstock) -> None:
    """Revoked between the look and the note: the note finds nothing to write over."""
    store = TokenStore(ps)
    new = await store.create("worker", ["read"], channels=["*"])
    real_set = ps.set

    async def revoke_first(*arguments: Any, **options: Any) -> Any:
        await store.revoke(new.token.id)
        return await real_set(*arguments, **options)

    ps.set = revoke_first  # type: ignore[method-assign, assignment]
    await store.verify(new.bearer)
    with pytest.raises(AuthRejected):
        await store.verify(new.bearer)
    assert await ps.exists(f"penstock.token.{new.token.id}") == 0


async def test_listing(ps: penstock.Penstock) -> None:
    clock = ManualClock(SystemClock().now_ms())
    store = TokenStore(ps, clock)
    made = []
    for number in range(5):
        made.append((await store.create(f"t{number}", ["read"], channels=["*"])).token.id)
        clock.advance_ms(1)
    first = await store.list(limit=2)
    second = await store.list(first.cursor, limit=2)
    third = await store.list(second.cursor, limit=2)
    assert [token.id for page in (first, second, third) for token in page.tokens] == made
    assert third.cursor is None
    assert (await store.list(limit=5)).cursor is None
    for limit in (0, 201):
        with pytest.raises(UsageError, match="limit"):
            await store.list(limit=limit)
    with pytest.raises(UsageError, match="cursor"):
        await store.list("x")


async def test_listing_sweeps_ids_without_tokens(ps: penstock.Penstock) -> None:
    store = TokenStore(ps)
    new = await store.create("worker", ["read"], channels=["*"])
    await store.create("stays", ["read"], channels=["*"])
    await ps.delete(f"penstock.token.{new.token.id}")
    assert [token.grant.name for token in (await store.list()).tokens] == ["stays"]
    assert await ps.zcard("penstock.tokens") == 1


async def test_a_token_that_cannot_be_listed_is_not_made(ps: penstock.Penstock) -> None:
    await ps.set("penstock.tokens", "not a sorted set")
    with pytest.raises(PenstockError):
        await TokenStore(ps).create("worker", ["read"], channels=["*"])
    assert [key async for key in ps.scan_iter(match="penstock.token.*")] == []


async def test_tokens_that_make_no_sense(stores: list[penstock.Penstock]) -> None:
    store = TokenStore(stores[0])
    for arguments, options, words in (
        (("", ["read"]), {"channels": ["*"]}, "name"),
        (("t", []), {"channels": ["*"]}, "scopes"),
        (("t", ["fly"]), {"channels": ["*"]}, "fly"),
        (("t", "read"), {"channels": ["*"]}, "scopes must be a list"),
        (("t", ["read"]), {"channels": "*"}, "channels must be a list"),
        (("t", ["read"]), {}, "nothing would match"),
    ):
        with pytest.raises(UsageError, match=words):
            await store.create(*arguments, **options)  # type: ignore[arg-type]
    assert (await store.list()).tokens == ()
    assert not await store.revoke("*")
    assert await store.get("*") is None
