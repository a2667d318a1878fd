"""When a link connects again, and whether it does at all. Decisions only: nothing here waits.

===========================  ======================================================
what happened                what follows
===========================  ======================================================
a dial failed                the policy's delay
credentials refused          the end; with a ``credential_provider``, and after a
                             first success, the policy's delay
a setting makes no sense,    the end; after a first success, the policy's delay
or a store cannot be opened
a store of another version   the end
a good connection was lost   at once: most losses are a server that restarts
a short-lived one was lost   the policy's delay: a server that ends every connection
                             is not hammered
the policy says None, or     the end
fails itself
===========================  ======================================================
"""

from __future__ import annotations

import logging
import random
from typing import Final

from penstock.client.config import Settings
from penstock.errors import AuthenticationError, ConfigError, StoreError, StoreFormatError

log = logging.getLogger("penstock.client")

#: A connection that stood this long was a good one.
STABLE_S: Final = 1.0


class Redialing:
    """Counts attempts for one link."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: since the last good connection
        self._attempts = 0
        self._opened_s = 0.0
        #: whether there has ever been a connection
        self.was_open = False

    def opened(self, now_s: float) -> None:
        self._opened_s = now_s
        self.was_open = True

    def delay_after_failure_s(self, error: Exception) -> float | None:
        """How long to wait after a dial that failed; None: for ever."""
        return None if self._is_final(error) else self._policy_s()

    def delay_after_loss_s(self, now_s: float) -> float | None:
        """How long to wait after the loss of a connection; None: for ever."""
        is_good = now_s - self._opened_s >= STABLE_S
        if is_good:
            self._attempts = 0
        delay_s = self._policy_s()
        return 0.0 if is_good and delay_s is not None else delay_s

    def _is_final(self, error: Exception) -> bool:
        """Whether trying again is pointless. What was right once may be so again soon."""
        if isinstance(error, AuthenticationError):
            return not self.was_open or self._settings.credential_provider is None
        if isinstance(error, StoreFormatError):
            return True
        return isinstance(error, ConfigError | StoreError) and not self.was_open

    def _policy_s(self) -> float | None:
        self._attempts += 1
        try:
            delay_ms = self._settings.reconnect.delay_ms(self._attempts, random.random)
        except Exception:
            log.exception("the reconnect policy failed; giving up")
            return None
        return None if delay_ms is None else delay_ms / 1000
