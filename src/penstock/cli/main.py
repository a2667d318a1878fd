"""Entry point of the ``penstock`` command: finds the group, shows errors as one sentence.

Exit status: 0 done (a server stopped by Ctrl-C is), 1 it did not work, 2 not understood, 130 other work
was stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from penstock.cli import channel, doctor, gateway, pipeline, serve, spark, stream, tx, worker
from penstock.errors import PenstockError
from penstock.version import __version__

_INTERRUPTED = 130

_EPILOG = """\
examples:
  penstock serve ./shop.pen                     a store in ./shop.pen, on 127.0.0.1:6380
  penstock serve ./shop.pen --http-port 8080    the same, and HTTP beside it
  penstock gateway --store redis://localhost    HTTP in front of a Redis
  redis-cli -p 6380 set greeting hello          any Redis client works against it
  penstock stream write ./shop.pen orders hi    a message to a stream
  penstock stream follow ./shop.pen orders      and its readers, as they come
  penstock channel publish ./shop.pen room hi   a message to a durable channel
  penstock channel tail ./shop.pen room         whatever comes from now on
  penstock worker shop --store ./shop.pen       runs the steps that shop.py has
  penstock tx start checkout '{"cart": 42}' --store ./shop.pen
  penstock spark run --store ./shop.pen --lake ./lake --streams orders
  penstock doctor ./shop.pen                    what is missing, and what to do about it

`penstock COMMAND --help` tells more about a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; answers the exit status."""
    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Durable streams, channels and transactions; embedded like SQLite, speaking Redis.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    groups = parser.add_subparsers(title="commands", dest="group", metavar="COMMAND", required=True)
    serve.add_arguments(groups)
    stream.add_arguments(groups)
    channel.add_arguments(groups)
    worker.add_arguments(groups)
    tx.add_arguments(groups)
    pipeline.add_arguments(groups)
    gateway.add_arguments(groups)
    spark.add_arguments(groups)
    doctor.add_arguments(groups)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # A server that did not listen to signals yet is stopped as well; half of a task is not done.
        return 0 if arguments.group in ("gateway", "serve", "worker") else _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
