"""Source as readers see it: signatures without decorations, docstrings as Markdown.

Rules: what is written is what is shown; nothing is evaluated.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Final

from reference.names import Name, Node

_WIDTH: Final = 100
#: An argument with a type and a default, up to the sign between them, which ``unparse`` squeezes.
_ANNOTATED: Final = re.compile(r"^(\w+: [^=]+)=")
_ROLE: Final = re.compile(r":(?:mod|class|func|meth|attr|data|exc|obj):`~?([^`]+)`")


def signature(name: Name) -> str:
    """As it would be typed: ``class Stream`` or ``def open(url, …) -> Penstock``."""
    if isinstance(name.node, ast.ClassDef):
        bases = [ast.unparse(base) for base in name.node.bases]
        return f"class {name.node.name}" + (f"({', '.join(bases)})" if bases else "")
    return wrapped(
        function(name.node, prefix="async def " if isinstance(name.node, ast.AsyncFunctionDef) else "def ")
    )


def function(node: ast.FunctionDef | ast.AsyncFunctionDef, *, prefix: str, is_method: bool = False) -> str:
    arguments = _parts(ast.unparse(node.args))
    if is_method and arguments[0] in ("self", "cls"):
        del arguments[0]
    text = ", ".join(_ANNOTATED.sub(r"\1 = ", argument) for argument in arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{prefix}{node.name}({text}){returns}"


def wrapped(text: str) -> str:
    """A long one has an argument a line."""
    if len(text) <= _WIDTH:
        return text
    head, _, rest = text.partition("(")
    inside, closing, tail = rest.rpartition(")")
    return f"{head}(\n" + "".join(f"    {part},\n" for part in _parts(inside)) + f"{closing}{tail}"


def _parts(text: str) -> list[str]:
    """Arguments of a signature; commas within brackets and quotes part nothing."""
    parts, depth, quote, begin = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()]


def first_paragraph(node: Node) -> str:
    return markdown(ast.get_docstring(node) or "")


def markdown(docstring: str) -> str:
    """The first paragraph, with reStructuredText's marks as Markdown's."""
    paragraph = inspect.cleandoc(docstring).partition("\n\n")[0]
    text = " ".join(paragraph.split()).removesuffix("::")
    return _ROLE.sub(r"`\1`", text).replace("``", "`").replace("<", "&lt;") if text else ""
