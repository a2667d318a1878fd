"""The options of ``format("penstock")``: parsed and judged once, before anything is opened.

    options = parse_options({"url": "./shop.pen", "stream": "orders"}, "batch")

========================  ==========  ==================================================================
option                    for         means
========================  ==========  ==================================================================
``url``                   all         where the store is: a directory that all machines share,
                                      ``redis://…``, ``redis-cluster://…``; the path of ``load()`` is the
                                      same
``stream``                all         the one stream
``streams``               reading     several: ``a,b`` or ``["a", "b"]``; the column ``stream`` comes first
``startingOffset``        reading     the first message, as ``positions`` tells; default ``earliest``. A
                                      streaming query that has a checkpoint goes by that
``endingOffset``          batch       where to stop, itself left out; default ``latest``
``tags``                  reading     only messages of these tags: ``a,b`` or ``["a", "b"]``
``minPartitions``         reading     at least so many tasks, if there are as many messages
``messagesPerPartition``  reading     about so many messages a task at most; default 1,000,000
``failOnDataLoss``        reading     whether messages that are gone before they were read are an error
                                      (default), or are left out and logged
``maxMessagesPerBatch``   streaming   most messages of a micro-batch, shared by the streams; default all
``group``                 streaming   publish how far the query is as this group's cursor, so that
                                      ``evict(acked=True)`` and ``retain_acked`` spare what was not read;
                                      makes the group, and the stream
others                    writing     ``sink_options`` tells
========================  ==========  ==================================================================

Rules: names are compared without case, as Spark does. A name that is not known, or means nothing here, is
an error, so that a misspelt option is not silently without effect. Every error is a ``ConfigError`` that
names the option. A relative path becomes absolute here, on the driver, since executors may run elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from penstock.client.targets import parse_url
from penstock.errors import ConfigError
from penstock.spark.positions import EARLIEST, LATEST, Positions, parse_positions

#: What the options are for: ``spark.read``; ``spark.readStream``; either of them; ``df.write`` and its like.
Use: TypeAlias = Literal["batch", "streaming", "reading", "writing"]

_READING: Final[frozenset[Use]] = frozenset({"batch", "streaming", "reading"})
_ALL: Final[frozenset[Use]] = _READING | {"writing"}

#: Every option, and what it is for.
_USES: Final[Mapping[str, frozenset[Use]]] = {
    "url": _ALL,
    "stream": _ALL,
    "streams": _READING,
    "startingOffset": _READING,
    "endingOffset": frozenset({"batch", "reading"}),
    "tags": _READING,
    "minPartitions": _READING,
    "messagesPerPartition": _READING,
    "failOnDataLoss": _READING,
    "maxMessagesPerBatch": frozenset({"streaming", "reading"}),
    "group": frozenset({"streaming", "reading"}),
    "channel": frozenset({"writing"}),
    "tag": frozenset({"writing"}),
    "expireMs": frozenset({"writing"}),
    "writer": frozenset({"writing"}),
    "batchId": frozenset({"writing"}),
}
_SPELLINGS: Final = {name.lower(): name for name in _USES} | {"path": "url"}

#: What Spark puts among them for itself.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})

_WHOLE: Final = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """As the table above tells; None and empty: not given."""

    #: may hold a password
    url: str = field(repr=False)
    streams: tuple[str, ...]
    starting: Positions
    ending: Positions
    #: several were asked for, so that rows have to tell theirs
    has_stream_column: bool = False
    tags: tuple[str, ...] = ()
    min_partitions: int = 1
    messages_per_partition: int = 1_000_000
    fails_on_data_loss: bool = True
    max_messages_per_batch: int | None = None
    group: str = ""


def parse_options(given: Mapping[str, str], use: Use) -> Options:
    """What the user has set, or one sentence that tells what is wrong."""
    texts = named(given, use)
    streams = _streams(texts)
    starting = parse_positions("startingOffset", texts.get("startingOffset", "earliest"), streams, EARLIEST)
    ending = parse_positions("endingOffset", texts.get("endingOffset", "latest"), streams, LATEST)
    if use == "batch" and (LATEST in starting.all() or EARLIEST in ending.all()):
        raise ConfigError(
            "a batch from latest, or to earliest, has no messages: set another startingOffset or endingOffset"
        )
    return Options(
        url=store_place(texts),
        streams=streams,
        has_stream_column="streams" in texts,
        starting=starting,
        ending=ending,
        tags=_names("tags", texts["tags"]) if "tags" in texts else (),
        min_partitions=whole(texts, "minPartitions") or 1,
        messages_per_partition=whole(texts, "messagesPerPartition") or 1_000_000,
        fails_on_data_loss=_switch(texts, "failOnDataLoss", default=True),
        max_messages_per_batch=whole(texts, "maxMessagesPerBatch"),
        group=filled("group", texts["group"]) if "group" in texts else "",
    )


def named(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """By their proper names, those that are Spark's left out."""
    texts: dict[str, str] = {}
    for key, text in given.items():
        if key.lower() in _SPARKS_OWN:
            continue
        name = _SPELLINGS.get(key.lower())
        if name is None:
            known = ", ".join(name for name, uses in _USES.items() if use in uses)
            raise ConfigError(f"there is no option {key!r}: use one of {known}")
        if use not in _USES[name]:
            raise ConfigError(f"the option {name} is not for {use}: leave it out")
        if name in texts:
            raise ConfigError("the option url and the path of load() are the same: give one of them")
        texts[name] = text
    return texts


# ------------------------------------------------------------------------------- values


def store_place(texts: Mapping[str, str]) -> str:
    """The place of the store, the same on every machine."""
    url = texts.get("url", "")
    if not url:
        raise ConfigError("the option url is missing: set it to the store's directory or redis://…")
    return absolute_url(url)


def absolute_url(url: str) -> str:
    """The same place for processes that run elsewhere."""
    target = parse_url(url)
    if target.kind != "embedded" or target.path is None or target.path.is_absolute():
        return url
    place = str(Path.cwd() / target.path)
    if not url.lower().startswith("embedded:"):
        return place
    _, question, query = url.partition("?")
    return f"embedded:{quote(place)}{question}{query}"


def _streams(texts: Mapping[str, str]) -> tuple[str, ...]:
    match "stream" in texts, "streams" in texts:
        case True, False:
            return (filled("stream", texts["stream"]),)
        case False, True:
            return _names("streams", texts["streams"])
        case True, True:
            raise ConfigError("the options stream and streams exclude one another: give one of them")
    raise ConfigError("the option stream is missing: name a stream, or several with the option streams")


def _names(option: str, text: str) -> tuple[str, ...]:
    """``a,b`` or ``["a", "b"]``."""
    is_json = text.lstrip().startswith("[")
    names = _json_names(option, text) if is_json else [name.strip() for name in text.split(",")]
    if not names:
        raise ConfigError(f"{option} is empty: name at least one, or leave it out")
    for name in names:
        if names.count(filled(option, name)) > 1:
            raise ConfigError(f"{option} has {name!r} twice: name it once")
    return tuple(names)


def _json_names(option: str, text: str) -> list[str]:
    try:
        names = json.loads(text)
    except ValueError as error:
        raise ConfigError(f'{option} is not a JSON list ({error}): write ["a", "b"]') from None
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f'{option} must be a JSON list of texts: write ["a", "b"]')
    return list(names)


def filled(option: str, text: str) -> str:
    if not text:
        raise ConfigError(f"{option} has an empty name: write one, or leave it out")
    return text


def whole(texts: Mapping[str, str], option: str) -> int | None:
    """A number from 1 on; None: not given."""
    text = texts.get(option)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text.strip()) or int(text) == 0:
        raise ConfigError(f"{option} must be a whole number from 1 on, not {text!r:.60}")
    return int(text)


def _switch(texts: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = texts.get(option)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(f"{option} must be true or false, not {text!r:.60}")
    return text.strip().lower() == "true"
