"""Where the server's time goes: runs it under cProfile with one kind of load."""

from __future__ import annotations

import cProfile
import os
import pstats
import signal
import tempfile
import threading
from pathlib import Path

from bench.load import Load, run
from penstock.server import Server, ServerSettings
from penstock.server import run as serve


def main(command: str, pipeline: int, requests: int = 100_000) -> None:
    def drive(server: Server) -> None:
        port = server.port

        def work() -> None:
            rate = run(port, Load(command, 50, pipeline, requests))
            print(f"{command} pipeline {pipeline}: {rate:,.0f} requests/s under the profiler\n")
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=work).start()

    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as directory:
        profile.enable()
        serve(Path(directory) / "profile.pen", ServerSettings(port=0), durability="relaxed", on_ready=drive)
        profile.disable()
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(25)
