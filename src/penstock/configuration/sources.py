"""The text of a configuration: a file, or standard input, as plain values.

Rules: what cannot be read is one ``ConfigError`` that names the source. Knows no key.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from penstock.configuration.yamltext import parse_yaml
from penstock.errors import ConfigError


def read_source(source: Path | Literal["-"] | None) -> Any:
    """What YAML says in a file or in standard input (``"-"``); nothing is ``None``."""
    if source is None:
        return None
    name = "standard input" if source == "-" else str(source)
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f'cannot read the configuration "{name}": {reason}') from None
    return parse_yaml(text, name)
