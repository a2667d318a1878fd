"""CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR: how a session learns of keys that change.

Options, their conflicts and the texts are Redis's; the telling itself is ``engine.tracking``.
A session can be told instead of another (REDIRECT) if it belongs to the same process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.session import Session
from penstock.engine.tracking import Tracking
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply, SetReply

_OFF = Tracking()


@command("CLIENT|TRACKING")
def client_tracking(s: Session, argv: Argv) -> Reply:
    wanted = _parse(s, argv)
    mode = argv[2].upper()
    if mode == b"ON":
        s.engine.tracking.start(s, _combined(s.tracking, wanted))
    elif mode == b"OFF":
        s.engine.tracking.stop(s)
    else:
        raise syntax_error()
    return OK


def _parse(s: Session, argv: Argv) -> Tracking:
    """The options, each by itself; ``prefixes`` are those given, whether with BCAST or not."""
    redirect = 0
    prefixes: list[bytes] = []
    flags: set[bytes] = set()
    words = iter(argv[3:])
    for word in words:
        option = word.upper()
        value = next(words, None) if option in (b"REDIRECT", b"PREFIX") else b""
        if value is None or option not in _OPTIONS:
            raise syntax_error()
        if option == b"REDIRECT":
            if redirect:
                raise CommandError("ERR A client can only redirect to a single other client")
            redirect = integer(value)
            if redirect not in s.engine.sessions:
                raise CommandError("ERR The client ID you want redirect to does not exist")
        elif option == b"PREFIX":
            prefixes.append(value)
        else:
            flags.add(option)
    if argv[2].upper() == b"ON" and prefixes and b"BCAST" not in flags:
        raise CommandError("ERR PREFIX option requires BCAST mode to be enabled")
    return Tracking(
        redirect=redirect,
        prefixes=tuple(prefixes) if b"BCAST" in flags else None,
        optin=b"OPTIN" in flags,
        optout=b"OPTOUT" in flags,
        noloop=b"NOLOOP" in flags,
    )


_OPTIONS = frozenset({b"REDIRECT", b"PREFIX", b"BCAST", b"OPTIN", b"OPTOUT", b"NOLOOP"})


def _combined(before: Tracking | None, wanted: Tracking) -> Tracking:
    """What the session does from now on, or the CommandError that says why it cannot."""
    _check(before, wanted)
    kept = before or _OFF
    if wanted.prefixes is None:
        return replace(wanted, caching=kept.caching)
    _check_prefixes(kept.prefixes or (), wanted.prefixes)
    return replace(wanted, prefixes=tuple(sorted({*(kept.prefixes or ()), *(wanted.prefixes or (b"",))})))


def _check(before: Tracking | None, wanted: Tracking) -> None:
    is_broadcast = wanted.prefixes is not None
    if before is not None and (before.prefixes is not None) != is_broadcast:
        raise _cannot_switch("BCAST mode on/off")
    if is_broadcast and (wanted.optin or wanted.optout):
        raise CommandError("ERR OPTIN and OPTOUT are not compatible with BCAST")
    if wanted.optin and wanted.optout:
        raise CommandError("ERR You can't specify both OPTIN mode and OPTOUT mode")
    kept = before or _OFF
    if (wanted.optin and kept.optout) or (wanted.optout and kept.optin):
        raise _cannot_switch("OPTIN/OPTOUT mode")


def _cannot_switch(what: str) -> CommandError:
    return CommandError(
        f"ERR You can't switch {what} before disabling tracking for this client,"
        " and then re-enabling it with a different mode."
    )


def _check_prefixes(known: Iterable[bytes], given: tuple[bytes, ...]) -> None:
    for index, prefix in enumerate(given):
        for kind, others in (("an existing", known), ("another provided", given[index + 1 :])):
            for other in others:
                if prefix.startswith(other) or other.startswith(prefix):
                    raise CommandError(
                        f"ERR Prefix '{_text(prefix)}' overlaps with {kind} prefix '{_text(other)}'."
                        " Prefixes for a single client must not overlap."
                    )


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")


@command("CLIENT|CACHING")
def client_caching(s: Session, argv: Argv) -> Reply:
    tracking, word = s.tracking, argv[2].upper()
    if tracking is None:
        raise CommandError(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT"
            " mode enabled"
        )
    if word not in (b"YES", b"NO"):
        raise syntax_error()
    mode, is_on = ("OPTIN", tracking.optin) if word == b"YES" else ("OPTOUT", tracking.optout)
    if not is_on:
        raise CommandError(
            f"ERR CLIENT CACHING {word.decode()} is only valid when tracking is enabled in {mode} mode."
        )
    s.assign(tracking=replace(tracking, caching=True))
    return OK


@command("CLIENT|TRACKINGINFO")
def client_trackinginfo(s: Session, argv: Argv) -> Reply:
    tracking = s.tracking
    if tracking is None:
        return {b"flags": SetReply([b"off"]), b"redirect": -1, b"prefixes": []}
    states = {
        b"on": True,
        b"bcast": tracking.prefixes is not None,
        b"optin": tracking.optin,
        b"caching-yes": tracking.optin and tracking.caching,
        b"optout": tracking.optout,
        b"caching-no": tracking.optout and tracking.caching,
        b"noloop": tracking.noloop,
        b"broken_redirect": tracking.broken,
    }
    flags = SetReply(word for word, holds in states.items() if holds)
    return {b"flags": flags, b"redirect": tracking.redirect, b"prefixes": list(tracking.prefixes or ())}


@command("CLIENT|GETREDIR")
def client_getredir(s: Session, argv: Argv) -> Reply:
    return -1 if s.tracking is None else s.tracking.redirect
