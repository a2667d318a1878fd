"""Writes the table of ``/v1`` in docs/http-api.md from the routes themselves.

python scripts/make_http_reference.py            write it
python scripts/make_http_reference.py --check    fail if it is not up to date
"""

from __future__ import annotations

import asyncio
import sys

from generating import DOCS, write_part_or_check

from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.config import load
from penstock.gateway.http.routing import Route

HEAD = ("method and path", "what it does", "scope")


def main(arguments: list[str]) -> int:
    text = asyncio.run(table())
    return write_part_or_check(
        DOCS / "http-api.md", "routes of /v1", text, "make_http_reference.py", arguments
    )


async def table() -> str:
    """The routes by tag, as Markdown that the formatter leaves alone."""
    config = load(None, environment={}, overrides={"pubsub.enabled": True})
    async with open_services(config) as services:
        routes = make_application(services).routes
    parts = []
    tags = dict.fromkeys(route.doc.tag for route in routes if is_shown(route))
    for tag in tags:
        rows = [
            (f"`{route.method} {route.template}`", route.doc.summary, route.doc.scope or "")
            for route in routes
            if is_shown(route) and route.doc.tag == tag
        ]
        parts.append(f"**{tag[0].upper()}{tag[1:]}**\n\n{markdown(rows)}")
    return "\n".join(parts)


def is_shown(route: Route) -> bool:
    return route.template.startswith("/v1") and route.doc is not None


def markdown(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]

    def line(cells: tuple[str, ...]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |\n"

    rule = "| " + " | ".join("-" * width for width in widths) + " |\n"
    return line(HEAD) + rule + "".join(map(line, rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
