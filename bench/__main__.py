"""Command line of the benchmarks."""

from __future__ import annotations

import argparse

from bench import profile, server
from bench.load import COMMANDS
from bench.machine import describe


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of requests")
    parser.add_argument("--profile", choices=sorted(COMMANDS), help="profile our server instead")
    parser.add_argument("--pipeline", type=int, default=1, help="pipeline depth for --profile")
    arguments = parser.parse_args()
    print(f"Machine: {describe()}\n")
    if arguments.profile:
        profile.main(arguments.profile, arguments.pipeline)
    else:
        server.main(arguments.scale)


if __name__ == "__main__":
    main()
