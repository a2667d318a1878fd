"""Who gets webhooks of transactions: URLs as endpoints, and the secrets that sign for owners.

A receiver is a URL and the owner whose transactions name it. Reports of progress have an endpoint of their
own: they are given up after seconds, since the end of a transaction waits for them.

Keys, all in one slot:

===========================  ==========================================================================
``{tx.hooks}:url:<id>``      JSON: url, owner. The id is a hash of both
``{tx.hooks}:usedZ``         sorted set: id -> when it was last used (ms, at intervals of ten minutes)
``{tx.hooks}:secretsH``      hash: owner -> JSON list of secrets, the newest first; each signs
===========================  ==========================================================================

Rules: a definition is in the store before anything is put into the queue for it. One that was not used for
``idle_ms`` goes, with what the queue remembers of it, unless something waits for it or somebody uses it at
that moment. Secrets lie in the store as they are, so whoever may read the store may sign; they appear in no
message.

Nothing here sends anything.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from penstock.client.client import Client
from penstock.client.exclusive import ExclusiveConnection
from penstock.client.facts import to_bytes
from penstock.client.pipelines import Transaction
from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError, UsageError
from penstock.transactions.model import DAY_MS
from penstock.webhooks import AddressPolicy, Endpoint, Schedule, WebhookQueue, check_url, growing, new_secret
from penstock.webhooks.signing import MAX_SECRETS

_PREFIX: Final = "{tx.hooks}:"
_USED: Final = f"{_PREFIX}usedZ"
_SECRETS: Final = f"{_PREFIX}secretsH"
#: Ids of endpoints begin so; then `-` and a hash.
COMPLETE: Final = "tx-complete"
PROGRESS: Final = "tx-progress"

_TOUCH_MS: Final = 600_000
_MAX_TOUCHED: Final = 10_000
#: Receivers that one call of `forget_idle` looks at.
_SWEEP: Final = 100


def check_webhook_url(url: object, policy: AddressPolicy = AddressPolicy()) -> str:  # noqa: B008 - frozen
    """A URL that a webhook may call, as far as its text tells; ``UsageError`` says what is wrong with it."""
    if not isinstance(url, str):
        raise UsageError(f"webhook must be a URL such as https://shop.example/hook, not {url!r}")
    try:
        check_url(url, policy)
    except ConfigError as error:
        raise UsageError(f"webhook cannot be called: {error}") from None
    return url


class ReceiverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How receivers are treated."""

    #: of one attempt
    timeout_ms: int = 20_000
    #: of the event that tells the end; the archive waits for it
    schedule: Schedule = Schedule()
    #: of reports of progress
    progress_schedule: Schedule = growing(3, 1_000, 3.0)
    #: events at a time to one receiver
    max_in_flight: int = 8
    #: how long a receiver is remembered
    idle_ms: int = 2 * DAY_MS


class _Definition(msgspec.Struct, frozen=True):
    url: str
    owner: str


_decode: Final = msgspec.json.Decoder(_Definition).decode
_decode_secrets: Final = msgspec.json.Decoder(list[str]).decode


class Receivers:
    """The receivers of one store. An ``EndpointSource``."""

    def __init__(
        self,
        client: Client,
        settings: ReceiverSettings | None = None,
        *,
        policy: AddressPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._settings = settings or ReceiverSettings()
        self._policy = policy or AddressPolicy()
        self._clock = clock or SystemClock()
        #: id -> when this process last said that it is in use (ms)
        self._touched: dict[str, int] = {}

    # ------------------------------------------------------------------------------------- endpoints

    async def define(self, url: str, owner: str, kind: str = COMPLETE) -> Endpoint:
        """The endpoint of a receiver, where workers will find it; ``UsageError`` if it must not be called."""
        check_webhook_url(url, self._policy)
        name = endpoint_id(url, owner, kind)
        now_ms = self._clock.now_ms()
        if now_ms - self._touched.get(name, 0) > _TOUCH_MS:
            # In this order: what has a definition is known to whoever tidies up.
            await self._client.execute("ZADD", _USED, now_ms, name)
            await self._client.execute("SET", _key(name), msgspec.json.encode(_Definition(url, owner)))
            if len(self._touched) >= _MAX_TOUCHED:
                self._touched.clear()
            self._touched[name] = now_ms
        return self._endpoint(name, url, ())

    async def get(self, endpoint_id: str) -> Endpoint | None:
        found: Any = await self._client.execute("GET", _key(endpoint_id))
        if found is None:
            return None
        definition = _decode(to_bytes(found))
        return self._endpoint(endpoint_id, definition.url, await self.secrets_of(definition.owner))

    def _endpoint(self, name: str, url: str, secrets: tuple[str, ...]) -> Endpoint:
        settings = self._settings
        is_progress = name.startswith(f"{PROGRESS}-")
        return Endpoint(
            id=name,
            url=url,
            secrets=secrets,
            timeout_ms=settings.timeout_ms,
            schedule=settings.progress_schedule if is_progress else settings.schedule,
            max_in_flight=settings.max_in_flight,
        )

    async def forget_idle(self, queue: WebhookQueue) -> int:
        """Forget receivers that nobody has used for long; how many."""
        before_ms = self._clock.now_ms() - self._settings.idle_ms
        found: Any = await self._client.execute("ZRANGEBYSCORE", _USED, "-inf", before_ms, "LIMIT", 0, _SWEEP)
        gone = 0
        for name in (to_bytes(each).decode() for each in found):
            state = await queue.state(name)
            if state.waiting or state.in_flight:
                await self._client.execute("ZADD", _USED, "XX", self._clock.now_ms(), name)
            elif await self._forget(name, before_ms):
                # What somebody puts at this moment goes, too, and is put again when it is next looked after.
                await queue.purge(name)
                gone += 1
        return gone

    async def _forget(self, name: str, before_ms: int) -> bool:
        async def forget(own: ExclusiveConnection) -> Transaction:
            used: Any = await own.execute("ZSCORE", _USED, name)
            transaction = own.transaction()
            if used is None or float(used) <= before_ms:
                transaction.execute("DEL", _key(name))
                transaction.execute("ZREM", _USED, name)
            else:
                transaction.execute("EXISTS", _key(name))
            return transaction

        # Whoever uses it writes the definition, which is watched.
        replies = await self._client.transact(forget, _key(name))
        self._touched.pop(name, None)
        return len(replies) > 1

    # --------------------------------------------------------------------------------------- secrets

    async def secret_of(self, owner: str) -> str:
        """What signs for an owner; made when it is first asked for."""
        return (await self.secrets_of(owner))[0]

    async def secrets_of(self, owner: str) -> tuple[str, ...]:
        """All that sign, the newest first: receivers may still have the older ones."""
        found: Any = await self._client.execute("HGET", _SECRETS, owner)
        if found is None:
            await self._client.execute("HSETNX", _SECRETS, owner, msgspec.json.encode([new_secret()]))
            found = await self._client.execute("HGET", _SECRETS, owner)
        return tuple(_decode_secrets(to_bytes(found)))

    async def rotate(self, owner: str, *, keep: int = 1) -> str:
        """A new secret; ``keep`` of the older ones go on signing beside it. Counts for what waits already."""
        if not 0 <= keep < MAX_SECRETS:
            raise UsageError(f"keep must be 0 to {MAX_SECRETS - 1}, not {keep}")
        await self.secrets_of(owner)
        secret = new_secret()

        async def change(own: ExclusiveConnection) -> Transaction:
            found: Any = await own.execute("HGET", _SECRETS, owner)
            older = _decode_secrets(to_bytes(found)) if found else []
            transaction = own.transaction()
            transaction.execute("HSET", _SECRETS, owner, msgspec.json.encode([secret, *older[:keep]]))
            return transaction

        await self._client.transact(change, _SECRETS)
        return secret

    def __repr__(self) -> str:
        return f"<Receivers on {self._client!r}>"


def endpoint_id(url: str, owner: str, kind: str = COMPLETE) -> str:
    return f"{kind}-{hashlib.sha256(f'{owner} {url}'.encode()).hexdigest()[:40]}"


def _key(name: str) -> str:
    return f"{_PREFIX}url:{name}"
