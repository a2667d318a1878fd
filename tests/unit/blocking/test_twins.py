"""How the synchronous side of an asyncio class is made, with a class that has one of everything."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

import pytest

from penstock.blocking.portal import PORTAL
from penstock.blocking.twins import Twin, call, iterate, make_twin, wrap

T = TypeVar("T")
WAIT_S = 20


def thread_name() -> str:
    return threading.current_thread().name


class Part:
    """Something that a whole answers."""

    def __init__(self, whole: Whole) -> None:
        self.whole = whole

    async def name(self) -> str:
        return "part"


class SmallPart(Part):
    """No twin of its own."""


class Whole:
    """One of everything."""

    def __init__(self) -> None:
        self.size = 3
        self.part = Part(self)
        self.steps: list[str] = []
        self.closed = threading.Event()

    async def double(self, number: int, *, plus: int = 0) -> int:
        """Twice the number."""
        await asyncio.sleep(0)
        return 2 * number + plus

    async def fail(self) -> None:
        raise LookupError("on the loop")

    def soon(self) -> Awaitable[str]:
        future = asyncio.get_running_loop().create_future()
        future.set_result("now")
        return future

    def where(self) -> str:
        return thread_name()

    def collect(self) -> str:
        return thread_name()

    def ticket(self) -> Awaitable[int]:
        async def later() -> int:
            raise AssertionError("nobody awaits this")

        coming = later()
        coming.close()
        return coming

    async def make_part(self, *, is_small: bool = False) -> Part:
        return SmallPart(self) if is_small else Part(self)

    async def itself(self) -> Self:
        return self

    def takes(self, part: Part, *, other: Part) -> bool:
        return type(part) is Part and type(other) is Part

    async def numbers(self) -> AsyncIterator[int]:
        try:
            for number in range(3):
                self.steps.append(thread_name())
                yield number
        finally:
            await asyncio.sleep(0)
            self.closed.set()

    async def parts(self) -> AsyncIterator[Part]:
        yield self.part

    async def only_for_loops(self) -> None: ...

    @property
    def first_part(self) -> Part:
        """The first."""
        return self.part

    async def __aenter__(self) -> Self:
        self.steps.append("entered")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.steps.append(f"left with {error!r}")
        return isinstance(error, ArithmeticError)

    async def __call__(self, number: int) -> int:
        return number + 1


class Counter:
    """An async iterator that is an object of its own, of three numbers."""

    def __init__(self) -> None:
        self._count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        if self._count == 3:
            raise StopAsyncIteration
        self._count += 1
        return self._count


class Parts(Mapping[str, Part]):
    """A mixin of Python, and an attribute for every name."""

    def __init__(self, whole: Whole) -> None:
        self._parts = {"a": Part(whole), "b": Part(whole)}

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __getattr__(self, name: str) -> Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class Helpers:
    """A mixin with a hook, as command helpers are."""

    def hello(self) -> str:
        return self._say("hello")

    def goodbye(self) -> str:
        return self._say("goodbye")

    def _say(self, word: str) -> str:
        raise NotImplementedError


class Speaker(Helpers):
    def _say(self, word: str) -> str:
        return f"{word} on {thread_name()}"

    def goodbye(self) -> str:
        return "never"


class Box(Generic[T]):
    """A generic class."""


PartTwin = make_twin(Part)
WholeTwin = make_twin(Whole, direct=("collect", "ticket"), without=("only_for_loops",))
CounterTwin = make_twin(Counter)
PartsTwin = make_twin(Parts, bases=(Mapping,))
BoxTwin = make_twin(Box)


@pytest.fixture
def original() -> Whole:
    return Whole()


@pytest.fixture
def whole(original: Whole) -> WholeTwin:
    return WholeTwin(original)


# ------------------------------------------------------------------ what comes back


def test_what_is_awaited_is_its_result(whole: WholeTwin) -> None:
    assert whole.double(4, plus=1) == 9
    assert whole.soon() == "now"
    assert whole(1) == 2


def test_methods_run_on_the_loop_unless_they_only_collect(whole: WholeTwin) -> None:
    assert whole.where() == "penstock-blocking"
    assert whole.collect() == thread_name()


def test_what_a_collecting_method_answers_is_not_awaited(whole: WholeTwin) -> None:
    assert inspect.iscoroutine(whole.ticket())


def test_what_has_a_twin_is_answered_as_its_twin(whole: WholeTwin) -> None:
    part = whole.make_part()
    assert type(part) is PartTwin
    assert part.name() == "part"
    assert type(whole.make_part(is_small=True)) is PartTwin  # of the nearest class that has one
    assert type(whole.first_part) is PartTwin
    assert [type(part) for part in whole.parts()] == [PartTwin]
    assert wrap(7) == 7


def test_an_original_that_answers_itself_is_the_same_twin(whole: WholeTwin) -> None:
    assert whole.itself() is whole
    with whole as entered:
        assert entered is whole


def test_twins_among_the_arguments_stand_for_their_originals(whole: WholeTwin) -> None:
    assert whole.takes(whole.make_part(), other=whole.first_part)


def test_functions_are_called_like_methods() -> None:
    async def make() -> Counter:
        return Counter()

    assert type(call(make, None)) is CounterTwin


def test_errors_come_with_their_tracebacks(whole: WholeTwin) -> None:
    with pytest.raises(LookupError, match="on the loop") as raised:
        whole.fail()
    assert traceback.extract_tb(raised.tb)[-1].name == "fail"


# -------------------------------------------------------------------------- with


def test_with(whole: WholeTwin, original: Whole) -> None:
    with whole:
        pass
    with pytest.raises(LookupError), whole:
        raise LookupError("within")
    with whole:
        raise ZeroDivisionError  # the original swallows it, so does the twin
    left = [step for step in original.steps if step.startswith("left")]
    assert left == ["left with None", "left with LookupError('within')", "left with ZeroDivisionError()"]


def test_a_twin_can_only_what_its_original_can(original: Whole) -> None:
    part = PartTwin(original.part)
    with pytest.raises(TypeError), part:
        pass
    with pytest.raises(TypeError):
        iter(part)
    with pytest.raises(TypeError):
        len(part)
    assert not callable(part)
    assert bool(part)


# ------------------------------------------------------------------- attributes


def test_attributes_are_read(whole: WholeTwin, original: Whole) -> None:
    assert whole.size == 3
    original.size = 4
    assert whole.size == 4
    assert type(whole.part) is PartTwin
    assert WholeTwin.first_part.__doc__ == "The first."


def test_attributes_are_not_set(whole: WholeTwin) -> None:
    for name in ("size", "first_part", "anything"):
        with pytest.raises(AttributeError):
            setattr(whole, name, 1)


def test_names_that_there_are_not(whole: WholeTwin) -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        whole.nonsense
    with pytest.raises(AttributeError, match="_private"):
        whole._private
    with pytest.raises(AttributeError):
        WholeTwin.only_for_loops


def test_copies_are_twins_of_the_same(whole: WholeTwin, original: Whole) -> None:
    assert copy.copy(whole).size == 3
    assert copy.copy(whole).itself()._original is original


def test_documentation_is_the_originals(whole: WholeTwin) -> None:
    assert WholeTwin.__doc__ == "One of everything."
    assert WholeTwin.double.__doc__ == "Twice the number."
    assert list(inspect.signature(WholeTwin.double).parameters) == ["self", "number", "plus"]
    assert repr(whole).startswith("<blocking <")


# ---------------------------------------------------------------------- iterators


def test_async_iterators_are_iterators(whole: WholeTwin, original: Whole) -> None:
    assert list(whole.numbers()) == [0, 1, 2]
    assert set(original.steps) == {"penstock-blocking"}
    assert original.closed.is_set()


def test_an_iterator_that_is_left_is_closed(whole: WholeTwin, original: Whole) -> None:
    numbers = whole.numbers()
    assert next(numbers) == 0
    assert not original.closed.is_set()
    numbers.close()
    assert original.closed.is_set()
    assert list(numbers) == []


def test_an_iterator_that_is_dropped_is_closed(whole: WholeTwin, original: Whole) -> None:
    for number in whole.numbers():
        if number == 1:
            break
    gc.collect()
    assert original.closed.is_set()


def test_an_iterator_whose_loop_fails_is_closed(whole: WholeTwin, original: Whole) -> None:
    with pytest.raises(LookupError):
        for _ in whole.numbers():
            raise LookupError
    gc.collect()
    assert original.closed.is_set()


def test_the_loops_own_thread_may_find_a_dropped_iterator(whole: WholeTwin, original: Whole) -> None:
    numbers = whole.numbers()
    next(numbers)
    holder = [numbers]
    del numbers

    async def drop() -> None:
        holder.clear()
        gc.collect()

    PORTAL.run(drop())
    assert original.closed.wait(WAIT_S)


def test_an_object_that_is_an_async_iterator_has_a_twin_that_is_an_iterator() -> None:
    counter = CounterTwin(Counter())
    assert iter(counter) is counter
    assert next(counter) == 1
    assert list(counter) == [2, 3]
    with pytest.raises(StopIteration):
        next(counter)


def test_async_iterators_without_an_end_of_their_own() -> None:
    assert list(iterate(Counter())) == [1, 2, 3]


# -------------------------------------------------------------------------- bases


def test_mixins_of_python(original: Whole) -> None:
    parts = PartsTwin(Parts(original))
    assert isinstance(parts, Mapping)
    assert isinstance(parts, Twin)
    assert (len(parts), list(parts), "a" in parts, "c" in parts) == (2, ["a", "b"], True, False)
    assert {type(part) for part in parts.values()} == {PartTwin}
    assert type(parts["a"]) is type(parts.get("b")) is type(parts.a) is PartTwin


def test_mixins_of_ours_keep_their_methods_over_the_originals_hook() -> None:
    class Hooked(Helpers):
        __abstractmethods__ = frozenset({"_say"})

    twin = make_twin(Speaker, bases=(Helpers,))
    # Without a hook, what the mixin calls is its own.
    with pytest.raises(NotImplementedError):
        twin(Speaker()).hello()
    assert twin(Speaker()).goodbye() == "never"  # the original has its own
    hooked = make_twin(Speaker, bases=(Hooked,), direct=("_say",))
    assert hooked(Speaker()).hello() == f"hello on {thread_name()}"


def test_twins_inherit_twins() -> None:
    class Loud(Speaker):
        def shout(self) -> str:
            return "HELLO"

    quiet = make_twin(Speaker)
    loud = make_twin(Loud, bases=(quiet,))
    assert issubclass(loud, quiet)
    assert "hello" not in vars(loud)
    assert loud(Loud()).hello() == "hello on penstock-blocking"
    assert loud(Loud()).shout() == "HELLO"


def test_generic_classes_stay_generic() -> None:
    assert BoxTwin[int].__origin__ is BoxTwin
