"""``penstock completion bash|zsh|fish``: a script that lets the shell complete commands, options and values.

    source <(penstock completion bash)        # in ~/.bashrc

Rules: the script is made of the parsers, so it knows what this version knows and asks nobody while somebody
types. Files are completed where a file, a directory or a store is meant, choices where there are some.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.cli.completion_tree import Command, Option, read_tree
from penstock.cli.teaching import taught

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_arguments(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "completion",
        **taught(
            "let the shell complete commands and options",
            "source <(penstock completion bash)                                   in ~/.bashrc",
            'penstock completion zsh > "${fpath[1]}/_penstock"                    once',
            "penstock completion fish > ~/.config/fish/completions/penstock.fish  once",
            description="Print a script that lets the shell complete commands, options and values.",
        ),
    )
    parser.add_argument("shell", choices=tuple(_SHELLS), help="which one")
    parser.set_defaults(run=_print)


def _print(arguments: argparse.Namespace) -> None:
    from penstock.cli.main import whole_parser

    print(_SHELLS[arguments.shell](read_tree(whole_parser(), ("penstock",))), end="")


def _option_names(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


def _is_for_files(command: Command) -> bool:
    return any(argument.values == "files" for argument in command.arguments)


def _choices_of(command: Command) -> list[str]:
    return [choice for argument in command.arguments for choice in argument.choices]


def _path(command: Command) -> str:
    return " ".join(command.words)


# -------------------------------------------------------------------------------------------- bash

_BASH: Final = """\
# bash completion of penstock; made by `penstock completion bash`
_penstock() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local path=penstock words= files= options= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path ${COMP_WORDS[i]}" in
            %(paths)s) path="$path ${COMP_WORDS[i]}" ;;
        esac
    done
    COMPREPLY=()
    case "$path $prev" in
%(values)s
    esac
    case "$path" in
%(words)s
    esac
    if [[ $cur != -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        [[ -n $files ]] && COMPREPLY+=($(compgen -f -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    fi
}
complete -o filenames -F _penstock penstock
"""


def _bash(tree: Command) -> str:
    words = []
    for command in tree.walk():
        known = " ".join([*(inner.words[-1] for inner in command.commands), *_choices_of(command)])
        options = " ".join(_option_names(command))
        files = "yes" if _is_for_files(command) else ""
        words.append(
            f"        {shlex.quote(_path(command))}) words={shlex.quote(known)} files={shlex.quote(files)}"
            f" options={shlex.quote(options)} ;;"
        )
    return _BASH % _cases(tree, "        %s) %s; return ;;", _bash_values, words)


def _cases(tree: Command, line: str, values_of: Callable[[Option], str], words: list[str]) -> dict[str, str]:
    """What a template is filled with: paths of commands, a line for each option with a value, the words."""
    commands = list(tree.walk())
    values = [
        line % ("|".join(shlex.quote(f"{_path(command)} {name}") for name in option.names), values_of(option))
        for command in commands
        for option in command.options
        if option.values != "none"
    ]
    paths = "|".join(shlex.quote(_path(command)) for command in commands[1:])
    return {"paths": paths, "values": "\n".join(values), "words": "\n".join(words)}


def _bash_values(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(option.choices))} -- "$cur"))'
    return 'COMPREPLY=($(compgen -f -- "$cur"))' if option.values == "files" else ":"


# --------------------------------------------------------------------------------------------- zsh

#: Names as path, commands and options belong to zsh itself.
_ZSH: Final = """\
#compdef penstock
# zsh completion of penstock; made by `penstock completion zsh`
_penstock() {
    local place=penstock prev=${words[CURRENT-1]} files= i
    local -a actions switches
    for ((i = 2; i < CURRENT; i++)); do
        case "$place ${words[i]}" in
            (%(paths)s) place="$place ${words[i]}" ;;
        esac
    done
    case "$place $prev" in
%(values)s
    esac
    case "$place" in
%(words)s
    esac
    if [[ ${words[CURRENT]} == -* ]]; then
        _describe -o option switches
    else
        (( $#actions )) && _describe command actions
        [[ -n $files ]] && _files
    fi
}
if [[ $funcstack[1] == _penstock ]]; then
    _penstock "$@"
else
    compdef _penstock penstock
fi
"""


def _zsh(tree: Command) -> str:
    words = []
    for command in tree.walk():
        known = [_described(inner.words[-1], inner.summary) for inner in command.commands]
        known += map(shlex.quote, _choices_of(command))
        options = [_described(name, option.summary) for option in command.options for name in option.names]
        words.append(
            f"        ({shlex.quote(_path(command))}) actions=({' '.join(known)})"
            f" switches=({' '.join(options)}) files={'yes' if _is_for_files(command) else ''} ;;"
        )
    return _ZSH % _cases(tree, "        (%s) %s; return ;;", _zsh_values, words)


def _zsh_values(option: Option) -> str:
    if option.choices:
        return f"compadd -- {shlex.join(option.choices)}"
    return "_files" if option.values == "files" else "_message value"


def _described(word: str, summary: str) -> str:
    return shlex.quote(f"{word.replace(':', chr(92) + ':')}:{summary}")


# -------------------------------------------------------------------------------------------- fish

_FISH: Final = """\
# fish completion of penstock; made by `penstock completion fish`
function __penstock_path
    set -l path penstock
    for word in (commandline -opc)[2..-1]
        switch "$path $word"
            case %(paths)s
                set path "$path $word"
        end
    end
    echo $path
end
function __penstock_at
    test (__penstock_path) = "$argv"
end
complete -c penstock -f
"""


def _fish(tree: Command) -> str:
    commands = list(tree.walk())
    script = _FISH % {"paths": " ".join(shlex.quote(_path(command)) for command in commands[1:])}
    return script + "".join(line for command in commands for line in _fish_lines(command))


def _fish_lines(command: Command) -> list[str]:
    condition = shlex.quote(f"__penstock_at {_path(command)}")
    begin = f"complete -c penstock -n {condition}"
    lines = [
        f"{begin} -a {shlex.quote(inner.words[-1])} -d {shlex.quote(inner.summary)}\n"
        for inner in command.commands
    ]
    if choices := _choices_of(command):
        lines.append(f"{begin} -a {shlex.quote(' '.join(choices))}\n")
    if _is_for_files(command):
        lines.append(f"{begin} -F\n")
    for option in command.options:
        names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
        lines.append(f"{begin} {' '.join(names)}{_fish_values(option)} -d {shlex.quote(option.summary)}\n")
    return lines


def _fish_values(option: Option) -> str:
    if option.values == "none":
        return ""
    if option.choices:
        return f" -x -a {shlex.quote(' '.join(option.choices))}"
    return " -r -F" if option.values == "files" else " -x"


_SHELLS: Final[dict[str, Callable[[Command], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
