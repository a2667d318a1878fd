"""The Http step: one request out, its answer as JSON, within bounds.

===============  =====================================================================================
addresses        public ones, and networks that the operator's policy allows: each connection is dialed
                 by ``penstock.webhooks.dialing``; the environment's proxies are not looked at
redirections     none is followed: one is a failure, or an answer if the step expects it
time             ``timeout_ms`` covers waiting for a connection, resolving, sending and reading
answer           ``max_body_bytes``; of an answer that is a failure, MAX_FAILURE_BYTES are told
URL              data fills in ``{path}``, percent-encoded; it can neither leave its segment with
                 ``..`` nor empty it
body             JSON; ``data`` is not sent with GET, HEAD and DELETE, a path is
===============  =====================================================================================

What can go wrong, and by which names retry policies know it (beside HttpStepError and its bases):

===============================  ======================================  =========
what                             names                                   retryable
===============================  ======================================  =========
another status than expected     HttpError, http-503, http-5xx           408 425 429 5xx
no complete answer in time       HttpError, timeout                      yes
no connection, broken answer     HttpError, connection                   yes
address refused, data missing,   HttpError                               no
answer too large or compressed
===============================  ======================================  =========

Rules: every call of a step carries the same ``Idempotency-Key``, so the other side can tell a repetition. The
step's own text and the other side's answer may be in errors, the data of the transaction is not. Needs
``httpcore`` (``penstock[gateway]``), which is imported by the first call. Knows nothing of transactions.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.errors import ClosedError, ConfigError, StepFailedError
from penstock.transactions.model import MAX_DATA_BYTES, MAX_NOTE
from penstock.transactions.pipelines.steps import Http
from penstock.transactions.worker.paths import MISSING, get_path, kind_of
from penstock.webhooks.addresses import AddressPolicy, check_url
from penstock.webhooks.model import checked_headers

if TYPE_CHECKING:
    import ssl

    import httpcore

    from penstock.webhooks.dialing import Resolver, SystemResolver

#: Of the body of a failure.
MAX_FAILURE_BYTES: Final = 4_096
_KEEPALIVE_S: Final = 30.0
_USER_AGENT: Final = "penstock-transactions"
_RETRYABLE: Final = frozenset((408, 425, 429))
#: Whose meaning a body has no part in.
_BODILESS: Final = frozenset(("GET", "HEAD", "DELETE"))
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


class HttpStepError(StepFailedError):
    """A call did not work. ``status`` is None if there was no answer, or none was asked for."""

    def __init__(
        self,
        status: int | None,
        text: str,
        retryable: bool,
        *,
        output: object = None,
        names: tuple[str, ...] = (),
        retry_after_ms: int | None = None,
    ) -> None:
        by_status = () if status is None else (f"http-{status}", f"http-{status // 100}xx")
        super().__init__(text[:MAX_NOTE], output, names=("HttpError", *by_status, *names))
        self.status = status
        #: whether the same call may well work later
        self.retryable = retryable
        #: how long the other side asks to be left alone
        self.retry_after_ms = retry_after_ms


@dataclass(frozen=True, slots=True)
class _Request:
    scheme: str
    url: str
    headers: list[tuple[str, str]]
    content: bytes | None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    content: bytes


class HttpCaller:
    """Makes the calls of Http steps; of use by any number of tasks of one loop. Close it in the end."""

    def __init__(
        self,
        policy: AddressPolicy | None = None,
        max_body_bytes: int = MAX_DATA_BYTES,
        *,
        max_connections: int = 100,
        ssl_context: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_body_bytes < 1 or max_connections < 1:
            raise ConfigError("max_body_bytes and max_connections must be at least 1")
        self._policy = policy or AddressPolicy()
        self._max_body_bytes = max_body_bytes
        self._max_connections = max_connections
        self._ssl_context = ssl_context
        self._resolver = resolver
        self._clock = clock or SystemClock()
        # In front of the pools, which would queue those who wait where a timeout finds them less easily.
        self._slots = asyncio.Semaphore(max_connections)
        self._network: _Network | None = None
        self._is_closed = False

    async def call(self, step: Http, data: Any, *, idempotency_key: str, timeout_ms: int) -> Any:
        """The answer of one call: its body, or ``{"status", "headers", "body"}`` if the step saves all.

        Where it goes (``step.into``) is for others to say. Raises HttpStepError; ClosedError after ``close``.
        """
        try:
            request = _request_of(step, data, idempotency_key, self._policy)
        except ConfigError as error:
            raise _refused(step, str(error)) from None
        if self._is_closed:
            raise _closed()
        if self._network is None:
            self._network = _opened(
                self._policy, self._resolver, self._ssl_context, max_connections=self._max_connections
            )
        answer = await self._exchange(self._network, step, request, timeout_ms)
        if not _is_expected(step, answer.status):
            raise self._failure(step, answer)
        body = _value_of(answer.content)
        if step.save == "body":
            return body
        return {"status": answer.status, "headers": answer.headers, "body": body}

    async def close(self) -> None:
        """End all connections; calls that are under way fail. Idempotent."""
        self._is_closed = True
        network, self._network = self._network, None
        if network is not None:
            await network.close()

    async def _exchange(self, network: _Network, step: Http, request: _Request, timeout_ms: int) -> _Answer:
        """One answer; all that the network can raise becomes an HttpStepError here."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._slots:
                if self._is_closed:  # while it waited
                    raise _closed()
                async with network.pools[request.scheme].stream(
                    step.method,
                    request.url,
                    headers=request.headers,
                    content=request.content,
                    # For the dialing, which shares it among the addresses of a name.
                    extensions={"timeout": {"connect": timeout_ms / 1000}},
                ) as response:
                    return await self._read(step, response)
        except network.timeouts:
            text = f"{_named(step)} gave no complete answer within {timeout_ms} ms"
            raise HttpStepError(None, text, True, names=("timeout",)) from None
        except ConfigError as error:
            raise _refused(step, str(error)) from None
        except network.faults as error:
            text = f"{_named(step)} did not answer: {type(error).__name__}: {error}"
            raise HttpStepError(None, text, True, names=("connection",)) from error

    async def _read(self, step: Http, response: httpcore.Response) -> _Answer:
        headers: dict[str, str] = {}
        for raw_name, raw_value in response.headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        is_expected = _is_expected(step, response.status)
        most = self._max_body_bytes if is_expected else MAX_FAILURE_BYTES
        content = bytearray()
        if is_expected and headers.get("content-encoding", "identity").lower() != "identity":
            raise _refused(step, "its answer is compressed, although that was not asked for", response.status)
        async for part in response.aiter_stream():
            content += part
            if len(content) > most:
                break  # leaving the response unread ends its connection
        if is_expected and len(content) > most:
            raise _refused(step, f"its answer has more than {most} bytes", response.status)
        return _Answer(response.status, headers, bytes(content[:most]))

    def _failure(self, step: Http, answer: _Answer) -> HttpStepError:
        from penstock.webhooks.sending import retry_after_ms

        output = {"status": answer.status, "body": _value_of(answer.content)}
        excerpt = " ".join(answer.content[:200].decode("utf-8", "replace").split())
        return HttpStepError(
            answer.status,
            f"{_named(step)} answered {answer.status}{': ' if excerpt else ''}{excerpt}",
            answer.status in _RETRYABLE or answer.status >= 500,
            output=output,
            retry_after_ms=retry_after_ms(answer.headers.get("retry-after", ""), self._clock.now_ms()),
        )


# ----------------------------------------------------------------------------------------------- network


@dataclass(frozen=True, slots=True)
class _Network:
    """What a caller has once it has called: everything whose type belongs to ``httpcore``."""

    #: by scheme: what may be called over one may be refused over the other
    pools: dict[str, httpcore.AsyncConnectionPool]
    timeouts: tuple[type[Exception], ...]
    faults: tuple[type[Exception], ...]
    #: its threads start with the first name
    resolver: SystemResolver

    async def close(self) -> None:
        self.resolver.close()
        for pool in self.pools.values():
            await pool.aclose()


def _opened(
    policy: AddressPolicy,
    resolver: Resolver | None,
    ssl_context: ssl.SSLContext | None,
    *,
    max_connections: int,
) -> _Network:
    try:
        import httpcore

        from penstock.webhooks.dialing import GuardedBackend, SystemResolver
    except ImportError as error:
        raise ConfigError(f"Http steps need the package {error.name}: install penstock[gateway]") from None
    # Made once: reading the certificates of all authorities takes long enough to be felt.
    context = ssl_context or httpcore.default_ssl_context()
    system = SystemResolver()
    pools = {
        scheme: httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=max_connections,
            max_keepalive_connections=min(20, max_connections),
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=GuardedBackend(policy, scheme, resolver or system),
        )
        for scheme in ("http", "https")
    }
    return _Network(
        pools,
        timeouts=(TimeoutError, httpcore.TimeoutException),
        # UnicodeError: of names that the resolver cannot even ask for.
        faults=(OSError, UnicodeError, httpcore.NetworkError, httpcore.ProtocolError),
        resolver=system,
    )


# ---------------------------------------------------------------------------------------------- requests


def _request_of(step: Http, data: Any, idempotency_key: str, policy: AddressPolicy) -> _Request:
    """ConfigError if the data, or the operator, does not allow one."""
    url = filled_url(step.url, data)
    scheme = check_url(url, policy).scheme
    content = _content_of(step, data)
    return _Request(scheme, url, _headers_of(step, idempotency_key, content), content)


def filled_url(template: str, data: Any) -> str:
    """The URL with data in place of each ``{path}``; ConfigError if there is none that could stand there."""
    before, mark, query = template.partition("?")

    def in_path(found: re.Match[str]) -> str:
        text = _text_at(data, found[1])
        if not text:
            raise ConfigError(f"url: the field {found[1]!r:.150} is empty, which would name something else")
        return text

    path = _PLACEHOLDER.sub(in_path, before)
    # Servers differ in whether they decode before they resolve: neither must lead out of the segment.
    if path != before and any(part in (".", "..") for part in re.split(r"[/\\]", unquote(path))):
        raise ConfigError("url: a field that stands in its path must not lead elsewhere with dots")
    return path + mark + _PLACEHOLDER.sub(lambda found: _text_at(data, found[1]), query)


def _text_at(data: Any, path: str) -> str:
    value = get_path(data, path)
    if value is MISSING:
        raise ConfigError(f"url: the data has no field {path!r:.150}")
    if isinstance(value, bool | int | float):
        value = msgspec.json.encode(value).decode()
    if not isinstance(value, str):
        raise ConfigError(f"url: the field {path!r:.150} must be a string or a number, not {kind_of(value)}")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise ConfigError(f"url: the field {path!r:.150} must be text that UTF-8 can hold") from None


def _content_of(step: Http, data: Any) -> bytes | None:
    if step.body == "none" or (step.body == "data" and step.method in _BODILESS):
        return None
    value = data if step.body == "data" else get_path(data, step.body)
    if value is MISSING:
        raise ConfigError(f"body: the data has no field {step.body!r:.150}")
    return msgspec.json.encode(value)


def _headers_of(step: Http, idempotency_key: str, content: bytes | None) -> list[tuple[str, str]]:
    """A key in the step's own headers is refused: it would be the same for all transactions."""
    own = checked_headers({**step.headers, "idempotency-key": idempotency_key})
    headers = {"user-agent": _USER_AGENT, "accept": "application/json, */*;q=0.5"}
    if content is not None:
        headers["content-type"] = "application/json"
    elif step.method not in _BODILESS:
        headers["content-length"] = "0"
    return list({**headers, **own, "accept-encoding": "identity"}.items())


# ----------------------------------------------------------------------------------------------- answers


def _is_expected(step: Http, status: int) -> bool:
    return status in step.expect if step.expect else 200 <= status <= 299


def _value_of(content: bytes) -> Any:
    """JSON, whatever the server calls it; else text; None if there is nothing."""
    if not content:
        return None
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return content.decode("utf-8", "replace")


def _named(step: Http) -> str:
    """Whom a step calls, without what its query may hold."""
    return f"{step.method} {step.url.partition('?')[0]}"


def _closed() -> ClosedError:
    return ClosedError("the caller of Http steps is closed: make another one")


def _refused(step: Http, why: str, status: int | None = None) -> HttpStepError:
    return HttpStepError(status, f"{_named(step)} cannot be used: {why}", False)
