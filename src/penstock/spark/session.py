"""A Spark session that starts with one call, on a machine where nothing but Python packages is installed.

    spark = penstock.spark.session()                              # all cores of this machine
    spark = penstock.spark.session(master="spark://host:7077")
    spark = penstock.spark.session(master="sc://host:15002")      # Spark Connect

Rules:

1. Java is found or made (``java``); workers run the interpreter that runs this.
2. It is quiet: what the JVM says goes to a file; the setting ``spark.penstock.log`` tells which.
3. What the caller sets in ``conf`` wins over the settings here.
4. Nothing outside this module asks for a SparkContext, so that everything runs over Connect as well.
5. One process has one classic session: a second call gives the same one, with the settings that can still
   change. If its JVM has died, the next call starts another.
6. What cannot start is one ``ConfigError``.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.clock import SystemClock
from penstock.errors import ConfigError
from penstock.spark.class_sharing import java_options
from penstock.spark.java import Java, home_for
from penstock.spark.java import chosen as chosen_java
from penstock.spark.places import cache_directory, temporary_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: For every session. Times are UTC.
_ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.stopTimeout": "30s",
}
#: For classic sessions.
_CLASSIC: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.structuredLogging.enabled": "false",
    # A batch's bookkeeping without a dozen of processes for chmod and readlink.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
#: … whose driver is this machine's alone. Tables are small enough for few files.
_LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(os.cpu_count() or 2, 2)),
    # What Python's workers send costs a tenth less than over TCP.
    "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
}
#: What Spark takes for a master, and ours for Connect.
_MASTER: Final = re.compile(
    r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|(spark|k8s|sc)://.+"
)
_IS_ABOUT_AN_ERROR: Final = re.compile("[Ee]rror|[Ee]xception|[Ii]nvalid")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_CHATTY: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_LOGS_KEPT_MS: Final = 7 * 24 * 3_600_000
_LOG_SETTING: Final = "spark.penstock.log"

_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
"""


def session(
    app: str = "penstock",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session, started or joined.

    ``master``: a master URL, or ``sc://…`` of a Connect server; without it ``SPARK_REMOTE``, else every core
    of this machine. ``conf``: settings of Spark. ``log``: the file for what the JVM has to say.
    """
    require_pyspark()
    chosen = master or os.environ.get("SPARK_REMOTE") or "local[*]"
    if _MASTER.fullmatch(chosen) is None:
        raise ConfigError(
            f"master must be local[*], local[N], spark://HOST:PORT, k8s://…, yarn, or sc://HOST:PORT,"
            f" not {chosen!r}"
        )
    _silence()
    if chosen.startswith("sc://"):
        return _connected(app, chosen, conf or {})
    return _classic(app, chosen, conf or {}, log)


def is_started() -> bool:
    """Whether this process has a classic session, which a call of ``session`` would join."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def require_pyspark() -> None:
    """One sentence for who has not got it."""
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError("Spark is not installed: pip install 'penstock[spark]'") from None


def is_alive(spark: SparkSession) -> bool:
    """Whether the session can still work: it was not stopped, and its JVM or its server answers."""
    try:
        context = getattr(spark, "_jsc", None)
        if context is not None:
            return not context.sc().isStopped()
        return bool(spark.version)
    except Exception:  # noqa: BLE001 - however a peer that is gone shows itself
        return False


# ------------------------------------------------------------------------------------- Connect


def _connected(app: str, address: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Asked here, since PySpark ends the whole process where it takes the caller for its own tests.
    if util.find_spec("grpc") is None:
        raise _lacking("No module named 'grpc'")
    builder = SparkSession.builder.remote(address).appName(app)
    for name, value in {**_ALWAYS, **conf}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except ImportError as error:
        raise _lacking(_first_line(error)) from None
    except PySparkException as error:
        raise ConfigError(f"there is no session at {address}: {_first_line(error)}") from error


def _lacking(what: str) -> ConfigError:
    import pyspark

    return ConfigError(
        f"Spark Connect needs packages that are not installed ({what}):"
        f" pip install 'pyspark[connect]=={pyspark.__version__}'"
    )


# ------------------------------------------------------------------------------------- classic


def _classic(
    app: str, master: str, conf: Mapping[str, str], log: str | os.PathLike[str] | None
) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _forget_dead_jvm()
    settings = {**_ALWAYS, **conf}
    with _without("SPARK_REMOTE"):  # where a master was asked for, an address must not win
        if SparkContext._active_spark_context is None:
            path = Path(log) if log is not None else _log_path(app)
            local = _LOCAL if master.startswith("local") else {}
            java = chosen_java()
            options = {_JAVA_OPTIONS: _java_options(java, conf), _LOG_SETTING: str(path)}
            settings = {**_CLASSIC, **local, **_places(), **settings, **options}
            _prepare_environment(master, home_for(java))
            _start(app, master, settings, path)
        builder = SparkSession.builder
        for name, value in settings.items():
            if name.startswith("spark.sql."):
                builder = builder.config(name, value)
        return builder.getOrCreate()


def _start(app: str, master: str, settings: Mapping[str, str], log: Path) -> None:
    """The JVM, its words going to the log, and the context in it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app).setAll(list(settings.items()))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        began = output.tell()
        try:
            gateway: Any = SparkContext._gateway
            if gateway is None:
                streams = {"stdout": output, "stderr": output}
                gateway = launch_gateway(conf, popen_kwargs=streams)  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            reason = _told_by_java(error) or _told_in(log, began) or _first_line(error)
            raise ConfigError(f"Spark did not start on {master}: {reason} ({log} has more)") from error


def _told_by_java(error: Exception) -> str:
    thrown = getattr(error, "java_exception", None)
    return str(thrown.getMessage()).strip().partition("\n")[0] if thrown is not None else ""


def _told_in(log: Path, began: int) -> str:
    """The first line that the JVM wrote about an error, since then."""
    with log.open("rb") as file:
        file.seek(began)
        lines = file.read().decode(errors="replace").splitlines()
    errors = (line.strip() for line in lines if _IS_ABOUT_AN_ERROR.search(line))
    return next((line for line in errors if not line.startswith("at ")), "")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _forget_dead_jvm() -> None:
    """PySpark keeps hold of a JVM that was killed, and would never start another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None or process.poll() is None:
        return
    with SparkContext._lock:
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None


def _prepare_environment(master: str, home: Path | None) -> None:
    """What Spark's scripts take from there alone. Which interpreter the user has set is left."""
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    else:
        os.environ.pop("JAVA_HOME", None)  # it was not fit
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def _without(variable: str) -> Iterator[None]:
    value = os.environ.pop(variable, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[variable] = value


def _java_options(java: Java, conf: Mapping[str, str]) -> str:
    """How the JVM logs, and what it has prepared; options of the caller stand behind the first and win."""
    theirs = conf.get(_JAVA_OPTIONS)
    return f"{_logging_option()} {java_options(java) if theirs is None else theirs}".strip()


def _logging_option() -> str:
    """Log4j's settings, in a file beside the shims."""
    settings = cache_directory() / "log4j2.properties"
    if not settings.exists() or settings.read_text() != _LOG4J:
        staged = settings.with_name(f"{settings.name}.{os.getpid()}")
        staged.write_text(_LOG4J)
        staged.replace(settings)
    return f"-Dlog4j2.configurationFile={settings.as_uri()}"


def _silence() -> None:
    """PySpark prints every error of a query to stderr, beside raising it."""
    from pyspark.logger import PySparkLogger

    for name in _CHATTY:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _places() -> dict[str, str]:
    """Spark's own directories: not where the user happens to be."""
    scratch = temporary_directory("penstock-spark")
    return {
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.local.dir": str(scratch),
    }


def _log_path(app: str) -> Path:
    """A new one for each process; those of last week go."""
    name = "".join(character if character.isalnum() or character in "-_." else "-" for character in app)
    directory = cache_directory() / "logs"
    for old in directory.glob("*.log"):
        try:
            if SystemClock().now_ms() - old.stat().st_mtime * 1_000 > _LOGS_KEPT_MS:
                old.unlink()
        except OSError:  # somebody else was faster
            pass
    return directory / f"{name}-{os.getpid()}.log"
