"""Traces by OpenTelemetry, if the configuration switches them on: one server span for each request.

    tracing = Tracing(config.telemetry.effective_tracing)
    if tracing.is_on:                                    # one attribute: off costs nothing
        answer = await tracing.call(request, template, handler(request))

Spans go where OpenTelemetry's own environment variables (``OTEL_EXPORTER_OTLP_…``) say, by whichever OTLP
exporter is installed.

Rules: opentelemetry is imported here, inside functions, and only if tracing is on. A trace that the caller
began (``traceparent``) is continued with the caller's decision about sampling. Attributes are those of the
semantic conventions for HTTP servers; neither queries nor credentials are among them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import ConfigError, PenstockError
from penstock.gateway.config.surroundings import TracingConfig
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.requests import Disconnected, Request
from penstock.gateway.http.responses import Refusal
from penstock.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

T = TypeVar("T")

_NAME: Final = "penstock.gateway"
_MISSING: Final = (
    "telemetry.tracing.enable needs OpenTelemetry: install it with"
    " pip install opentelemetry-sdk opentelemetry-exporter-otlp, or switch tracing off"
)
_HEADERS: Final = (b"traceparent", b"tracestate", b"baggage")
#: A span's name must not be chosen by strangers.
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Tracing:
    """The tracer of one worker."""

    def __init__(self, config: TracingConfig, *, exporter: SpanExporter | None = None) -> None:
        """``exporter``: where spans go, instead of where the environment says."""
        self.is_on: bool = config.enable
        self._provider: Any = None
        self._tracer: Tracer | None = None
        self._attributes: dict[str, Any] = {}
        if config.enable:
            self._set_up(config, exporter)

    def _set_up(self, config: TracingConfig, exporter: SpanExporter | None) -> None:
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        except ImportError as error:
            raise ConfigError(_MISSING) from error
        name = os.environ.get("OTEL_SERVICE_NAME", "penstock-gateway")
        resource = Resource.create({"service.name": name, "service.version": __version__})
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sampling)), resource=resource
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter or _exporter_of_environment(),
                max_queue_size=config.batch.max_queue_size,
                schedule_delay_millis=config.batch.timeout_ms,
                max_export_batch_size=min(config.batch.batch_size, config.batch.max_queue_size),
            )
        )
        self._tracer = self._provider.get_tracer(_NAME, __version__)
        self._attributes = {name: _attribute(value) for name, value in config.attributes.items()}

    async def call(self, request: Request, template: str, answering: Awaitable[T]) -> T:
        """Await ``answering`` inside a span. Only if tracing is on."""
        from opentelemetry.trace import SpanKind, use_span

        assert self._tracer is not None, "check is_on before"
        method = request.method if request.method in _METHODS else "_OTHER"
        span = self._tracer.start_span(
            f"{method if method != '_OTHER' else 'HTTP'} {template}",
            context=_caller(request),
            kind=SpanKind.SERVER,
            attributes={**self._attributes, **_described(request, method, template)},
        )
        # Refusals are exceptions, and no errors of ours: what the span says of them is decided below.
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                answer = await answering
            except BaseException as error:
                _tell_failure(span, error)
                raise
            _tell_status(span, getattr(answer, "status", 0))
            return answer

    def close(self) -> None:
        """Send the spans that wait. Blocks for seconds if nobody takes them: call it in a thread."""
        if self._provider is not None:
            self._provider.shutdown()


def _exporter_of_environment() -> SpanExporter:
    """OTLP over whatever protocol has its package installed."""
    for protocol in ("http", "grpc"):
        try:
            module = import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter")
        except ImportError:
            continue
        exporter: SpanExporter = module.OTLPSpanExporter()
        return exporter
    raise ConfigError(_MISSING)


def _caller(request: Request) -> Context:
    """The trace that the caller began; a new one if it did not, or if what it says makes no sense."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carried = {
        str(name, "latin-1"): str(value, "latin-1")
        for name, value in request.scope["headers"]
        if name in _HEADERS
    }
    return TraceContextTextMapPropagator().extract(carried, Context()) if carried else Context()


def _described(request: Request, method: str, template: str) -> Mapping[str, Any]:
    scope = request.scope
    described: dict[str, Any] = {
        "http.request.method": method,
        "http.route": template,
        "url.path": request.path,
        "url.scheme": scope.get("scheme", "http"),
        "network.protocol.name": "http",
        "network.protocol.version": scope.get("http_version", "1.1"),
    }
    if method == "_OTHER":
        described["http.request.method_original"] = request.method
    if scope.get("client"):
        described["network.peer.address"], described["network.peer.port"] = scope["client"][:2]
    if request.peer:
        described["client.address"] = request.peer
    if (agent := request.header(b"user-agent")) is not None:
        described["user_agent.original"] = agent
    if scope.get("server"):
        described["server.address"], described["server.port"] = scope["server"][:2]
    return {name: value for name, value in described.items() if value is not None}


def _tell_status(span: Span, status: int) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("http.response.status_code", status)
    # For a server the caller's faults are no errors.
    if status >= 500:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)


def _tell_failure(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    refusal = refusal_of(error) if isinstance(error, PenstockError) else error
    if isinstance(refusal, Refusal):
        _tell_status(span, refusal.status)
        return
    span.set_attribute("error.type", type(error).__qualname__)
    if not isinstance(error, Disconnected):
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))


def _attribute(value: object) -> object:
    """What a span can carry: numbers, text, truth; anything else as text."""
    return value if isinstance(value, (str, bool, int, float)) else str(value)
