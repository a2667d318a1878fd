"""Lua scripts by name: sent by their hash, and whole only to a server that does not know them.

    reserve = ps.script(Path("reserve.lua"))
    left = await reserve(keys=["{shop}stock"], args=[3])

    shop = ps.scripts("shop.lua_scripts")      # the .lua files of a package or a directory
    await shop.reserve(keys=["{shop}stock"], args=[3])

Rules: a script is a value; calling it needs nothing prepared. EVALSHA is tried first, and a
server that answers NOSCRIPT gets EVAL, which teaches it. Inside a pipeline or transaction
scripts are sent whole (``queue``), since there nobody can answer NOSCRIPT in time.

A script is one text for the server, so what several files of a place share is put before each
of those that say so in their first line: ``-- uses: common groups``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.client.policies import Remedy, classify_error
from penstock.client.transports.base import Argument
from penstock.errors import CommandError, ConfigError
from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.pipelines import Batch, Later

_USES: Final = re.compile(r"-- uses: ([\w ]+)\n")


class Script:
    """One script of one client."""

    def __init__(self, client: Client, source: str, name: str = "script") -> None:
        self._client = client
        self.source = source
        self.name = name
        #: what servers know it by
        self.sha1 = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(
        self,
        keys: Sequence[Argument] = (),
        args: Sequence[Argument] = (),
        *,
        readonly: bool = False,
        timeout_ms: int | None = None,
    ) -> Reply:
        """Run it. ``readonly`` lets replicas run it (EVALSHA_RO), and lets it be sent twice."""
        suffix = "_RO" if readonly else ""
        try:
            return await self._client.execute(
                f"EVALSHA{suffix}", self.sha1, len(keys), *keys, *args, timeout_ms=timeout_ms
            )
        except CommandError as error:
            if classify_error(str(error)).remedy is not Remedy.LOAD_SCRIPT:
                raise
        return await self._client.execute(
            f"EVAL{suffix}", self.source, len(keys), *keys, *args, timeout_ms=timeout_ms
        )

    def queue(self, batch: Batch, keys: Sequence[Argument] = (), args: Sequence[Argument] = ()) -> Later[Any]:
        """Add a call to a pipeline or a transaction."""
        return batch.execute("EVAL", self.source, len(keys), *keys, *args)

    def __repr__(self) -> str:
        return f"<Script {self.name} {self.sha1[:12]}>"


class ScriptLibrary(Mapping[str, Script]):
    """The scripts of one place by the names of their files, as items or attributes."""

    def __init__(self, client: Client, place: str | Path) -> None:
        self._place = str(place)
        is_directory = isinstance(place, Path) or Path(place).is_dir()
        sources = _sources_in(Path(place)) if is_directory else _sources_of_package(str(place))
        self._scripts = {name: Script(client, source, f"{name}.lua") for name, source in sources.items()}

    def __getitem__(self, name: str) -> Script:
        try:
            return self._scripts[name]
        except KeyError:
            raise KeyError(f"{self._place} has no script {name!r}, only: {', '.join(self)}") from None

    def __getattr__(self, name: str) -> Script:
        try:
            return self._scripts[name]
        except KeyError:
            raise AttributeError(f"{self._place} has no script {name!r}, only: {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._scripts)

    def __len__(self) -> int:
        return len(self._scripts)

    def __repr__(self) -> str:
        return f"<ScriptLibrary {self._place}: {', '.join(self)}>"


@cache  # unlike a directory, a package does not change while the program runs
def _sources_of_package(name: str) -> Mapping[str, str]:
    """From its folder ``lua`` if it has one, else from the package itself."""
    try:
        package = resources.files(name)
    except (ModuleNotFoundError, TypeError, ValueError) as error:
        raise ConfigError(f"{name!r} has no scripts: it is neither a directory nor a package") from error
    lua = package / "lua"
    return _sources_in(lua if lua.is_dir() else package)


def _sources_in(folder: Traversable) -> Mapping[str, str]:
    """Every script of a folder by its name, with the parts that it uses before it."""
    if not folder.is_dir():
        raise ConfigError(f"'{folder}' has no scripts: it is neither a directory nor a package")
    files = {
        file.name.removesuffix(".lua"): file.read_text("utf-8")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".lua")
    }
    return {name: "\n".join([*_parts(files, name), text]) for name, text in files.items()}


def _parts(files: Mapping[str, str], name: str) -> list[str]:
    found = _USES.match(files[name])
    try:
        return [files[part] for part in found[1].split()] if found else []
    except KeyError as missing:
        raise ConfigError(f"{name}.lua uses {missing}, which does not lie beside it") from None
