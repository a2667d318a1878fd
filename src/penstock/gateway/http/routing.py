"""Routes as a table, found by the segments of the path: one dictionary lookup a segment.

    Route("PUT", "/channel/{channel}/message/{message}", handler)

Rules: a fixed segment goes before a value; ``{name...}`` at the end takes the rest of the path, slashes and
all. Two routes of one shape must name their values alike. The table is complete before the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.gateway.http.requests import Request, decode_segment
from penstock.gateway.http.responses import Response, Streaming

Answer: TypeAlias = Response | Streaming
Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
#: Turns a refusal into the answer of an API.
Refuse: TypeAlias = Callable[[Any], Response]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    template: str
    handler: Handler
    #: how this route's API words refusals
    refuse: Refuse
    #: what documentation says; see ``gateway.openapi``
    doc: Any = None


@dataclass(slots=True)
class _Node:
    fixed: dict[bytes, _Node] = field(default_factory=dict)
    value: _Node | None = None
    value_name: str = ""
    rest_name: str = ""
    routes: dict[str, Route] = field(default_factory=dict)
    rest_routes: dict[str, Route] = field(default_factory=dict)


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route], prefix: str = "") -> None:
        self._root = _Node()
        self.routes = list(routes)
        for route in self.routes:
            self._add(prefix.rstrip("/") + route.template, route)

    def _add(self, template: str, route: Route) -> None:
        node = self._root
        for segment in template.split("/")[1:]:
            if segment.startswith("{") and segment.endswith("...}"):
                node.rest_name = segment[1:-4]
                node.rest_routes[route.method] = route
                return
            if segment.startswith("{"):
                name = segment[1:-1]
                assert node.value_name in ("", name), f"{template} names {node.value_name} otherwise"
                node.value_name = name
                node.value = node.value or _Node()
                node = node.value
            else:
                node = node.fixed.setdefault(segment.encode(), _Node())
        assert route.method not in node.routes, f"{route.method} {template} is there twice"
        node.routes[route.method] = route

    def find(self, path: bytes) -> tuple[Mapping[str, Route], dict[str, str]]:
        """The routes of a path by method, and its values; no routes: nothing is there."""
        node = self._root
        values: dict[str, str] = {}
        segments = path.split(b"/")
        rest: tuple[_Node, int] | None = None
        for at in range(1, len(segments)):
            if node.rest_routes:
                rest = node, at
            segment = segments[at]
            following = node.fixed.get(segment)
            if following is None:
                following = node.value
                if following is None:
                    break
                values[node.value_name] = decode_segment(segment)
            node = following
        else:
            if node.routes:
                return node.routes, values
        if rest is None:
            return {}, values
        node, at = rest
        values[node.rest_name] = "/".join(map(decode_segment, segments[at:]))
        return node.rest_routes, values
