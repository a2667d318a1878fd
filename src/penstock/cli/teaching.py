"""Help that teaches: what every command says about itself, with lines to copy.

    actions.add_parser("write", **taught("add messages", "penstock stream write ./shop.pen orders hi"))

Rules: every command has a sentence and an example that works as it stands, given the names that the other
examples use (``./shop.pen``, ``orders``, ``checkout``). A test walks all of them.
"""

from __future__ import annotations

import argparse
from typing import Any


def taught(summary: str, *examples: str, description: str | None = None) -> dict[str, Any]:
    """What a parser is made with: ``summary`` is what lists of commands show, in lower case."""
    lines = "".join(f"  {example}\n" for example in examples)
    return {
        "help": summary,
        "description": description or f"{summary[0].upper()}{summary[1:]}.",
        "epilog": f"example{'s' if len(examples) > 1 else ''}:\n{lines}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def add_json(parser: argparse._ActionsContainer, what: str = "answer") -> None:
    """The switch that every command has which prints something."""
    parser.add_argument("--json", action="store_true", help=f"{what} in JSON, one value a line")
