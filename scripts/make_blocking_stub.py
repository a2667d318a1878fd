"""Write the types that differ from the source: of blocking code, where nothing is awaited, and of queues.

    python scripts/make_blocking_stub.py           rewrite what is not current
    python scripts/make_blocking_stub.py --check   say what is not current, change nothing

=====================================  ===============================================
``blocking/_commands.pyi``             command helpers that answer ``T``
``blocking/_twins.pyi``                the synchronous sides of asyncio classes
``client/_batch_commands.pyi``         command helpers that answer ``Later[T]``
=====================================  ===============================================

The output depends on the source of the package alone and is formatted as ``make format``
would: the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # also when a test loads this file from elsewhere

from stubbing.commands import Helpers  # noqa: E402
from stubbing.sources import Definition  # noqa: E402
from stubbing.twins import Twins  # noqa: E402

SOURCE: Final = HERE.parent / "src/penstock"
COMMAND: Final = "python scripts/make_blocking_stub.py"

#: The helpers of the blocking client; the others.
OUTPUT: Final = SOURCE / "blocking/_commands.pyi"
TWINS_OUTPUT: Final = SOURCE / "blocking/_twins.pyi"
BATCH_OUTPUT: Final = SOURCE / "client/_batch_commands.pyi"


def blocking_commands() -> str:
    target = Definition("penstock.blocking._commands", "BlockingCommands")
    return Helpers(target, has_docstrings=True).generate(COMMAND)


def batch_commands() -> str:
    target = Definition("penstock.client._batch_commands", "BatchCommands")
    later = Definition("penstock.client.pipelines", "Later")
    return Helpers(target, has_docstrings=False, later=later).generate(COMMAND)


def twins() -> str:
    return Twins().generate(COMMAND)


def outputs() -> dict[Path, Callable[[], str]]:
    return {OUTPUT: blocking_commands, TWINS_OUTPUT: twins, BATCH_OUTPUT: batch_commands}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(f"Usage: {COMMAND} [--check]", file=sys.stderr)
        return 2
    stale = []
    for output, generate in outputs().items():
        current = output.read_text(encoding="utf-8") if output.exists() else ""
        wanted = generate()
        if current != wanted:
            stale.append(output)
            if not arguments:
                output.write_text(wanted, encoding="utf-8")
    if not arguments:
        return 0
    for output in stale:
        print(f"{output.name} is not current; run: {COMMAND}", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
