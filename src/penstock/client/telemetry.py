"""One OpenTelemetry span a command, for clients that were opened with a ``tracer``.

Names follow OpenTelemetry's conventions for database clients. Arguments are never recorded:
they are other people's data. Without a tracer nothing here is imported, and nothing costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.client.config import Settings
from penstock.client.connection import ReplyFuture
from penstock.client.facts import to_bytes
from penstock.client.targets import Target
from penstock.client.transports.base import Arguments
from penstock.errors import CommandError
from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class Spans:
    """Makes spans for the commands of one client."""

    def __init__(self, tracer: Tracer, target: Target, settings: Settings) -> None:
        # The extra ``otel`` has it; whoever has a tracer has it too.
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._tracer = tracer
        self._kind = SpanKind.CLIENT
        self._failed: Callable[[BaseException], Status] = lambda error: Status(StatusCode.ERROR, str(error))
        self._attributes: dict[str, str | int] = {
            "db.system.name": "penstock" if target.kind == "embedded" else "redis",
            "db.namespace": str(settings.db),
        }
        if target.kind == "server":
            self._attributes["server.address"] = target.addresses[0].host
            self._attributes["server.port"] = target.addresses[0].port

    def around(self, call: Callable[[Arguments], ReplyFuture]) -> Callable[[Arguments], ReplyFuture]:
        """The same call, with a span from issue to reply."""

        def traced(arguments: Arguments) -> ReplyFuture:
            span = self._start(arguments)
            future = call(arguments)
            future.add_done_callback(lambda done: self._end(span, _error_of(done)))
            return future

        return traced

    async def around_waiting(self, arguments: Arguments, reply: Awaitable[Reply]) -> Reply:
        """A span around a command that waits at the server."""
        span = self._start(arguments)
        try:
            result = await reply
        except BaseException as error:
            self._end(span, error)
            raise
        self._end(span, None)
        return result

    def _start(self, arguments: Arguments) -> Span:
        name = to_bytes(arguments[0]).decode(errors="replace").upper() if arguments else ""
        return self._tracer.start_span(
            name, kind=self._kind, attributes={**self._attributes, "db.operation.name": name}
        )

    def _end(self, span: Span, error: BaseException | None) -> None:
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            if isinstance(error, CommandError):
                span.set_attribute("db.response.status_code", error.code)
            span.set_status(self._failed(error))
        span.end()


def _error_of(future: ReplyFuture) -> BaseException | None:
    return asyncio.CancelledError() if future.cancelled() else future.exception()
