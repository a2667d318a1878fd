"""Writes docs/reference/python.md from the source: public names, their signatures, what they are for.

python scripts/make_python_reference.py            write it
python scripts/make_python_reference.py --check    fail if it is not up to date

Rules: a name is public if its package exports it (``__all__``) and it does not begin with an underscore. What
is told is the signature as it is written, and the first paragraph of the docstring; fields have the ``#:``
lines above them. Nothing is imported, so that the page is the same on every machine.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import Final

from generating import DOCS, table, write_or_check
from reference.members import Member, members_of
from reference.names import Name, public_names, told_names, twins
from reference.wording import first_paragraph, signature

PAGE: Final = DOCS / "reference" / "python.md"

HEAD: Final = """\
# Python

<!-- Written by scripts/make_python_reference.py; do not edit. -->

Public names with their signatures. [The client](../client.md), [streams](../streams.md#from-python),
[channels](../channels.md), [transactions](../transactions.md) and [Spark](../spark.md) tell how they are
used. A name that is not here may change without notice.
"""

#: Packages in the order of the page, with what is said before their names.
PACKAGES: Final = {
    "penstock": "`penstock.open(url)` answers a `Penstock`: a client with `stream`, `channel` and"
    " `transactions`. Every [command](commands.md) is a method, too, named like it in small letters:"
    " `await ps.hgetall(key)`.",
    "penstock.streams": "What `ps.stream(name)` answers, and what it gives.",
    "penstock.channels": "What `ps.channel(name)` answers, and what it gives.",
    "penstock.transactions": "Pipelines, steps and workers; `ps.transactions` is a `Transactions`.",
    "penstock.spark": "Needs `penstock[spark]`. Formats and jobs are described under [Spark](../spark.md).",
}

BLOCKING: Final = """\
## penstock.blocking

The same for code without `await`: same names, same arguments, and answers instead of awaitables. What is an
`async for` there is a `for` here, and `async with` is `with`.
"""


_NAMES: Final = told_names()
_TOLD: Final = frozenset(_NAMES)


def main(arguments: list[str]) -> int:
    parts = [HEAD, *(_package(package, words) for package, words in PACKAGES.items()), _blocking()]
    return write_or_check(PAGE, "\n".join(parts), "make_python_reference.py", arguments)


def _package(package: str, words: str) -> str:
    told = "\n".join(part for name in public_names(package) for part in _name(package, name))
    return f"## {package}\n\n{words}\n\n{told}"


def _name(package: str, name: Name) -> Iterator[str]:
    """A heading, a signature, a paragraph, and the members of a class."""
    yield f"### {package}.{name.name}\n"
    yield f"```python\n{signature(name)}\n```\n"
    if paragraph := first_paragraph(name.node):
        yield f"{paragraph}\n"
    lines = [_member(member) for member in members_of(name, _TOLD)]
    if lines:
        yield "\n".join(lines) + "\n"
    yield from _bases(name)


def _bases(name: Name) -> Iterator[str]:
    for base in name.node.bases if isinstance(name.node, ast.ClassDef) else ():
        definition = name.module.find(base.id) if isinstance(base, ast.Name) else None
        if definition in _TOLD:
            yield f"And everything of {_linked(_NAMES[definition])}.\n"


def _linked(name: str) -> str:
    return f"[`{name}`](#{name.lower().replace('.', '')})"


def _member(member: Member) -> str:
    return f"- `{member.shown}`" + (f"  \n  {member.words}" if member.words else "")


def _blocking() -> str:
    rows = [
        (
            f"`{twin.name}`",
            _linked(twin.of) if twin.is_shown else f"`{twin.of}`",
            ", ".join(f"`{each}`" for each in twin.without),
        )
        for twin in twins()
    ]
    client = [name for name in public_names("penstock.blocking") if name.name in ("Client", "open")]
    told = "\n".join(part for name in client for part in _name("penstock.blocking", name))
    return f"{BLOCKING}\n{table(('here', 'is', 'without'), rows)}\n{told}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
