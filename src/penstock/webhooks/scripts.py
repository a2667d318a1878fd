"""The scripts of ``lua/`` with the keys of one queue: ``await scripts.run("renew", 30_000, …)``.

Records and bodies are bytes, so a client that takes replies for text is refused.
"""

from __future__ import annotations

from typing import Any

from penstock.client.client import Client
from penstock.client.scripts import ScriptLibrary
from penstock.client.transports.base import Argument
from penstock.errors import ConfigError
from penstock.webhooks.keys import WebhookKeys


class WebhookScripts:
    """The scripts of one queue on one client."""

    def __init__(self, client: Client, keys: WebhookKeys) -> None:
        if client.settings.decode_responses:
            raise ConfigError("webhooks keep bytes: open their client without decode_responses")
        self._keys = keys
        self._scripts = ScriptLibrary(client, "penstock.webhooks")

    async def run(self, name: str, *arguments: Argument, readonly: bool = False) -> Any:
        """Call one; what its reply is, its header says."""
        return await self._scripts[name](keys=self._keys.all, args=arguments, readonly=readonly)
