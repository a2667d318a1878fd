"""A cluster: every command finds the node that serves its keys, whatever happens to the nodes.

    call ──> slot of the key ──> owners[slot] ──> link
                                     ^
             MOVED patches a slot ───┤
             a refresh brings a map ─┘

What happens when, and who decides it:

===========================  ==========================================================
a command before the map     waits in the lobby, a link whose dial asks the seeds
MOVED                        the slot is patched, the command follows, one refresh comes
ASK                          ASKING and the command go to the named node, this once
CLUSTERDOWN, TRYAGAIN, …     tried again until the deadline (``detours``)
a link is lost               it reconnects; meanwhile the map is asked for again and again
                             (``refreshing``), of any node that answers (``backchannel``)
a node owes replies          the map is asked for: others may have replaced it, while its
                             connection looks sound
a command about the whole    to every primary, answered as one (``broadcasting``)
a map without its node       the link is closed; what waited there goes to the new owners
===========================  ==========================================================

Rules:

1. Reads go to replicas only where ``read_from`` says so. What was redirected or refused once
   goes to primaries.
2. What waits at a link moves in the order it was issued, bursts as a whole.
3. A map is never given up for none: while nobody answers, the old one stays.
4. A command whose keys are of several slots is split if ``split_multi_key`` says so and it can
   be; else refused here, in the server's words.

It knows neither how commands are spelled for people nor what replies mean.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.client.config import Settings
from penstock.client.connection import Connection, ReplyFuture, Slot
from penstock.client.dialing import Dialer
from penstock.client.facts import keys_of, suits_replicas
from penstock.client.handshake import ServerFacts
from penstock.client.link import Link, LinkState
from penstock.client.policies import ErrorClass, Redirect, Remedy, classify_error
from penstock.client.router.backchannel import Backchannel, address_named
from penstock.client.router.base import Observer, Place, Redirection
from penstock.client.router.broadcasting import merge_of
from penstock.client.router.detours import Asking, Detours
from penstock.client.router.nodes import Nodes
from penstock.client.router.refreshing import Refresher
from penstock.client.router.reporting import report_state
from penstock.client.router.scattering import Deferred, scatter
from penstock.client.router.splitting import Merge, Split, can_split, same_slot, split
from penstock.client.router.territory import Territory
from penstock.client.router.topology import SlotMap, resolve
from penstock.client.targets import Address
from penstock.client.transports.base import Arguments
from penstock.errors import ClosedError, CommandError, NotSentError, PenstockError
from penstock.protocol.replies import Reply
from penstock.protocol.slots import key_slot

log = logging.getLogger("penstock.client")

#: A node that owes replies for so long may have been replaced; how often to look.
_SILENCE_S: Final = 1.0
#: How long the links' own delays do not count after the cluster has changed or come back.
_AWAKE_S: Final = 10.0


class ClusterRouter:
    """A router with one link a primary, and where wanted one a replica."""

    def __init__(
        self, dialer: Dialer, seeds: Sequence[Address], settings: Settings, observer: Observer
    ) -> None:
        self._dialer = dialer
        self._seeds = tuple(seeds)
        self._observer = observer
        self._open_within_s = (settings.connect_timeout_ms + settings.handshake_timeout_ms) / 1000
        self._refresh_delay_s = settings.cluster_refresh_delay_ms / 1000
        self._splits = settings.split_multi_key
        self._loop = asyncio.get_running_loop()
        # What outlives the call that caused it must not keep that call's context alive.
        context = contextvars.Context()
        #: beside the shared connections
        self.backchannel = Backchannel(dialer, settings)
        self._nodes = Nodes(dialer, settings, self, context)
        self._detours = Detours(settings, context)
        self._refresher = Refresher(self._refresh, context)
        self._lobby = Link(",".join(map(str, self._seeds)), self, self._dial_lobby, settings)
        self._territory = Territory(self._nodes, self._lobby, settings)
        self._owners = self._territory.owners
        #: whether the last refresh found nobody
        self._is_out_of_touch = False
        self._awake_until_s = 0.0
        self._context = context
        self._look_timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self.call: Callable[[Arguments], ReplyFuture] = (
            self._call if settings.read_from == "primary" else self._call_or_read
        )

    # ------------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        try:
            async with asyncio.timeout(self._open_within_s):
                await self._wait_for_map()
                await self._wait_for_primary()
        except TimeoutError:
            why = self._lobby.last_error or "no primary accepts connections"
            raise NotSentError(f"the cluster at {self._lobby.name} cannot be reached: {why}") from None

    async def _wait_for_map(self) -> None:
        if self._territory.is_known:
            return
        try:
            await self._lobby.wait_open()
        except ClosedError:
            if not self._territory.is_known:
                raise

    async def _wait_for_primary(self) -> None:
        """Until one is connected; raises why none is."""
        waits = [asyncio.ensure_future(link.wait_open()) for link in self._territory.primaries()]
        errors: list[PenstockError] = []
        try:
            for wait in asyncio.as_completed(waits):
                try:
                    await wait
                except PenstockError as error:
                    errors.append(error)
                else:
                    return
            raise errors[0]
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def close(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            # In a forked child nothing is left to do, elsewhere the links say what is wrong.
            for link in (self._lobby, *self._nodes):
                await link.close()
            return
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._refresher.close()
        self._detours.close()
        await self._lobby.close()  # from now on no map comes any more, and no link
        if self._look_timer is not None:
            self._look_timer.cancel()
        await asyncio.gather(self._nodes.close(), self.backchannel.close())

    # --------------------------------------------------------------------- calls

    def _call(self, arguments: Arguments) -> ReplyFuture:
        """The hot path: two lookups between the caller and the link."""
        keys = keys_of(arguments) if arguments else ()
        if len(keys) == 1:
            return self._owners[key_slot(keys[0])].call(arguments)
        return self._call_unusual(arguments, keys)

    def _call_or_read(self, arguments: Arguments) -> ReplyFuture:
        """The same where reads may go to replicas."""
        keys = keys_of(arguments) if arguments else ()
        if len(keys) == 1:
            return self._send(key_slot(keys[0]), arguments)
        return self._call_unusual(arguments, keys)

    def _call_unusual(self, arguments: Arguments, keys: Sequence[bytes]) -> ReplyFuture:
        """A command without a key, or with several."""
        if not keys:
            merge = merge_of(arguments) if arguments else None
            return (
                self._territory.anyone().call(arguments) if merge is None else self._ask_all(arguments, merge)
            )
        try:
            slot = same_slot(keys)
        except CommandError as error:
            if self._splits and can_split(arguments[0]):
                return self._scatter(arguments)
            return self._refused(error)
        return self._send(slot, arguments)

    def _send(self, slot: int, arguments: Arguments) -> ReplyFuture:
        owner = self._owners[slot]
        if suits_replicas(arguments):
            return self._territory.reader_for(owner).call(arguments)
        return owner.call(arguments)

    def _scatter(self, arguments: Arguments) -> ReplyFuture:
        try:
            parts = split(arguments)
        except CommandError as error:
            return self._refused(error)
        return scatter(parts, self._send)

    def _ask_all(self, arguments: Arguments, merge: Merge) -> ReplyFuture:
        """A command about the whole cluster; it waits for the map like any other."""
        if not self._territory.is_known:
            # Somebody else waits there, for as long as any command may.
            return Deferred(self._lobby.call(("PING",)), lambda: self._ask_all(arguments, merge))
        links = self._territory.primaries()
        parts = [(place, arguments) for place in range(len(links))]
        return scatter(Split(parts, merge), lambda place, part: links[place].call(part))

    def _refused(self, error: CommandError) -> ReplyFuture:
        future: ReplyFuture = self._loop.create_future()
        future.set_exception(error)
        return future

    # ------------------------------------------------------------------- for others

    def link_for(self, arguments: Arguments) -> Link:
        """Always a primary: a burst may write. Of several keys the first decides."""
        keys = keys_of(arguments)
        return self._owners[key_slot(keys[0])] if keys else self._territory.anyone()

    def place_for(self, arguments: Arguments) -> Place:
        link = self.link_for(arguments)
        if link is not self._lobby:
            return self._place(address_named(link.name))

        async def dial(connection: Connection) -> ServerFacts:
            await self._wait_for_map()
            return await self.place_for(arguments).dial(connection)

        return Place(link.name, dial)

    def _place(self, address: Address) -> Place:
        return Place(self._dialer.name_of(address), self._dialer.to(address))

    def follow(self, error: CommandError) -> Redirection | None:
        verdict = classify_error(str(error))
        if verdict.redirect is None or self._closing is not None:
            return None
        # Whoever sent it had been taken for the owner of the slot.
        address = self._target_of(verdict.redirect, self._owners[verdict.redirect.slot])
        is_ask = verdict.kind is ErrorClass.ASK
        self._detours.redirections += 1
        if not is_ask:
            self._learn_move(verdict.redirect.slot, address)
        return Redirection(self._place(address), self._nodes.primary(address), is_ask)

    def primaries(self) -> list[Link]:
        return self._territory.primaries()

    def link_named(self, name: str) -> Link:
        return self._territory.named(name)

    def statistics(self) -> Mapping[str, Any]:
        """By server, and how often commands were redirected and the map asked for."""
        figures: dict[str, Any] = {}
        for link in self._nodes if self._territory.is_known else [self._lobby]:
            figures.setdefault(link.name, link.statistics())
        figures["redirections"] = self._detours.redirections
        figures["refreshes"] = self._refresher.count
        return figures

    # ------------------------------------------------------------------- refusals

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        verdict = classify_error(str(error))
        if verdict.redirect is not None:
            return self._redirect(link, slot, verdict.redirect, is_ask=verdict.kind is ErrorClass.ASK)
        if verdict.remedy is Remedy.REDISCOVER:
            self._refresher.worry()
        elif verdict.remedy is not Remedy.WAIT:
            return False
        return self._detours.retry(slot, self._resume)

    def _redirect(self, link: Link, slot: Slot, redirect: Redirect, *, is_ask: bool) -> bool:
        address = self._target_of(redirect, link)
        if is_ask:
            return self._detours.redirect(slot, lambda slot: self._ask(address, slot))
        self._learn_move(redirect.slot, address)
        return self._detours.redirect(slot, lambda slot: self._nodes.primary(address).resume(slot))

    def _ask(self, address: Address, slot: Slot) -> None:
        Asking(slot, self._nodes.primary(address), self.on_refused).send()

    def _target_of(self, redirect: Redirect, sender: Link) -> Address:
        sender_host = address_named(sender.name).host
        return Address(*resolve(redirect.host, redirect.port, asked_host=sender_host))

    def _learn_move(self, slot: int, address: Address) -> None:
        if self._closing is None and self._territory.move(slot, address):
            self._refresher.request(self._refresh_delay_s)

    def _resume(self, *slots: Slot) -> None:
        """Issue a command, or a burst, for a caller that waits already."""
        self._link_for_all(slots).resume(*slots)

    def _link_for_all(self, slots: Sequence[Slot]) -> Link:
        for slot in slots:
            keys = keys_of(slot.arguments)
            if keys:
                return self._owners[key_slot(keys[0])]
        return self._territory.anyone()

    # ------------------------------------------------------------------ the map

    async def _dial_lobby(self, connection: Connection) -> ServerFacts:
        """What the lobby takes for connecting. With the first map the lobby closes, and this with it."""
        self._adopt(await self._ask_for_map(self._seeds))
        self._look()
        await asyncio.Event().wait()
        raise AssertionError("the lobby never opens")

    async def _refresh(self, attempt: int) -> bool:
        """Ask for a map and follow it; whether all is well now."""
        known = [Address(*address) for address in self._territory.addresses()]
        current = self.backchannel.address
        if attempt == 0 and current is not None and current in known:
            candidates = [current, *known, *self._seeds]
        else:
            # Whoever was asked last may be the one who knows nothing: each time another one is first.
            turn = attempt % len(known)
            candidates = [*known[turn:], *known[:turn], *self._seeds]
        try:
            new = await self._ask_for_map(candidates)
        except PenstockError as error:
            log.info("no new slot map: %s", error)
            self._is_out_of_touch = True
            return False
        self._adopt(new)
        return self._territory.is_well

    async def _ask_for_map(self, candidates: Sequence[Address]) -> SlotMap:
        return await self.backchannel.ask(candidates, ("CLUSTER", "SLOTS"), _read_map)

    def _adopt(self, new: SlotMap) -> None:
        event, left = self._territory.adopt(new)
        if self._lobby.state is not LinkState.CLOSED:
            left.append(self._lobby)
        waiting = [group for link in left for group in link.hand_over()]
        if event is not None:
            waiting += [group for link in self._nodes if _is_down(link) for group in link.hand_over()]
        for link in left:
            self._nodes.retire(link)
        for group in waiting:
            self._resume(*group)
        self._wake(is_news=event is not None or self._is_out_of_touch)
        self._is_out_of_touch = False
        if event is not None:
            log.info("the cluster has changed: %s", event)
            self._observer.on_event(event)

    def _wake(self, *, is_news: bool) -> None:
        """After an outage, or with another map, whoever waits to connect again tries now, and for a
        while with every refresh: nodes do not get ready all at once."""
        now_s = self._loop.time()
        if is_news:
            self._awake_until_s = now_s + _AWAKE_S
        if now_s < self._awake_until_s:
            for link in self._nodes:
                if link.state is LinkState.WAITING:
                    link.start()

    def _look(self) -> None:
        """Once in a while: does anybody keep silent?"""
        if any(link.silent_s > _SILENCE_S for link in self._nodes):
            self._refresher.worry()
        self._look_timer = self._loop.call_later(_SILENCE_S, self._look, context=self._context)

    # ------------------------------------------------------ what the links report

    def on_push(self, link: Link, push: list[Any]) -> None:
        self._observer.on_push(link, push)

    def on_state(self, link: Link) -> None:
        if link is self._lobby:
            if not self._territory.is_known:
                report_state(link, self._observer)
            return
        if self._closing is None and link in self._nodes and link.state is not LinkState.OPEN:
            self._refresher.worry()
            if self._nodes.is_replica(link):
                # A read need not wait for a replica to come back.
                for group in link.hand_over():
                    self._resume(*group)
        report_state(link, self._observer)

    def __repr__(self) -> str:
        return f"<ClusterRouter {self._lobby.name} {list(self._nodes)}>"


def _is_down(link: Link) -> bool:
    return link.state in (LinkState.WAITING, LinkState.CONNECTING)


def _read_map(asked: Address, reply: Reply) -> SlotMap:
    slot_map = SlotMap.from_slots(reply, asked_host=asked.host)
    if not slot_map.primaries:
        raise NotSentError(f"{asked} knows of no slots")
    return slot_map
