"""The generator of stubs, on a small package of its own: what it makes of each shape, what it refuses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest

ROOT = Path(__file__).parents[3]

HEAD = """
from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from penstock.other import Elsewhere
    from penstock.third import Elsewhere as Another

T = TypeVar("T")
DEFAULT = 3
"""
TABLE = """
from penstock import room
from penstock.blocking.twins import make_twin

Part = make_twin(room.Part)
Whole = make_twin(room.Whole, without=("callback",))
"""

Generate = Callable[..., list[str]]


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    """Write the class ``Whole`` with this body; the lines of its stub."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    sources, twins = (importlib.import_module(f"stubbing.{name}") for name in ("sources", "twins"))
    monkeypatch.setattr(sources, "ROOT", tmp_path)

    def generate_one(body: str, *, bases: str = "", table: str = TABLE) -> list[str]:
        text = (ROOT / "src/penstock/blocking/twins.py").read_text()
        whole = f"class Whole{bases}:\n{indent(dedent(body), '    ')}"
        files = {
            "__init__.py": "",
            "other.py": "class Elsewhere: ...",
            "third.py": "class Elsewhere: ...",
            "room.py": f"{HEAD}\nclass Part:\n    async def name(self) -> str: ...\n\n{whole}",
            "blocking/__init__.py": "",
            "blocking/twins.py": text,
            "blocking/_twins.py": table,
        }
        for name, source in files.items():
            path = tmp_path / "src/penstock" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        sources.load.cache_clear()
        lines = twins.Twins().generate("a test").splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith("class Whole"))
        return [line.strip() for line in lines[start:]]

    yield generate_one
    sources.load.cache_clear()


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("async def f(self, n: int = 1) -> str: ...", "def f(self, n: int = 1) -> str: ..."),
        ("def f(self) -> Awaitable[int]: ...", "def f(self) -> int: ..."),
        ("def f(self) -> AsyncIterator[Part]: ...", "def f(self) -> Iterator[Part]: ..."),
        ("async def f(self, p: Part) -> Part | None: ...", "def f(self, p: Part) -> Part | None: ..."),
        ("def f(self, e: Elsewhere) -> Self: ...", "def f(self, e: Elsewhere) -> Self: ..."),
        ("def f(self, n: int = DEFAULT) -> None: ...", "def f(self, n: int = ...) -> None: ..."),
        (
            "def f(self, a: int, /, *, b: int = 1, **c: str) -> None: ...",
            "def f(self, a: int, /, *, b: int = 1, **c: str) -> None: ...",
        ),
        ("async def __aenter__(self) -> Self: ...", "def __enter__(self) -> Self: ..."),
        ("async def __anext__(self) -> int: ...", "def __next__(self) -> int: ..."),
        ("def __getattr__(self, name: str) -> Part: ...", "def __getattr__(self, name: str) -> Part: ..."),
    ],
)
def test_methods(generate: Generate, written: str, wanted: str) -> None:
    assert generate(written) == ["class Whole(Twin):", wanted]


def test_attributes(generate: Generate) -> None:
    body = """
    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.part: Part | None = None
        self.digest = hash(name).hexdigest()
        self._hidden = object()

    @property
    def size(self) -> int: ...
    """
    lines = [line for line in generate(body)[1:] if line != "@property"]
    assert lines == [
        "def name(self) -> str: ...",
        "def count(self) -> int: ...",
        "def part(self) -> Part | None: ...",
        "def digest(self) -> str: ...",
        "def size(self) -> int: ...",
    ]


def test_overloads(generate: Generate) -> None:
    body = """
    @overload
    async def f(self, n: int) -> int: ...
    @overload
    async def f(self, n: str) -> str: ...
    async def f(self, n: int | str) -> int | str: ...
    """
    assert generate(body)[1:] == [
        "@overload",
        "def f(self, n: int) -> int: ...",
        "@overload",
        "def f(self, n: str) -> str: ...",
    ]


def test_what_is_hidden_stays_hidden(generate: Generate) -> None:
    body = """
    def _private(self) -> int: ...
    def __repr__(self) -> str: ...
    async def callback(self, f: Callable[[Part], Awaitable[int]]) -> None: ...
    """
    assert generate(body) == ["class Whole(Twin): ..."]


def test_inherited_members(generate: Generate) -> None:
    own, parts = "def f(self) -> int: ...", "def name(self) -> str: ..."
    assert generate(own, bases="(Part)") == ["class Whole(Twin):", own, parts]
    table = TABLE.replace("(room.Whole,", "(room.Whole, bases=(Part,),")
    assert generate(own, bases="(Part)", table=table) == ["class Whole(Part):", own]


def test_two_classes_of_one_name(generate: Generate) -> None:
    body = """
    def f(self, e: Elsewhere) -> None: ...
    def g(self, e: Another) -> None: ...
    """
    assert generate(body)[1:] == [
        "def f(self, e: Elsewhere) -> None: ...",
        "def g(self, e: ThirdElsewhere) -> None: ...",
    ]


def test_generic_classes(generate: Generate) -> None:
    assert generate("async def f(self) -> Whole[T]: ...", bases="(Generic[T])") == [
        "class Whole(Twin, Generic[T]):",
        "def f(self) -> Whole[T]: ...",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def f(self) -> list[Part]: ...", r"Part in list\[Part\] is out of a twin's reach"),
        (
            "def f(self, g: Callable[[], Awaitable[int]]) -> None: ...",
            "Awaitable in .* is out of a twin's reach",
        ),
        ("def f(self): ...", "annotate what Whole.f answers"),
        ("def __init__(self) -> None:\n    self.size = len('x')", "annotate self.size in Whole.__init__"),
    ],
)
def test_what_cannot_be_told_is_refused(generate: Generate, body: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        generate(body)
