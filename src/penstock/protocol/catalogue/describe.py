"""The rows by which COMMAND, COMMAND INFO and COMMAND DOCS describe a command.

Rules: shapes are Redis 7.0's, so that clients which read them (cluster clients,
redis-cli) understand ours. Every call builds a fresh value, which the caller may
change. Key specs come without Redis's prose notes, docs without argument trees.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.protocol.catalogue.spec import CommandSpec, KeySpec
from penstock.protocol.catalogue.table import FLAGS
from penstock.protocol.replies import Reply, SetReply, Status

#: Flags in the order they are sent; ``may_replicate`` is ours to know.
_SENT_FLAGS: Final = tuple(flag for flag in FLAGS.values() if flag != "may_replicate")


def command_info(spec: CommandSpec) -> list[Reply]:
    """One row of COMMAND INFO."""
    return [
        spec.full_name,
        spec.arity,
        _statuses(flag for flag in _SENT_FLAGS if flag in spec.flags),
        spec.first_key,
        spec.last_key,
        spec.key_step,
        _statuses(f"@{category}" for category in spec.categories),
        SetReply(tip.encode() for tip in spec.tips),
        SetReply(_key_spec_info(keys) for keys in spec.key_specs),
        SetReply(command_info(subcommand) for subcommand in spec.subcommands.values()),
    ]


def command_docs(spec: CommandSpec) -> dict[bytes, Reply]:
    """What COMMAND DOCS says under the command's full name."""
    docs: dict[bytes, Reply] = {
        b"summary": spec.summary.encode(),
        b"since": spec.since.encode(),
        b"group": spec.group.encode(),
    }
    if spec.is_system:
        docs[b"doc_flags"] = SetReply([Status(b"syscmd")])
    if spec.deprecated_since:
        docs[b"doc_flags"] = SetReply([Status(b"deprecated")])
        docs[b"deprecated_since"] = spec.deprecated_since.encode()
        docs[b"replaced_by"] = spec.replaced_by.encode()
    if spec.subcommands:
        docs[b"subcommands"] = {sub.full_name: command_docs(sub) for sub in spec.subcommands.values()}
    return docs


def _key_spec_info(keys: KeySpec) -> dict[bytes, Reply]:
    return {
        b"flags": _statuses(keys.access),
        b"begin_search": _begin_search(keys),
        b"find_keys": _find_keys(keys),
    }


def _begin_search(keys: KeySpec) -> dict[bytes, Reply]:
    if keys.keyword:
        return _typed(b"keyword", {b"keyword": keys.keyword, b"startfrom": keys.start})
    if keys.start:
        return _typed(b"index", {b"index": keys.start})
    return _typed(b"unknown", {})


def _find_keys(keys: KeySpec) -> dict[bytes, Reply]:
    if not keys.start:
        return _typed(b"unknown", {})
    if keys.counted:
        return _typed(b"keynum", {b"keynumidx": 0, b"firstkey": 1, b"keystep": 1})
    # Redis counts a positive last key from the first one.
    last = keys.last - keys.start if keys.last > 0 else keys.last
    return _typed(b"range", {b"lastkey": last, b"keystep": keys.step, b"limit": 0})


def _typed(kind: bytes, spec: dict[bytes, Reply]) -> dict[bytes, Reply]:
    return {b"type": kind, b"spec": spec}


def _statuses(words: Iterable[str]) -> SetReply:
    return SetReply(Status(word.encode()) for word in words)
