"""The scripts of ``lua/``, joined from the files that they name: ``-- uses: common groups``.

A script is one text for the server, so what several share is put before each of them. A file
that no command is named after (``common.lua``) is such a part. Servers know scripts by hash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from penstock.client.scripts import Script, ScriptLibrary

if TYPE_CHECKING:
    from penstock.client.client import Client

_USES: Final = re.compile(r"-- uses: ([\w ]+)\n")


class StreamScripts(ScriptLibrary):
    """The commands by name in small letters: ``scripts["twrite"]``."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, "penstock.streams")
        self._scripts = {
            name: Script(client, source, f"{name}.lua") for name, source in joined_sources().items()
        }


@cache
def joined_sources() -> Mapping[str, str]:
    """Every script with its parts before it."""
    folder = resources.files("penstock.streams") / "lua"
    files = {
        file.name.removesuffix(".lua"): file.read_text("utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".lua")
    }
    uses = {name: found[1].split() for name, text in files.items() if (found := _USES.match(text))}
    return {name: "\n".join([*(files[part] for part in parts), files[name]]) for name, parts in uses.items()}
