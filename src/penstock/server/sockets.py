"""Where a server listens, and what the operating system has to say about it.

Every failure becomes a :class:`ConfigError` of one sentence.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
import stat
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

log = logging.getLogger("penstock.server")

BACKLOG: Final = 1024
#: Descriptors beside those of clients: the store, listeners, FIFOs, standard streams.
_OTHER_FILES: Final = 64


def explain_tcp(host: str, port: int, error: OSError) -> ConfigError:
    """Why a TCP port could not be opened."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is already in use: choose another one (--port) or stop what uses it"
        )
    return ConfigError(f"cannot listen on {host}:{port}: {_reason(error)}")


def open_unix_socket(path: Path) -> socket.socket:
    """A bound socket that only this user can connect to; replaces what a killed server left."""
    try:
        _remove_stale(path)
        unix = socket.socket(socket.AF_UNIX)
        try:
            unix.bind(str(path))
            # Nobody can connect before somebody listens, so this is early enough.
            path.chmod(0o700)
        except OSError:
            unix.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen on the unix socket {path}: {_reason(error)}") from error
    return unix


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} exists and is not a socket: choose another path for the unix socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise ConfigError(f"somebody already listens on the unix socket {path}: choose another path or stop it")


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from one that replaced it; None if there is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def clients_that_fit(max_clients: int) -> int:
    """Raise the limit of open files for so many clients; fewer if the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_clients + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return max_clients
    reachable = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    except (OSError, ValueError):
        reachable = soft
    fitting = max(reachable - _OTHER_FILES, 1)
    if fitting < max_clients:
        log.warning("the limit of %d open files allows %d clients, not %d", reachable, fitting, max_clients)
    return min(fitting, max_clients)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
