"""What the figures were measured on, and with what."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Final

from penstock.version import __version__

_LIBRARIES: Final = ("lmdb", "hiredis", "uvloop", "lupa", "xxhash", "msgspec")


def describe() -> str:
    """One line: processor, cores, memory, system."""
    system = f"{platform.system()} {platform.release()}"
    return f"{_processor()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB, {system}"


def versions() -> dict[str, str]:
    """Of us, of Python, and of the libraries that matter."""
    ours = {"Penstock": __version__, "Python": platform.python_version()}
    return ours | versions_of(*_LIBRARIES)


def versions_of(*packages: str) -> dict[str, str]:
    return {package: version(package) for package in packages}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
