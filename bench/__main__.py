"""Command line of the benchmarks."""

from __future__ import annotations

import argparse

from bench import channels, channels_profile, client, profile, server, spark, streams, transactions
from bench.load import COMMANDS
from bench.machine import describe


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        choices=[[], "server", "client", "streams", "channels", "transactions", "spark"],
        help="what to measure; everything if not given",
    )
    parser.add_argument("--seek", type=int, default=0, help="a further size of stream to seek in")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of requests")
    parser.add_argument(
        "--profile",
        choices=[*sorted(COMMANDS), *channels_profile.KINDS],
        help="profile our server instead; publish and traffic: the gateway",
    )
    parser.add_argument(
        "--part", choices=channels.PARTS, action="append", help="of channels; all if not given"
    )
    parser.add_argument("--pipeline", type=int, default=1, help="pipeline depth for --profile")
    parser.add_argument(
        "--only",
        choices=[*transactions.SECTIONS, *spark.PARTS],
        help="one section of transactions, or one part of spark; all if not given",
    )
    transactions.add_options(parser)
    spark.add_options(parser)
    arguments = parser.parse_args()
    if arguments.only:
        owner = "spark" if arguments.only in spark.PARTS else "transactions"
        if arguments.what not in ([], [owner]):
            parser.error(f"--only {arguments.only} is for {owner}")
        arguments.what = [owner]
    print(f"Machine: {describe()}\n")
    if arguments.profile in channels_profile.KINDS:
        channels_profile.main(arguments.profile)
        return
    if arguments.profile:
        profile.main(arguments.profile, arguments.pipeline)
        return
    if "server" in arguments.what or not arguments.what:
        server.main(arguments.scale)
    if "client" in arguments.what or not arguments.what:
        client.main(arguments.scale)
    if "streams" in arguments.what or not arguments.what:
        streams.main(arguments.scale, arguments.seek)
    if "channels" in arguments.what or not arguments.what:
        channels.main(arguments.scale, arguments.part or channels.PARTS)
    if "transactions" in arguments.what or not arguments.what:
        transactions.main(arguments)
    if "spark" in arguments.what or not arguments.what:
        spark.main(arguments)


if __name__ == "__main__":
    main()
