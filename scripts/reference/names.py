"""Public names of a package, followed to where they are defined.

Rules: the order is that of ``__all__``. Constants are left out; they have no signature.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stubbing.sources import Definition, Module, find_class, load

_TWINS: Final = "penstock.blocking._twins"
#: Where users import a class from, if not from where it is defined.
_SHOWN: Final = ("penstock", "penstock.streams", "penstock.channels", "penstock.transactions")

Node = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Name:
    """A class or a function that a package exports."""

    name: str
    module: Module
    node: Node


@dataclass(frozen=True, slots=True)
class Twin:
    """A class of ``penstock.blocking``, and the one that it is made of."""

    name: str
    of: str
    is_shown: bool
    without: tuple[str, ...]


def public_names(package: str) -> Iterator[Name]:
    module = load(package)
    for exported in _exports(module):
        definition = module.find(exported)
        if definition is None:
            continue
        home = load(definition.module)
        for node in home.tree.body:
            if isinstance(node, Node) and node.name == definition.name:
                yield Name(exported, home, node)


def _exports(module: Module) -> list[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise SystemExit(f"{module.name} has no __all__")


def twins() -> Iterator[Twin]:
    """Of ``Stream = make_twin(stream.Stream, without=(…))``."""
    module = load(_TWINS)
    public = told_names()
    for node in module.tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.targets[0], ast.Name)
        ):
            definition = module.find_node(node.value.args[0])
            assert definition is not None
            definition = find_class(definition).definition
            without = [ast.literal_eval(each.value) for each in node.value.keywords if each.arg == "without"]
            shown = public.get(definition)
            yield Twin(
                name=node.targets[0].id,
                of=shown or f"{definition.module}.{definition.name}",
                is_shown=shown is not None,
                without=tuple(without[0]) if without else (),
            )


def told_names() -> dict[Definition, str]:
    """What the page tells, by where it is defined, with the names that users know."""
    return {
        Definition(name.module.name, name.node.name): f"{package}.{name.name}"
        for package in _SHOWN
        for name in public_names(package)
    }
