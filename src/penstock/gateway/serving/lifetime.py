"""How long a connection lives, and how it ends.

Where a connection is, as the parser sees it:

===========  ===============================  =========================================================
``_phase``   what was received last           what it may take
===========  ===============================  =========================================================
``NOTHING``  nothing yet, or a whole request  header timeout before the first request, then idle timeout
``HEAD``     a part of a head                 header timeout, from its first byte
``BODY``     a head and a part of a body      body timeout without a byte, read timeout for all of it
===========  ===============================  =========================================================

There is at most one timer for a connection. It is set when the connection is made, and moved only when a
request arrives in pieces, so a request that arrives at once costs none.

Rules: a connection ends gently where bytes may still arrive: closing it then would make the client's system
throw away the last answer. What requests are made of is the business of ``protocol``.
"""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.gateway.serving.cycle import Cycle
from penstock.gateway.serving.guards import LINGER_BYTES, LINGERING_REFUSED, GuardedState, refusal
from penstock.gateway.serving.heads import Fault
from penstock.gateway.serving.timer import Timer

NOTHING: Final = 0
HEAD: Final = 1
BODY: Final = 2

_SLOW_HEAD: Final = Fault(408, "header_timeout", "the headers took too long")
_SLOW_BODY: Final = Fault(408, "body_timeout", "the body took too long")
_SURPLUS: Final = refusal(503, "too many connections are open; try again later", retry_after_s=1)


class Lifetime(HttpToolsProtocol):
    """A connection without its requests."""

    def __init__(
        self,
        config: Config,
        server_state: GuardedState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.state = server_state
        self._guards = server_state.guards
        self._phase = NOTHING
        #: the cycle that the application works on; the parent's ``cycle`` is the latest that was parsed
        self._running: Cycle | None = None
        #: nothing that arrives is parsed any more
        self._is_deaf = False
        self._is_eof = False
        #: what is said when everything else is answered
        self._farewell = b""
        self._discarded_bytes = 0
        # When what began.
        self._is_fresh = True
        self._idle_since_s = 0.0
        self._head_since_s = 0.0
        self._progress_s = 0.0
        self._stuck_since_s = math.inf
        self._linger_until_s = math.inf
        self._close_by_s = math.inf
        self._timer = Timer(self.loop, self._on_timer)

    @abstractmethod
    def _refuse(self, fault: Fault) -> None:
        """Say so when everything before is answered, and end the connection."""

    # ------------------------------------------------------------------------- the end

    def _send_away(self) -> None:
        """One connection too many: told so if there are not too many of these as well."""
        self.state.on_guard("connections")
        self._is_deaf = True
        if len(self.state.surplus) >= LINGERING_REFUSED:
            self.transport.abort()
            return
        self.state.surplus.add(self)
        self.transport.write(_SURPLUS)
        self._linger()

    def _end(self) -> None:
        """Say what is left to say, and close; gently if bytes may be on their way."""
        if self._farewell:
            self.transport.write(self._farewell)
            self._farewell = b""
            self._linger()
        elif self._phase == BODY and not self._is_eof:
            self._linger()
        else:
            self._close()

    def _linger(self) -> None:
        """Read on for a while without listening."""
        self._is_deaf = True
        self._phase = NOTHING
        if self._is_eof:
            self._close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._linger_until_s = self.loop.time() + self._guards.linger_s
        self._timer.set_before(self._linger_until_s)

    def _discard(self, size_bytes: int) -> None:
        self._discarded_bytes += size_bytes
        if self._discarded_bytes > LINGER_BYTES:
            self.transport.abort()

    def _close(self) -> None:
        self._is_deaf = True
        self.transport.close()
        # It may take long to get rid of the last bytes.
        self._close_by_s = min(self._close_by_s, self.loop.time() + self._guards.write_timeout_s)
        self._timer.set_before(self._close_by_s)

    # ------------------------------------------------------------------------- time

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self._stuck_since_s = self.loop.time()
        self._timer.set_before(self._stuck_since_s + self._guards.write_timeout_s)

    def resume_writing(self) -> None:
        self._stuck_since_s = math.inf
        self.flow.resume_writing()

    def _deadline_s(self, now_s: float) -> float:
        """When this connection has to be looked at again; infinity: something else will see to that."""
        guards = self._guards
        deadline_s = min(self._linger_until_s, self._stuck_since_s + guards.write_timeout_s)
        if self._is_deaf:
            return deadline_s
        if self.flow.read_paused:
            # Looked at again in any case: nobody else does if it stops after we go on.
            return min(deadline_s, now_s + guards.body_timeout_s) if self._phase != NOTHING else deadline_s
        if self._phase == HEAD:
            return min(deadline_s, self._head_since_s + guards.header_timeout_s)
        if self._phase == BODY:
            whole_s = self._head_since_s + guards.read_timeout_s
            return min(deadline_s, self._progress_s + guards.body_timeout_s, whole_s)
        if self._running is not None:
            return deadline_s
        timeout_s = guards.header_timeout_s if self._is_fresh else guards.idle_timeout_s
        return min(deadline_s, self._idle_since_s + timeout_s)

    def _on_timer(self) -> None:
        now_s = self.loop.time()
        is_closing = self.transport.is_closing()
        if self.flow.read_paused:
            # It is us who hold it up: its time begins anew.
            self._head_since_s = self._progress_s = now_s
        deadline_s = self._close_by_s if is_closing else self._deadline_s(now_s)
        if deadline_s > now_s:
            self._timer.set_before(deadline_s)
        elif is_closing:
            self.transport.abort()
        elif now_s >= self._linger_until_s:
            self._close()
        elif now_s >= self._stuck_since_s + self._guards.write_timeout_s:
            self.state.on_guard("write_timeout")
            self.transport.abort()
        elif self._phase == HEAD:
            self._refuse(_SLOW_HEAD)
        elif self._phase == BODY:
            self._refuse(_SLOW_BODY)
        else:
            self._close()
