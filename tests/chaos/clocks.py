"""The clock of members, which the weather moves: all of them are wrong by the same amount, at once.

    install(scene.clock_file)       first thing in the process of a member
    set_shift(scene.clock_file, -4_000)

The file has eight bytes, little-endian and signed: by how many milliseconds wall time is off. Members of one
store share a machine, hence a clock, and so the processes agree about it as they would in earnest. Monotonic
time goes on: no machine turns that back. Knows nothing of crews and weather.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

from penstock.clock import SystemClock

_SHIFT: Final = struct.Struct("<q")


def set_shift(clock_file: Path, shift_ms: int) -> None:
    """From now on, in every process that has installed this file. The file is made where it is missing."""
    descriptor = os.open(clock_file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, _SHIFT.pack(shift_ms), 0)
    finally:
        os.close(descriptor)


def install(clock_file: Path) -> None:
    """Let every ``SystemClock`` of this process, present and future, follow the file."""
    with clock_file.open("rb") as file:
        shift = mmap.mmap(file.fileno(), _SHIFT.size, access=mmap.ACCESS_READ)

    def now_us(self: SystemClock) -> int:
        return time.time_ns() // 1_000 + int(_SHIFT.unpack_from(shift)[0]) * 1_000

    def now_ms(self: SystemClock) -> int:
        return time.time_ns() // 1_000_000 + int(_SHIFT.unpack_from(shift)[0])

    SystemClock.now_us = now_us  # type: ignore[method-assign]
    SystemClock.now_ms = now_ms  # type: ignore[method-assign]
