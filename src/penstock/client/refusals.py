"""What follows when servers refuse commands that go together: none of them ran, so all can be tried again.

=====================  ==================================================================
MOVED, no primary      at once at the server that it names, as often as ``max_redirections``
                       allows
ASK                    after a pause where the keys are then: a slot that is half moved
                       takes neither transactions nor watched keys
CLUSTERDOWN, LOADING,  after a pause, too
TRYAGAIN and the like
anything else          is for the caller
=====================  ==================================================================

All of it within ``command_timeout_ms``; then the caller learns what the server said last.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from penstock.client.config import Settings
from penstock.client.policies import Remedy, classify_error
from penstock.client.router.base import Redirection, Router
from penstock.errors import CommandError

#: Between two attempts.
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.25


class Refusals:
    """Those of one caller."""

    def __init__(self, router: Router, settings: Settings) -> None:
        self._router = router
        self._redirections_left = settings.max_redirections
        self._pause_s = _FIRST_PAUSE_S
        timeout_s = settings.command_timeout_ms / 1000 or math.inf
        self._ends_s = asyncio.get_running_loop().time() + timeout_s

    async def survive(self, error: CommandError) -> Redirection | None:
        """Until it may be tried again: where it says, None: where the keys are. Raises what is final."""
        redirection = self._router.follow(error)
        if redirection is not None and not redirection.is_ask:
            if not self._redirections_left:
                raise error
            self._redirections_left -= 1
            return redirection
        if redirection is None and not _passes(error):
            raise error
        if asyncio.get_running_loop().time() + self._pause_s > self._ends_s:
            raise error
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return None


def _passes(error: CommandError) -> bool:
    """Whether the same commands may be taken later."""
    return classify_error(str(error)).remedy in (Remedy.REDISCOVER, Remedy.WAIT)
