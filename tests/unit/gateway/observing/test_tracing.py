"""Spans of requests, and nothing at all when tracing is off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock.errors import ConfigError, SubscriptionNotFoundError
from penstock.gateway.config.surroundings import TracingConfig
from penstock.gateway.http.requests import Disconnected, Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.observing.tracing import Tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Traced:
    def __init__(self, **config: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracing = Tracing(TracingConfig(enable=True, **config), exporter=self.exporter)

    async def call(self, outcome: Response | BaseException, **headers: str) -> Any:
        async def handler() -> Response:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        return await self.tracing.call(request(**headers), "/channel/{channel}", handler())

    def spans(self) -> Any:
        self.tracing.close()
        return self.exporter.get_finished_spans()


def request(**headers: str) -> Request:
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "method": "GET",
        "path": "/channel/a",
        "query_string": b"token=secret",
        "scheme": "http",
        "http_version": "1.1",
        "headers": listed,
        "client": ("10.0.0.9", 1234),
        "server": ("10.0.0.1", 3000),
    }
    made = Request(scope, None, {}, 0)  # type: ignore[arg-type]
    made.peer = "192.0.2.7"
    return made


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.tracing.close()


async def test_a_span_has_what_the_conventions_name(traced: Traced):
    answer = await traced.call(Response(200), user_agent="curl/8", authorization="Bearer secret")
    assert answer.status == 200
    (span,) = traced.spans()
    assert (span.name, span.kind, span.parent) == ("GET /channel/{channel}", SpanKind.SERVER, None)
    assert dict(span.attributes) == {
        "http.request.method": "GET",
        "http.route": "/channel/{channel}",
        "http.response.status_code": 200,
        "url.path": "/channel/a",
        "url.scheme": "http",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "network.peer.address": "10.0.0.9",
        "network.peer.port": 1234,
        "client.address": "192.0.2.7",
        "user_agent.original": "curl/8",
        "server.address": "10.0.0.1",
        "server.port": 3000,
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_a_trace_of_the_caller_is_continued(traced: Traced):
    await traced.call(Response(200), traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=b")
    (span,) = traced.spans()
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.context.trace_state.get("a") == "b"


async def test_nonsense_begins_a_new_trace(traced: Traced):
    await traced.call(Response(200), traceparent="nonsense")
    (span,) = traced.spans()
    assert span.parent is None


async def test_the_caller_decides_about_sampling_of_its_trace():
    nothing = Traced(sampling=0.0)
    await nothing.call(Response(200))
    await nothing.call(Response(200), traceparent=f"00-{TRACE}-{PARENT}-01")
    assert len(nothing.spans()) == 1
    everything = Traced(sampling=1.0)
    await everything.call(Response(200))
    await everything.call(Response(200), traceparent=f"00-{TRACE}-{PARENT}-00")
    assert len(everything.spans()) == 1


@pytest.mark.parametrize(
    ("outcome", "status", "is_error"),
    [
        (Refusal(404, "x", "y"), 404, False),
        (Refusal(503, "x", "y"), 503, True),
        (SubscriptionNotFoundError("gone"), 404, False),
        (LookupError("fault"), None, True),
        (Disconnected(), None, False),
    ],
)
async def test_failures(traced: Traced, outcome: BaseException, status: int | None, is_error: bool):
    with pytest.raises(type(outcome)):
        await traced.call(outcome)
    (span,) = traced.spans()
    assert span.attributes.get("http.response.status_code") == status
    assert (span.status.status_code is StatusCode.ERROR) is is_error
    assert len(span.events) == (1 if isinstance(outcome, LookupError) else 0)


async def test_attributes_of_the_configuration_are_in_every_span():
    traced = Traced(attributes={"region": "eu", "weight": 1.5, "odd": [1]})
    await traced.call(Response(500))
    (span,) = traced.spans()
    found = [span.attributes[name] for name in ("region", "weight", "odd")]
    assert found == ["eu", 1.5, "[1]"]
    assert span.attributes["error.type"] == "500"


def test_off_it_imports_nothing():
    program = (
        "import sys\n"
        "from penstock.gateway.config.surroundings import TracingConfig\n"
        "from penstock.gateway.observing.tracing import Tracing\n"
        "tracing = Tracing(TracingConfig())\n"
        "assert not tracing.is_on\n"
        "tracing.close()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("missing", ["opentelemetry.sdk.trace", None])
def test_what_is_missing_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, missing: str | None):
    """Without the library; and with it, but without an exporter, which is a package of its own."""
    for name in (
        missing,
        *(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter" for kind in ("http", "grpc")),
    ):
        if name is not None:
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match="pip install opentelemetry-sdk"):
        Tracing(TracingConfig(enable=True))
