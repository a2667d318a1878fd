"""YAML to plain values and back, with the scalars of YAML 1.2.

PyYAML speaks YAML 1.1, where ``no`` is false, ``12:30`` is 750 and ``1e3`` is text. Here only ``true`` and
``false`` are booleans, dates stay text, and a key that stands twice is an error instead of a silent choice.

Rules: the only module that sees PyYAML. Its exceptions become ``ConfigError`` with line and column.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from penstock.errors import ConfigError

_CORE_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        if isinstance(node, yaml.MappingNode):
            self._refuse_twins(node)
        return super().construct_mapping(node, deep=deep)

    @staticmethod
    def _refuse_twins(node: yaml.MappingNode) -> None:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f'key "{key.value}" stands twice', key.start_mark
                )
            seen.add(key.value)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own protocol

    def ignore_aliases(self, data: object) -> bool:
        return True


for _name, _pattern, _first in _CORE_SCALARS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})\\Z"), _first)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    try:
        return int(text, base)
    except ValueError:  # thousands of digits
        raise yaml.constructor.ConstructorError(
            None, None, "the number is too long", node.start_mark
        ) from None


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


#: Line ends of Unicode, which PyYAML writes plainly within single quotes and then reads as a space.
_ODD_LINE_ENDS: Final = re.compile("[\r\x85\u2028\u2029]")


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if _ODD_LINE_ENDS.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def parse_yaml(text: str, name: str) -> Any:
    """The one document in ``text``; ``name`` is what errors call it."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{name}: {place}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{name}: is nested too deeply") from None


def format_yaml(tree: object) -> str:
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
