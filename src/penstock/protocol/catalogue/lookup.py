"""From the words of a request to the spec of its command, or to the error that refuses it.

Rules: error texts are Redis 7.0's to the letter, since clients match on them. Names
are compared without regard to ASCII case. Bytes that are not UTF-8 travel in error
texts as surrogate escapes, so that an encoder with ``surrogateescape`` sends them
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.errors import CommandError
from penstock.protocol.catalogue.loader import CATALOGUE
from penstock.protocol.catalogue.spec import CommandSpec

#: Bytes of a name, and of all arguments together, that an error repeats.
_PREVIEW_BYTES: Final = 128

#: The two spellings that clients use, so that most lookups need no copy of the name.
_SPELLINGS: Final = dict(CATALOGUE) | {name.lower(): spec for name, spec in CATALOGUE.items()}


def lookup(name: bytes) -> CommandSpec | None:
    """The command of that name, in any case."""
    return _SPELLINGS.get(name) or _SPELLINGS.get(name.upper())


def lookup_full(full_name: bytes) -> CommandSpec | None:
    """The command or subcommand that COMMAND INFO would call so, as ``client|list``."""
    name, bar, subcommand = full_name.partition(b"|")
    spec = lookup(name)
    return spec.subcommands.get(subcommand.upper()) if spec and bar else spec


def find_subcommand(argv: Sequence[bytes]) -> CommandSpec | None:
    """The spec that rules this request: the subcommand's where there is one.

    None when the command, or the subcommand of a container, is unknown.
    """
    spec = lookup(argv[0])
    if spec is None or not spec.subcommands or len(argv) == 1:
        return spec
    return spec.subcommands.get(argv[1].upper())


def resolve(argv: Sequence[bytes]) -> CommandSpec:
    """The spec that rules this request, or the CommandError that Redis would answer."""
    spec = find_subcommand(argv)
    if spec is None:
        known = lookup(argv[0]) is not None
        raise unknown_subcommand(argv[0], argv[1]) if known else unknown_command(argv)
    if not check_arity(spec, len(argv)):
        raise arity_error(spec.full_name)
    return spec


def check_arity(spec: CommandSpec, argc: int) -> bool:
    """Whether a request of ``argc`` words, the name included, has as many as it must."""
    arity = spec.arity
    return argc == arity if arity > 0 else argc >= -arity


def every_command() -> Iterator[CommandSpec]:
    """All commands, each container followed by its subcommands."""
    for spec in CATALOGUE.values():
        yield spec
        yield from spec.subcommands.values()


def arity_error(name: bytes) -> CommandError:
    """``name`` is the full name, as ``client|list``."""
    return CommandError(f"ERR wrong number of arguments for '{_text(name.lower())}' command")


def unknown_command(argv: Sequence[bytes]) -> CommandError:
    preview = b""
    for argument in argv[1:]:
        if len(preview) >= _PREVIEW_BYTES:
            break
        preview += b"'%s' " % _printable(argument, _PREVIEW_BYTES - len(preview))
    name = _printable(argv[0], _PREVIEW_BYTES)
    return CommandError(
        f"ERR unknown command '{_text(name)}', with args beginning with: {_text(preview)}",
    )


def unknown_subcommand(container: bytes, subcommand: bytes) -> CommandError:
    name = _text(_printable(subcommand, _PREVIEW_BYTES))
    return CommandError(f"ERR unknown subcommand '{name}'. Try {_text(container.upper())} HELP.")


def _printable(word: bytes, limit: int) -> bytes:
    """What of a word fits on an error line: up to its first NUL, line ends as spaces."""
    return word[:limit].partition(b"\0")[0].replace(b"\r", b" ").replace(b"\n", b" ")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
