"""Write the types of the blocking command helpers, which are the asynchronous ones with nothing to await.

    python scripts/make_blocking_stub.py           rewrite src/penstock/blocking/_commands.pyi
    python scripts/make_blocking_stub.py --check   say whether it is current, change nothing

Signatures are read from the source of ``penstock.client.commands``, ``Coming[T]`` becomes
``T``, and names are imported from where the helpers have them. The output depends on that
source alone and is formatted as ``make format`` would: the same on every machine.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "penstock.client.commands"
OUTPUT: Final = ROOT / "src/penstock/blocking/_commands.pyi"
LINE_LENGTH: Final = 110
COMMAND: Final = "python scripts/make_blocking_stub.py"

Function = ast.FunctionDef


class Module:
    """The source of one module, and where its names come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        path = ROOT / "src" / Path(*name.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.tree = ast.parse(source.read_text(encoding="utf-8"))
        #: name here → (module, name there); a module that was imported has no name there
        self.origins: dict[str, tuple[str, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
                for alias in node.names:
                    self.origins[alias.asname or alias.name] = (node.module, alias.name)
            elif isinstance(node, ast.ClassDef):
                self.origins[node.name] = (name, node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                self.origins |= {
                    target.id: (name, target.id) for target in targets if isinstance(target, ast.Name)
                }

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))


class Stub:
    """The output as it grows: class bodies, and the imports that they need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._imports: dict[str, str] = {}

    def add_class(self, module: Module, node: ast.ClassDef, bases: str = "") -> None:
        self.lines += ["", f"class _{node.name}{bases}:", *_docstring(node, "    "), ""]
        functions = [item for item in node.body if isinstance(item, Function)]
        # Of an overloaded helper only the overloads are types; the first carries what the helper says.
        overloaded = {function.name: function for function in functions if not _is_overload(function)}
        for function in functions:
            if _is_overload(function):
                self.lines += self._function(module, function, overloaded.pop(function.name, None))
            elif function.name in overloaded:
                self.lines += self._function(module, function, function)
        if not self.lines[-1]:
            self.lines.pop()

    def imports(self) -> list[str]:
        """Standard library first, as the linter wants it."""
        modules: dict[str, list[str]] = {}
        for name, module in self._imports.items():
            modules.setdefault(module, []).append(name)
        statements = [
            _wrapped(f"from {module} import ", sorted(names, key=_import_order), "", "(", ")")
            for module, names in sorted(
                modules.items(), key=lambda item: (item[0].startswith("penstock"), item[0])
            )
        ]
        ours = next(number for number, lines in enumerate(statements) if lines[0].startswith("from penstock"))
        return [line for lines in (*statements[:ours], [""], *statements[ours:]) for line in lines]

    def use(self, module: str, name: str) -> None:
        if self._imports.setdefault(name, module) != module:
            raise SystemExit(f"{name} means one thing in {module} and another in {self._imports[name]}")

    def _function(self, module: Module, function: Function, documented: Function | None) -> list[str]:
        lines = []
        if _is_overload(function):
            self.use("typing", "overload")
            lines.append("    @overload")
        answer = self._annotation(module, _awaited(function.returns))
        head = f"    def {function.name}("
        parameters = self._parameters(module, function.args)
        if documented is None:
            return [*lines, *_wrapped(head, parameters, f" -> {answer}: ...")]
        # The formatter wants a blank line after a docstring, and none after dots.
        docstring = _docstring(documented, "        ")
        return [*lines, *_wrapped(head, parameters, f" -> {answer}:"), *docstring, ""]

    def _parameters(self, module: Module, arguments: ast.arguments) -> list[str]:
        plain = arguments.args
        without = len(plain) - len(arguments.defaults)
        defaults: list[ast.expr | None] = [*[None] * without, *arguments.defaults]
        found = [self._parameter(module, one, default) for one, default in zip(plain, defaults, strict=True)]
        if arguments.vararg is not None:
            found.append("*" + self._parameter(module, arguments.vararg, None))
        elif arguments.kwonlyargs:
            found.append("*")
        found += [
            self._parameter(module, one, default)
            for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ]
        return found

    def _parameter(self, module: Module, argument: ast.arg, default: ast.expr | None) -> str:
        if argument.annotation is None:
            return argument.arg  # self
        text = f"{argument.arg}: {self._annotation(module, argument.annotation)}"
        return text if default is None else f"{text} = {_source(default)}"

    def _annotation(self, module: Module, annotation: ast.expr) -> str:
        """The text of a type; remembers what it needs to have imported."""
        resolved = _Resolver(self, module).visit(annotation)
        return _source(resolved)


class _Resolver(ast.NodeTransformer):
    """Names with the modules they come from: ``to.Lcs`` becomes ``Lcs``, imported."""

    def __init__(self, stub: Stub, module: Module) -> None:
        self._stub = stub
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self._module.origins:
            self._stub.use(*self._module.origins[node.id])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Name:
        assert isinstance(node.value, ast.Name), ast.unparse(node)
        package, name = self._module.origins[node.value.id]
        home = Module(f"{package}.{name}")
        self._stub.use(*home.origins[node.attr])
        return ast.Name(node.attr)


def _docstring(node: ast.ClassDef | Function, margin: str) -> list[str]:
    return [f'{margin}"""{ast.get_docstring(node)}"""']


def _is_overload(function: Function) -> bool:
    return any(ast.unparse(decorator) == "overload" for decorator in function.decorator_list)


def _awaited(annotation: ast.expr | None) -> ast.expr:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Coming":
        return annotation.slice
    raise SystemExit(f"a helper must answer Coming[…], not {annotation and ast.unparse(annotation)}")


def _source(node: ast.expr) -> str:
    return ast.unparse(node).replace("'", '"')


def _import_order(name: str) -> tuple[int, str]:
    """Constants, classes, the rest."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


def _wrapped(head: str, items: list[str], tail: str, opening: str = "", closing: str = ")") -> list[str]:
    """On one line, else with the items on one line, else with each on its own."""
    one_line = f"{head}{', '.join(items)}{'' if opening else closing}{tail}"
    if len(one_line) <= LINE_LENGTH:
        return [one_line]
    margin = " " * (len(head) - len(head.lstrip()))
    inner = f"{margin}    {', '.join(items)}"
    if len(inner) <= LINE_LENGTH and not opening:
        return [head, inner, f"{margin}){tail}"]
    return [f"{head}{opening}", *(f"{margin}    {item}," for item in items), f"{margin}){tail}"]


def generate() -> str:
    """The whole stub."""
    package = Module(PACKAGE)
    commands = next(node for node in package.classes() if node.name == "Commands")
    stub = Stub()
    runner = Module(f"{PACKAGE}.base")
    stub.add_class(runner, next(node for node in runner.classes() if node.name == "Runner"))
    families = [ast.unparse(base) for base in commands.bases]
    for family in families:
        module = Module(package.origins[family][0])
        stub.add_class(module, next(node for node in module.classes() if node.name == family), "(_Runner)")
    own = Module("penstock.blocking._commands")
    blocking = next(own.classes())
    stub.lines += [
        "",
        f"class {blocking.name}(",
        *(f"    _{family}," for family in families),
        "):",
        *_docstring(blocking, "    "),
    ]
    banner = f"# Generated by {COMMAND} from {PACKAGE}; do not edit."
    return "\n".join([banner, "", *stub.imports(), *stub.lines, ""])


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(f"Usage: {COMMAND} [--check]", file=sys.stderr)
        return 2
    current = OUTPUT.read_text(encoding="utf-8") if OUTPUT.exists() else ""
    wanted = generate()
    if arguments == ["--check"]:
        if current != wanted:
            print(f"{OUTPUT.name} is not current; run: {COMMAND}", file=sys.stderr)
        return int(current != wanted)
    if current != wanted:
        OUTPUT.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
