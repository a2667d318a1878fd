"""What a process runs that ``workers`` has started: the callable it was told, until that returns.

    python -m penstock.gateway.serving.worker TARGET INDEX COUNT LISTENER PARENT GRACE_S

``TARGET`` is ``package.module:callable``; it gets what came on standard input, the descriptor of the socket
to listen on, the worker's number and how many there are. ``PARENT`` is a pipe that ends with the parent: then
the worker is asked to stop (SIGTERM to itself), and after ``GRACE_S`` seconds it ends in any case.

Exit codes: what the target returns; ``EX_CONFIG`` for a ConfigError, which no restart would mend.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.errors import ConfigError

_LOG = logging.getLogger("penstock.gateway.server")

#: ``run(payload, socket_fd, index, count)``; the exit code, None for 0.
Target: TypeAlias = Callable[[bytes, int, int, int], int | None]

EX_CONFIG: Final = 78
_EX_ORPHAN: Final = 3


def main(arguments: list[str]) -> int:
    target_name, index, count, listener, parent, grace_s = arguments
    # A Ctrl+C reaches every process of a terminal; the parent decides what it means for us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch_parent(int(parent), float(grace_s))
    payload = sys.stdin.buffer.read()
    try:
        code = find_target(target_name)(payload, int(listener), int(index), int(count))
    except ConfigError as error:
        _LOG.error("worker %s cannot start: %s", index, error)
        return EX_CONFIG
    return code or 0


def find_target(name: str) -> Target:
    """The callable of a dotted name. ConfigError if there is none."""
    module_name, _, attribute = name.partition(":")
    try:
        target: Target = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the target {name} cannot be imported ({error}); name it module:callable"
        ) from error
    return target


def watch_parent(descriptor: int, grace_s: float) -> None:
    """Stop when the parent is gone, however it went."""
    threading.Thread(
        target=_stop_with_parent, args=(descriptor, grace_s), name="penstock-parent", daemon=True
    ).start()


def _stop_with_parent(descriptor: int, grace_s: float) -> None:
    # Nothing is ever written: this returns when the last holder of the other end has closed it.
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(grace_s)
    os._exit(_EX_ORPHAN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
