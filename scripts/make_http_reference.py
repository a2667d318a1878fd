"""Writes the table of ``/v1`` in docs/http-api.md from the routes themselves.

python scripts/make_http_reference.py            write it
python scripts/make_http_reference.py --check    fail if it is not up to date
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.config import load
from penstock.gateway.http.routing import Route

PAGE = Path(__file__).parent.parent / "docs" / "http-api.md"
BEGIN = "<!-- begin: routes of /v1, written by scripts/make_http_reference.py -->\n"
END = "<!-- end: routes of /v1 -->\n"
HEAD = ("method and path", "what it does", "scope")


def main(arguments: list[str]) -> int:
    before = PAGE.read_text("utf-8")
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    after = f"{head}{BEGIN}\n{asyncio.run(table())}\n{END}{tail}"
    if "--check" not in arguments:
        PAGE.write_text(after, "utf-8")
    elif after != before:
        print(f"{PAGE.name} is not up to date: run python scripts/make_http_reference.py")
        return 1
    return 0


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
