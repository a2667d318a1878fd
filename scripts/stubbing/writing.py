"""A stub as it grows: signatures, the imports that they need, and the layout of the formatter.

What a type becomes in the stub is the business of whoever writes it (``Translate``); this
module knows how signatures are spelled.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Final

from stubbing.sources import PACKAGE, Definition, Function, Module, decorators

LINE_LENGTH: Final = 110

_DOTS: Final = " ..."

#: The text of a type, given the module whose names it uses.
Translate = Callable[[Module, ast.expr], str]


class Stub:
    """Lines, and what they need to have imported; ``own`` are names that mean a class of the stub."""

    def __init__(self, own: Mapping[Definition, str] | None = None) -> None:
        self.lines: list[str] = []
        self._own = own or {}
        #: name here → what it means
        self._imports: dict[str, Definition] = {}

    def text(self, banner: str) -> str:
        return "\n".join([f"# {banner}; do not edit.", "", *self._import_lines(), *self.lines, ""])

    def use(self, definition: Definition) -> str:
        """The name of something, which is imported if it is not the stub's own."""
        if definition in self._own:
            return self._own[definition]
        taken = self._own.values()
        for name in (definition.name, _alias_of(definition)):
            if name not in taken and self._imports.setdefault(name, definition) == definition:
                return name
        raise SystemExit(f"{definition.name} of {definition.module} has the name of two others")

    def annotation(self, module: Module, annotation: ast.expr) -> str:
        """A type as it is written there, with what it needs imported: ``to.Lcs`` becomes ``Lcs``."""
        return source_of(_Resolver(self, module).visit(deepcopy(annotation)))

    def add_class(self, name: str, bases: list[str], body: list[str]) -> None:
        lines = wrapped(f"class {name}(", bases, ":") if bases else [f"class {name}:"]
        if body:
            self.lines += ["", *lines, *body]
            return
        # The formatter keeps classes without a body together.
        lines[-1] += _DOTS
        is_first = not self.lines or self.lines[-1].startswith(" ") or not self.lines[-1].endswith(_DOTS)
        self.lines += ["", *lines] if is_first else lines

    def function(
        self, name: str, parameters: list[str], answer: str, docstring: list[str] | None = None
    ) -> list[str]:
        head = f"    def {name}("
        if docstring is None:
            return wrapped(head, parameters, f" -> {answer}:{_DOTS}")
        # The formatter wants a blank line after a docstring, and none after dots.
        return [*wrapped(head, parameters, f" -> {answer}:"), *docstring, ""]

    def parameters(self, module: Module, function: Function, translate: Translate) -> list[str]:
        arguments = function.args
        plain = [*arguments.posonlyargs, *arguments.args]
        without = len(plain) - len(arguments.defaults)
        defaults: list[ast.expr | None] = [*[None] * without, *arguments.defaults]
        found = [
            _parameter(module, one, default, translate) for one, default in zip(plain, defaults, strict=True)
        ]
        if arguments.posonlyargs:
            found.insert(len(arguments.posonlyargs), "/")
        if arguments.vararg is not None:
            found.append("*" + _parameter(module, arguments.vararg, None, translate))
        elif arguments.kwonlyargs:
            found.append("*")
        found += [
            _parameter(module, one, default, translate)
            for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ]
        if arguments.kwarg is not None:
            found.append("**" + _parameter(module, arguments.kwarg, None, translate))
        return found

    def _import_lines(self) -> list[str]:
        """Standard library first, as the linter wants it."""
        modules: dict[str, list[str]] = {}
        aliases: dict[str, list[str]] = {}
        for name, definition in self._imports.items():
            names = modules.setdefault(definition.module, [])
            if name == definition.name:
                names.append(name)
            else:
                aliases.setdefault(definition.module, []).append(f"{definition.name} as {name}")
        ours: list[str] = []
        others: list[str] = []
        for module, names in sorted(modules.items()):
            plain = sorted(names, key=_import_order)
            blocks = [(alias, [f"from {module} import {alias}"]) for alias in aliases.get(module, ())]
            if plain:
                blocks.append((plain[0], wrapped(f"from {module} import ", plain, "", "(", ")")))
            # Each by its first name.
            lines = [
                line for _, block in sorted(blocks, key=lambda one: _import_order(one[0])) for line in block
            ]
            (ours if module.partition(".")[0] == PACKAGE else others).extend(lines)
        return [*others, "", *ours]


def _alias_of(definition: Definition) -> str:
    """For a name that means something else already: the room before it, ``StreamsMessage``."""
    return definition.module.split(".")[1 if definition.is_ours else 0].title() + definition.name


class _Resolver(ast.NodeTransformer):
    """Names with the modules they come from."""

    def __init__(self, stub: Stub, module: Module) -> None:
        self._stub = stub
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.Name:
        definition = self._module.find(node.id)
        return node if definition is None else ast.Name(self._stub.use(definition))

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        definition = self._module.find_node(node)
        assert definition is not None, ast.unparse(node)
        return ast.Name(self._stub.use(definition))


def docstring_of(node: ast.ClassDef | Function, margin: str) -> list[str]:
    return [f'{margin}"""{ast.get_docstring(node)}"""']


def is_overload(function: Function) -> bool:
    return "overload" in decorators(function)


def source_of(node: ast.expr) -> str:
    return ast.unparse(node).replace("'", '"')


def wrapped(head: str, items: list[str], tail: str, opening: str = "", closing: str = ")") -> list[str]:
    """On one line, else with the items on one line, else with each on its own."""
    one_line = f"{head}{', '.join(items)}{'' if opening else closing}{tail}"
    if len(one_line) <= LINE_LENGTH:
        return [one_line]
    margin = " " * (len(head) - len(head.lstrip()))
    inner = f"{margin}    {', '.join(items)}"
    if len(inner) <= LINE_LENGTH and not opening:
        return [head, inner, f"{margin}){tail}"]
    return [f"{head}{opening}", *(f"{margin}    {item}," for item in items), f"{margin}){tail}"]


def _parameter(module: Module, argument: ast.arg, default: ast.expr | None, translate: Translate) -> str:
    if argument.annotation is None:
        return argument.arg  # self
    text = f"{argument.arg}: {translate(module, argument.annotation)}"
    if default is None:
        return text
    # A default that has a name would need that name imported, and says no more to a type checker.
    is_plain = not any(isinstance(node, ast.Name | ast.Attribute) for node in ast.walk(default))
    return f"{text} = {source_of(default) if is_plain else '...'}"


def _import_order(name: str) -> tuple[int, str]:
    """Constants, classes, the rest."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name
