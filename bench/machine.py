"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe() -> str:
    """One paragraph: processor, cores, memory, kernel, Python, the libraries that matter."""
    names = ("lmdb", "hiredis", "uvloop", "lupa", "xxhash")
    libraries = ", ".join(f"{name} {version(name)}" for name in names)
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB, {system}; {libraries}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
