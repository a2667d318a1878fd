"""Source as its text has it: modules, their classes, and where their names come from.

Rules: nothing is imported, so that the same source gives the same stubs on every machine.
Names are followed to the module that defines them, inside the package; names of other
packages are theirs who import them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "penstock"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """What a name means: the module that defines it, and its name there."""

    module: str
    name: str

    @property
    def is_ours(self) -> bool:
        return self.module.partition(".")[0] == PACKAGE


class Module:
    """The source of one module."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _path_of(name).read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        #: name here → what it was imported or defined as
        self._origins: dict[str, Definition] = {}
        for node in _statements(self.tree):
            self._remember(node)

    def _remember(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            for alias in node.names:
                self._origins[alias.asname or alias.name] = Definition(node.module, alias.name)
        elif isinstance(node, ast.ClassDef | Function):
            self._origins[node.name] = Definition(self.name, node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            for target in targets:
                if isinstance(target, ast.Name):
                    self._origins[target.id] = Definition(self.name, target.id)

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))

    def find(self, name: str) -> Definition | None:
        """Where a name comes from in the end; None for a builtin."""
        found = self._origins.get(name)
        while found is not None and found.is_ours and found.module != self.name:
            if _is_module(f"{found.module}.{found.name}"):
                return found
            there = load(found.module)._origins.get(found.name)
            if there is None or there == found:
                return found
            found = there
        return found

    def find_node(self, node: ast.expr) -> Definition | None:
        """The same for an expression: a name, or that of an imported module (``pubsub.Subscriber``)."""
        if isinstance(node, ast.Name):
            return self.find(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            home = self.find(node.value.id)
            if home is not None and _is_module(f"{home.module}.{home.name}"):
                return load(f"{home.module}.{home.name}").find(node.attr)
        raise SystemExit(f"{self.name}: no telling where {ast.unparse(node)} comes from")


@cache
def load(name: str) -> Module:
    return Module(name)


@dataclass(frozen=True, slots=True)
class Class:
    """A class, and the module whose names its text uses."""

    module: Module
    node: ast.ClassDef

    @property
    def definition(self) -> Definition:
        return Definition(self.module.name, self.node.name)

    def bases(self) -> list[Definition]:
        """Without their parameters (``Mapping[str, int]``) and without those of the language."""
        plain = [base.value if isinstance(base, ast.Subscript) else base for base in self.node.bases]
        found = [self.module.find_node(base) for base in plain]
        return [definition for definition in found if definition is not None]

    def ancestors(self) -> Iterator[Definition]:
        """Itself, its bases, theirs."""
        yield self.definition
        for base in self.bases():
            if base.is_ours:
                yield from find_class(base).ancestors()

    def functions(self) -> list[Function]:
        return [item for item in self.node.body if isinstance(item, Function)]


def find_class(definition: Definition) -> Class:
    module = load(definition.module)
    for node in module.classes():
        if node.name == definition.name:
            return Class(module, node)
    raise SystemExit(f"{definition.module} has no class {definition.name}")


def decorators(function: Function) -> set[str]:
    return {ast.unparse(decorator) for decorator in function.decorator_list}


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Top-level statements, those for type checkers included."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        else:
            yield node


def _path_of(name: str) -> Path:
    path = ROOT / "src" / Path(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _is_module(name: str) -> bool:
    return name.partition(".")[0] == PACKAGE and _path_of(name).exists()
