"""Everything that ``docs/spark.md`` shows runs, and answers what the page says; so do the examples.

Python blocks run in their order, in one namespace. Commands are parsed and files of YAML are read, but not
run: that would be another JVM.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import penstock.blocking
from penstock.cli.main import main
from penstock.lake.tables import TABLES
from penstock.spark.config import load
from penstock.spark.jobs import KINDS
from tests.documents import blocks as blocks_of
from tests.documents import check, compiled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text()
DECLARATIVE = ROOT / "examples" / "declarative"


def blocks(kind: str) -> list[str]:
    return [block for _, block in blocks_of(PAGE, kind)]


def section(title: str) -> str:
    """From its heading to the next one."""
    return re.split(r"^#+ ", PAGE.partition(f"\n### {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


# ---------------------------------------------------------------------------------------------- Python


@pytest.fixture
def names(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Of the blocks. What they leave open or registered is closed and forgotten."""
    monkeypatch.chdir(tmp_path)
    # As in a script: functions of theirs travel to executors as a whole.
    names: dict[str, Any] = {"__name__": "__main__", "check": check}
    yield names
    if "ps" in names:
        names["ps"].close()
    for view in names.get("views", ()):
        spark.catalog.dropTempView(view)


def _run(example: str, names: dict[str, Any]) -> int:
    code, checks = compiled(example, "docs/spark.md")
    exec(code, names)
    return checks


def _run_alone(example: str, home: Path) -> list[str]:
    """As a program of its own: DuckDB does not like how the interpreter of the tests ends."""
    script = home / "duck.py"
    script.write_text(example)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=home)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.timeout(900)  # some thirty jobs of Spark, and every kind of them for the first time
def test_the_examples(
    names: dict[str, Any], tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = 0
    for block in blocks("python"):
        if block.startswith("# duck.py"):
            assert _run_alone(block, tmp_path) == ["failed 10", "success 90"]
        else:
            checks += _run(block, names)
    assert checks == 22
    assert names["spark"] is spark, "a second call gives the same session"
    assert "| at|  333|" in capsys.readouterr().out


# ------------------------------------------------------------------------------------ commands and files


def test_the_commands_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, words: Any = None) -> argparse.Namespace:
        arguments = parse(parser, words)
        arguments.run = lambda arguments: None
        return arguments

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    commands = [
        line.removeprefix("$ penstock ")
        for block in blocks("console")
        for line in block.splitlines()
        if line.startswith("$ penstock ")
    ]
    assert len(commands) == 10
    for command in commands:
        assert main(shlex.split(command)) == 0, command


def test_the_files_are_understood(tmp_path: Path) -> None:
    environment = {"PENSTOCK_STORE": "./shop.pen", "PENSTOCK_LAKE": "./lake", "REDIS_PASSWORD": "sesame"}
    kinds = set()
    for number, block in enumerate(blocks("yaml")):
        file = tmp_path / f"{number}.yml"
        file.write_text(block)
        kinds |= {job.kind for job in load(file, environment=environment).jobs}
    assert kinds == KINDS.keys()


def test_every_option_and_every_column_is_told() -> None:
    for kind in KINDS.values():
        options, _ = kind.load()
        told = section(kind.name)
        for field in msgspec.structs.fields(options):
            assert f"`{field.name.removesuffix('_ms')}`" in told, f"{field.name} of {kind.name}"
    rows = {row.split("|")[1]: row for row in section("Layout").splitlines() if row.startswith("| `")}
    for name in ("transactions", "steps", "webhooks", "messages", "stats_5s", "stream_stats_5s"):
        (told,) = (row for names, row in rows.items() if f"`{name}`" in names)
        missing = [column for column in TABLES[name].schema.names if f"`{column}`" not in told]
        assert missing == [], f"columns of {name}"


# --------------------------------------------------------------------------------- Declarative Pipelines


def test_the_declarative_project_is_one_that_spark_can_plan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running it needs packages of Connect; so its definitions are called as the program for it does."""
    from pyspark.pipelines.graph_element_registry import (
        GraphElementRegistry,
        graph_element_registration_context,
    )

    found: dict[str, Any] = {}

    class Registry(GraphElementRegistry):
        def register_output(self, output: Any) -> None: ...
        def register_auto_cdc_flow(self, flow: Any) -> None: ...
        def register_sql(self, sql_text: str, file_path: Path) -> None: ...
        def register_flow(self, flow: Any) -> None:
            found[flow.name] = flow.func

    store = tmp_path / "shop.pen"
    monkeypatch.setenv("PENSTOCK_STORE", str(store))
    with penstock.blocking.open(store) as ps:
        ps.stream("orders").write("de", '{"order": 1, "total": 20.5}')
    spec = util.spec_from_file_location("orders", DECLARATIVE / "transformations" / "orders.py")
    assert spec is not None
    assert spec.loader is not None
    with graph_element_registration_context(Registry()):
        spec.loader.exec_module(util.module_from_spec(spec))
    assert found.keys() == {"orders", "sales"}
    orders: DataFrame = found["orders"]()
    assert orders.isStreaming
    assert orders.columns == ["offset", "time", "country", "order", "total"]
    spark.createDataFrame([], orders.schema).createOrReplaceTempView("orders")
    try:
        assert found["sales"]().columns == ["country", "orders", "total"]
        sql = (DECLARATIVE / "transformations" / "hours.sql").read_text()
        view = sql.partition(" AS\n")[2].strip().removesuffix(";")
        assert spark.sql(view).columns == ["hour", "orders", "dearest"]
    finally:
        spark.catalog.dropTempView("orders")
