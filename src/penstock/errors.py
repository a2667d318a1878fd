"""The whole error tree. An error says whose fault it is and what to do.

    PenstockError
    ├── CommandError          the caller's command was refused; text is Redis's own
    │   └── WrongTypeError    the key holds another type
    ├── ProtocolError         the peer's bytes are not RESP
    ├── StoreError            the store on disk cannot do what was asked
    │   ├── StoreFullError    no room on the disk or in the allowed size
    │   ├── StoreCorruptError a record does not decode
    │   ├── StoreFormatError  the directory was written by another layout version
    │   ├── StoreBusyError    no reader slot was free
    │   └── LakeError         a table of the lake cannot do what was asked; it is as it was
    ├── ConnectionLostError   the way to the server is cut
    │   ├── NotSentError        the command never left; sending it again is safe
    │   └── OutcomeUnknownError it was sent and no reply came; it may or may not have run
    ├── CommandTimeoutError   no reply within the time given (also a TimeoutError)
    ├── BackpressureError     too many commands wait; the limit is named
    ├── AuthenticationError   credentials were refused, or a signature is not right
    ├── WatchError            watched keys changed; nothing of the transaction ran
    ├── UsageError            it cannot be done this way; the message says how
    │   ├── ContentError        a message is not JSON
    │   ├── DefinitionError     a pipeline's definition is wrong; it lists every problem
    │   └── UnknownPipelineError no such pipeline, or no such version of it
    ├── TransactionError      a transaction cannot do what was asked of it
    │   ├── TransactionNotFoundError  neither the store nor the archive has it
    │   ├── DuplicateError      the external id is taken by another body
    │   └── TransactionEndedError  it has ended, or is not in a state for this
    ├── DataLossError         messages are gone before a query has read them
    ├── DifferenceError       the lake and the store do not agree; it lists where
    ├── StepError             raised by a step to end it; a bare one is not raised
    │   ├── StepFailedError     it did not work; it may be tried again, if its policy says so
    │   └── StepAbortedError    the transaction must end, and is not tried again
    ├── SparkLostError        the Spark session is gone
    ├── SubscriptionNotFoundError  the channel has no such subscriber (any more)
    ├── ReceiptError          a receipt was not issued for this subscriber, or was tampered with
    ├── UnavailableError      too few stores answered; the message says how many
    ├── ClosedError           used after close, after fork, or on another event loop
    └── ConfigError           a setting makes no sense; the message names it

Rules: foreign exceptions (lmdb, lupa, hiredis, OS) are translated where they
enter, never further up. Nothing here imports another room.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Root of everything Penstock raises on purpose."""


class CommandError(PenstockError):
    """A command was refused. ``str(error)`` is the RESP error line without the dash.

    The first word is the code that Redis clients match on (``ERR``, ``WRONGTYPE``, …).
    """

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class WrongTypeError(CommandError):
    def __init__(self) -> None:
        super().__init__("WRONGTYPE Operation against a key holding the wrong kind of value")


class ProtocolError(PenstockError):
    """The peer sent bytes that are not RESP. The connection cannot be used any more."""


class StoreError(PenstockError):
    """The store on disk could not do what was asked; nothing of the request was written."""


class StoreFullError(StoreError):
    """The disk, or the size the store may grow to, is used up."""


class StoreCorruptError(StoreError):
    """A stored record does not decode; the message names the key."""


class StoreFormatError(StoreError):
    """The directory holds a store of a layout this version cannot read."""


class StoreBusyError(StoreError):
    """Every reader slot of the store is taken."""


class LakeError(StoreError):
    """A table of the lake could not do what was asked; the message names it. Readers see it as it was
    before."""


class ConnectionLostError(PenstockError):
    """The way to the server is cut."""


class NotSentError(ConnectionLostError):
    """The command never left this process; sending it again is safe."""


class OutcomeUnknownError(ConnectionLostError):
    """The command was sent and the connection ended before its reply: it may or may not have run."""


class CommandTimeoutError(PenstockError, TimeoutError):
    """No reply came within the time given. The command may still run."""


class BackpressureError(PenstockError):
    """Too many commands are waiting already; the message names the limit."""


class AuthenticationError(PenstockError):
    """The server refused the credentials, or a signature does not belong to what it came with."""


class WatchError(PenstockError):
    """Keys that were watched have changed, so nothing of the transaction ran: read again, try again."""


class UsageError(PenstockError):
    """What was asked for cannot be done this way; the message says how it can."""


class ContentError(UsageError):
    """The content of a message is not JSON."""


class DefinitionError(UsageError):
    """A pipeline's definition is wrong; nothing was saved."""

    def __init__(self, *problems: str) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")
        #: every problem, each with the path to it
        self.problems = problems


class UnknownPipelineError(UsageError):
    """There is no such pipeline, or it has no such version; the message tells which."""


class TransactionError(PenstockError):
    """A transaction cannot do what was asked of it; the message tells why."""


class TransactionNotFoundError(TransactionError):
    """Neither the store nor the archive has it, or it belongs to another owner."""


class DuplicateError(TransactionError):
    """The external id belongs to a transaction that was started with another body."""

    def __init__(self, message: str, transaction: str) -> None:
        super().__init__(message)
        #: the id of the one that has it
        self.transaction = transaction


class TransactionEndedError(TransactionError):
    """It has ended already, or is not in a state in which this can be done."""


class DataLossError(PenstockError):
    """Messages that a query was to read are gone; the message names stream and offsets."""


class DifferenceError(PenstockError):
    """The lake and the store do not agree, and should."""

    def __init__(self, sentence: str, differences: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        #: the first of them, a sentence each
        self.differences = differences


class StepError(PenstockError):
    """How a step says that it did not succeed: ``note`` is for people, ``output`` for whoever asks."""

    def __init__(self, note: str, output: object = None, *, names: tuple[str, ...] = ()) -> None:
        super().__init__(note)
        self.note = note
        self.output = output
        #: by which retry policies know it, beside the names of its class and their bases
        self.names = names


class StepFailedError(StepError):
    """The step did not work. It is tried again if its retry policy says so."""


class StepAbortedError(StepError):
    """The transaction must end here; nothing is tried again."""


class SparkLostError(PenstockError):
    """The Spark session is gone: whatever used it has to be started again."""


class SubscriptionNotFoundError(PenstockError):
    """The channel has no such subscriber: it was never made, was removed, or expired."""


class ReceiptError(PenstockError):
    """The receipt was not issued for this subscriber, or somebody changed it."""


class UnavailableError(PenstockError):
    """Too few of several stores answered. What was written may be in some of them; repeat it."""


class ClosedError(PenstockError):
    """The object was used after it was closed, in a forked child, or on another event loop."""


class ConfigError(PenstockError):
    """A setting makes no sense; the message names it."""
