"""A server by script, for tests: it answers what it was told to, without a socket.

    server = ScriptedServer()
    server.on("GET", "greeting").reply(b"hello")
    server.on("INCR").error("ERR value is not an integer or out of range")
    server.on("SET").drop()                         # the connection ends instead of a reply
    gate = server.on("BLPOP").hold()                # answered when the test says so

    link = Link("scripted", owner, server.dial, settings)
    ...
    gate.release([b"queue", b"job"])
    assert server.sent == [(b"GET", b"greeting"), ...]
    server.check()                                  # what was expected came, and nothing without a rule

Rules
-----
1. A rule matches commands that begin with its words; the name in any case. What was
   expected (``expect``) comes first, in the order given, each once; else of several rules
   the one added last wins.
2. The handshake is answered without rules, unless rules say otherwise, and not recorded
   in ``sent``. Anything else without a rule is refused, and remembered for ``check``.
3. Replies leave in the order of the commands, as from a real server: one that is held or
   delayed holds back all behind it.
4. Nothing happens by chance, and nothing takes time but ``delay_ms``, which counts on the
   event loop's clock.

Replies are the values of ``penstock.protocol.replies``; a function is called with the
command's arguments, as bytes, and answers the reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.client.connection import Connection
from penstock.client.handshake import ServerFacts
from penstock.client.transports.base import NO_MORE, Argument, Arguments, Receiver
from penstock.errors import CommandError, ConnectionLostError, NotSentError
from penstock.protocol.replies import OK, PONG, Push, Reply

Words = tuple[bytes, ...]


class _Pending:
    def __repr__(self) -> str:
        return "PENDING"


_PENDING: Final = _Pending()


@dataclass(slots=True)
class Answer:
    """What one command that was sent gets; it waits in line for those before it."""

    arguments: Words
    _transport: ScriptedTransport
    value: Any = _PENDING
    is_drop: bool = False

    def release(self, reply: Reply) -> None:
        """Answer now a command that was held."""
        assert self.value is _PENDING, f"{self.arguments!r} was answered already"
        self.value = reply
        self._transport.deliver_soon()

    def drop(self) -> None:
        """End the connection when this command's turn comes."""
        self.is_drop = True
        self._transport.deliver_soon()


class Gate:
    """The commands that a rule holds, in the order they came."""

    def __init__(self) -> None:
        self.held: deque[Answer] = deque()

    def release(self, reply: Reply) -> None:
        """Answer the first that is held."""
        assert self.held, "no command is held"
        self.held.popleft().release(reply)


@dataclass(eq=False)
class Rule:
    """What happens to the commands that begin with these words."""

    words: Words
    _act: Callable[[Answer], None] | None = field(default=None, repr=False)
    _delay_ms: int = 0
    #: how many commands it has answered
    count: int = 0

    def reply(self, value: Reply | Callable[[Words], Reply]) -> Self:
        return self._do(lambda answer: answer.release(value(answer.arguments) if callable(value) else value))

    def error(self, text: str) -> Self:
        """Refuse with this error line, without its dash."""
        return self._do(lambda answer: answer.release(CommandError(text)))

    def drop(self) -> Self:
        """End the connection instead of answering."""
        return self._do(Answer.drop)

    def hold(self) -> Gate:
        """Answer when the test says so."""
        gate = Gate()
        self._do(gate.held.append)
        return gate

    def after_ms(self, delay_ms: int) -> Self:
        """Do it that much later: ``server.on("GET").after_ms(20).reply(b"v")``."""
        self._delay_ms = delay_ms
        return self

    def _do(self, act: Callable[[Answer], None]) -> Self:
        assert self._act is None, f"the rule for {self.words!r} says already what happens"
        self._act = act
        return self

    def matches(self, arguments: Words) -> bool:
        mine = self.words
        return arguments[0].upper() == mine[0].upper() and arguments[1 : len(mine)] == mine[1:]

    def apply(self, answer: Answer) -> None:
        self.count += 1
        assert self._act is not None, f"the rule for {self.words!r} does not say what happens"
        if self._delay_ms:
            asyncio.get_running_loop().call_later(self._delay_ms / 1000, self._act, answer)
        else:
            self._act(answer)


class ScriptedServer:
    """Answers by rules; any number of connections, one after the other or at once.

    In RESP2 there is no HELLO, and pushes are arrays like others.
    """

    def __init__(self, protocol: int = 3) -> None:
        #: what was sent, in order, by all connections
        self.sent: list[Words] = []
        #: what was sent without a rule for it
        self.unexpected: list[Words] = []
        #: connections that were opened, ended ones included
        self.connections: list[ScriptedTransport] = []
        #: connections that will be refused
        self.refusals = 0
        self._rules: list[Rule] = []
        self._expected: deque[Rule] = deque()
        self._is_resp2 = protocol == 2

    # -------------------------------------------------------------------- script

    def on(self, *words: Argument) -> Rule:
        """A rule for commands that begin with these words; say then what happens."""
        assert words, "a rule needs the name of a command"
        rule = Rule(tuple(map(_to_bytes, words)))
        self._rules.insert(0, rule)
        return rule

    def expect(self, *words: Argument) -> Rule:
        """A rule for exactly one command; ``check`` misses it if it does not come."""
        assert words, "a rule needs the name of a command"
        rule = Rule(tuple(map(_to_bytes, words)))
        self._expected.append(rule)
        return rule

    def refuse_connections(self, count: int) -> None:
        """The next so many attempts to connect fail."""
        self.refusals = count

    # -------------------------------------------------------------------- events

    @property
    def connection(self) -> ScriptedTransport:
        """The newest connection."""
        assert self.connections, "nobody has connected yet"
        return self.connections[-1]

    def push(self, *items: Reply) -> None:
        """Send a push to everybody who is connected: ``push(b"message", b"channel", b"text")``."""
        for transport in self.connections:
            if not transport.is_closing():
                transport.push(list(items) if self._is_resp2 else Push(items))

    def cut(self, error: Exception | None = None) -> None:
        """End every connection now; what is unanswered stays so."""
        for transport in self.connections:
            transport.cut(error)

    def check(self) -> None:
        """Raise AssertionError unless all that was expected came, and nothing else."""
        assert not self.unexpected, f"commands without a rule: {self.unexpected!r}"
        missing = [rule.words for rule in self._expected]
        assert not missing, f"expected, and did not come: {missing!r}"

    # ------------------------------------------------------------------- for links

    async def connect(self, receiver: Receiver) -> ScriptedTransport:
        if self.refusals:
            self.refusals -= 1
            raise NotSentError("the scripted server refuses connections")
        transport = ScriptedTransport(self, receiver)
        self.connections.append(transport)
        return transport

    async def dial(self, connection: Connection) -> ServerFacts:
        """Connect without a handshake: what a link takes."""
        connection.attach(await self.connect(connection))
        return ServerFacts(client_id=len(self.connections))

    # --------------------------------------------------------------- for transports

    def answer(self, answer: Answer) -> None:
        arguments = answer.arguments
        rule = self._find(arguments)
        if rule is not None:
            self.sent.append(arguments)
            rule.apply(answer)
            return
        if self._is_resp2 and arguments[0].upper() == b"HELLO":
            answer.release(CommandError("ERR unknown command 'HELLO'"))
            return
        greeting = _GREETINGS.get(b" ".join(arguments[:2]).upper()) or _GREETINGS.get(arguments[0].upper())
        if greeting is not None:
            answer.release(greeting)
            return
        self.sent.append(arguments)
        self.unexpected.append(arguments)
        answer.release(CommandError(f"ERR unexpected command {arguments!r}"))

    def _find(self, arguments: Words) -> Rule | None:
        for rule in self._expected:
            if rule.matches(arguments):
                self._expected.remove(rule)
                return rule
        return next((rule for rule in self._rules if rule.matches(arguments)), None)


_GREETINGS: Final[dict[bytes, Reply]] = {
    b"HELLO": {b"server": b"redis", b"version": b"7.0.15", b"proto": 3},
    b"AUTH": OK,
    b"PING": PONG,
    b"SELECT": OK,
    b"CLIENT SETNAME": OK,
    b"CLIENT ID": 1,
    b"INFO": b"redis_version:7.0.15\r\nredis_mode:standalone\r\n",
    b"CLUSTER INFO": b"cluster_state:ok\r\n",
    b"READONLY": OK,
}


class ScriptedTransport:
    """One connection to a :class:`ScriptedServer`."""

    push_type: type[list[Any]] = Push
    bytes_sent = bytes_received = 0

    def __init__(self, server: ScriptedServer, receiver: Receiver) -> None:
        self._server = server
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._answers: deque[Answer] = deque()
        self._pushes: deque[list[Reply]] = deque()
        self._is_due = False
        self._is_writing = False
        self._is_closing = False
        self._is_lost = False
        #: each write by itself: how many commands left together
        self.writes: list[int] = []

    # ---------------------------------------------------------- for the connection

    def encode(self, arguments: Arguments) -> Words:
        return tuple(map(_to_bytes, arguments))

    def write(self, encoded: list[Words]) -> None:
        self.writes.append(len(encoded))
        self._is_writing = True
        for arguments in encoded:
            answer = Answer(arguments, self)
            self._answers.append(answer)
            self._server.answer(answer)
        self._is_writing = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.close()

    # -------------------------------------------------------------- for the script

    def push(self, push: list[Reply]) -> None:
        self._pushes.append(push)
        self.deliver_soon()

    def cut(self, error: Exception | None = None) -> None:
        """End this connection now."""
        self._is_closing = True
        error = error or ConnectionLostError("the scripted server cut the connection")
        if self._is_writing:
            self._loop.call_soon(self._lose, error)
        else:
            self._lose(error)

    def pause(self) -> None:
        """Say that there is enough to send."""
        self._receiver.pause_writing()

    def resume(self) -> None:
        self._receiver.resume_writing()

    def deliver_soon(self) -> None:
        if not self._is_due and not self._is_lost:
            self._is_due = True
            self._loop.call_soon(self._deliver)

    # ------------------------------------------------------------------- delivery

    def _deliver(self) -> None:
        self._is_due = False
        if self._is_closing:
            return
        try:
            self._receiver.replies_ready(self._take)
        except Exception as error:  # noqa: BLE001 - as the port says: after that, the transport must end
            self.cut(error)
            return
        if self._answers and self._answers[0].is_drop:
            self.cut()

    def _take(self) -> Any:
        if self._pushes:
            return self._pushes.popleft()
        if not self._answers or self._answers[0].is_drop or self._answers[0].value is _PENDING:
            return NO_MORE
        return self._answers.popleft().value

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._receiver.transport_lost(error)

    def __repr__(self) -> str:
        state = "closed" if self._is_closing else "open"
        return f"<ScriptedTransport {state} unanswered={len(self._answers)}>"


def _to_bytes(argument: Argument) -> bytes:
    """As it would go over the wire."""
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, str):
        return argument.encode()
    if isinstance(argument, memoryview):
        return argument.tobytes()
    if type(argument) in (int, float):
        return str(argument).encode()
    raise TypeError(f"an argument must be bytes, str, int or float, not {type(argument).__name__}")
