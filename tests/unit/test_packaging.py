"""What is built and shipped: the wheel, its contents and its command; the files of ``deploy`` fit together.

The wheel is built by the backend itself, which is installed: nothing is fetched.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from penstock.version import __version__

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
JUNK = re.compile(r"__pycache__|\.py[co]$|\.orig$|~$|/\.|\.pen/|\.so$")


def build(kind: str, into: Path) -> Path:
    """By the backend, in a process of its own: it changes the working directory."""
    call = f"import hatchling.build as b; print(b.build_{kind}({str(into)!r}))"
    done = subprocess.run([sys.executable, "-c", call], cwd=ROOT, capture_output=True, text=True, check=True)
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel"))) as built:
        yield built


def sources() -> set[str]:
    files = (path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.is_file())
    return {name for name in files if not JUNK.search(name)}


# --------------------------------------------------------------------------------------- the wheel


def test_the_wheel_has_every_file_of_the_source_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == sources()
    assert not [name for name in names if JUNK.search(name)]
    suffixes = {Path(name).suffix for name in names}
    assert {".py", ".pyi", ".lua", ".js", ".css", ".html", ".svg"} <= suffixes
    assert {"penstock/py.typed", "penstock/gateway/console/static/index.html"} <= names


def test_the_wheel_has_the_command_and_the_licences(wheel: zipfile.ZipFile) -> None:
    about = f"penstock-{__version__}.dist-info"
    entries = configparser.ConfigParser()
    entries.read_string(wheel.read(f"{about}/entry_points.txt").decode())
    module, _, function = entries["console_scripts"]["penstock"].partition(":")
    assert callable(getattr(import_module(module), function))
    licences = [name for name in wheel.namelist() if f"{about}/licenses/" in name]
    assert f"{about}/licenses/LICENSE" in licences
    vendored = SOURCE / "penstock/gateway/console/static/vendor"
    assert len(licences) == 1 + len(list(vendored.glob("LICENSE-*")))


def test_the_core_is_lean(wheel: zipfile.ZipFile) -> None:
    about = Parser().parsestr(wheel.read(f"penstock-{__version__}.dist-info/METADATA").decode())
    needed = about.get_all("Requires-Dist") or []
    core = {re.split(r"[<>=;\[ ]", each)[0] for each in needed if "extra ==" not in each}
    assert core == {
        "backports-zstd", "cronsim", "hiredis", "lmdb", "lupa", "msgspec", "uvloop", "xxhash"
    }  # fmt: skip
    assert set(about.get_all("Provides-Extra") or []) >= {"archive", "cli", "gateway", "lake", "spark"}


def test_the_source_distribution_has_what_a_wheel_is_built_from(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in sources()} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "CHANGELOG.md"} <= names
    assert not [name for name in names if JUNK.search(name) and name != ".gitignore"]
    assert not [
        name for name in names if name.split("/")[0] in ("tests", "bench", "scripts", "penstock-demo")
    ]


# ------------------------------------------------------------------------------------ without extras

#: What is imported only by who has installed an extra.
EXTRAS = (
    "cryptography", "deltalake", "httptools", "httpx", "jwt", "numpy", "pandas", "prometheus_client",
    "prompt_toolkit", "pyarrow", "pyspark", "rich", "uvicorn", "websockets", "yaml",
)  # fmt: skip
_LEAN = """
import contextlib, io, json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from penstock.cli.main import main

for words in json.load(sys.stdin):
    out, errors = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(words)
        out.flush()
    print(json.dumps([status, out.buffer.getvalue().decode(), errors.getvalue()]))
"""


class Said(NamedTuple):
    status: int
    out: str
    errors: str


def lean(*commands: list[str]) -> list[Said]:
    """What the command says to somebody who has installed the core alone."""
    done = subprocess.run(
        [sys.executable, "-c", _LEAN.format(extras=set(EXTRAS))],
        input=json.dumps(commands), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [Said(*json.loads(line)) for line in done.stdout.splitlines()]


def test_the_core_works_without_extras(tmp_path: Path) -> None:
    store = str(tmp_path / "shop.pen")
    said = lean(
        ["stream", "write", store, "orders", "hello"],
        ["stream", "read", store, "orders"],
        ["tx", "list", "--store", store],
        ["shell", store, "GET", "greeting"],
    )
    assert [(each.status, each.errors) for each in said] == [(0, "")] * 4
    assert "hello" in said[1].out


def test_commands_that_need_an_extra_say_so(tmp_path: Path) -> None:
    store = str(tmp_path / "shop.pen")
    needed = {
        "gateway": (
            ["demo", str(tmp_path / "demo")],
            ["gateway", "--store", store],
            ["serve", store, "--port", "0", "--http-port", "0"],
        ),
        "spark": (["spark", "run", "--store", store, "--lake", str(tmp_path / "lake")],),
    }
    for extra, commands in needed.items():
        for said in lean(*commands):
            assert (said.status, said.out) == (1, "")
            assert said.errors.startswith("penstock: ")
            assert said.errors.count("\n") == 1
            assert f"pip install 'penstock[{extra}]'" in said.errors
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------ deploying


def test_pins_cover_what_is_named() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        _plain(line.partition("==")[0]): line.partition("==")[2] for line in lines if line and line[0] != "#"
    }
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    exempt = {"opentelemetry-exporter-otlp"}  # of nothing that `make` installs
    named = {_plain(re.split(r"[<>=;\[ ]", each)[0]) for group in groups for each in group}
    assert named - exempt <= set(pins)
    assert all(pins.values())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_compose_and_dockerfile_start_commands_that_exist() -> None:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert set(compose["services"]) == {"valkey", "gateway", "worker"}
    for name in ("gateway", "worker"):
        service = compose["services"][name]
        assert service["depends_on"]["valkey"]["condition"] == "service_healthy"
        _is_understood(service["command"])
    dockerfile = (ROOT / "Dockerfile").read_text()
    found = re.search(r'^ENTRYPOINT \["penstock"\]\nCMD (\[.*\])$', dockerfile, re.MULTILINE)
    assert found is not None
    _is_understood(yaml.safe_load(found[1]))
    assert "/v1/health" in dockerfile
    assert re.search(r"^USER penstock$", dockerfile, re.MULTILINE)


def test_the_unit_starts_a_command_that_exists() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((ROOT / "deploy/systemd/penstock.service").read_text())
    service = unit["Service"]
    path, *words = shlex.split(service["ExecStart"])
    assert Path(path).name == "penstock"
    _is_understood([word.replace("%S", "/var/lib") for word in words])
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["StateDirectory"] == "penstock"


def _is_understood(words: list[str]) -> None:
    from penstock.cli.main import whole_parser

    assert whole_parser().parse_args(words).run
