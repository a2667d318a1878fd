"""A real terminal for tests: a process behind a pty, keys that are sent, text that is awaited.

    with Terminal("shell", "./shop.pen") as terminal:
        terminal.wait_for("shop.pen>")
        terminal.send("PING\\r")
        terminal.wait_for("PONG")

Rules: waiting is for a text that has not been awaited yet, with a generous limit. Colours and movements of
the cursor are taken out of what is compared.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from types import TracebackType
from typing import Self

WAIT_S = 30.0
_AGAIN_S = 0.3
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>]|\([A-B0-2])")

#: What other terminals are said to be like; several test processes at once have such.
_OF_OTHERS = ("NO_COLOR", "COLUMNS", "LINES")


class Terminal:
    def __init__(self, *words: str, size: tuple[int, int] = (50, 160), **environment: str) -> None:
        self._words = [sys.executable, "-m", "penstock.cli.main", *words]
        self._size = size
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in _OF_OTHERS},
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            **environment,
        }
        #: all that was shown
        self.raw = ""
        self._seen = 0

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size, 0, 0))

        # The first terminal that the leader of a session opens becomes the session's own: Ctrl-C needs that.
        self.process = subprocess.Popen(
            ["sh", "-c", 'exec 0<>"$0" 1>&0 2>&0; exec "$@"', os.ttyname(theirs), *self._words],
            stdin=subprocess.DEVNULL, env=self._environment, start_new_session=True, pass_fds=(theirs,),
        )  # fmt: skip
        os.close(theirs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self.raw).replace("\r", "")

    def send(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self, wanted: str = ">") -> None:
        """Ctrl-C until this is shown: nobody knows when a program listens to it."""
        ends_s = time.monotonic() + WAIT_S
        while wanted not in self.text[self._seen :]:
            assert time.monotonic() < ends_s, f"{wanted!r} was not shown, but:\n{self.text[self._seen :]}"
            self.send("\x03")
            self._read(_AGAIN_S)
        self.wait_for(wanted)

    def wait_for(self, wanted: str) -> str:
        """Until this is shown, behind what was awaited before; answers what came before it."""
        ends_s = time.monotonic() + WAIT_S
        while True:
            fresh = self.text[self._seen :]
            if wanted in fresh:
                at = fresh.index(wanted)
                self._seen += at + len(wanted)
                return fresh[:at]
            if not self._read(ends_s - time.monotonic()):
                raise AssertionError(f"{wanted!r} was not shown, but:\n{fresh}")

    def wait_for_end(self) -> int:
        """Until the process has ended; its status."""
        ends_s = time.monotonic() + WAIT_S
        while self._read(ends_s - time.monotonic()):
            pass
        return self.process.wait(timeout=max(1.0, ends_s - time.monotonic()))

    def _read(self, within_s: float) -> bool:
        if within_s <= 0 or not select.select([self._ours], [], [], within_s)[0]:
            return False
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
