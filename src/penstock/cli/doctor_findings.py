"""What ``penstock doctor`` finds, as values, and what its checks share.

========  =================================================================================
state     means
========  =================================================================================
``ok``    it works
``warn``  something does not work, or may not, which not everybody needs
``fail``  what was asked for cannot work, or loses data
========  =================================================================================

Rules: a finding that is not ``ok`` says what to do.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Literal

import msgspec

State = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    check: str
    state: State
    text: str
    #: what to do
    remedy: str = ""


def is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def numbers(version: str) -> tuple[int, ...]:
    """Of ``7.0.15``; what follows a plus sign does not count."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
