"""What a class has: fields, properties and methods, its own and those of its bases.

Rules: names with an underscore are private; ``with``, ``for`` and ``len`` need no telling. Helpers of
commands are left out: the reference of commands has them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stubbing.sources import Class, Definition, decorators, find_class

from reference.names import Name
from reference.wording import first_paragraph, function, markdown

#: Bases whose methods are helpers of commands.
_HELPERS: Final = (
    "penstock.client.commands",
    "penstock.client._batch_commands",
    "penstock.blocking._commands",
)


@dataclass(frozen=True, slots=True)
class Member:
    """A line of the page, and what it says."""

    name: str
    shown: str
    words: str


def members_of(name: Name, told: frozenset[Definition]) -> list[Member]:
    """Without those of bases that are told elsewhere."""
    if not isinstance(name.node, ast.ClassDef):
        return []
    found: dict[str, Member] = {}
    for there in _ancestors(Class(name.module, name.node), told):
        for member in _own(there):
            found.setdefault(member.name, member)
    return list(found.values())


def _ancestors(there: Class, told: frozenset[Definition]) -> Iterator[Class]:
    """Itself and its bases of ours; what others bring, such as ``msgspec.Struct``, is theirs to tell."""
    yield there
    for base in there.node.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        definition = there.module.find(plain.id) if isinstance(plain, ast.Name) else None
        if definition is None or not definition.is_ours or definition in told:
            continue
        if not definition.module.startswith(_HELPERS):
            yield from _ancestors(find_class(definition), told)


def _own(there: Class) -> Iterator[Member]:
    notes = _Notes(there)
    for node in there.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from _field(node, notes)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield from _constant(node, notes)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _method(node)


def _field(node: ast.AnnAssign, notes: _Notes) -> Iterator[Member]:
    name = ast.unparse(node.target)
    kind = ast.unparse(node.annotation)
    if name.startswith("_") or kind.startswith(("ClassVar", "Final")):
        return
    default = (
        f" = {ast.unparse(node.value)}"
        if node.value is not None and "field(" not in ast.unparse(node.value)
        else ""
    )
    yield Member(name, f"{name}: {kind}{default}", notes.above(node))


def _constant(node: ast.Assign, notes: _Notes) -> Iterator[Member]:
    """Members of an enumeration."""
    name = ast.unparse(node.targets[0])
    if not name.startswith("_") and isinstance(node.value, ast.Constant):
        yield Member(name, f"{name} = {ast.unparse(node.value)}", notes.above(node))


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Member]:
    marks = decorators(node)
    if (
        node.name.startswith("_")
        or marks & {"overload", "typing.overload"}
        or any(".setter" in each for each in marks)
    ):
        return
    if "property" in marks or "cached_property" in marks:
        kind = f": {ast.unparse(node.returns)}" if node.returns is not None else ""
        yield Member(node.name, f"{node.name}{kind}", first_paragraph(node))
        return
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) and not _is_generator(node) else ""
    yield Member(node.name, function(node, prefix=prefix, is_method=True), first_paragraph(node))


def _is_generator(node: ast.AsyncFunctionDef) -> bool:
    return node.returns is not None and ast.unparse(node.returns).startswith(
        ("AsyncIterator", "AsyncGenerator")
    )


class _Notes:
    """The ``#:`` lines of a class, which are no part of its tree."""

    def __init__(self, there: Class) -> None:
        self._lines = there.module.text.splitlines()

    def above(self, node: ast.stmt) -> str:
        """Those directly above a statement, or a ``#:`` behind it."""
        behind = re.search(r"#: (.*)$", self._lines[node.lineno - 1])
        if behind is not None:
            return markdown(behind[1])
        found: list[str] = []
        at = node.lineno - 2
        while at >= 0 and self._lines[at].strip().startswith("#:"):
            found.insert(0, self._lines[at].strip().removeprefix("#:").strip())
            at -= 1
        return markdown(" ".join(found))
