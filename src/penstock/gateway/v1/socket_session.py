"""One open socket: messages go out, acknowledgements and publications come in.

Two tasks, and no queue between them. The feeder reads ahead of what is acknowledged, until the window is
full; the reader takes one frame after another, and the next only when the last was answered. Both wait for
the client to read what they send, for a time: then the socket is closed. So a client holds one batch and
one answer of ours, whatever it does.

Rules: a frame that cannot be done is answered with ``error``; one that makes no sense ends the socket. Giving
messages back starts the feeder anew, at what is not acknowledged. Nothing here knows how sockets are opened.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from penstock.channels.model import Batch, compact
from penstock.errors import PenstockError, SubscriptionNotFoundError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.requests import Disconnected, Receive, Request, Send
from penstock.gateway.http.responses import Refusal
from penstock.gateway.policies import Policy
from penstock.gateway.services import Services
from penstock.gateway.v1 import socket_frames as frames
from penstock.gateway.v1.channel_requests import admit, checked_id
from penstock.gateway.v1.channels import new_message_id
from penstock.gateway.v1.feeds import Feed, FeedEnded
from penstock.gateway.v1.socket_frames import Closing
from penstock.gateway.v1.staying import Shutdown

_LOG = logging.getLogger("penstock.gateway")

#: Messages of one fetch.
_BATCH: Final = 256
_INTERNAL: Final = Refusal(500, "internal", "something went wrong here; it was logged")
#: How a feed that ended closes its socket.
_CODES: Final = {
    "shutdown": frames.GOING_AWAY,
    "subscription-removed": frames.VIOLATION,
    "unauthorized": frames.VIOLATION,
}


class Wire:
    """A WebSocket of ASGI, with limits. Disconnected when the client has gone."""

    def __init__(self, receive: Receive, send: Send, *, limit_bytes: int, send_timeout_s: float) -> None:
        self._receive = receive
        self._send = send
        self._limit_bytes = limit_bytes
        self._send_timeout_s = send_timeout_s

    async def take(self) -> frames.Frame:
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise Disconnected
        text = message.get("text")
        if text is None:
            raise Closing(frames.UNSUPPORTED, "messages are texts, not bytes")
        encoded = text.encode("utf-8", "surrogatepass")
        if len(encoded) > self._limit_bytes:
            raise Closing(frames.TOO_LARGE, f"a message may have at most {self._limit_bytes} bytes")
        return frames.parse(encoded)

    async def put(self, text: str) -> None:
        await self._pass_on({"type": "websocket.send", "text": text})

    async def accept(self, subprotocol: str | None) -> None:
        await self._pass_on({"type": "websocket.accept", "subprotocol": subprotocol})

    async def close(self, closing: Closing) -> None:
        """Best effort: a client that does not read does not read this either."""
        try:
            await self._pass_on({"type": "websocket.close", "code": closing.code, "reason": closing.reason})
        except (Closing, Disconnected):
            pass

    async def _pass_on(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await self._send(message)
        except TimeoutError:
            raise Closing(frames.LATER, "the client does not read") from None
        except (OSError, RuntimeError):  # the ways in which servers say that nobody is there
            raise Disconnected from None


class Session:
    """What happens on one socket after it was opened."""

    def __init__(
        self,
        services: Services,
        request: Request,
        policy: Policy,
        feed: Feed,
        wire: Wire,
        *,
        window: int,
        heartbeat_ms: int,
    ) -> None:
        self._services = services
        self._request = request
        self._policy = policy
        self._feed = feed
        self._wire = wire
        self._window = window
        self._heartbeat_ms = heartbeat_ms
        #: receipts that the client has and how many messages each stands for, oldest first
        self._outstanding: dict[str, int] = {}
        self._has_room = asyncio.Event()
        self._feeder: asyncio.Task[None] | None = None

    async def run(self, first: Batch, shutdown: Shutdown) -> None:
        """Until the end, which is always one of Closing and Disconnected."""
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def stop() -> None:
            if not stopped.done():
                stopped.set_result(None)

        reader = asyncio.create_task(self._read())
        self._feeder = asyncio.create_task(self._feed_client(first))
        try:
            with shutdown.watched(stop):
                await self._until_one_ends(reader, stopped)
        finally:
            tasks = (reader, self._feeder)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_one_ends(self, reader: asyncio.Task[None], stopped: asyncio.Future[None]) -> None:
        while True:
            feeder = self._feeder
            assert feeder is not None
            await asyncio.wait((reader, feeder, stopped), return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                raise Closing(frames.GOING_AWAY, "the gateway stops; come again")
            if reader.done():
                reader.result()
            if feeder.done() and feeder is self._feeder:
                feeder.result()

    # ------------------------------------------------------------------------- out

    async def _feed_client(self, batch: Batch) -> None:
        try:
            while True:
                if batch.messages:
                    await self._deliver(batch)
                    batch = Batch()
                if await self._wait_for_room():
                    room = self._window - sum(self._outstanding.values())
                    batch = await self._feed.following(min(_BATCH, room), self._heartbeat_ms)
                else:
                    await self._feed.idle()
                if not batch.messages:
                    await self._wire.put(frames.HEARTBEAT)
        except FeedEnded as end:
            raise Closing(_CODES.get(end.reason, frames.FAULT), f"{end.reason}: {end.detail}") from None

    async def _deliver(self, batch: Batch) -> None:
        assert batch.receipt is not None, "messages come with a receipt"
        # Before it is sent: the client may be fast.
        self._outstanding[batch.receipt] = len(batch.messages)
        for text in frames.batch_texts(batch):
            await self._wire.put(text)

    async def _wait_for_room(self) -> bool:
        """False: there was none within a heartbeat."""
        if sum(self._outstanding.values()) < self._window:
            return True
        self._has_room.clear()
        try:
            async with asyncio.timeout(self._heartbeat_ms / 1_000):
                await self._has_room.wait()
        except TimeoutError:
            return False
        return True

    # ------------------------------------------------------------------------- in

    async def _read(self) -> None:
        while True:
            frame = await self._wire.take()
            try:
                await self._do(frame)
            except SubscriptionNotFoundError as error:
                raise Closing(frames.VIOLATION, f"subscription-removed: {error}") from None
            except Refusal as refusal:
                await self._refuse(frame, refusal)
            except PenstockError as error:
                await self._refuse(frame, self._meaning_of(error))

    def _meaning_of(self, error: PenstockError) -> Refusal:
        refusal = refusal_of(error)
        if refusal is None:
            _LOG.error("a frame on channel %s failed", self._policy.channel, exc_info=error)
            return _INTERNAL
        return refusal

    async def _refuse(self, frame: frames.Frame, refusal: Refusal) -> None:
        if isinstance(frame, frames.Auth):
            raise Closing(frames.VIOLATION, f"unauthorized: {refusal.detail}")
        message_id = frame.id if isinstance(frame, frames.Publish) else None
        to = str(frame.__struct_config__.tag)
        await self._wire.put(frames.error_text(to, refusal, message_id))

    async def _do(self, frame: frames.Frame) -> None:
        match frame:
            case frames.Ack(receipt=receipt):
                moved = await self._feed.ack(receipt)
                self._forget_up_to(receipt)
                await self._wire.put(frames.to_text("acked", receipt=receipt, moved=moved))
            case frames.Nack(receipt=receipt, delay_ms=delay_ms):
                returned = await self._feed.nack(receipt, delay_ms)
                if returned:
                    self._start_anew()
                await self._wire.put(frames.to_text("nacked", receipt=receipt, returned=returned))
            case frames.Publish():
                await self._publish(frame)
            case frames.Ping():
                await self._wire.put(frames.PONG)
            case frames.Auth(token=token):
                await self._feed.show_credential(f"Bearer {token}")
                await self._wire.put(frames.AUTHENTICATED)

    def _forget_up_to(self, receipt: str) -> None:
        if receipt in self._outstanding:
            for older in list(self._outstanding):
                del self._outstanding[older]
                if older == receipt:
                    break
            self._has_room.set()

    def _start_anew(self) -> None:
        """What was read ahead lies behind what comes again."""
        assert self._feeder is not None
        before, self._feeder = self._feeder, asyncio.create_task(self._feed_again(self._feeder))
        before.cancel()

    async def _feed_again(self, before: asyncio.Task[None]) -> None:
        await asyncio.gather(before, return_exceptions=True)
        self._feed.position = None
        self._outstanding.clear()
        await self._feed_client(Batch())

    async def _publish(self, frame: frames.Publish) -> None:
        await admit(self._services, self._request, Action.PUBLISH, self._feed.authorization)
        message_id = new_message_id() if frame.id is None else checked_id("id", frame.id)
        self._services.access.count_publish(self._request, 1)
        is_new = await self._services.channels.publish(
            self._policy.channel,
            ((message_id, compact(bytes(frame.content))),),
            expire_ms=self._policy.expire_ms,
            outbox=self._services.wants_outbox(self._policy),
        )
        await self._wire.put(frames.to_text("published", id=message_id, duplicate=not is_new[0]))
