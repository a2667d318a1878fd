"""The synchronous twin of an asyncio class: the same names, without ``await``.

What a method of the original answers becomes:

=======================  ======================================================
a coroutine, awaitable   its result
an async iterator        an iterator
``async with``           ``with``
an object with a twin    its twin
anything else            itself
=======================  ======================================================

Rules: everything happens on the portal's loop, so that objects bound to it may be made
anywhere; methods that only collect (``direct``: queueing in a pipeline) are called where they
are, and what they answer is not awaited. A twin that is given as an argument stands for its
original. Attributes are read, never set. Containers are not looked into.

``_twins`` has the twins themselves; this module knows none of them.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import GenericAlias
from typing import Any, Final, Generic

from penstock.blocking.portal import PORTAL

#: Twins by the class of their originals.
_TWINS: Final[dict[type, type[Twin]]] = {}

#: What a special method of the original is called in the twin.
SPECIAL_NAMES: Final = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__call__": "__call__",
    "__contains__": "__contains__",
    "__getitem__": "__getitem__",
    "__iter__": "__iter__",
    "__len__": "__len__",
}
#: Those that Python itself wants answered at once, wherever it is.
_DIRECT: Final = ("__contains__", "__getitem__", "__iter__", "__len__")


class Twin:
    """The synchronous side of one object."""

    __slots__ = ("__weakref__", "_original")

    def __init__(self, original: Any) -> None:
        self._original = original

    def __repr__(self) -> str:
        return f"<blocking {self._original!r}>"


def make_twin(
    original: type[Any],
    *,
    bases: tuple[type[Any], ...] = (),
    direct: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> type[Any]:
    """A twin of every public method and attribute of a class.

    ``bases``: what the twin inherits, twins or mixins (command helpers, ``Mapping``); methods
    that the original has from the same mixin stay as they are, over hooks that ask the original.
    ``direct``: methods to call where the caller is. ``without``: names that mean nothing
    without ``await``.
    """
    members: dict[str, Any] = {
        "__doc__": original.__doc__,
        "__module__": "penstock.blocking",
        "__slots__": (),
        "__getattr__": _read_attribute,
    }
    if Generic in original.__mro__:
        members["__class_getitem__"] = classmethod(GenericAlias)
    hooks = {name for base in bases for name in getattr(base, "__abstractmethods__", ())}
    names = {name for name in dir(original) if not name.startswith("_")} | SPECIAL_NAMES.keys() | hooks
    for name in sorted(names - {*without}):
        member = _find(original, name)
        if member is not None and not any(_provides(base, name, member) for base in bases):
            is_direct = name in direct or name in _DIRECT
            members[SPECIAL_NAMES.get(name, name)] = _member(name, member, is_direct)
    has_twin_base = any(issubclass(base, Twin) for base in bases)
    twin = type(original.__name__, bases if has_twin_base else (Twin, *bases), members)
    _TWINS[original] = twin
    return twin


def wrap(result: Any, near: Twin | None = None) -> Any:
    """The twin of an object (``near``, if it is that one's); itself if it has none."""
    if near is not None and result is near._original:
        return near
    for kind in type(result).__mro__:
        if kind in _TWINS:
            return _TWINS[kind](result)
    return iterate(result) if isinstance(result, AsyncIterator) else result


def call(function: Callable[..., Any], near: Twin | None, *args: Any, **kwargs: Any) -> Any:
    """Call on the loop, await what is awaitable, wrap what has a twin."""

    async def on_loop() -> Any:
        result = _call_with_originals(function, args, kwargs)
        return await result if _is_pending(result) else result

    return wrap(PORTAL.run(on_loop()), near)


def iterate(original: Any) -> Iterator[Any]:
    """Step through an async iterator; it is closed with the iteration."""
    items = original.__aiter__()
    try:
        while True:
            try:
                yield wrap(PORTAL.run(_next_of(items)))
            except StopAsyncIteration:
                return
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            PORTAL.finish(close)


# ---------------------------------------------------------------------------- members


def _find(original: type[Any], name: str) -> Any:
    """What a class has under a name, itself or inherited; unlike ``getattr``, nothing of its metaclass."""
    return next((vars(kind)[name] for kind in original.__mro__ if name in vars(kind)), None)


def _provides(base: type[Any], name: str, member: Any) -> bool:
    """Whether inheriting this base is enough; twins ask whatever original they have."""
    if issubclass(base, Twin):
        return hasattr(base, SPECIAL_NAMES.get(name, name))
    return _find(base, name) is member


def _member(name: str, member: Any, is_direct: bool) -> Any:
    if name == "__anext__":
        return _next
    if isinstance(member, property) or not callable(member):
        return property(functools.partial(_read, name), doc=getattr(member, "__doc__", None))
    return _direct_method(name, member) if is_direct else _method(name, member)


def _method(name: str, member: Any) -> Callable[..., Any]:
    @functools.wraps(member)
    def method(self: Twin, *args: Any, **kwargs: Any) -> Any:
        return call(getattr(self._original, name), self, *args, **kwargs)

    return method


def _direct_method(name: str, member: Any) -> Callable[..., Any]:
    @functools.wraps(member)
    def method(self: Twin, *args: Any, **kwargs: Any) -> Any:
        return wrap(_call_with_originals(getattr(self._original, name), args, kwargs), self)

    return method


def _next(self: Twin) -> Any:
    try:
        return wrap(PORTAL.run(_next_of(self._original)), self)
    except StopAsyncIteration:
        raise StopIteration from None


def _read(name: str, self: Twin) -> Any:
    return wrap(getattr(self._original, name), self)


def _read_attribute(self: Twin, name: str) -> Any:
    """What only instances have. (Names with an underscore are ours alone, unset ones included.)"""
    if name.startswith("_"):
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    return _read(name, self)


# ------------------------------------------------------------------------------ calls


def _call_with_originals(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*map(_unwrap, args), **{name: _unwrap(value) for name, value in kwargs.items()})


def _unwrap(argument: Any) -> Any:
    return argument._original if isinstance(argument, Twin) else argument


def _is_pending(result: Any) -> bool:
    """Awaitables that have a twin are objects of their own, not results to come."""
    return isinstance(result, Awaitable) and not any(kind in _TWINS for kind in type(result).__mro__)


async def _next_of(items: Any) -> Any:
    return await items.__anext__()
