"""What commands of ``penstock spark`` have in common: the configuration file, and what is said over it.

Rules: the command line wins over the file, the file over ``PENSTOCK_STORE`` and ``PENSTOCK_LAKE``. Nothing
here imports PySpark.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.spark.config import KeyPath, Places

CONFIG_VARIABLE: Final = "PENSTOCK_SPARK_CONFIG"


def add_places(parser: argparse.ArgumentParser, *, has_store: bool = True, has_lake: bool = True) -> None:
    """Where the configuration, the store and the lake are."""
    parser.add_argument("--config", metavar="FILE", default=os.environ.get(CONFIG_VARIABLE),
                        help=f"YAML, or - for standard input (default: ${CONFIG_VARIABLE})")  # fmt: skip
    if has_store:
        parser.add_argument("--store", metavar="WHERE", help="directory of a store, or a URL")
    if has_lake:
        parser.add_argument("--lake", metavar="DIR", help="directory of the lake")


def add_session(parser: argparse.ArgumentParser) -> None:
    """How Spark is started."""
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL",
                       help="spark://…, local[4], sc://… of Connect (default: this machine)")  # fmt: skip
    spark.add_argument("--conf", metavar="NAME=VALUE", type=setting, action="append", default=[],
                       help="a setting of Spark; repeatable")  # fmt: skip
    spark.add_argument("--log", metavar="FILE", help="for what the JVM says (default: in the user's cache)")


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value


def source(arguments: argparse.Namespace) -> Path | Literal["-"] | None:
    return arguments.config if arguments.config in (None, "-") else Path(arguments.config)


def overrides(arguments: argparse.Namespace) -> dict[KeyPath, Any]:
    """What the command line says, by where it stands in the file."""
    given = vars(arguments)
    return {
        ("store",): given.get("store"),
        ("lake",): given.get("lake"),
        ("spark", "master"): given.get("master"),
        ("spark", "conf"): dict(given["conf"]) if given.get("conf") else None,
        ("spark", "log"): given.get("log"),
    }


def places_of(arguments: argparse.Namespace) -> Places:
    """Where everything is, for commands that run no jobs."""
    need_spark_extra()
    from penstock.spark.config import places

    return places(source(arguments), environment=os.environ, overrides=overrides(arguments))


def need_spark_extra() -> None:
    """One sentence for who has not got what reading the configuration needs."""
    try:
        import penstock.spark.config  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this needs packages that are not installed ({error.name}): pip install 'penstock[spark]'"
        ) from error
